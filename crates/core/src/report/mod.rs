//! The report of a run, for people and scripts: which threads used what, where they ran, what was decided and
//! why.
//!
//! [`ReportBuilder`] observes the control loop. Its memory is bounded, however long the run and however many
//! threads come and go: beyond the limits in [`builder`], the threads with the least CPU time are only summed
//! up by name. Times and decisions then lose detail, but sums stay exact.

mod applications;
mod beside;
mod builder;
mod headline;
mod ran_on;
pub mod timeline;
mod totals;
mod uneven;

pub use beside::BesideReport;
pub use builder::{Circumstances, ReportBuilder};
pub use headline::{Headline, headline, headline_of_unwatched};

use crate::classify::{FpuClass, IntensityClass, ParallelismClass};
use crate::cpuset::CpuSet;
use crate::guard::Findings;
use crate::guard::waits::WaitsFindings;
use crate::ids::PeId;
use crate::losses::Lost;
use crate::observe::{Standing, Target};
use crate::policy::Predicted;
use crate::topology::{DomainKind, Topology};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use timeline::Timeline;

/// The report of one run. Unknown values are `null`; field names carry their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What corewise did and what that gained, in one sentence.
    #[serde(default)]
    pub headline: String,
    /// The command that ran.
    pub command: Vec<String>,
    /// The policy.
    pub policy: String,
    /// Why the policy bound nothing, if it had nothing to gain.
    #[serde(alias = "verdict")]
    pub nothing_to_gain: Option<String>,
    /// Whether decisions were only reported and not carried out.
    pub dry_run: bool,
    /// `measured` on a real machine, `replayed` from a recording.
    pub evidence: Cow<'static, str>,
    /// A description of the machine.
    pub machine: String,
    /// What its PEs share: the domains of two or more PEs, the closest first.
    pub shared: Vec<Shared>,
    /// The kinds of its PEs, fastest first; empty if none are known to differ.
    #[serde(default)]
    pub kinds: Vec<PeKind>,
    /// The host and the time of the run; `null` if a recording lacks them.
    pub host: Option<Host>,
    /// Time from start to end.
    pub wall_seconds: f64,
    /// The sources of the readings.
    pub sources: Sources,
    /// One entry per thread, ordered by CPU time.
    pub threads: Vec<ThreadReport>,
    /// Ended threads with little CPU time that are not listed above, grouped by application and name.
    pub more_threads: Vec<ThreadGroup>,
    /// One entry per application: what the user named, and programs that it executed, the busiest first.
    pub applications: Vec<ApplicationReport>,
    /// Which programs ran beside which, where that was seen (`--beside`).
    #[serde(default)]
    pub beside: Vec<BesideReport>,
    /// What happened when.
    #[serde(default)]
    pub timeline: Timeline,
    /// Every requested change, or the latest ones of very many.
    pub decisions: Vec<Decision>,
    /// The number of earlier decisions that are not listed.
    pub decisions_left_out: u64,
    /// How much CPU time was spent on busy-waiting, and what was done about it.
    pub waits: WaitsReport,
    /// What the placement was predicted to gain; `null` where that was not known, or nothing was to be bound.
    #[serde(default)]
    pub predicted: Option<PredictedReport>,
    /// The effect of the placement as measured by the guard; `null` without a guard.
    pub guard: Option<Findings>,
    /// The cost of corewise itself.
    pub overhead: Overhead,
    /// What the user should know: losses, refusals, fallbacks.
    pub notes: Vec<String>,
}

/// How the programs waited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WaitsReport {
    /// Whether anything would have been done about waits that delay others.
    #[serde(default)]
    pub handled: bool,
    /// The programs to whose processes any of the following was done.
    #[serde(default)]
    pub programs: Vec<ChangedProgram>,
    /// CPU time of the listed threads spent on busy-waiting; `null` if no source measures it.
    pub spinning_cpu_seconds: Option<f64>,
    /// The number of processes whose spin count was reduced, at least for a while.
    #[serde(alias = "shortened_processes")]
    pub processes_with_short_waits: u64,
    /// Whether any of them was in a CPU quota that was spent.
    #[serde(default)]
    pub in_quota: bool,
    /// The number of processes that took turns with others, at least for a while.
    pub processes_in_turns: u64,
    /// The size of thread teams that corewise chose before the start (`OMP_NUM_THREADS`); `null` if the
    /// libraries chose.
    #[serde(default)]
    pub team_size: Option<u32>,
    /// The PEs that corewise chose for these teams (`OMP_PLACES`); `null` if they may use all.
    #[serde(default)]
    pub team_pes: Option<CpuSet>,
    /// How corewise asked for parts of loops to be handed out (`OMP_SCHEDULE`); `null` if it did not.
    #[serde(default)]
    pub schedule: Option<Cow<'static, str>>,
    /// The effect of these changes as measured by the guard; `null` without a guard or changes.
    #[serde(default)]
    pub guard: Option<WaitsFindings>,
}

