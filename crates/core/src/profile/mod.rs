//! The machine profile: what a calibration found, as plain data. Versioned, self-describing JSON.
//!
//! Every figure is an [`Measurement`] with its interval, or absent with the reason in
//! [`MachineProfile::missing`].

use crate::calibrate::{Kernel, Nas, ProblemClass};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::topology::{DomainKind, Topology};
use serde::{Deserialize, Serialize};

mod diff;
#[cfg(test)]
pub(crate) mod fixture;
mod lookup;
mod read;
mod schedule;
mod words;

pub use diff::{Change, ProfileDiff, diff};
pub use read::{parse, to_json};

/// What a profile's file says that it is.
pub const FORMAT: &str = "corewise machine profile";

/// The version of the format that this code writes.
pub const VERSION: u32 = 1;

/// What is known of one machine by measuring it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineProfile {
    /// [`FORMAT`], so that a file says what it is.
    pub format: String,
    /// Version of the format; see [`VERSION`].
    pub version: u32,
    /// Whether the figures were `measured`, `emulated` or `simulated`.
    pub evidence: Evidence,
    /// When, on what, how long.
    pub circumstances: Circumstances,
    /// Whether everything that was planned and that this machine can do was measured; not if the user
    /// interrupted or the time ended before.
    pub complete: bool,
    /// The machine as the operating system tells it.
    #[serde(alias = "told")]
    pub reported: Topology,
    /// The machine as it behaves, if that was looked for.
    pub discovered: Option<Discovery>,
    /// The kinds of PE pairs that can be distinguished, closest first.
    pub classes: Vec<PairClass>,
    /// One entry per class and workload.
    pub pairs: Vec<PairResult>,
    /// Close against distant, per workload.
    pub deltas: Vec<Delta>,
    /// Synchronisation latency of single pairs (nanoseconds per unit of the kernel's work).
    pub latencies: Vec<PairLatency>,
    /// One thread alone, by region size: bytes per second, or seconds per load.
    pub memory: Vec<MemoryPoint>,
    /// Own slowdown as a function of the neighbour's demand.
    pub contention: Vec<ContentionCurve>,
    /// Relative speed of each PE.
    pub speeds: Vec<PeSpeed>,
    /// The NAS benchmarks.
    pub nas: Vec<NasResult>,
    /// What could not be measured, and why.
    pub missing: Vec<Missing>,
}

/// What the figures of a profile are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// On the real machine.
    Measured,
    /// On the real machine, of which a part was slowed down or hidden on purpose.
    Emulated,
    /// By a model.
    Simulated,
}

/// When, on what and how long was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Circumstances {
    /// Version of corewise.
    pub corewise: String,
    /// Seconds since 1970; `None` in a simulation.
    pub unix_time: Option<u64>,
    /// The processor's name.
    pub processor: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The hypervisor or container, as far as it shows.
    pub virtualisation: Option<String>,
    /// The frequency governor and limits, in words.
    pub frequency: Option<String>,
    /// Widest vector unit that the kernels used: `AVX-512`, `NEON`.
    pub vector_unit: Option<String>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Passes over all cells.
    pub passes: u32,
    /// Repetitions that were kept, over all cells.
    pub repetitions: u64,
    /// Repetitions thrown away because something disturbed them.
    pub discarded: u64,
    /// Share of the measured time in which tasks could not run (steal time, other threads), 0..1.
    pub lost_share: f64,
    /// What the user should know: load of others, a clock that changed, PEs that were offline.
    pub notes: Vec<String>,
}

/// A figure with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The best guess.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// From so many repetitions.
    pub repetitions: u32,
}

/// One kernel on a region: what a thread of a pair does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Load {
    /// The kernel.
    pub kernel: Kernel,
    /// Its region in bytes, 0 for kernels without.
    pub region_bytes: u64,
}

/// What the two threads of a pair do. Equal for most; the mixes of §3.3 and the power probe have two kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// The first thread's.
    pub first: Load,
    /// The second thread's.
    pub second: Load,
}

/// PE pairs that share the same things.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairClass {
    /// `same core`, `same module`, `same L2`, `same L3`, `same node`, `across`.
    pub name: String,
    /// The closest kind of domain that both PEs share; `None`: nothing but the machine.
    pub closest: Option<DomainKind>,
    /// How many pairs are in it.
    pub pairs: u64,
    /// The pairs that were measured: representatives first, then random ones as a check.
    pub measured: Vec<(PeId, PeId)>,
    /// How far the random pairs lie from the representatives, as the largest ratio of rates; `None` if there
    /// was none to compare.
    pub largest_deviation: Option<f64>,
}

/// What a class of pairs gets from a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairResult {
    /// Index into [`MachineProfile::classes`].
    pub class: usize,
    /// What the two threads did.
    pub workload: Workload,
    /// Geometric mean of both threads' rates, in units of work per second (synchronisation: of both
    /// together).
    pub rate: Measurement,
    /// Δ against each thread alone on its PE, as if it were the distant placement: 0 where nothing is shared,
    /// -1 where both take twice as long. `None` for synchronisation, which nobody does alone.
    pub delta_alone: Option<Measurement>,
    /// The two threads' slowdowns against running alone, first and second: 1 is none.
    pub slowdowns: Option<(Measurement, Measurement)>,
    /// Repetitions thrown away.
    pub discarded: u32,
}

