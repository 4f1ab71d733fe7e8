//! How long the threads of processes run, and how long they wait for a PE.
//!
//! Problem: where programs share PEs, a thread that is ready to run waits for one. Whether that costs
//! anything, and what to do about it, is decided in [`corewise_core::waits`]. Approach: the scheduler adds up
//! for each thread how long it ran and how long it waited (`schedstat`). These times are added up for every
//! process with several threads, when it may matter ([`Looks`]). What a quota of a control group took
//! ([`Throttling`]) gives nobody else a PE, and what corewise itself took, most of it at the start, is not
//! what others need; both are left out of the waiting time. How idle the PEs of a process are is read only
//! while its waits are changed.
//!
//! Limits: the kernel reports the waiting time of a thread when its wait is over. A process with thousands of
//! threads is read less often, so that reading costs no more than [`COST_MAX`] in the long run.

mod process;

use corewise_core::ids::{PeId, ThreadId};
use corewise_core::observe::{IdleWaits, ProcessReading};
use corewise_core::time::Time;
use corewise_core::waits::looks::{IDLE_EVERY, Look, Looks};
use corewise_discovery::NewThread;
use corewise_sys::allowance::Allowance;
use corewise_sys::clock::own_cpu_time;
#[cfg(doc)]
use corewise_sys::limits::Throttling;
use corewise_sys::proc::Proc;
use corewise_sys::proc::pe_times::PeTimes;
use process::Process;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The share of a PE that reading may cost in the long run.
pub const COST_MAX: f64 = 0.002;

/// The files of this many threads are kept open at most, as descriptors are few.
const KEPT_OPEN_MAX: usize = 256;

/// What one reading shows of a process with several threads.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Its times so far.
    pub reading: ProcessReading,
    /// Its threads; 0 if the process is gone.
    pub threads: usize,
    /// The share of the time since the last reading in which its threads wanted a PE but waited for it, 0..1.
    pub waiting_share: f64,
    /// Whether it is to be reported.
    pub is_reported: bool,
}

/// Reads how long the threads of processes run and wait; see the module documentation.
#[derive(Debug)]
pub struct DelayMeter {
    proc: Proc,
    /// The start of the time that readings have.
    began: Instant,
    processes: BTreeMap<u32, Process>,
    kept_open: usize,
    looks: Looks,
    /// When the next reading is due.
    due: Instant,
    /// The times of all PEs when they were last read, while waits are changed.
    pe_times: Option<(Instant, BTreeMap<PeId, PeTimes>)>,
    /// The CPU time that readings may take.
    allowance: Allowance,
}

impl DelayMeter {
    /// Creates a meter without processes. Its readings have the time since `began`.
    pub fn new(began: Instant) -> DelayMeter {
        let now = Instant::now();
        DelayMeter {
            proc: Proc::own(),
            began,
            processes: BTreeMap::new(),
            kept_open: 0,
            looks: Looks::new(Time(0) + now.duration_since(began)),
            due: now,
            pe_times: None,
            allowance: Allowance::new(COST_MAX),
        }
    }

    fn now(&self) -> Time {
        Time(0) + self.began.elapsed()
    }

    /// Registers a thread.
    pub fn watch(&mut self, thread: &NewThread) {
        let leads = thread.tid == thread.pid;
        let leader = ThreadId { tid: thread.pid, generation: if leads { thread.generation } else { 0 } };
        let process = self.processes.entry(thread.pid).or_insert_with(|| Process::new(leader));
        if leads {
            process.set_leader(leader);
        }
        let keep = self.kept_open < KEPT_OPEN_MAX;
        if process.watch(&self.proc, thread.tid, keep) {
            self.kept_open += usize::from(keep);
        }
        if process.threads() == 2 {
            process.begin_team();
            let now = self.now();
            self.looks.note_team(now);
            self.due = self.due.min(Instant::now() + self.looks.take(now, &[]));
        }
    }