/// What the machine model says about the placements of a run: the mean over the time in which there was one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PredictedReport {
    /// That time.
    pub seconds: f64,
    /// What all threads lose together where the system puts them.
    pub free_pe_seconds_per_second: Lost,
    /// What they lose as they were to be placed.
    pub placed_pe_seconds_per_second: Lost,
}

impl PredictedReport {
    /// Adds a prediction that held for so long.
    fn add(&mut self, predicted: &Predicted, seconds: f64) {
        let before = self.seconds;
        self.seconds += seconds;
        if self.seconds > 0.0 {
            let mean = |old: Lost, new: Lost| (old * before + new * seconds) * (1.0 / self.seconds);
            self.free_pe_seconds_per_second = mean(self.free_pe_seconds_per_second, predicted.free);
            self.placed_pe_seconds_per_second = mean(self.placed_pe_seconds_per_second, predicted.placed);
        }
    }
}

/// A program whose waits were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedProgram {
    /// The name of its script or executable.
    pub name: Arc<str>,
    /// The number of its processes that were changed.
    pub processes: u64,
}

impl ChangedProgram {
    /// Counts the processes of each program, given the program of each process; most processes first.
    pub fn count(programs: impl IntoIterator<Item = Arc<str>>) -> Vec<ChangedProgram> {
        let mut counts = BTreeMap::new();
        programs.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
        Self::list(counts)
    }

    /// Lists programs with these numbers of processes, most processes first.
    fn list(counts: BTreeMap<Arc<str>, u64>) -> Vec<ChangedProgram> {
        let mut listed: Vec<_> =
            counts.into_iter().map(|(name, processes)| ChangedProgram { name, processes }).collect();
        listed.sort_by_key(|program| std::cmp::Reverse(program.processes));
        listed
    }
}

/// A computer and the time of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {
    /// The host name.
    pub name: Option<String>,
    /// The processor's model name.
    pub processor: Option<String>,
    /// The kernel release.
    pub kernel: Option<String>,
    /// The start, in seconds since 1970.
    pub unix_time: Option<u64>,
}

/// PEs and what they share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// What is shared.
    pub resource: DomainKind,
    /// The PEs that share it.
    pub pes: CpuSet,
}

/// PEs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeKind {
    /// `fast`, `mid1`…, `slow`.
    pub name: String,
    /// The PEs.
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

/// One thread over its whole life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Kernel thread ID.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// The script or executable of its process; `null` if its command line was not read in time.
    #[serde(default)]
    pub program: Option<Arc<str>>,
    /// CPU time.
    pub cpu_seconds: f64,
    /// Share of cycles with floating-point work in flight, 0..1.
    pub fpu_usage: Option<f64>,
    /// Share of cycles with the shared vector unit occupied, 0..1.
    pub vector_usage: Option<f64>,
    /// The source of these two: `pmu FILE` or `sample` (an estimate).
    pub fpu_usage_source: Option<String>,
    /// Their confidence, 0..1.
    pub fpu_usage_confidence: Option<f64>,
    /// The last FPU class that the engine decided by.
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
    /// Whether its user, the thread itself or corewise decides where it runs.
    pub standing: Standing,
    /// When corewise had it bound, and where; the latest ones of very many.
    pub bindings: Vec<Binding>,
    /// Where it ran and for what share of the time, as far as observations at intervals show.
    pub ran_on: Vec<RanOn>,
}

/// Threads that are reported together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadGroup {
    /// Their application.
    pub application: Arc<str>,
    /// Their name; `null` for threads of different names.
    pub name: Option<Arc<str>>,
    /// Their number.
    pub threads: u64,
    /// Their total CPU time.
    pub cpu_seconds: f64,
}

/// A period in which a thread was bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Its start, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// Its end, in nanoseconds since the start of the run.
    pub to_ns: u64,
    /// The PEs, as a list.
    pub pes: CpuSet,
}

