//! What a world reports: everything at one instant ([`Observation`]), or what has happened since ([`Event`]).
//!
//! Readings are raw, cumulative and monotonic. [`crate::view`] derives rates from pairs of readings; raw
//! readings and derived views have different types, so that they cannot be confused. Events arrive between
//! observations, as soon as they happen, and cost time in proportion to what has changed. The world reports
//! only the [kinds](EventKind) that were subscribed to; the model for this are the callbacks of ghOSt
//! (Humphries et al., SOSP'21).

mod beside;
mod idle_waits;
mod process;
mod sizing;
mod treatment;

pub use self::beside::BesideReading;
pub use self::idle_waits::{IdleWait, IdleWaits};
pub use self::process::{ProcessReading, ProcessTimes};
pub use self::sizing::Sizing;
pub use self::treatment::{Treatment, Treatments};
use crate::board::Board;
use crate::cpuset::CpuSet;
use crate::ids::{AppId, PeId, ThreadId};
use crate::plan::Outcome;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Everything that a world reports at one instant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// The time of the observation.
    pub at: Time,
    /// The PEs that are online and allowed for the whole application.
    pub allowed: CpuSet,
    /// Those of them that are reserved for others now: no thread is placed there.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub reserved: CpuSet,
    /// The PEs to which others, such as another run of corewise, have bound threads.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub taken: CpuSet,
    /// Every living thread, and each ended thread exactly once with its last readings.
    pub threads: Vec<ThreadReading>,
    /// The processes with several threads, as they were last read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessReading>,
    /// Which processes have run beside which, where that is seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<BesideReading>,
    /// How processes are treated, where not as everything else.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub treatments: Arc<Treatments>,
    /// Every application.
    pub applications: Vec<ApplicationReading>,
    /// The processes, by their first threads, whose programs became known since the last observation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// The outcomes of the actions applied since the last observation.
    pub outcomes: Vec<Outcome>,
    /// CPU time that corewise itself has used so far, in nanoseconds.
    pub own_cpu_ns: u64,
    /// The part of that for answers to clients, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub answers_cpu_ns: u64,
    /// What all runs of the user share; `None` where epochs common to them are not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<Board>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_empty(treatments: &Arc<Treatments>) -> bool {
    treatments.is_empty()
}

impl Observation {
    /// Returns the PEs on which threads may be placed: none if all are reserved.
    pub fn unreserved(&self) -> CpuSet {
        self.allowed.difference(&self.reserved)
    }
}

/// The program that a process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The process, by its first thread.
    pub leader: ThreadId,
    /// The name of its script or executable (see [`crate::program`]).
    pub name: Arc<str>,
}

/// One report of a world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The complete state.
    Observation(Observation),
    /// What has happened since the last input.
    Events(EventBatch),
}

impl Input {
    /// Returns the observation, if this is one.
    pub fn observation(&self) -> Option<&Observation> {
        match self {
            Input::Observation(observation) => Some(observation),
            Input::Events(_) => None,
        }
    }

    /// Returns the time of the report.
    pub fn at(&self) -> Time {
        match self {
            Input::Observation(observation) => observation.at,
            Input::Events(batch) => batch.at,
        }
    }

    /// Returns the outcomes of the actions applied since the last input.
    pub fn outcomes(&self) -> &[Outcome] {
        match self {
            Input::Observation(observation) => &observation.outcomes,
            Input::Events(batch) => &batch.outcomes,
        }
    }
}

/// Events that are reported together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EventBatch {
    /// The time of the report.
    pub at: Time,
    /// The events, in order.
    pub events: Vec<Event>,
    /// The outcomes of the actions applied since the last input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<Outcome>,
}

