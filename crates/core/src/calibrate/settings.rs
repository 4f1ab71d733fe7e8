//! The user's settings of a calibration, and its progress reports.

use crate::kernels::{Kernel, Nas, ProblemClass};
use crate::profile::Evidence;
use std::time::Duration;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Few region sizes, few contention points, short windows: a first look within a minute.
    Quick,
    /// Everything that the method covers.
    Full,
}

/// What is measured and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How much is measured.
    pub mode: Mode,
    /// The kind of the executor's figures.
    pub evidence: Evidence,
    /// The calibration ends after this time, even if figures are still imprecise.
    pub budget: Duration,
    /// A cell is done when the 95 % interval of each of its log ratios (approximately: of its Δ) is at most
    /// this wide.
    pub interval_width: f64,
    /// The minimum number of passes of a cell before its interval is trusted, 3 or more.
    pub passes_min: u32,
    /// The duration of one repetition.
    pub window: Duration,
    /// The kernels that may be used; measurements that need others are left out.
    pub kernels: Vec<Kernel>,
    /// The NAS benchmarks to run if the time suffices.
    pub nas: Vec<(Nas, ProblemClass)>,
    /// Whether the executor runs the built-in NAS benchmarks, as opposed to a user's binaries.
    pub nas_own: bool,
    /// The maximum share of the time for NAS benchmarks while other cells are unfinished, 0..1.
    pub nas_share: f64,
    /// The seed of all random choices: the order of cells, the order within a cell, the pairs of the checks.
    pub seed: u64,
}

impl Settings {
    /// Returns the settings of a first look, which takes at most a minute including setup.
    pub fn quick() -> Self {
        Self {
            mode: Mode::Quick,
            budget: Duration::from_secs(58),
            interval_width: 0.04,
            passes_min: 6,
            window: Duration::from_millis(10),
            nas: Nas::OWN.into_iter().map(|nas| (nas, ProblemClass::S)).collect(),
            nas_share: 0.15,
            ..Self::default()
        }
    }
}

/// The settings of a full calibration, which takes at most ten minutes including setup.
impl Default for Settings {
    fn default() -> Self {
        use ProblemClass::{A, S, W};
        let sizes = [S, W, A].into_iter();
        Self {
            mode: Mode::Full,
            evidence: Evidence::Measured,
            budget: Duration::from_secs(597),
            interval_width: 0.02,
            passes_min: 8,
            window: Duration::from_millis(25),
            kernels: Kernel::ALL.to_vec(),
            nas: sizes.flat_map(|size| Nas::OWN.into_iter().map(move |nas| (nas, size))).collect(),
            nas_own: true,
            nas_share: 0.3,
            seed: 1,
        }
    }
}

/// What is being measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The measuring loops.
    Kernels,
    /// The NAS benchmarks.
    Nas,
}

/// The progress of a calibration, reported before each visit to a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What is being measured.
    pub phase: Phase,
    /// A description of the cell: `read of 64 KiB`.
    pub cell: String,
    /// The number of this pass over the unfinished cells, from 1.
    pub pass: u32,
    /// The number of cells that need no more passes.
    pub cells_done: usize,
    /// The number of all cells.
    pub cells: usize,
    /// The completed share of the work, 0..1; monotonic.
    pub done: f64,
    /// The maximum remaining time: the rest of the budget.
    pub remaining: Duration,
}
