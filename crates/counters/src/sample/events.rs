//! The kernel's side of sampling: `cpu-clock` events, and the records they leave in ring buffers.
//!
//! Two ways, with the same records. With the rights for it, each PE has one clock for whatever runs there,
//! and a BPF program lets pass only the samples of followed threads ([`Filter`]); that costs nothing at a
//! switch, a fork or an exit. Else the child and all its descendants inherit events of their own, whose
//! timers the kernel arms and stops at every switch.
//!
//! The records of mappings, names, forks and exits that a PE's clock leaves are those of all processes; the
//! reader drops those of strangers (`Events::of_all`).

use corewise_code::{Backing, FileKey, Mapping};
use corewise_core::cpuset::CpuSet;
use corewise_sys::proc::{Proc, ProcError};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use perf_event_open_sys::bindings;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// Largest ring buffer per PE: 1 s of 1,000 samples/s and the mappings of a large build fit.
const RING_BYTES_MAX: usize = 512 << 10;
const RING_BYTES_MIN: usize = 16 << 10;

/// How often threads are looked for that were created while others were attached: each time by one that was
/// not yet attached, so that hardly any is found in the third round.
const ROUNDS_MAX: usize = 8;

/// Something that the kernel recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What happened.
    pub kind: EventKind,
}

/// See [`Event`].
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// The clock ticked while the thread ran.
    Sample {
        /// The next instruction to execute.
        ip: u64,
        /// Whether it is the kernel's.
        kernel: bool,
        /// The PE.
        pe: u32,
        /// Where the thread stands, if the kernel tells.
        snapshot: Option<Box<Snapshot>>,
    },
    /// The process mapped executable memory.
    Map(Mapping),
    /// The thread was given a name.
    Name {
        /// The name.
        name: Arc<str>,
        /// Whether it is that of another program that the process executed.
        by_exec: bool,
    },
    /// The thread was created by another.
    Fork {
        /// The creator's process.
        parent: u32,
        /// The creator.
        creator: u32,
    },
    /// The thread ended.
    Exit,
    /// Records were lost: the ring was full.
    Lost(u64),
}

/// Bytes of a thread's stack that are recorded with a sample: the frames of most functions that soon return.
#[cfg(target_arch = "x86_64")]
const STACK_BYTES: u32 = 256;

/// The kernel's numbers (`asm/perf_regs.h`) of the general registers, in the order of their encoding, and how
/// many words lie before each in a record: the kernel writes registers by its own numbers.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u64; 16] = [0, 2, 3, 1, 7, 6, 4, 5, 16, 17, 18, 19, 20, 21, 22, 23];

/// A thread's registers and the top of its stack at a sample, on x86-64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// General registers by number.
    pub registers: [u64; 16],
    /// What lies from the stack pointer on, in words.
    pub stack: Vec<u64>,
}

impl Snapshot {
    /// The stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.registers[4]
    }

    /// The instruction behind the system call that the thread is in, if it is in one: until the kernel has
    /// its answer, that stands as unknown (`-ENOSYS`).
    pub fn in_system_call(&self) -> Option<u64> {
        const RAX: usize = 0;
        const RCX: usize = 1;
        (self.registers[RAX] as i64 == -i64::from(libc::ENOSYS)).then_some(self.registers[RCX])
    }

    /// The frame pointer, where the register is used as one.
    pub fn frame_pointer(&self) -> u64 {
        self.registers[5]
    }

    /// The word on the stack at an address.
    pub fn word(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.stack_pointer()).filter(|within| within % 8 == 0)?;
        self.stack.get(usize::try_from(within / 8).ok()?).copied()
    }

    /// What a sample's record has behind its fixed fields: the registers' ABI and the registers if it is
    /// not 0; the length of the stack's part, and that and the length filled if it is not 0.
    #[cfg(target_arch = "x86_64")]
    fn of(bytes: &[u8]) -> Option<Snapshot> {
        const ABI_64: u64 = 2;
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        if word(0)? != ABI_64 {
            return None;
        }
        let mut registers = [0; 16];
        for (register, number) in registers.iter_mut().zip(REGISTERS) {
            *register = word(1 + REGISTERS.iter().filter(|&&other| other < number).count())?;
        }
        let words = word(17)? as usize / 8;
        let filled = if words > 0 { (word(18 + words)? as usize / 8).min(words) } else { 0 };
        Some(Snapshot { registers, stack: (18..18 + filled).map_while(word).collect() })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(_: &[u8]) -> Option<Snapshot> {
        None
    }
}