/// A change that the world reports when it happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A thread was created; holds its first reading.
    ThreadStarted(Box<ThreadReading>),
    /// A thread has ended. Its last reading comes with the next observation.
    ThreadEnded(ThreadId),
    /// A thread has changed its name.
    ThreadRenamed {
        /// The thread.
        thread: ThreadId,
        /// Its new name.
        name: Arc<str>,
    },
    /// The number of runnable threads of an application has changed since the last report, or the identity of
    /// its only one. Reported at most once per [`COALESCED_WITHIN`].
    TlpChanged(RunnableThreads),
    /// A runtime library has given hints about a thread.
    Hint {
        /// The thread.
        thread: ThreadId,
        /// The hints from now on.
        hints: Hints,
    },
    /// The PEs allowed for the applications have changed.
    AllowedChanged(CpuSet),
    /// The times of a process were read, because its threads wait for PEs or its waits are changed. (In
    /// recordings of version 3 and before it is called `delayed`, and says nothing.)
    #[serde(alias = "delayed")]
    Process(ProcessReading),
    /// A process is treated in another way from now on. Reported before other events of the process.
    Treated {
        /// The process.
        pid: u32,
        /// How; `None`: as everything else.
        treatment: Option<Arc<Treatment>>,
    },
}

/// The minimum time between two reports of an application's number of runnable threads.
pub const COALESCED_WITHIN: Duration = Duration::from_millis(2);

/// An application's runnable threads at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnableThreads {
    /// The application.
    pub app: AppId,
    /// Their number.
    pub count: u32,
    /// The only runnable thread, if there is exactly one and the world can identify it.
    pub only: Option<ThreadId>,
}

/// The kind of an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The number of runnable threads of an application has changed.
    TlpChanged,
    /// A thread was created.
    ThreadStarted,
    /// A thread has ended.
    ThreadEnded,
    /// A thread has changed its name.
    ThreadRenamed,
    /// A runtime library has given hints about a thread.
    Hint,
    /// The allowed PEs have changed.
    AllowedChanged,
    /// The times of a process were read.
    Process,
    /// A process is treated in another way.
    Treated,
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
        EventKind::Process,
        EventKind::Treated,
    ];

    /// Returns the kind in words.
    pub fn words(self) -> &'static str {
        match self {
            EventKind::TlpChanged => "changes of TLP",
            EventKind::ThreadStarted => "new threads",
            EventKind::ThreadEnded => "ended threads",
            EventKind::ThreadRenamed => "renamed threads",
            EventKind::Hint => "hints",
            EventKind::AllowedChanged => "changes of the allowed PEs",
            EventKind::Process => "threads that wait for a PE",
            EventKind::Treated => "changed treatments of processes",
        }
    }
}

impl Event {
    /// Returns the kind of the event.
    pub fn kind(&self) -> EventKind {
        match self {
            Event::ThreadStarted(_) => EventKind::ThreadStarted,
            Event::ThreadEnded(_) => EventKind::ThreadEnded,
            Event::ThreadRenamed { .. } => EventKind::ThreadRenamed,
            Event::TlpChanged(_) => EventKind::TlpChanged,
            Event::Hint { .. } => EventKind::Hint,
            Event::AllowedChanged(_) => EventKind::AllowedChanged,
            Event::Process(_) => EventKind::Process,
            Event::Treated { .. } => EventKind::Treated,
        }
    }

    /// Returns whether the event must not be reported after an observation that shows these threads as ended:
    /// a receiver would take them for living ones again.
    pub fn is_outdated(&self, ended: &HashSet<ThreadId>) -> bool {
        match self {
            Event::ThreadStarted(reading) => ended.contains(&reading.thread),
            Event::ThreadRenamed { thread, .. } | Event::Hint { thread, .. } => ended.contains(thread),
            Event::Process(reading) => ended.contains(&reading.leader),
            Event::ThreadEnded(_)
            | Event::TlpChanged(_)
            | Event::AllowedChanged(_)
            | Event::Treated { .. } => false,
        }
    }
}

/// One thread at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReading {
    /// The thread.
    pub thread: ThreadId,
    /// Its process (thread group).
    pub pid: u32,
    /// The application it belongs to.
    pub app: AppId,
    /// Its name (`comm`).
    pub name: Arc<str>,
    /// CPU time used since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Time for which it has been runnable (running or waiting for a PE) since its start, in nanoseconds.
    /// `None` if unknown.
    pub runnable_ns: Option<u64>,
    /// Whether it ran or waited for a PE at this instant.
    pub runnable: bool,
    /// The PE that it runs on or ran on last.
    pub last_pe: Option<PeId>,
    /// Who decides where it runs, as far as the thread itself shows.
    pub standing: Standing,
    /// The PEs that its user permits: its mask before corewise changed it, within the cpuset.
    pub permitted: Arc<CpuSet>,
    /// Counters, if a source provides them.
    pub counters: Option<CounterReading>,
    /// Its progress, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressReading>,
    /// The hints of its runtime library.
    #[serde(default, skip_serializing_if = "Hints::none")]
    pub hints: Hints,
    /// How its program chooses the number of its threads.
    #[serde(default, skip_serializing_if = "Sizing::is_fixed")]
    pub sizing: Sizing,
    /// Whether this is its last reading.
    pub ended: bool,
}

