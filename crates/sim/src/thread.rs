//! The simulation's state of a thread and of an application.

use crate::pmu::{Counters, Progress};
use crate::program::{Program, Waiting};
use crate::sim::sched::queue::Entity;
use crate::sim::state::demands::{DemandId, Demands};
use crate::sim::state::lines::Lines;
use crate::sim::state::memory::{MemoryUse, ProcessMemory, ThreadMemory};
use crate::sim::state::placement::Flips;
use crate::sim::state::process::{Process, Times, Wait};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::ThreadId;
use corewise_core::observe::Treatment;
use corewise_core::time::Time;
use std::collections::VecDeque;
use std::sync::Arc;

/// The description of an application.
#[derive(Debug, Clone)]
pub struct AppPlan {
    /// Its name; copies have the same name.
    pub name: Arc<str>,
    /// What its threads do.
    pub program: Arc<Program>,
    /// How many threads it has.
    pub threads: usize,
    /// How they wait.
    pub waiting: Waiting,
    /// Whether its team has only its fair share of the PEs at its start, instead of `threads`.
    pub adapt_team: bool,
    /// Whether its runtime library reports which thread is the master.
    pub reports_master: bool,
    /// When it first starts.
    pub start: Time,
    /// The PEs that its user pinned it to.
    pub pin: Option<CpuSet>,
    /// The weight of its threads ([`crate::sim::sched::groups::nice_weight`]).
    pub weight: i64,
    /// Whether they are of the class `SCHED_BATCH`.
    pub is_batch: bool,
    /// The group that it is in, by its place in the scenario's order.
    pub group: Option<usize>,
    /// Whether the run does not wait for its end.
    pub background: bool,
    /// Relative standard deviation of its work from run to run.
    pub variation: f64,
    /// How its memory is placed.
    pub memory: MemoryUse,
    /// How it is treated, each with the time from which that holds, in their order.
    pub treatments: Vec<(Time, Treatment)>,
}

/// An application.
#[derive(Debug)]
pub struct App {
    /// Its description.
    pub plan: AppPlan,
    /// The process of its current run.
    pub(crate) process: Process,
    /// Its threads that have not ended.
    pub alive: usize,
    /// Threads at the barrier.
    pub arrived: Vec<usize>,
    /// Its locks.
    pub locks: Vec<Lock>,
    /// What its threads hand to each other.
    pub(crate) lines: Lines,
    /// Its chains: how often each thread has passed.
    pub chains: Vec<Vec<u32>>,
    /// The parts taken from each pool since the last barrier.
    pub pools: Vec<u32>,
    /// How many runs of it have begun.
    pub runs: u64,
    /// When its current run began.
    pub started: Time,
    /// Factor on all work of this run.
    pub work_factor: f64,
    /// Whether a thread of this run was killed, so that the run does not count as a completion.
    pub broken: bool,
    /// Duration of each finished run, in seconds.
    pub completions: Vec<f64>,
    /// Its parallelism.
    pub parallelism: Parallelism,
    /// The indices of its runnable threads, combined by exclusive or: with a single one this is its index.
    pub counted_xor: usize,
    /// Where the data that its threads share lies.
    pub(crate) memory: ProcessMemory,
    /// CPU time of all its threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Instructions that its threads executed.
    pub instructions: f64,
    /// The work that its threads did, without busy-waits.
    pub work: f64,
    /// CPU time on the fastest PEs, in nanoseconds.
    pub fast_ns: u64,
}

/// A lock: its holder, and the waiting threads in order.
#[derive(Debug, Default)]
pub struct Lock {
    /// The holder.
    pub holder: Option<usize>,
    /// The waiting threads, in order.
    pub queue: VecDeque<usize>,
}