    /// Takes note that a thread has ended. The kernel shows the times of a process until its parent waits for
    /// it; they must not be reported any more.
    pub fn forget(&mut self, thread: ThreadId) {
        let Some(process) = self.processes.get_mut(&thread.tid).filter(|known| known.is(thread)) else {
            return;
        };
        process.is_over = true;
        if process.threads() < 2 {
            self.kept_open -= process.kept_open();
            self.processes.remove(&thread.tid);
        }
    }

    /// Returns how many threads of a process are read.
    pub fn threads(&self, pid: u32) -> usize {
        self.processes.get(&pid).map_or(0, Process::threads)
    }

    /// Reads a process no more. Returns its first thread if it was read.
    pub fn leave(&mut self, pid: u32) -> Option<ThreadId> {
        let process = self.processes.remove(&pid)?;
        self.kept_open -= process.kept_open();
        Some(process.leader())
    }

    /// Takes note of how the idle threads of a process wait, and whether that was changed.
    pub fn set_waits(&mut self, pid: u32, waits: IdleWaits, are_changed: bool) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.set_waits(waits, are_changed);
        }
    }

    /// Returns whether a process has several threads.
    pub fn has_teams(&self) -> bool {
        self.teams().next().is_some()
    }

    fn teams(&self) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(|process| process.threads() > 1)
    }

    /// Returns whether the threads of all processes with several yield while they spin, so that every
    /// interruption may harm them.
    pub fn is_any_interruption_harmful(&self) -> bool {
        self.has_teams() && self.teams().all(|process| process.waits.only_yields())
    }

    /// Returns the last reading of each process that was read.
    pub fn last(&self) -> impl Iterator<Item = ProcessReading> {
        self.teams().filter(|process| !process.is_over).filter_map(|process| process.last)
    }

    /// Returns the time until the next reading is due; `None` while no process has several threads.
    pub fn due_within(&self) -> Option<Duration> {
        self.has_teams().then(|| self.due.saturating_duration_since(Instant::now()))
    }

    /// Reads all processes, if a reading is due.
    pub fn read(&mut self) -> Vec<Seen> {
        if self.due_within().is_none_or(|within| !within.is_zero()) {
            return Vec::new();
        }
        let (cpu_before, now) = (own_cpu_time(), self.now());
        self.read_idle_time();
        let (mut seen, mut looks): (Vec<Seen>, Vec<Look>) = Default::default();
        let mut kept_open = 0;
        self.processes.retain(|_, process| {
            let (reading, look) = process.look(now);
            kept_open += process.kept_open();
            let threads = process.threads();
            let waiting_share = look.map_or(0.0, |look| look.times.waiting_share());
            let is_reported = !process.is_over && look.is_some_and(|look| look.is_reported());
            seen.push(Seen { reading, threads, waiting_share, is_reported });
            looks.extend(look.filter(|_| threads > 1));
            threads > 0
        });
        self.kept_open = kept_open;
        // Not by the clock: where PEs are contended, corewise waits for one, too.
        let affordable = self.allowance.spend(own_cpu_time() - cpu_before);
        self.due = Instant::now() + self.looks.take(now, &looks).max(affordable);
        seen
    }

    /// Adds up the idle time of the PEs of each process whose waits are changed, if that is due.
    fn read_idle_time(&mut self) {
        if !self.teams().any(Process::is_changed) {
            self.pe_times = None;
            return;
        }
        if self.pe_times.as_ref().is_some_and(|(at, _)| at.elapsed() < IDLE_EVERY) {
            return;
        }
        let times = self.proc.pe_times();
        if let Some((_, before)) = &self.pe_times {
            let idle_of = |pe: &PeId| Some(times.get(pe)?.since(before.get(pe)?).idle);
            self.processes.values_mut().for_each(|process| process.add_idle_time(idle_of));
        }
        self.pe_times = Some((Instant::now(), times));
    }
}

#[cfg(test)]
mod tests;