/// A period between two observations in which a thread ran. The share is exact; the PE is the one on which
/// the thread was seen at the end. Unless it was bound, it may have run on others as well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RanOn {
    /// Its start, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// Its end, in nanoseconds since the start of the run.
    pub to_ns: u64,
    /// The PE; `null` if spans on different PEs were merged in a long run.
    pub pe: Option<PeId>,
    /// The share of the period in which the thread ran, 0..1.
    pub share: f64,
}

/// One application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplicationReport {
    /// Its name.
    pub name: Arc<str>,
    /// The name of the application that executed its program; `null` for what the user named.
    #[serde(default)]
    pub executed_by: Option<Arc<str>>,
    /// What the user named: `command`, or the process or control group that was attached. It, or what runs
    /// below it.
    pub target: Target,
    /// The PEs that its first process could use; `null` if unknown.
    pub allowed: Option<CpuSet>,
    /// When watching began. TLP, the sequential fraction and FPU usage by clock samples are of the time from
    /// then on.
    pub from_seconds: f64,
    /// When it was found to have ended; `null` if some of it still runs.
    pub ended_seconds: Option<f64>,
    /// CPU time of all its threads: a command's from its start, others' while they were watched.
    pub cpu_seconds: f64,
    /// That time over the duration: the mean number of PEs that it kept busy; `null` if the duration is 0.
    #[serde(default)]
    pub busy_pes_mean: Option<f64>,
    /// Time-weighted mean number of runnable threads, while it was watched.
    pub tlp_mean: f64,
    /// Share of its active time with exactly one runnable thread, 0..1.
    pub sequential_fraction: Option<f64>,
    /// Whether these two are `exact` or `estimated` (by polling, or because there were too many switches to
    /// trace continuously).
    pub parallelism_evidence: Cow<'static, str>,
    /// The maximum number of threads that were runnable at once.
    pub runnable_max: u32,
    /// `ST`, `PS` or `HP`.
    pub parallelism_class: Option<ParallelismClass>,
    /// `CI` or `MI`; needs a hardware counter.
    pub intensity_class: Option<IntensityClass>,
    /// FPU usage of all its threads, weighted by CPU time, 0..1.
    pub fpu_usage: Option<f64>,
    /// Usage of the shared vector unit of all its threads, weighted by CPU time, 0..1.
    pub vector_usage: Option<f64>,
    /// L2 misses per 100 cycles of all its threads.
    pub l2_misses_per_100_cycles: Option<f64>,
    /// Instructions per cycle of all its threads.
    pub ipc: Option<f64>,
}

/// One requested change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The time, in nanoseconds since the start.
    pub at_ns: u64,
    /// The thread.
    pub tid: u32,
    /// The PEs that the thread was bound to; `null` if its own were restored, or for a setting.
    pub pes: Option<CpuSet>,
    /// The setting in words; `null` for a change of PEs.
    pub setting: Option<String>,
    /// Why.
    pub reason: String,
    /// The outcome: `done`, or the system's answer; `null` if the run ended first.
    pub outcome: Option<String>,
}

/// The cost of corewise itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// CPU time of corewise.
    pub cpu_seconds: f64,
    /// CPU time divided by wall time: the share of one PE.
    pub fraction_of_wall: f64,
    /// Median duration of a round, from wake-up to the last action, in milliseconds; `null` in a replay.
    pub round_ms_median: Option<f64>,
    /// Duration of the longest round, in milliseconds.
    pub round_ms_max: Option<f64>,
    /// The peak memory usage of corewise; `null` in a replay.
    pub peak_memory_bytes: Option<u64>,
}

impl Shared {
    /// Returns what the PEs of a machine share, with one entry for PEs that share several things of one kind,
    /// or that also share something closer.
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

impl PeKind {
    /// Returns the kinds of a machine's PEs, if there are several.
    fn of(topology: &Topology) -> Vec<PeKind> {
        let kinds = topology.kinds.iter().filter(|_| topology.kinds.len() > 1);
        kinds.map(|kind| PeKind { name: kind.name.clone(), pes: kind.pes.clone() }).collect()
    }
}

/// Rounds a share to its significant digits, so that rounding errors of 0 become 0.
fn rounded(share: f64) -> f64 {
    // Adding 0 turns -0 into 0.
    (share * 1e6).round() / 1e6 + 0.0
}

#[cfg(test)]
mod tests;
