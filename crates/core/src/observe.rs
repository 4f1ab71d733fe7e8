//! What a world tells: everything at one instant ([`Observation`]), or what has happened since ([`Event`]).
//!
//! Readings are raw, cumulative and monotonic. Rates are made of two of these in [`crate::view`]; a raw
//! reading and a derived view are different types, so that they are never mixed up. Events come between
//! observations, as soon as they happen, and cost in proportion to what has changed. They are told only to
//! those who ask for their [kind](EventKind); the callbacks of ghOSt (Humphries et al., SOSP'21) are the
//! model.

use crate::cpuset::CpuSet;
use crate::ids::{AppId, PeId, ThreadId};
use crate::plan::Outcome;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Everything a world reports at one instant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// When.
    pub at: Time,
    /// The PEs that are online and allowed for the whole application now.
    pub allowed: CpuSet,
    /// Those on which others, such as another run of corewise, have bound threads.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub taken: CpuSet,
    /// Every living thread, and each ended thread exactly once with its last readings.
    pub threads: Vec<ThreadReading>,
    /// Every application.
    pub applications: Vec<ApplicationReading>,
    /// What became of the actions applied since the last observation.
    pub outcomes: Vec<Outcome>,
    /// CPU time that corewise itself has used so far, in nanoseconds.
    pub own_cpu_ns: u64,
}

/// What a world tells at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Everything.
    Observation(Observation),
    /// What has happened since the last input.
    Events(EventBatch),
}

impl Input {
    /// The observation, if it is one.
    pub fn observation(&self) -> Option<&Observation> {
        match self {
            Input::Observation(observation) => Some(observation),
            Input::Events(_) => None,
        }
    }

    /// When it was told.
    pub fn at(&self) -> Time {
        match self {
            Input::Observation(observation) => observation.at,
            Input::Events(batch) => batch.at,
        }
    }

    /// What became of the actions applied since the last input.
    pub fn outcomes(&self) -> &[Outcome] {
        match self {
            Input::Observation(observation) => &observation.outcomes,
            Input::Events(batch) => &batch.outcomes,
        }
    }
}

/// Events that are told together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EventBatch {
    /// When they are told.
    pub at: Time,
    /// What has happened, in order.
    pub events: Vec<Event>,
    /// What became of the actions applied since the last input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<Outcome>,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A thread was created; its first reading.
    ThreadStarted(Box<ThreadReading>),
    /// A thread has ended. Its last reading comes with the next observation.
    ThreadEnded(ThreadId),
    /// A thread has another name.
    ThreadRenamed {
        /// The thread.
        thread: ThreadId,
        /// Its name now.
        name: Arc<str>,
    },
    /// An application has another number of runnable threads than was told last, or another only one. What
    /// changes to and fro within [`COALESCED_WITHIN`] is told at most once.
    TlpChanged(RunnableThreads),
    /// A runtime library told something of a thread.
    Hint {
        /// The thread.
        thread: ThreadId,
        /// What holds from now on.
        hints: Hints,
    },
    /// Other PEs are allowed for the applications.
    AllowedChanged(CpuSet),
    /// Threads of a process are held up, or are no longer.
    Delayed(ProcessDelay),
}

/// For how long the threads of a process ran, and wanted a PE but had none, since that was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDelay {
    /// The process, by its first thread.
    pub leader: ThreadId,
    /// Time on a PE, all threads together, in nanoseconds.
    pub run_ns: u64,
    /// Time waiting for a PE that others had, all threads together, in nanoseconds.
    pub wait_ns: u64,
    /// Time for which a control group's quota kept them from PEs, all threads together, in nanoseconds.
    #[serde(default)]
    pub throttled_ns: u64,
    /// The time that has passed meanwhile, in nanoseconds.
    #[serde(default = "ten_ms")]
    pub elapsed_ns: u64,
    /// Whether it can be changed how long its idle threads spin.
    pub adaptable: bool,
    /// Whether its idle threads give their PE away while they spin, as its library wants it.
    #[serde(default)]
    pub gives_way: bool,
    /// How many turns they spin, if not as many as its library has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin_count: Option<u64>,
    /// Of how many threads its teams are, if not of as many as its libraries have chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_size: Option<u32>,
}

/// The time between two looks when recordings did not tell it.
fn ten_ms() -> u64 {
    10_000_000
}

impl ProcessDelay {
    /// The share in which they waited, as others had it, of the time in which threads wanted a PE that their
    /// quota let them have, 0..1.
    pub fn share(&self) -> f64 {
        share(self.wait_ns, self.run_ns)
    }

    /// The share of the time in which threads wanted a PE and had none, whoever took it from them, 0..1.
    pub fn share_without_pe(&self) -> f64 {
        share(self.wait_ns + self.throttled_ns, self.run_ns)
    }