/// Why sampling cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The event was refused.
    #[error(
        "cpu-clock event of {target} on PE {pe} refused: {source}; kernel.perf_event_paranoid of 2 or less \
         or CAP_PERFMON would permit it"
    )]
    Open {
        /// What was to be sampled.
        target: Target,
        /// The PE.
        pe: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// The process cannot be looked at.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// What the process has mapped cannot be looked at.
    #[error("cannot read what process {pid} has mapped: {source}")]
    Maps {
        /// The process.
        pid: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// Wake-ups cannot be waited for.
    #[error("cannot wait for the ring buffers: {0}")]
    Wakeups(io::Error),
    /// No ring buffer, not even a small one.
    #[error("no ring buffer of {bytes} bytes for PE {pe}: {source}")]
    Ring {
        /// The smallest size tried.
        bytes: usize,
        /// The PE.
        pe: u32,
        /// The system's answer.
        source: io::Error,
    },
}

/// What to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A thread and all that it creates, from the next program on that it executes.
    FromExec(u32),
    /// A thread and all that it creates, at once.
    AtOnce(u32),
    /// The same, with where it stands.
    WithSnapshots(u32),
    /// Whatever the BPF program with this descriptor lets pass.
    Filtered(RawFd),
}

/// A loaded BPF program that lets the clock's samples of followed threads pass.
pub type Filter<'a> = BorrowedFd<'a>;

/// Clocks with a ring buffer each.
pub struct Events {
    samplers: Vec<Sampler>,
    /// Tells of each wake-up once: a ring of threads that have all ended stays "hung up" for ever.
    wakeups: Epoll,
    /// Samples per second of CPU time.
    pub rate_hz: u64,
    /// Whether samples in the kernel are recorded, too.
    pub with_kernel: bool,
    /// Whether records other than samples are those of all processes of the machine.
    pub of_all: bool,
}

impl Events {
    /// Opens the clocks on a process that has not yet executed its program; it is sampled from then on.
    /// With a filter it is one per PE, for all that the filter lets pass.
    pub fn open(
        pid: u32,
        pes: &CpuSet,
        rate_hz: u64,
        filter: Option<Filter<'_>>,
    ) -> Result<Events, SampleError> {
        if let Some(events) = filter.and_then(|filter| Events::filtered(filter, pes, rate_hz).ok()) {
            return Ok(events);
        }
        let mut events = Events::none(rate_hz)?;
        events.open_all(Target::FromExec(pid), pes, RING_BYTES_MAX)?;
        Ok(events)
    }

    fn filtered(filter: Filter<'_>, pes: &CpuSet, rate_hz: u64) -> Result<Events, SampleError> {
        let mut events = Events { of_all: true, ..Events::none(rate_hz)? };
        events.open_all(Target::Filtered(filter.as_raw_fd()), pes, RING_BYTES_MAX)?;
        Ok(events)
    }

    /// Opens the events on every thread of running processes; they begin at once. Without a filter each
    /// thread needs rings of its own, so these are small.
    pub fn attach(
        pids: &[u32],
        pes: &CpuSet,
        rate_hz: u64,
        filter: Option<Filter<'_>>,
    ) -> Result<Events, SampleError> {
        if let Some(events) = filter.and_then(|filter| Events::filtered(filter, pes, rate_hz).ok()) {
            return Ok(events);
        }
        Events::attach_each(pids, pes, rate_hz, Target::AtOnce)
    }

    /// The same, with a snapshot of the thread at each sample. The rings have to be emptied every few
    /// milliseconds then.
    pub fn attach_with_snapshots(pids: &[u32], pes: &CpuSet, rate_hz: u64) -> Result<Events, SampleError> {
        Events::attach_each(pids, pes, rate_hz, Target::WithSnapshots)
    }

