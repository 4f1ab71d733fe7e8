//! The machine profile: the results of a calibration as plain data, stored as versioned, self-describing
//! JSON.
//!
//! Every figure is a [`Measurement`] with its interval, or it is absent with the reason in
//! [`MachineProfile::missing`].

use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::kernels::{Kernel, Nas, ProblemClass};
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

/// The format name in a profile's file.
pub const FORMAT: &str = "corewise machine profile";

/// The format version that this code writes.
pub const VERSION: u32 = 1;

/// The measured properties of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineProfile {
    /// Always [`FORMAT`], so that the file identifies itself.
    pub format: String,
    /// The format version; see [`VERSION`].
    pub version: u32,
    /// Whether the figures were `measured`, `emulated` or `simulated`.
    pub evidence: Evidence,
    /// When, on what and for how long the machine was measured.
    pub circumstances: Circumstances,
    /// Whether everything that was planned and that this machine can do was measured. `false` if the user
    /// interrupted or the time ended before.
    pub complete: bool,
    /// The machine as reported by the operating system.
    #[serde(alias = "told")]
    pub reported: Topology,
    /// The sharing that was measured, if a discovery was made.
    pub discovered: Option<Discovery>,
    /// The kinds of PE pairs that can be distinguished, closest first.
    pub classes: Vec<PairClass>,
    /// One entry per class and workload.
    pub pairs: Vec<PairResult>,
    /// The Δ of close against distant placement, per workload.
    pub deltas: Vec<Delta>,
    /// Synchronisation latencies of single pairs (nanoseconds per unit of the kernel's work).
    pub latencies: Vec<PairLatency>,
    /// Rates of one thread alone, by region size: bytes per second, or seconds per load.
    pub memory: Vec<MemoryPoint>,
    /// Own slowdown as a function of the neighbour's demand.
    pub contention: Vec<ContentionCurve>,
    /// The relative speed of each PE.
    pub speeds: Vec<PeSpeed>,
    /// The results of the NAS benchmarks.
    pub nas: Vec<NasResult>,
    /// What could not be measured, and why.
    pub missing: Vec<Missing>,
}

/// The kind of the figures of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// Measured on the real machine.
    Measured,
    /// Measured on the real machine, of which a part was slowed down or hidden on purpose.
    Emulated,
    /// Computed by a model.
    Simulated,
}

/// When, on what and for how long a machine was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Circumstances {
    /// Version of corewise.
    pub corewise: String,
    /// Seconds since 1970; `None` in a simulation.
    pub unix_time: Option<u64>,
    /// The processor's name.
    pub processor: Option<String>,
    /// The kernel release.
    pub kernel: Option<String>,
    /// The hypervisor or container, if detected.
    pub virtualisation: Option<String>,
    /// The frequency governor and limits, in words.
    pub frequency: Option<String>,
    /// The widest vector unit that the kernels used: `AVX-512`, `NEON`.
    pub vector_unit: Option<String>,
    /// The duration, in seconds.
    pub seconds: f64,
    /// The number of passes over all cells.
    pub passes: u32,
    /// The number of repetitions that were kept, over all cells.
    pub repetitions: u64,
    /// The number of repetitions discarded because of disturbances.
    pub discarded: u64,
    /// Share of the measured time in which tasks could not run (steal time, other threads), 0..1.
    pub lost_share: f64,
    /// Notes for the user: load by others, a clock that changed, PEs that were offline.
    pub notes: Vec<String>,
}

/// A figure with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The number of repetitions.
    pub repetitions: u32,
}

/// One kernel on a region: the load of a thread of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Load {
    /// The kernel.
    pub kernel: Kernel,
    /// Its region in bytes; 0 for kernels without one.
    pub region_bytes: u64,
}

/// The loads of the two threads of a pair. Equal for most; the mixes of §3.3 and the power probe have two
/// kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// The first thread's load.
    pub first: Load,
    /// The second thread's load.
    pub second: Load,
}

/// PE pairs that share the same things.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairClass {
    /// `same core`, `same module`, `same L2`, `same L3`, `same node`, `across`.
    pub name: String,
    /// The closest kind of domain that both PEs share; `None` if they share only the machine.
    pub closest: Option<DomainKind>,
    /// The number of pairs in the class.
    pub pairs: u64,
    /// The pairs that were measured: representatives first, then random ones as a check.
    pub measured: Vec<(PeId, PeId)>,
    /// The deviation of the random pairs from the representatives, as the largest ratio of rates; `None`
    /// without random pairs.
    pub largest_deviation: Option<f64>,
}

