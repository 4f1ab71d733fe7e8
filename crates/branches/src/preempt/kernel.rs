//! The kernel's side of preempting (`preemption.bpf.c` of the crate `bpf`): which processes are followed, and
//! the state of a preempted thread.

use corewise_bpf as bpf;
use corewise_core::ids::PeId;
use corewise_sys::proc::Proc;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, libbpf_sys};
use nix::sys::mman::{MapFlags as Sharing, ProtFlags, mmap, munmap};
use std::collections::HashSet;
use std::ffi::c_void;
use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

const XSAVE_MAX: usize = 3072;

/// `struct sample` of `preemption.bpf.c`, which documents its fields.
#[repr(C)]
struct Raw {
    preempted: Preempted,
    xsave_bytes: u64,
    xsave: Xsave,
    faulted: [u64; 22],
}

/// The saved extended state of a thread.
pub type Xsave = [u8; XSAVE_MAX];

/// What ran before on a PE.
#[expect(clippy::large_enum_variant, reason = "it is kept nowhere")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// A followed thread, which now waits.
    Followed(Preempted),
    /// A followed thread that was in the kernel.
    InKernel,
    /// Something else, or a followed thread that runs elsewhere by now.
    Other,
    /// Nothing.
    Idle,
}

/// A thread that was preempted.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preempted {
    task: u64,
    /// The time, in ns of `CLOCK_MONOTONIC`.
    pub since_ns: u64,
    run_ns: u64,
    /// Changes with each `exec`.
    pub exec_id: u64,
    fs_base: u64,
    gs_base: u64,
    registers: [u64; 21],
    /// Its id.
    pub tid: u32,
    /// Its process's id.
    pub pid: u32,
    on_cpu: u32,
    was_idle: u32,
    in_kernel: u32,
    reserved: u32,
}

impl Preempted {
    /// Returns its general registers.
    pub fn registers(&self) -> libc::user_regs_struct {
        // Both structures begin with the same registers; segment bases and selectors follow in this one.
        let mut words = [0; 27];
        words[..21].copy_from_slice(&self.registers);
        (words[21], words[22]) = (self.fs_base, self.gs_base);
        // SAFETY: the structure is 27 words, and any words are valid registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::transmute(words) };
        // Newer processors use the bits above these 16 for other things.
        registers.cs &= 0xffff;
        registers.ss &= 0xffff;
        registers
    }
}

/// The programs, attached.
pub struct Kernel {
    _links: Vec<Link>,
    _object: Object,
    processes: MapHandle,
    whole_system: MapHandle,
}

impl Kernel {
    /// Attaches them without following a process, or returns why that is impossible.
    pub fn open() -> Result<(Kernel, Slots), String> {
        let mut object = bpf::open(bpf::PREEMPTION)?;
        // SAFETY: asks for a number.
        let pes = usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1);
        for mut map in object.maps_mut().filter(|map| map.name() == "samples") {
            map.set_max_entries(pes as u32).map_err(bpf::reason)?;
        }
        let object = object.load().map_err(bpf::reason)?;
        let processes = bpf::map(&object, "processes", 1)?;
        let own = bpf::map(&object, "own_tgid", 4)?;
        own.update(&0u32.to_ne_bytes(), &std::process::id().to_ne_bytes(), MapFlags::ANY)
            .map_err(bpf::reason)?;
        let samples = bpf::map(&object, "samples", size_of::<Raw>())?;
        let program = |name: &str| {
            let program = object.progs().find(|program| program.name() == name);
            let program = program.unwrap_or_else(|| unreachable!("the BPF program has {name}"));
            program.as_fd().try_clone_to_owned().map_err(|error| error.to_string())
        };
        let (take, take_xsave) = (program("take")?, program("take_xsave")?);
        let slots = Slots::map(&samples, [take, take_xsave], pes)?;
        let links = bpf::attach(&object)?;
        let whole_system = bpf::map(&object, "whole_system", 4)?;
        Ok((Kernel { _links: links, _object: object, processes, whole_system }, slots))
    }

    /// Follows a process, and its future children.
    pub fn follow(&self, pid: u32) -> Result<(), String> {
        self.processes.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY).map_err(bpf::reason)
    }

    /// Follows a process with all its descendants, except corewise.
    pub fn follow_tree(&self, pid: u32) -> Result<(), String> {
        let proc = Proc::own();
        self.follow(pid)?;
        // Children of followed processes are followed, so a pass without new ones means that none was missed.
        let mut followed: HashSet<u32> = HashSet::new();
        loop {
            let before = followed.len();
            let all = proc.processes().map_err(|error| error.to_string())?;
            let own = [std::process::id()];
            let found = proc.descendants(&all, |known| (known == pid).then_some(()), &own);
            followed.extend(found.map_err(|error| error.to_string())?.into_keys());
            if followed.len() == before {
                return Ok(());
            }
            followed.iter().try_for_each(|&pid| self.follow(pid))?;
        }
    }

    /// Follows these processes, and their future children.
    pub fn follow_all(&self, processes: &[u32]) -> Result<(), String> {
        let own = std::process::id();
        processes.iter().filter(|pid| **pid != own).try_for_each(|&pid| self.follow(pid))
    }

    /// Follows every process.
    pub fn follow_system(&self) -> Result<(), String> {
        let (zero, yes) = (0u32.to_ne_bytes(), 1u32.to_ne_bytes());
        self.whole_system.update(&zero, &yes, MapFlags::ANY).map_err(bpf::reason)
    }

    /// Returns the number of followed processes; unknown for the whole system.
    pub fn followed(&self) -> usize {
        self.processes.keys().count()
    }
}