    fn attach_each(
        pids: &[u32],
        pes: &CpuSet,
        rate_hz: u64,
        target: fn(u32) -> Target,
    ) -> Result<Events, SampleError> {
        let mut events = Events::none(rate_hz)?;
        let mut known = BTreeSet::new();
        // A thread that is created meanwhile inherits from its creator or is found in the next round.
        for _ in 0..ROUNDS_MAX {
            let mut new = Vec::new();
            for &pid in pids {
                new.extend(tasks(pid)?.into_iter().filter(|&tid| known.insert(tid)));
            }
            if new.is_empty() {
                break;
            }
            for tid in new {
                match events.open_all(target(tid), pes, RING_BYTES_MIN) {
                    Err(SampleError::Open { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                    opened => opened?,
                }
            }
        }
        Ok(events)
    }

    fn none(rate_hz: u64) -> Result<Events, SampleError> {
        let wakeups = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(SampleError::wakeups)?;
        Ok(Events { samplers: Vec::new(), wakeups, rate_hz, with_kernel: true, of_all: false })
    }

    fn open_all(&mut self, target: Target, pes: &CpuSet, mut ring_bytes: usize) -> Result<(), SampleError> {
        for pe in pes.iter().map(|pe| pe.0) {
            let sampler = self.open_one(target, pe, &mut ring_bytes)?;
            // SAFETY: the sampler owns the descriptor and lives longer than the borrow.
            let descriptor = unsafe { BorrowedFd::borrow_raw(sampler.as_raw_fd()) };
            let once = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
            self.wakeups.add(descriptor, once).map_err(SampleError::wakeups)?;
            self.samplers.push(sampler);
        }
        Ok(())
    }

    /// Asks for less until it is granted: user code only (`perf_event_paranoid` 2 for ordinary users), then a
    /// smaller ring (`perf_event_mlock_kb`).
    fn open_one(&mut self, target: Target, pe: u32, ring_bytes: &mut usize) -> Result<Sampler, SampleError> {
        loop {
            let mut builder = builder(target, pe, self.rate_hz, *ring_bytes);
            let opened = builder.exclude_kernel(!self.with_kernel).build().and_then(|mut counter| {
                if let Target::Filtered(filter) = target {
                    counter.set_bpf(filter)?;
                    counter.enable()?;
                }
                Ok(counter)
            });
            let counter = match opened {
                Ok(counter) => counter,
                Err(error) if self.with_kernel && error.kind() == io::ErrorKind::PermissionDenied => {
                    self.with_kernel = false;
                    continue;
                }
                Err(source) => return Err(SampleError::Open { target, pe, source }),
            };
            match counter.sampled(*ring_bytes) {
                Ok(sampler) => return Ok(sampler),
                Err(_) if *ring_bytes > RING_BYTES_MIN => *ring_bytes /= 2,
                Err(source) => return Err(SampleError::Ring { bytes: *ring_bytes, pe, source }),
            }
        }
    }

    /// A descriptor that becomes readable when a ring is half full.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wakeups.0.as_fd()
    }

    /// Takes all records out of the rings, in no order between PEs.
    pub fn drain(&mut self, mut take: impl FnMut(Event)) {
        let mut ready = [EpollEvent::empty(); 64];
        // Which ring woke us does not matter, as all are read.
        while self.wakeups.wait(&mut ready, EpollTimeout::ZERO) == Ok(ready.len()) {}
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                event_of(record.ty(), record.misc(), &record.to_contiguous()).into_iter().for_each(&mut take);
            }
        }
    }
}

impl SampleError {
    fn wakeups(errno: Errno) -> SampleError {
        SampleError::Wakeups(errno.into())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::FromExec(tid) | Target::AtOnce(tid) | Target::WithSnapshots(tid) => {
                write!(f, "thread {tid}")
            }
            Target::Filtered(_) => write!(f, "all threads"),
        }
    }
}

/// The threads of a running process; none if it has ended.
pub(super) fn tasks(pid: u32) -> Result<Vec<u32>, SampleError> {
    Ok(Proc::own().threads(pid)?.unwrap_or_default())
}