/// The result of a workload on a class of pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairResult {
    /// Index into [`MachineProfile::classes`].
    pub class: usize,
    /// The workload of the two threads.
    pub workload: Workload,
    /// Geometric mean of both threads' rates, in units of work per second (synchronisation: of both
    /// together).
    pub rate: Measurement,
    /// Δ against each thread alone on its PE in place of the distant placement: 0 if nothing is shared, -1 if
    /// both take twice as long. `None` for synchronisation, which needs two threads.
    pub delta_alone: Option<Measurement>,
    /// The two threads' slowdowns against running alone, first and second: 1 is none.
    pub slowdowns: Option<(Measurement, Measurement)>,
    /// The number of discarded repetitions.
    pub discarded: u32,
}

/// Δ of a closer class against a more distant one (interdependencies, §3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// Index of the close class.
    pub close: usize,
    /// Index of the distant class.
    pub distant: usize,
    /// The workload or benchmark.
    pub subject: Subject,
    /// Δ as the paper defines it, from interleaved repetitions on three PEs with one reference.
    pub delta: Measurement,
    /// Which placement is better, by Δ.
    #[serde(alias = "verdict")]
    pub preference: Preference,
}

/// The subject of a Δ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A workload of two threads.
    Workload(Workload),
    /// A NAS benchmark with two threads.
    Nas(Nas, ProblemClass),
}

/// Which placement is better, by a Δ with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
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
    /// The first PE.
    pub a: PeId,
    /// The second PE.
    pub b: PeId,
    /// A synchronisation kernel.
    pub kernel: Kernel,
    /// Nanoseconds per unit of the kernel's work.
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

/// A resource for which neighbours compete.
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
    /// Memory bandwidth.
    MemoryBandwidth,
}

/// Own slowdown as a function of the neighbour's demand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContentionCurve {
    /// Index of the pair class.
    pub class: usize,
    /// The contended resource.
    pub resource: Resource,
    /// The load of both threads.
    pub load: Load,
    /// The neighbour's duty (share of its own full demand), 0..1, and the slowdown that it causes: 1 is none.
    pub points: Vec<(f64, Measurement)>,
}

/// The speed of one PE.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeSpeed {
    /// The PE.
    pub pe: PeId,
    /// The kernel.
    pub kernel: Kernel,
    /// Its rate divided by that of the fastest PE.
    pub relative: Measurement,
}

/// A NAS benchmark on the PEs of one placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NasResult {
    /// The benchmark.
    pub nas: Nas,
    /// Its size.
    pub class: ProblemClass,
    /// Whether the built-in program was used, as opposed to a user's NPB binary.
    pub own: bool,
    /// Index of the class of the pair on which two threads ran; `None` for one thread.
    pub pair_class: Option<usize>,
    /// Seconds.
    pub seconds: Measurement,
    /// Whether the result of every run equals the published one.
    pub verified: bool,
}

/// The sharing domains derived from the machine's behaviour, independent of what is reported.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Discovery {
    /// The groups of two or more PEs found, by kind of domain, in order of their first PE.
    pub groups: Vec<(DomainKind, CpuSet)>,
    /// The kinds that were looked for. A kind that is missing here could not be determined.
    pub looked_for: Vec<DomainKind>,
    /// The differences between reported and measured sharing, in words.
    pub disagreements: Vec<String>,
    /// The number of pairs that were measured individually, repetitions not counted.
    pub pair_measurements: u64,
    /// The number of groups of more than two PEs that were measured at once.
    pub group_measurements: u64,
    /// The sum of the PEs over all of these, halved: the cost in pairs.
    pub pair_equivalents: u64,
    /// The number of final checks that contradicted the result. If it is not 0, the hypervisor migrates PEs
    /// or the noise is too large.
    pub contradictions: u64,
}

/// Something that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The figure or kind.
    pub what: String,
    /// The reason, and what would help.
    pub why: String,
}

/// Why a text is not a valid machine profile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// It is not JSON, or JSON of something else.
    #[error("it is not a machine profile ({problem}): make one with `corewise calibrate`")]
    NotAProfile {
        /// What is wrong.
        problem: String,
    },
    /// It was written by a later corewise.
    #[error("its format is version {found}, this corewise reads up to {VERSION}: use a newer corewise")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It is inconsistent.
    #[error("it is damaged: {problem}; calibrate again")]
    Damaged {
        /// The inconsistency.
        problem: String,
    },
}

impl MachineProfile {
    /// Returns a profile without measurements.
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

/// A Δ that certainly lies within this distance of 0 is negligible.
pub const INDIFFERENT: f64 = 0.02;

impl Preference {
    /// Returns which placement is better, by a Δ.
    pub fn of(delta: &Measurement) -> Self {
        match delta {
            Measurement { low, high, .. } if *low >= -INDIFFERENT && *high <= INDIFFERENT => {
                Preference::Indifferent
            }
            Measurement { low, .. } if *low > 0.0 => Preference::Close,
            Measurement { high, .. } if *high < 0.0 => Preference::Distant,
            _ => Preference::Unknown,
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
    /// Returns the workload with the same load for both threads.
    pub fn both(kernel: Kernel, region_bytes: u64) -> Self {
        let load = Load { kernel, region_bytes };
        Self { first: load, second: load }
    }
}