#[cfg(test)]
impl ThreadReading {
    /// A free thread of a process of its own, which may run on two PEs and of which nothing else is known.
    pub(crate) fn example(tid: u32) -> ThreadReading {
        ThreadReading {
            thread: ThreadId { tid, generation: 0 },
            pid: tid,
            app: AppId(0),
            name: "t".into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: true,
            last_pe: Some(PeId(0)),
            standing: Standing::Free,
            permitted: Arc::new(CpuSet::first_n(2)),
            counters: None,
            hints: Hints::default(),
            progress: None,
            sizing: Sizing::default(),
            ended: false,
        }
    }
}

/// The progress of a thread since it has been watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressReading {
    /// Work, in a unit that is the same for all threads of an application. Monotonic.
    pub work: u64,
    /// What was counted.
    pub source: ProgressSource,
}

/// What progress is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressSource {
    /// Heartbeats reported by the program.
    #[serde(alias = "told")]
    Heartbeat,
    /// Instructions executed in user mode, including those of busy-waits.
    Instructions,
    /// How often the thread has passed a point of its code, as CPU time at its initial speed.
    Points,
    /// CPU time in which the thread did not spin, by clock samples.
    WorkingTime,
    /// Work counted by the simulation.
    Simulated,
}

impl ProgressSource {
    /// Returns the source in words.
    pub fn words(self) -> &'static str {
        match self {
            ProgressSource::Heartbeat => "heartbeats of the program",
            ProgressSource::Instructions => "executed instructions",
            ProgressSource::Points => "passes of points in its code",
            ProgressSource::WorkingTime => "CPU time without spinning",
            ProgressSource::Simulated => "the simulation",
        }
    }
}

/// Hints of a thread's program or runtime library (parallelism-aware scheduling §2.2); empty without such an
/// extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Hints {
    /// The thread busy-waits and does no useful work (§2.2.1). Such a thread never counts as runnable.
    pub spinning: bool,
    /// The thread is its application's master thread, which executes the serial parts (§2.2.2).
    pub master: bool,
    /// The phase of work that it began last. Phases with equal numbers are of the same kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<u32>,
}

impl Hints {
    /// Returns whether there are no hints.
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
    /// corewise has bound it.
    Bound,
    /// It inherited a mask set by corewise from the thread that created it, and must get its own mask back.
    Inherited,
    /// Its process starts programs, which would inherit its mask and size themselves by it; corewise leaves
    /// it alone.
    StartsPrograms,
    /// It set its own mask; corewise leaves it alone.
    SelfPinned,
    /// Its user placed it by `OMP_PLACES`, `GOMP_CPU_AFFINITY`, `KMP_AFFINITY` or the like; corewise leaves
    /// it alone.
    UserPlaced,
    /// Its [treatment](Treatment::left_alone) says that it is left alone. Worlds do not report this.
    LeftAlone,
    /// Its program asked for `SCHED_DEADLINE`, which Linux refuses to a thread that may not use every PE;
    /// corewise leaves it alone.
    NeedsAllPes,
}

impl Standing {
    /// Returns why a thread is not placed, if somebody else decides about it.
    pub fn why_not_placed(self) -> Option<&'static str> {
        match self {
            Standing::Free | Standing::Bound | Standing::Inherited => None,
            Standing::StartsPrograms => {
                Some("its process starts programs, which would see only its PEs if it were bound")
            }
            Standing::SelfPinned => Some("it set its own PEs"),
            Standing::UserPlaced => Some("its user chose its PEs (by OMP_PLACES or the like)"),
            Standing::LeftAlone => Some("it is left alone"),
            Standing::NeedsAllPes => {
                Some("its program asked for SCHED_DEADLINE, for which a thread must be free to use every PE")
            }
        }
    }
}

