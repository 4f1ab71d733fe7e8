//! Follows all threads of a process tree, and stops them for samples.
//!
//! corewise seizes the threads (`PTRACE_SEIZE`), which does not stop them, and follows whatever they start.
//! Each thread has a clock of its own CPU time ([`ThreadClock`]). When the clock runs out, the thread stops
//! before its next instruction in user mode, the sampler handles it, and it continues without the signal. All
//! other signals, stops and ends pass through unchanged.
//!
//! If corewise is killed, the kernel closes the clocks and continues the threads; a thread that was stopped
//! by a clock gets a signal that does nothing.

use super::collect::Collected;
use super::event::{Periods, SIGNALS, ThreadClock, signal_for};
use super::mapped::Mapped;
use super::ptrace::{self, Status};
use super::trace::{Lengths, Limits, Trace};
use corewise_bpf::monotonic_ns;
use corewise_code::AddressSpace;
use corewise_sys::proc::Proc;
use nix::errno::Errno;
use rustc_hash::{FxHashMap, FxHashSet};
use std::process::ExitStatus;
use std::time::Instant;

/// A thread has made another.
const BIRTHS: [i32; 3] = [libc::PTRACE_EVENT_CLONE, libc::PTRACE_EVENT_FORK, libc::PTRACE_EVENT_VFORK];
/// Code segment of 64-bit user code.
const USER_64_BIT: u64 = 0x33;
/// The kernel's internal error numbers that make it restart a system call.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

/// A stopped thread.
pub struct Stopped<'a> {
    /// Its id.
    pub tid: i32,
    /// Its process's id.
    pub pid: i32,
    /// The code mappings of its process.
    pub space: &'a AddressSpace,
    /// Its registers.
    pub registers: libc::user_regs_struct,
}

/// Records windows of stopped threads.
pub trait Sampler {
    /// Records a window. Returns a status that came up meanwhile, if any: the thread has not continued from
    /// it.
    fn sample(
        &mut self,
        thread: &Stopped<'_>,
        limits: &Limits,
        trace: &mut Trace,
    ) -> Result<Option<Status>, Errno>;

    /// Prepares in advance, now that the thread runs again.
    fn prepare(&mut self, _pid: i32, _space: &AddressSpace, _trace: &Trace) {}
}

struct Thread {
    pid: i32,
    /// `None` if it ended before it got one, or none was available.
    clock: Option<ThreadClock>,
}

struct Process {
    threads: usize,
    signal: i32,
    mapped: Option<Mapped>,
}

/// Everything that is followed.
pub struct Tracer<'a> {
    threads: FxHashMap<i32, Thread>,
    /// Made by followed threads, but not reported yet.
    expected: FxHashSet<i32>,
    processes: FxHashMap<i32, Process>,
    sampler: &'a mut dyn Sampler,
    lengths: Lengths,
    periods: Periods,
    trace: Trace,
    /// The latest reason why a thread could not be given a clock.
    refused: Option<Errno>,
    /// A thread that was stopped with its process, and the signal.
    pub stopped: Option<(i32, i32)>,
    /// The recording.
    pub collected: Collected,
}

/// The result of an event, for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Nothing of note, or a signal to corewise interrupted the waiting.
    None,
    /// A thread or process ended, with its process's status.
    Ended(i32, ExitStatus),
    /// Nothing is left to follow.
    NoneLeft,
}

