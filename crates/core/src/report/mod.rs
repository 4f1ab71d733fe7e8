//! What happened in a run, for people and scripts: who used what, who ran where, what was decided and why.
//!
//! [`ReportBuilder`] listens to the control loop. What it keeps is bounded, however long the run and however
//! many threads come and go: beyond the limits of [`builder`] the threads with the least CPU time are only
//! summed up by name, and times and decisions lose detail, never their sums.

mod builder;
mod ran_on;
mod totals;

pub use builder::{Circumstances, ReportBuilder};

use crate::classify::{FpuClass, IntensityClass, ParallelismClass};
use crate::cpuset::CpuSet;
use crate::guard::Findings;
use crate::ids::PeId;
use crate::observe::{Standing, Target};
use crate::topology::{DomainKind, Topology};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

/// The report of one run. Absent knowledge is `null`; field names carry their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The command that ran.
    pub command: Vec<String>,
    /// The policy.
    pub policy: String,
    /// Whether the policy bound nothing, and why.
    #[serde(rename = "verdict")]
    pub nothing_to_gain: Option<String>,
    /// Whether threads were only decided about, not bound.
    pub dry_run: bool,
    /// `measured` on a real machine, `replayed` from a recording.
    pub evidence: Cow<'static, str>,
    /// The machine in words.
    pub machine: String,
    /// What its PEs share: the domains of two or more PEs, the closest first.
    pub shared: Vec<Shared>,
    /// The computer and the time of the run; `null` where a recording does not tell.
    pub host: Option<Host>,
    /// Time from start to end.
    pub wall_seconds: f64,
    /// Where the knowledge came from.
    pub sources: Sources,
    /// One entry a thread, in order of CPU time.
    pub threads: Vec<ThreadReport>,
    /// Ended threads with little CPU time that are not listed above, by application and name.
    pub more_threads: Vec<ThreadGroup>,
    /// One entry an application.
    pub applications: Vec<ApplicationReport>,
    /// Every change that was asked for, or the latest of very many.
    pub decisions: Vec<Decision>,
    /// How many earlier decisions are not listed.
    pub decisions_left_out: u64,
    /// What went into busy-waiting, and what was done about it.
    pub waits: WaitsReport,
    /// What the guard found the placement to gain; `null` where there was none.
    pub guard: Option<Findings>,
    /// What corewise itself cost.
    pub overhead: Overhead,
    /// What the user should know: losses, refusals, fallbacks.
    pub notes: Vec<String>,
}

/// How the programs waited.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WaitsReport {
    /// CPU time of the listed threads that went into busy-waiting; `null` where no source tells.
    pub spinning_cpu_seconds: Option<f64>,
    /// Processes whose idle threads were made to spin for a shorter time, if only for a while.
    pub shortened_processes: u64,
    /// Processes that took turns with others, if only for a while.
    pub processes_in_turns: u64,
    /// Processes whose libraries were made to use smaller teams, if only for a while.
    pub processes_with_smaller_teams: u64,
}

/// A computer, and when something was measured on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {
    /// The name of the computer.
    pub name: Option<String>,
    /// The processor, as it calls itself.
    pub processor: Option<String>,
    /// The release of the kernel.
    pub kernel: Option<String>,
    /// The start, in seconds since 1970.
    pub unix_time: Option<u64>,
}

/// PEs and what they share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// What is shared.
    pub resource: DomainKind,
    /// By whom.
    pub pes: CpuSet,
}

/// The sources in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// `bpf` or `poll`.
    pub discovery: String,
    /// `pmu …`, `sample` or `none`.
    pub counters: String,
}

/// What is known of one thread over its whole life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Kernel thread id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// CPU time.
    pub cpu_seconds: f64,
    /// Share of cycles with floating-point work in flight, 0..1.
    pub fpu_usage: Option<f64>,
    /// Share of cycles with the shared vector unit occupied, 0..1.
    pub vector_usage: Option<f64>,
    /// Where the two come from: `pmu FILE` or `sample` (an estimate).
    pub fpu_usage_source: Option<String>,
    /// How far they can be trusted, 0..1.
    pub fpu_usage_confidence: Option<f64>,
    /// The FPU class by which the engine decided last.
    pub fpu_class: FpuClass,
    /// Share of user time spent busy-waiting, 0..1.
    pub spin_share: Option<f64>,
    /// Share of memory instructions around the samples, 0..1.
    pub memory_share: Option<f64>,
    /// Share of branches around the samples, 0..1.
    pub branch_share: Option<f64>,
    /// L2 misses per 100 cycles.
    pub l2_misses_per_100_cycles: Option<f64>,
    /// Instructions per cycle.
    pub ipc: Option<f64>,
    /// Who decides where it runs.
    pub standing: Standing,
    /// The times in which corewise had it bound; the latest of very many.
    pub bindings: Vec<Binding>,
    /// Where it ran and for how much of the time, as far as looks at intervals tell.
    pub ran_on: Vec<RanOn>,
}