/// What a user names to be watched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A command started by corewise, and its descendants.
    #[default]
    Command,
    /// A running process, by its process ID, and its descendants.
    Process(u32),
    /// The processes of a control group and the groups below it, by its path from the root of the hierarchy,
    /// and their descendants.
    ControlGroup(Arc<str>),
    /// Nothing by itself: what is followed although it descends from nothing else that is named.
    Others,
}

/// One application at one instant; cumulative since it has been watched.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ApplicationReading {
    /// The application.
    pub app: AppId,
    /// What the user named: it, or what runs below it.
    #[serde(default)]
    pub target: Target,
    /// The application that executed its program; `None` of what the user named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_by: Option<AppId>,
    /// Its name: the name of its first program.
    pub name: Arc<str>,
    /// The PEs that its first process may use; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<CpuSet>,
    /// Its living processes.
    #[serde(default)]
    pub processes: u32,
    /// Its living threads.
    #[serde(default)]
    pub threads: u32,
    /// When watching began.
    #[serde(default)]
    pub began: Time,
    /// When it was found to have ended, that is, to have no living thread.
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

/// A thread's counters; cumulative since the source began to watch it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum CounterReading {
    /// Hardware counters.
    Pmu(PmuReading),
    /// Statistics of sampled instruction pointers.
    Sample(SampleReading),
}

/// Hardware counters of one thread, already scaled for multiplexing. A counter that the machine lacks is
/// `None`, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PmuReading {
    /// The event file used, for instance `amd_fam15h`.
    pub events: Arc<str>,
    /// Core cycles.
    pub cycles: u64,
    /// Retired instructions.
    pub instructions: Option<u64>,
    /// Cycles in which the FPU was busy by the event file's formula.
    pub fpu_busy_cycles: Option<u64>,
    /// Cycles in which the shared vector unit was busy by the event file's formula.
    pub vector_busy_cycles: Option<u64>,
    /// How far the formula can be trusted, 0..1, as its event file states (1: the event counts exactly this).
    pub formula_confidence: f32,
    /// L2 misses.
    pub l2_misses: Option<u64>,
    /// Retired branches.
    pub branches: Option<u64>,
    /// Mispredicted retired branches.
    pub branch_misses: Option<u64>,
    /// Time for which the events were enabled, in nanoseconds.
    pub enabled_ns: u64,
    /// Time for which they actually counted, in nanoseconds; less than `enabled_ns` when the PMU was
    /// multiplexed.
    pub running_ns: u64,
}

/// Clock samples per second of a thread's CPU time, on real and simulated machines. No divisor of usual timer
/// rates, so that it never beats with them.
pub const SAMPLES_PER_S: u32 = 199;

/// Statistics of the clock samples of one thread. All fields count samples; they are fractional where each
/// sample contributes a probability.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SampleReading {
    /// Samples in user code that could be judged and were not spinning. The sums below are over these.
    pub judged: u64,
    /// Samples in a busy-wait loop. Kept apart, as they show nothing of what the thread computes.
    pub spinning: u64,
    /// Spinning samples in loops that yield the PE, each time or occasionally as idle threads of runtime
    /// libraries do.
    #[serde(default, alias = "giving_way")]
    pub yielding: u64,
    /// Samples in the kernel.
    pub kernel: u64,
    /// Samples in user code that could not be read or decoded.
    pub unknown: u64,
    /// Sum over samples of the share of the window that could not be seen and was filled in from other
    /// samples of the thread.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_an_ended_thread_is_still_reported() {
        let (ended, living) = (ThreadId { tid: 7, generation: 0 }, ThreadId { tid: 7, generation: 1 });
        let about = |thread: ThreadId| {
            [
                Event::ThreadStarted(Box::new(ThreadReading { thread, ..ThreadReading::example(7) })),
                Event::ThreadRenamed { thread, name: "t".into() },
                Event::Hint { thread, hints: Hints::default() },
                Event::Process(ProcessReading::example(thread)),
                Event::ThreadEnded(thread),
            ]
        };
        let reported = |thread| {
            let current =
                about(thread).into_iter().filter(|event| !event.is_outdated(&HashSet::from([ended])));
            current.map(|event| event.kind()).collect::<Vec<_>>()
        };
        assert_eq!(reported(ended), [EventKind::ThreadEnded]);
        assert_eq!(reported(living).len(), 5, "another thread with the same number");
    }
}