    /// For how long a thread that wanted a PE waited for one, in the mean.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns).mul_f64(self.share())
    }
}

/// The share of the first of two times in both, 0..1.
pub(crate) fn share(without_ns: u64, with_ns: u64) -> f64 {
    if without_ns == 0 { 0.0 } else { without_ns as f64 / (with_ns as f64 + without_ns as f64) }
}

/// How often a change of an application's number of runnable threads is told at most.
pub const COALESCED_WITHIN: Duration = Duration::from_millis(2);

/// An application's runnable threads at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnableThreads {
    /// The application.
    pub app: AppId,
    /// How many there are.
    pub count: u32,
    /// The only one, where there is just one and the world can tell which.
    pub only: Option<ThreadId>,
}

/// What an [`Event`] is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The number of runnable threads of an application changed.
    TlpChanged,
    /// A thread was created.
    ThreadStarted,
    /// A thread has ended.
    ThreadEnded,
    /// A thread has another name.
    ThreadRenamed,
    /// A runtime library told something of a thread.
    Hint,
    /// Other PEs are allowed.
    AllowedChanged,
    /// Threads of a process are held up.
    Delayed,
}

impl EventKind {
    /// Every kind.
    pub const ALL: &[EventKind] = &[
        EventKind::TlpChanged,
        EventKind::ThreadStarted,
        EventKind::ThreadEnded,
        EventKind::ThreadRenamed,
        EventKind::Hint,
        EventKind::AllowedChanged,
        EventKind::Delayed,
    ];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            EventKind::TlpChanged => "changes of TLP",
            EventKind::ThreadStarted => "new threads",
            EventKind::ThreadEnded => "ended threads",
            EventKind::ThreadRenamed => "renamed threads",
            EventKind::Hint => "hints",
            EventKind::AllowedChanged => "changes of the allowed PEs",
            EventKind::Delayed => "threads that wait for a PE",
        }
    }
}

impl Event {
    /// What it is of.
    pub fn kind(&self) -> EventKind {
        match self {
            Event::ThreadStarted(_) => EventKind::ThreadStarted,
            Event::ThreadEnded(_) => EventKind::ThreadEnded,
            Event::ThreadRenamed { .. } => EventKind::ThreadRenamed,
            Event::TlpChanged(_) => EventKind::TlpChanged,
            Event::Hint { .. } => EventKind::Hint,
            Event::AllowedChanged(_) => EventKind::AllowedChanged,
            Event::Delayed(_) => EventKind::Delayed,
        }
    }
}

/// One thread at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReading {
    /// Which thread.
    pub thread: ThreadId,
    /// Its process (thread group).
    pub pid: u32,
    /// The application it belongs to.
    pub app: AppId,
    /// Its name (`comm`).
    pub name: Arc<str>,
    /// CPU time used since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Time it has been runnable since its start: running or waiting for a PE. `None` where unknown.
    pub runnable_ns: Option<u64>,
    /// Whether it ran or waited for a PE at this instant.
    pub runnable: bool,
    /// The PE it runs on or ran on last.
    pub last_pe: Option<PeId>,
    /// Whether it may be placed, and if not, why.
    pub standing: Standing,
    /// The PEs that its user lets it have: its mask before corewise touched it, within the cpuset.
    pub permitted: Arc<CpuSet>,
    /// Counters, where a source gives them.
    pub counters: Option<CounterReading>,
    /// How much it has done, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressReading>,
    /// What its runtime library told of it.
    #[serde(default, skip_serializing_if = "Hints::none")]
    pub hints: Hints,
    /// Whether this is its last reading.
    pub ended: bool,
}

/// How much a thread has done since it is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressReading {
    /// Work, in units that are the same for all threads of an application. It only grows.
    pub work: u64,
    /// What was counted.
    pub source: ProgressSource,
}

/// By what it is told how much a thread has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressSource {
    /// Heartbeats of the program itself.
    #[serde(alias = "told")]
    Heartbeat,
    /// Instructions that it has executed outside of the kernel; those of busy-waits are among them.
    Instructions,
    /// How often it has passed a point of its code, as CPU time at the speed that it had at first.
    Points,
    /// The simulation itself.
    Simulated,
}

impl ProgressSource {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            ProgressSource::Heartbeat => "heartbeats of the program",
            ProgressSource::Instructions => "executed instructions",
            ProgressSource::Points => "passes of points in its code",
            ProgressSource::Simulated => "the simulation",
        }
    }
}