impl<'a> Tracer<'a> {
    /// Makes a tracer that follows nothing.
    pub fn new(sampler: &'a mut dyn Sampler, lengths: Lengths, periods: Periods) -> Tracer<'a> {
        Tracer {
            threads: FxHashMap::default(),
            expected: FxHashSet::default(),
            processes: FxHashMap::default(),
            sampler,
            lengths,
            periods,
            trace: Trace::default(),
            refused: None,
            stopped: None,
            collected: Collected::default(),
        }
    }

    /// Returns why a thread has no clock, if one has none for another reason than that it ended.
    pub fn refused(&self) -> Option<Errno> {
        self.refused
    }

    /// Returns the number of followed threads.
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Returns the number of followed processes.
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// Attaches to all threads of a process and of its descendants.
    pub fn attach(&mut self, pid: i32) -> Result<(), Errno> {
        let mut found = true;
        while found {
            found = false;
            for tid in threads_of(pid) {
                if self.threads.contains_key(&tid) {
                    continue;
                }
                match ptrace::seize(tid) {
                    Ok(()) => {
                        found = true;
                        self.add(tid, pid);
                    }
                    // It ended, or a followed thread has just made it, and it will be reported.
                    Err(Errno::ESRCH) => {}
                    Err(Errno::EPERM) if tid != pid && self.threads.contains_key(&pid) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        if !self.threads.contains_key(&pid) {
            return Err(Errno::ESRCH);
        }
        for child in Proc::own().children(pid as u32).unwrap_or_default() {
            // One that ended meanwhile, or belongs to another user, is no reason to give up.
            let _ = self.attach(child as i32);
        }
        Ok(())
    }

    /// Adds a child that is about to execute its command, without a clock until then.
    pub fn attach_child(&mut self, pid: i32) -> Result<(), Errno> {
        ptrace::seize(pid)?;
        self.threads.insert(pid, Thread { pid, clock: None });
        self.processes.insert(pid, Process { threads: 1, signal: SIGNALS[0], mapped: None });
        Ok(())
    }

    /// Waits for one event and handles it.
    pub fn wait(&mut self) -> Result<News, Errno> {
        let (tid, status) = match ptrace::wait_any() {
            Ok(news) => news,
            Err(Errno::EINTR) => return Ok(News::None),
            Err(Errno::ECHILD) => return Ok(News::NoneLeft),
            Err(errno) => return Err(errno),
        };
        if let Status::Ended(status) = status {
            self.remove(tid);
            return Ok(News::Ended(tid, status));
        }
        match self.act(tid, status) {
            // It was killed while it was stopped; its end will be reported.
            Ok(()) | Err(Errno::ESRCH) => Ok(News::None),
            Err(errno) => Err(errno),
        }
    }

    fn act(&mut self, tid: i32, status: Status) -> Result<(), Errno> {
        if !self.threads.contains_key(&tid) {
            self.expected.remove(&tid);
            let pid = process_of(tid).ok_or(Errno::ESRCH)?;
            self.add(tid, pid);
        }
        match status {
            Status::Ended(_) => Ok(()),
            Status::Signal(signal) if SIGNALS.contains(&signal) && self.is_of_clock(tid)? => self.sample(tid),
            Status::Signal(signal) => ptrace::go_on(tid, signal),
            Status::Event(libc::PTRACE_EVENT_EXEC, _) => {
                self.executed(tid)?;
                ptrace::go_on(tid, 0)
            }
            Status::Event(event, _) if BIRTHS.contains(&event) => {
                let child = ptrace::message(tid)?;
                if !self.threads.contains_key(&child) {
                    self.expected.insert(child);
                }
                ptrace::go_on(tid, 0)
            }
            Status::Event(libc::PTRACE_EVENT_STOP, signal) if signal != libc::SIGTRAP => {
                self.stopped = Some((tid, signal));
                ptrace::listen(tid)
            }
            Status::Event(..) => ptrace::go_on(tid, 0),
        }
    }

    fn is_of_clock(&self, tid: i32) -> Result<bool, Errno> {
        let descriptor = ptrace::signal_descriptor(tid)?;
        let clock = self.threads.get(&tid).and_then(|thread| thread.clock.as_ref());
        Ok(descriptor.is_some() && descriptor == clock.map(ThreadClock::descriptor))
    }

    fn add(&mut self, tid: i32, pid: i32) {
        let process = self.processes.entry(pid).or_insert_with(|| {
            let status = Proc::own().status(pid as u32).ok().flatten().unwrap_or_default();
            Process { threads: 0, signal: signal_for(&status), mapped: None }
        });
        process.threads += 1;
        let clock = ThreadClock::open(tid, process.signal, self.periods.next());
        if let Err(errno) = clock
            && errno != Errno::ESRCH
        {
            self.refused = Some(errno);
        }
        self.threads.insert(tid, Thread { pid, clock: clock.ok() });
    }

    fn remove(&mut self, tid: i32) {
        self.expected.remove(&tid);
        let Some(thread) = self.threads.remove(&tid) else { return };
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.threads -= 1;
            if process.threads == 0 {
                self.processes.remove(&thread.pid);
            }
        }
    }

    /// Handles that a process has become another program: it has one thread now, which has the process's id.
    fn executed(&mut self, pid: i32) -> Result<(), Errno> {
        let before = ptrace::message(pid)?;
        self.remove(before);
        self.remove(pid);
        self.processes.remove(&pid);
        self.threads.retain(|_, thread| thread.pid != pid);
        self.add(pid, pid);
        Ok(())
    }

    fn sample(&mut self, tid: i32) -> Result<(), Errno> {
        let begin = Instant::now();
        let registers = ptrace::registers(tid)?;
        let thread = &self.threads[&tid];
        let pid = thread.pid;
        let process = self.processes.get_mut(&pid).ok_or(Errno::ESRCH)?;
        let refusal = not_emulated(&registers);
        let mapped = process.mapped.get_or_insert_with(|| Mapped::of(pid as u32));
        let space = mapped.space();
        let mut left = None;
        if refusal.is_none() {
            let stopped = Stopped { tid, pid, space: &space, registers };
            let limits = self.lengths.draw();
            left = self.sampler.sample(&stopped, &limits, &mut self.trace)?;
        }
        self.collected.pauses.add(begin.elapsed());
        if left.is_none() {
            ptrace::go_on(tid, 0)?;
        }
        if let Some(clock) = &thread.clock {
            // Not before, because the kernel would have to wake the thread's PE for it alone. It can fail
            // only because of a bug; then the old period stays.
            let _ = clock.set_period(self.periods.next());
        }
        match refusal {
            Some(reason) => self.collected.without_window(reason),
            None => {
                self.collected.add((tid as u32, pid as u32, monotonic_ns()), &space, &self.trace);
                self.sampler.prepare(pid, &space, &self.trace);
                mapped.keep_up(pid as u32, &self.trace);
            }
        }
        left.map_or(Ok(()), |status| self.act(tid, status))
    }

    /// Attaches to what followed processes have started without their tracer's knowledge (`CLONE_UNTRACED`).
    pub fn follow_untraced(&mut self) {
        let processes: Vec<i32> = self.processes.keys().copied().collect();
        for pid in processes {
            // What has just been started and will be reported cannot be attached once more.
            let _ = self.attach(pid);
        }
    }

    /// Checks whether processes now handle the signal of their clocks, and then uses another.
    pub fn check_signals(&mut self) {
        for (&pid, process) in &mut self.processes {
            let Ok(Some(status)) = Proc::own().status(pid as u32) else { continue };
            let signal = signal_for(&status);
            if signal != process.signal {
                process.signal = signal;
                for thread in self.threads.values().filter(|thread| thread.pid == pid) {
                    // Until it succeeds, the old signal is distinguished from the program's own by its
                    // origin.
                    let _ = thread.clock.as_ref().map(|clock| clock.set_signal(signal));
                }
            }
        }
    }

    /// Detaches from everything as if it had never been followed. Returns what ended meanwhile, with its
    /// status.
    pub fn detach(&mut self) -> Vec<(i32, ExitStatus)> {
        let clocks: Vec<ThreadClock> =
            self.threads.values_mut().filter_map(|thread| thread.clock.take()).collect();
        let ours: Vec<i32> = clocks.iter().map(ThreadClock::descriptor).collect();
        let mut left: Vec<i32> = self.threads.keys().copied().chain(self.expected.drain()).collect();
        let mut ended = Vec::new();
        while let Some(tid) = left.pop() {
            // Stopped or not, it stops now; one that is gone need not be detached, but its end must be
            // received.
            let _ = ptrace::interrupt(tid);
            let Ok(status) = ptrace::wait(tid) else { continue };
            let signal = match status {
                Status::Ended(status) => {
                    ended.push((tid, status));
                    continue;
                }
                Status::Signal(signal) if SIGNALS.contains(&signal) => {
                    let origin = ptrace::signal_descriptor(tid).ok().flatten();
                    if origin.is_some_and(|origin| ours.contains(&origin)) { 0 } else { signal }
                }
                Status::Signal(signal) => signal,
                Status::Event(event, _) => {
                    if BIRTHS.contains(&event) {
                        left.extend(ptrace::message(tid).ok());
                    }
                    0
                }
            };
            // It may have been killed meanwhile.
            let _ = ptrace::detach(tid, signal);
        }
        self.threads.clear();
        self.processes.clear();
        ended
    }
}

fn threads_of(pid: i32) -> Vec<i32> {
    let threads = Proc::own().threads(pid as u32).ok().flatten().unwrap_or_default();
    threads.into_iter().map(|tid| tid as i32).collect()
}

fn process_of(tid: i32) -> Option<i32> {
    Some(Proc::own().status(tid as u32).ok()??.process()? as i32)
}

/// Returns why a thread with these registers cannot be emulated, if so.
pub(super) fn not_emulated(registers: &libc::user_regs_struct) -> Option<&'static str> {
    if registers.cs != USER_64_BIT {
        return Some("32-bit code");
    }
    let in_system_call = registers.orig_rax as i64 >= 0 && RESTARTS.contains(&(registers.rax as i64));
    in_system_call.then_some("in the kernel")
}