/// Integrals of the number of runnable threads, exact at every change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// Runnable threads now.
    pub runnable: u32,
    /// The maximum number of runnable threads.
    pub runnable_max: u32,
    /// Thread-nanoseconds.
    pub runnable_thread_ns: u64,
    /// Nanoseconds with at least one.
    pub active_ns: u64,
    /// Nanoseconds with exactly one.
    pub sequential_ns: u64,
    since: Time,
}

impl Parallelism {
    /// Updates the integrals to `now`.
    pub fn settle(&mut self, now: Time) {
        let ns = now.0 - self.since.0;
        self.since = now;
        self.runnable_thread_ns += ns * u64::from(self.runnable);
        self.active_ns += if self.runnable > 0 { ns } else { 0 };
        self.sequential_ns += if self.runnable == 1 { ns } else { 0 };
    }

    /// Adds or removes a runnable thread.
    pub fn change(&mut self, now: Time, more: bool) {
        self.settle(now);
        if more {
            self.runnable += 1;
            self.runnable_max = self.runnable_max.max(self.runnable);
        } else {
            self.runnable -= 1;
        }
    }
}

/// What a thread is doing when it has a PE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activity {
    /// Works: cycles left.
    Work {
        /// Cycles left.
        left: f64,
        /// The number of what they ask for.
        demand: DemandId,
    },
    /// Busy-waits.
    Spin {
        /// CPU time spent on it, in nanoseconds.
        spun_ns: f64,
    },
}

impl Activity {
    /// Returns the number of its demand.
    pub(crate) fn demand(&self) -> DemandId {
        match self {
            Activity::Work { demand, .. } => *demand,
            Activity::Spin { .. } => Demands::SPIN,
        }
    }
}

/// A thread.
#[derive(Debug)]
pub struct Thread {
    /// Its identity.
    pub id: ThreadId,
    /// What distinguishes it in every variant: its application, the run, its number in it.
    pub key: u64,
    /// How many works it has begun.
    pub works: u64,
    /// How many pauses of random length it has had.
    pub pauses: u64,
    /// When its next arrival comes.
    pub arrival: Time,
    /// Its process.
    pub pid: u32,
    /// Its application's index.
    pub app: usize,
    /// Whether it is the application's first.
    pub master: bool,
    /// Whether it runs or wants to run; exactly then it is on a PE or in its queue.
    pub ready: bool,
    /// Whether it counts as runnable: ready, and not known to spin.
    pub counted: bool,
    /// Whether it has ended.
    pub ended: bool,
    /// What it does.
    pub activity: Activity,
    /// How its present wait goes on.
    pub(crate) wait: Wait,
    /// The next op.
    pub next_op: usize,
    /// Rounds done, by loop.
    pub rounds: Vec<u32>,
    /// Time that it owes for switches and cold caches before it continues its work.
    pub debt_ns: f64,
    /// The PEs that its user permits.
    pub permitted: Arc<CpuSet>,
    /// Its present mask.
    pub mask: CpuSet,
    /// The online PEs of its mask.
    pub usable: CpuSet,
    /// Whether its user pinned it.
    pub pinned: bool,
    /// Whether corewise bound it.
    pub bound: bool,
    /// The PE where it is queued, runs, or ran last.
    pub pe: Option<usize>,
    /// The PE where it ran last, whose caches are warm.
    pub warm_pe: Option<usize>,
    /// Where its data lies.
    pub(crate) memory: ThreadMemory,
    /// CPU time.
    pub cpu_ns: u64,
    /// What it used that for, and how long it waited for a PE.
    pub(crate) times: Times,
    /// Its standing in the run queues, as it left the last one.
    pub(crate) entity: Entity,
    /// How it wakes others.
    pub(crate) flips: Flips,
    /// Time in which it wanted a PE, including spinning, up to `ready_since`.
    pub runnable_ns: u64,
    /// Since when it wants a PE, if it does.
    pub ready_since: Time,
    /// Its counters.
    pub counters: Counters,
    /// The work that it has done, without busy-waits.
    pub progress: Progress,
}