/// Δ of a closer class against a more distant one (interdependencies, §3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// Index of the close class.
    pub close: usize,
    /// Index of the distant class.
    pub distant: usize,
    /// What was run.
    pub subject: Subject,
    /// Δ as the paper defines it, from interleaved repetitions on three PEs with one reference.
    pub delta: Measurement,
    /// What it says.
    pub verdict: Verdict,
}

/// What a Δ is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A workload of two threads.
    Workload(Workload),
    /// A NAS benchmark with two threads.
    Nas(Nas, ProblemClass),
}

/// What a Δ with its interval says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Close placement is better.
    Close,
    /// Distant placement is better.
    Distant,
    /// The difference is known to be negligible.
    Indifferent,
    /// The noise is larger than the difference.
    Unknown,
}

/// A synchronisation latency of one pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairLatency {
    /// One PE.
    pub a: PeId,
    /// The other.
    pub b: PeId,
    /// A synchronisation kernel.
    pub kernel: Kernel,
    /// Nanoseconds per unit of its work.
    pub ns: Measurement,
}

/// One thread alone on a region.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryPoint {
    /// The kernel and the region.
    pub load: Load,
    /// Units of work per second.
    pub rate: Measurement,
}

/// A resource for whose use neighbours compete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Floating-point and vector units.
    Fpu,
    /// Integer units and issue slots.
    Integer,
    /// First-level cache.
    L1,
    /// Second-level cache.
    L2,
    /// Third-level cache.
    L3,
    /// The way to memory.
    MemoryBandwidth,
}

/// Own slowdown as a function of the neighbour's demand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContentionCurve {
    /// Index of the pair class.
    pub class: usize,
    /// For what they compete.
    pub resource: Resource,
    /// What both run.
    pub load: Load,
    /// The neighbour's duty (share of its own full demand), 0..1, and the slowdown that it causes: 1 is none.
    pub points: Vec<(f64, Measurement)>,
}

/// The speed of one PE.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeSpeed {
    /// Which.
    pub pe: PeId,
    /// The kernel.
    pub kernel: Kernel,
    /// Its rate divided by that of the fastest PE.
    pub relative: Measurement,
}

/// A NAS benchmark on the PEs of one placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NasResult {
    /// Which.
    pub nas: Nas,
    /// Its size.
    pub class: ProblemClass,
    /// Whose program: ours, or a user's NPB binary.
    pub own: bool,
    /// Index of the pair class on which two threads ran; `None`: one thread.
    pub pair_class: Option<usize>,
    /// Seconds.
    pub seconds: Measurement,
    /// Whether every run gave the published result.
    pub verified: bool,
}

/// The sharing domains as the machine's behaviour shows them, without believing what it tells.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Discovery {
    /// The groups of two or more PEs found, by kind of domain, in order of their first PE.
    pub groups: Vec<(DomainKind, CpuSet)>,
    /// The kinds that were looked for. One that is missing here could not be judged.
    pub looked_for: Vec<DomainKind>,
    /// Where reported and found differ, in words.
    pub disagreements: Vec<String>,
    /// How many pairs were measured on their own, repetitions not counted.
    pub pair_measurements: u64,
    /// How many groups of more than two PEs were measured at once.
    pub group_measurements: u64,
    /// The sum of the PEs over all of these, halved: what it cost, in pairs.
    pub pair_equivalents: u64,
    /// Checks at the end that contradicted the result: more than none, and the hypervisor moves PEs about or
    /// the noise is too large.
    pub contradictions: u64,
}

/// Something that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// Why, and what would help.
    pub why: String,
}

/// Why a text is no machine profile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// It is no JSON, or JSON of something else.
    #[error("it is no machine profile ({problem}): corewise calibrate makes one")]
    NotAProfile {
        /// What is wrong.
        problem: String,
    },
    /// A later corewise wrote it.
    #[error("its format is version {found}, this corewise reads up to {VERSION}: use a newer corewise")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It contradicts itself.
    #[error("it is damaged: {problem}; calibrate again")]
    Damaged {
        /// Where.
        problem: String,
    },
}

impl MachineProfile {
    /// A profile of a machine on which nothing has been measured yet.
    pub fn empty(reported: Topology, evidence: Evidence) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            evidence,
            circumstances: Circumstances::default(),
            complete: false,
            reported,
            discovered: None,
            classes: Vec::new(),
            pairs: Vec::new(),
            deltas: Vec::new(),
            latencies: Vec::new(),
            memory: Vec::new(),
            contention: Vec::new(),
            speeds: Vec::new(),
            nas: Vec::new(),
            missing: Vec::new(),
        }
    }
}

/// A Δ that is known to lie within this distance of 0 makes no difference that counts.
pub const INDIFFERENT: f64 = 0.02;

impl Verdict {
    /// What a Δ says.
    pub fn of(delta: &Measurement) -> Self {
        match delta {
            Measurement { low, high, .. } if *low >= -INDIFFERENT && *high <= INDIFFERENT => {
                Verdict::Indifferent
            }
            Measurement { low, .. } if *low > 0.0 => Verdict::Close,
            Measurement { high, .. } if *high < 0.0 => Verdict::Distant,
            _ => Verdict::Unknown,
        }
    }
}

impl Resource {
    /// Every resource, closest to the execution units first.
    pub const ALL: [Resource; 6] = [
        Resource::Integer,
        Resource::Fpu,
        Resource::L1,
        Resource::L2,
        Resource::L3,
        Resource::MemoryBandwidth,
    ];
}

impl Workload {
    /// Both threads do the same.
    pub fn both(kernel: Kernel, region_bytes: u64) -> Self {
        let load = Load { kernel, region_bytes };
        Self { first: load, second: load }
    }
}