fn builder<'a>(target: Target, pe: u32, rate_hz: u64, ring_bytes: usize) -> Builder<'a> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    match target {
        Target::FromExec(tid) => {
            builder.observe_pid(tid as i32).inherit(true).enabled(false).enable_on_exec(true)
        }
        Target::AtOnce(tid) | Target::WithSnapshots(tid) => {
            builder.observe_pid(tid as i32).inherit(true).enabled(true)
        }
        // Enabled when it has its filter.
        Target::Filtered(_) => builder.any_pid().enabled(false).exclude_idle(true),
    };
    let sample = SampleFlag::IP | SampleFlag::TID | SampleFlag::TIME | SampleFlag::CPU;
    // The small rings of running threads would soon be full.
    #[cfg(target_arch = "x86_64")]
    let sample = if matches!(target, Target::AtOnce(_)) {
        sample
    } else {
        builder.sample_regs_user(REGISTERS.iter().fold(0, |mask, number| mask | 1 << number));
        builder.sample_stack_user(STACK_BYTES);
        sample | SampleFlag::REGS_USER | SampleFlag::STACK_USER
    };
    builder
        .one_cpu(pe as usize)
        .sample_frequency(rate_hz)
        .sample(sample)
        .sample_id_all(true)
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(ring_bytes / 2)
        // `mmap` asks for executable mappings, `mmap2` for their inodes.
        .mmap(true)
        .mmap2(true)
        .comm(true)
        .comm_exec(true)
        .task(true);
    builder
}