/// What a thread's program or runtime library tells of it (parallelism-aware scheduling §2.2); nothing where
/// it has no such extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Hints {
    /// It busy-waits and does nothing useful (§2.2.1). Such a thread counts as runnable nowhere.
    pub spinning: bool,
    /// It is its application's master thread, who does the serial parts (§2.2.2).
    pub master: bool,
    /// The phase of its work that it has begun last. Equal numbers are phases of the same kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<u32>,
}

impl Hints {
    /// Whether nothing was told.
    pub fn none(&self) -> bool {
        *self == Self::default()
    }
}

/// Who decides where a thread may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nobody yet: corewise may place it.
    Free,
    /// corewise bound it.
    Bound,
    /// It inherited corewise's mask from the thread that created it and must be given back its own.
    Inherited,
    /// It set its own mask. It is left alone.
    SelfPinned,
    /// Its user placed it by `OMP_PLACES`, `GOMP_CPU_AFFINITY`, `KMP_AFFINITY` or the like. It is left alone.
    UserPlaced,
}

/// What belongs to an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A command that was started to be watched, and what descends from it.
    #[default]
    Command,
    /// A process that ran already, by its number, and what descends from it.
    Process(u32),
    /// What is in a control group and those below it, by its path from the root of the hierarchy, and what
    /// descends from that.
    ControlGroup(Arc<str>),
}

/// One application at one instant, cumulative since it is watched.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ApplicationReading {
    /// Which application.
    pub app: AppId,
    /// What belongs to it.
    #[serde(default)]
    pub target: Target,
    /// Its name: that of the program that it began with.
    pub name: Arc<str>,
    /// The PEs that its first process may use; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<CpuSet>,
    /// Its living processes.
    #[serde(default)]
    pub processes: u32,
    /// Its living threads.
    #[serde(default)]
    pub threads: u32,
    /// Since when it is watched.
    #[serde(default)]
    pub began: Time,
    /// When it was seen to have ended: none of its threads lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Integral over time of the number of runnable threads, in thread-nanoseconds.
    pub runnable_thread_ns: u64,
    /// Time with at least one runnable thread, in nanoseconds.
    pub active_ns: u64,
    /// Time with exactly one runnable thread, in nanoseconds.
    pub sequential_ns: u64,
    /// The largest number of threads that were runnable at once.
    pub runnable_max: u32,
    /// Whether the numbers are integrated at every scheduler switch (`true`) or estimated.
    pub exact: bool,
}

/// A thread's counters: cumulative since the source began to watch it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum CounterReading {
    /// Hardware counters.
    Pmu(PmuReading),
    /// Statistics of sampled instruction pointers.
    Sample(SampleReading),
}

/// Hardware counters of one thread, already scaled for multiplexing. What a machine lacks is `None`, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PmuReading {
    /// The event file that was used, for instance `amd_fam15h`.
    pub events: Arc<str>,
    /// Core cycles.
    pub cycles: u64,
    /// Retired instructions.
    pub instructions: Option<u64>,
    /// Cycles in which the FPU was busy by the event file's formula.
    pub fpu_busy_cycles: Option<u64>,
    /// Cycles in which the shared vector unit was busy by the event file's formula.
    pub vector_busy_cycles: Option<u64>,
    /// How far the formula can be trusted, 0..1, as its event file says (1: the event counts just this).
    pub formula_confidence: f32,
    /// L2 misses.
    pub l2_misses: Option<u64>,
    /// Retired branches.
    pub branches: Option<u64>,
    /// Mispredicted retired branches.
    pub branch_misses: Option<u64>,
    /// Time the events wanted to count, in nanoseconds.
    pub enabled_ns: u64,
    /// Time they did count; less than `enabled_ns` when the PMU was shared out in turns.
    pub running_ns: u64,
}

/// Statistics of clock samples of one thread. All are counts of samples; fractional where a sample adds a
/// probability.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SampleReading {
    /// Samples in user code that could be judged and were not spinning. The sums below are over these.
    pub judged: u64,
    /// Samples in a busy-wait loop. Kept apart: they say nothing about what the thread computes.
    pub spinning: u64,
    /// Those of the spinning ones in which the PE was given away for a moment, or would be from time to time
    /// as a runtime's idle threads do.
    #[serde(default)]
    pub giving_way: u64,
    /// Samples in the kernel.
    pub kernel: u64,
    /// Samples in user code that could not be read or decoded.
    pub unknown: u64,
    /// Sum of the shares of their windows that could not be seen, and were taken from the thread's others.
    #[serde(default)]
    pub unseen: f64,
    /// Sum of the probabilities that floating-point arithmetic is in flight at a sample.
    pub fp: f64,
    /// Sum of the probabilities that vector arithmetic is in flight (floating-point or integer).
    pub vector: f64,
    /// Sum of the shares of memory instructions in the window around a sample.
    pub memory: f64,
    /// Sum of the shares of branches in the window around a sample.
    pub branches: f64,
}
