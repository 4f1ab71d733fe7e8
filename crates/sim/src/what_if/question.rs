//! What is asked.

use crate::machine::MachineSpec;
use corewise_core::policy::Policy;
use corewise_core::recording::Recording;

/// The parameters of a prediction.
pub struct Question<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// The machine on which it was made, if more is known than the recording contains.
    pub recorded_on: Option<MachineSpec>,
    /// The target machine; `None`: the recorded one.
    pub machine: Option<MachineSpec>,
    /// The target policy, created for each run.
    pub policy: &'a dyn Fn() -> Box<dyn Policy>,
    /// FPU usage at or above which a thread counts as FPU-intensive, 0..1.
    pub fpu_threshold: f64,
    /// The first seed.
    pub seed: u64,
    /// The number of seeds.
    pub runs: u32,
}