/// Threads that are reported together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadGroup {
    /// Their application.
    pub application: Arc<str>,
    /// Their name; `null` for those of many different names.
    pub name: Option<Arc<str>>,
    /// How many they are.
    pub threads: u64,
    /// CPU time of all together.
    pub cpu_seconds: f64,
}

/// One time in which a thread was bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Its begin, in nanoseconds since the start.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// The PEs, as a list.
    pub pes: CpuSet,
}

/// A span of time in which a thread ran, as two looks tell: how much it ran is exact, the PE is the one on
/// which it was seen at the end, and it may have been on others between two looks unless it was bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RanOn {
    /// The begin, in nanoseconds since the start.
    pub from_ns: u64,
    /// The end.
    pub to_ns: u64,
    /// The PE; `null` where spans on different PEs were drawn together in a long run.
    pub pe: Option<PeId>,
    /// The share of the span in which it ran, 0..1.
    pub share: f64,
}

/// What is known of one application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplicationReport {
    /// Its name.
    pub name: Arc<str>,
    /// What belongs to it: `command`, or the number of the process that was attached.
    pub target: Target,
    /// The PEs that its first process could use; `null` where that is not known.
    pub allowed: Option<CpuSet>,
    /// Since when it was watched.
    pub from_seconds: f64,
    /// When it was seen to have ended; `null` if some of it lives on.
    pub ended_seconds: Option<f64>,
    /// CPU time of all its threads, while it was watched.
    pub cpu_seconds: f64,
    /// Time-weighted mean number of runnable threads.
    pub tlp_mean: f64,
    /// Share of its active time with exactly one runnable thread, 0..1.
    pub sequential_fraction: Option<f64>,
    /// Whether the two are `exact` or `estimated`: by polling, or because there were too many switches to be
    /// watched all the time.
    pub parallelism_evidence: Cow<'static, str>,
    /// The most threads that were runnable at once.
    pub runnable_max: u32,
    /// `ST`, `PS` or `HP`.
    pub parallelism_class: Option<ParallelismClass>,
    /// `CI` or `MI`; needs a hardware counter.
    pub intensity_class: Option<IntensityClass>,
    /// FPU usage of all its threads together, weighted by CPU time, 0..1.
    pub fpu_usage: Option<f64>,
    /// The same of the shared vector unit.
    pub vector_usage: Option<f64>,
    /// L2 misses per 100 cycles of all its threads together.
    pub l2_misses_per_100_cycles: Option<f64>,
    /// Instructions per cycle of all its threads together.
    pub ipc: Option<f64>,
}

/// One change that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When, in nanoseconds since the start.
    pub at_ns: u64,
    /// The thread.
    pub tid: u32,
    /// The PEs it was bound to; `null` when it was given back its own, or when it is about a setting.
    pub pes: Option<CpuSet>,
    /// The setting that it was to have, in words; `null` if it is about PEs.
    pub setting: Option<String>,
    /// Why.
    pub reason: String,
    /// What became of it: `done`, or the system's answer; `null` if the run ended first.
    pub outcome: Option<String>,
}

/// What corewise itself cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// CPU time of corewise.
    pub cpu_seconds: f64,
    /// The same divided by the wall time: the share of one PE.
    pub fraction_of_wall: f64,
    /// Median time of a round, from waking up to the last action, in milliseconds; `null` in a replay.
    pub round_ms_median: Option<f64>,
    /// The longest round, in milliseconds.
    pub round_ms_max: Option<f64>,
    /// The most memory that corewise held; `null` in a replay.
    pub peak_memory_bytes: Option<u64>,
}

impl Shared {
    /// What the PEs of a machine share, one entry for PEs that share several things of one kind or the same
    /// PEs closer together.
    fn of(topology: &Topology) -> Vec<Shared> {
        let mut shared: Vec<Shared> = Vec::new();
        for domain in topology.domains.iter().filter(|domain| domain.pes.len() > 1) {
            if !shared.iter().any(|closer| closer.pes == domain.pes) {
                shared.push(Shared { resource: domain.kind, pes: domain.pes.clone() });
            }
        }
        shared
    }
}

#[cfg(test)]
mod tests;