/// The memory where the kernel puts preempted threads: a slot for each PE.
pub struct Slots {
    memory: NonNull<c_void>,
    bytes: NonZeroUsize,
    pes: usize,
    take: OwnedFd,
    take_xsave: OwnedFd,
}

// SAFETY: the memory is only read, by volatile reads; only the kernel changes it meanwhile.
unsafe impl Sync for Slots {}

impl Slots {
    fn map(samples: &MapHandle, [take, take_xsave]: [OwnedFd; 2], pes: usize) -> Result<Slots, String> {
        let bytes = NonZeroUsize::new(size_of::<Raw>() * pes).ok_or("a machine without CPUs")?;
        let (read, shared) = (ProtFlags::PROT_READ, Sharing::MAP_SHARED);
        // SAFETY: a new mapping at a place that the kernel chooses touches nothing that exists.
        let memory = unsafe { mmap(None, bytes, read, shared, samples.as_fd(), 0) };
        Ok(Slots { memory: memory.map_err(|errno| errno.to_string())?, bytes, pes, take, take_xsave })
    }

    /// Returns what the calling thread, which is bound to this PE, has preempted there.
    pub fn take(&self, pe: PeId) -> Before {
        let (true, Some(slot)) = (run(&self.take), self.slot(pe)) else { return Before::Other };
        // SAFETY: the slot lies in the mapping; any bytes are valid numbers.
        let found = unsafe { slot.cast::<Preempted>().read_volatile() };
        match found {
            Preempted { task: 1.., on_cpu: 0, .. } => Before::Followed(found),
            Preempted { task: 0, was_idle: 1, .. } => Before::Idle,
            Preempted { task: 0, in_kernel: 1, .. } => Before::InKernel,
            _ => Before::Other,
        }
    }

    /// Copies the saved extended state of the preempted thread (XSAVE, in the kernel's format); returns its
    /// size in bytes.
    pub fn take_xsave(&self, pe: PeId, area: &mut Xsave) -> usize {
        let (true, Some(slot)) = (run(&self.take_xsave), self.slot(pe)) else { return 0 };
        // SAFETY: as in `take`.
        *area = unsafe { slot.byte_add(offset_of!(Raw, xsave)).cast::<Xsave>().read_volatile() };
        // SAFETY: as in `take`.
        let bytes = unsafe { slot.byte_add(offset_of!(Raw, xsave_bytes)).cast::<u64>().read_volatile() };
        bytes as usize
    }

    fn slot(&self, pe: PeId) -> Option<NonNull<Raw>> {
        // SAFETY: the index is below the number of slots in the mapping.
        ((pe.0 as usize) < self.pes).then(|| unsafe { self.memory.cast::<Raw>().add(pe.0 as usize) })
    }
}

/// Runs a program on this CPU; returns false if that was refused.
fn run(program: &OwnedFd) -> bool {
    // SAFETY: all zero is a valid value of these numbers and pointers.
    let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as _;
    // SAFETY: the options say their size and hold no pointers; the descriptor is a program's.
    unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) == 0 }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and what refers to it borrows `self`.
        let unmapped = unsafe { munmap(self.memory, self.bytes.get()) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_descendants_are_followed_but_not_corewise_itself() {
        let (kernel, _) = corewise_testing::or_skip!(Kernel::open(), super::super::tests::missing);
        let parent = nix::unistd::getppid().as_raw() as u32;
        kernel.follow_tree(parent).unwrap();
        let is_followed = |pid: u32| {
            kernel.processes.lookup(&pid.to_ne_bytes(), MapFlags::ANY).is_ok_and(|found| found.is_some())
        };
        assert!(is_followed(parent));
        assert!(!is_followed(std::process::id()));
        // Its future children are followed at once.
        kernel.follow(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_followed(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_followed(child.id()));
    }
}