/// The record of one type, less its header. Layout: `perf_event_open(2)`, "struct perf_event_header"; the
/// fields of [`builder`]'s sample type, also at the end of every record that is no sample. `None` for other
/// types.
fn event_of(record_type: u32, misc: u16, bytes: &[u8]) -> Option<Event> {
    const CPU_MODE: u16 = 7;
    const KERNEL: u16 = 1;
    const COMM_EXEC: u16 = 1 << 13;
    let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if record_type == bindings::PERF_RECORD_SAMPLE {
        // ip, pid, tid, time, cpu, reserved.
        let kernel = misc & CPU_MODE == KERNEL;
        let snapshot = bytes.get(32..).and_then(Snapshot::of).map(Box::new);
        let kind = EventKind::Sample { ip: u64_at(0)?, kernel, pe: u32_at(24)?, snapshot };
        return Some(Event { pid: u32_at(8)?, tid: u32_at(12)?, time: u64_at(16)?, kind });
    }
    // The end of the others: pid, tid, time, cpu, reserved.
    let time = u64_at(bytes.len().checked_sub(16)?)?;
    let event = |tid_at, kind| Some(Event { time, pid: u32_at(0)?, tid: u32_at(tid_at)?, kind });
    match record_type {
        bindings::PERF_RECORD_MMAP2 => {
            // pid, tid, addr, len, pgoff, maj, min, ino, ino_generation, prot, flags, filename.
            let device = (u32_at(32)?, u32_at(36)?);
            let key = FileKey { device, inode: u64_at(40)?, generation: u64_at(48)? };
            let path = CStr::from_bytes_until_nul(bytes.get(64..)?).ok()?.to_string_lossy();
            let (start, length, offset) = (u64_at(8)?, u64_at(16)?, u64_at(24)?);
            let backing = Backing::of(key, &path);
            event(4, EventKind::Map(Mapping { start, end: start.checked_add(length)?, offset, backing }))
        }
        // pid, tid, comm.
        bindings::PERF_RECORD_COMM => {
            let name = CStr::from_bytes_until_nul(bytes.get(8..)?).ok()?.to_string_lossy().into();
            event(4, EventKind::Name { name, by_exec: misc & COMM_EXEC != 0 })
        }
        // pid, ppid, tid, ptid, time.
        bindings::PERF_RECORD_FORK => event(8, EventKind::Fork { parent: u32_at(4)?, creator: u32_at(12)? }),
        bindings::PERF_RECORD_EXIT => event(8, EventKind::Exit),
        // id, lost.
        bindings::PERF_RECORD_LOST => event(0, EventKind::Lost(u64_at(8)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Concatenates 32-bit (`d`) and 64-bit (`q`) fields as the kernel lays them out.
    fn record(d: &[u32], q: &[u64], rest: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = d.iter().flat_map(|field| field.to_ne_bytes()).collect();
        bytes.extend(q.iter().flat_map(|field| field.to_ne_bytes()));
        bytes.extend(rest);
        bytes
    }

    /// What ends each record but a sample: pid 7, tid 8, a time, PE 3.
    fn trailer(time: u64) -> Vec<u8> {
        [record(&[7, 8], &[time], &[]), record(&[3, 0], &[], &[])].concat()
    }

    #[test]
    fn records_are_understood() {
        let sample =
            [record(&[], &[0x1234], &[]), record(&[7, 8], &[99], &[]), record(&[3, 0], &[], &[])].concat();
        for (misc, kernel) in [(1, true), (2, false)] {
            let kind = EventKind::Sample { ip: 0x1234, kernel, pe: 3, snapshot: None };
            let expected = Event { time: 99, pid: 7, tid: 8, kind };
            assert_eq!(event_of(bindings::PERF_RECORD_SAMPLE, misc, &sample), Some(expected));
        }

        if cfg!(target_arch = "x86_64") {
            // ax, bx, cx, dx, si, di, bp, sp, and r8 to r15.
            let registers: Vec<u64> = [1, 2, 3, 4, 5, 6, 7, 0x8000].into_iter().chain(20..28).collect();
            let stack = record(&[], &[16, 0xaa, 0xbb, 8], &[]);
            let snapshot =
                [sample.clone(), record(&[], &[2], &[]), record(&[], &registers, &[]), stack].concat();
            let Some(Event { kind: EventKind::Sample { snapshot: Some(snapshot), .. }, .. }) =
                event_of(bindings::PERF_RECORD_SAMPLE, 2, &snapshot)
            else {
                panic!("a sample with registers");
            };
            let expected = [1, 3, 4, 2, 0x8000, 7, 5, 6, 20, 21, 22, 23, 24, 25, 26, 27];
            assert_eq!(snapshot.registers, expected);
            assert_eq!(
                (snapshot.word(0x8000), snapshot.word(0x8008)),
                (Some(0xaa), None),
                "8 of 16 bytes were there"
            );
        }

        let map = [
            record(&[5, 6], &[0x1000, 0x2000, 0x3000], &[]),
            record(&[8, 1], &[42, 2], &[]),
            record(&[5, 2], &[], b"/bin/a b\0\0\0\0\0\0\0\0"),
            trailer(100),
        ]
        .concat();
        let key = FileKey { device: (8, 1), inode: 42, generation: 2 };
        let backing = Backing::File(key, "/bin/a b".into());
        let mapping = Mapping { start: 0x1000, end: 0x3000, offset: 0x3000, backing };
        let expected = Event { time: 100, pid: 5, tid: 6, kind: EventKind::Map(mapping) };
        assert_eq!(event_of(bindings::PERF_RECORD_MMAP2, 0, &map), Some(expected));

        let task = [record(&[20, 10, 21, 11], &[55], &[]), trailer(55)].concat();
        let kind = EventKind::Fork { parent: 10, creator: 11 };
        let fork = Event { time: 55, pid: 20, tid: 21, kind };
        assert_eq!(event_of(bindings::PERF_RECORD_FORK, 0, &task), Some(fork.clone()));
        let exit = Event { kind: EventKind::Exit, ..fork };
        assert_eq!(event_of(bindings::PERF_RECORD_EXIT, 0, &task), Some(exit));

        let comm = [record(&[7, 8], &[], b"name\0\0\0\0"), trailer(60)].concat();
        for (misc, by_exec) in [(1 << 13, true), (0, false)] {
            let kind = EventKind::Name { name: "name".into(), by_exec };
            let named = Event { time: 60, pid: 7, tid: 8, kind };
            assert_eq!(event_of(bindings::PERF_RECORD_COMM, misc, &comm), Some(named));
        }

        let lost = [record(&[], &[1, 17], &[]), trailer(70)].concat();
        let lost = event_of(bindings::PERF_RECORD_LOST, 0, &lost).unwrap();
        assert_eq!(lost.kind, EventKind::Lost(17));
    }

    #[test]
    fn a_truncated_record_is_no_event() {
        for record_type in 0..20 {
            assert_eq!(event_of(record_type, 0, &[0; 12]), None);
        }
    }
}
