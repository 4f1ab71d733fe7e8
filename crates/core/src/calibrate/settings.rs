//! What a user may choose about a calibration, and what it says while it runs.

use super::{Kernel, Nas, ProblemClass};
use crate::profile::Evidence;
use std::time::Duration;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Few region sizes, few contention points, short windows: a first look within a minute.
    Quick,
    /// Everything of the method.
    Full,
}

/// What is measured and how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How much is measured.
    pub mode: Mode,
    /// What the executor's figures are.
    pub evidence: Evidence,
    /// The calibration ends after this time, whatever is still imprecise.
    pub budget: Duration,
    /// A cell is done when the 95 % interval of each of its log ratios (nearly: of its Δ) is at most this
    /// wide.
    pub interval_width: f64,
    /// The passes that a cell takes part in before its interval is believed to be narrow, 3 or more.
    pub passes_min: u32,
    /// How long one repetition works.
    pub window: Duration,
    /// The kernels that may be used; what needs another one is left out.
    pub kernels: Vec<Kernel>,
    /// The NAS benchmarks to run, as far as the time allows.
    pub nas: Vec<(Nas, ProblemClass)>,
    /// Whether the executor runs our own NAS benchmarks; not if it runs a user's binaries.
    pub nas_own: bool,
    /// At most this share of the time is spent on NAS benchmarks while other cells are unfinished, 0..1.
    pub nas_share: f64,
    /// Fixes every random choice: the order of cells, the order within a cell, the pairs of the checks.
    pub seed: u64,
}

impl Settings {
    /// A first look: at most a minute, with what comes before and after.
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

/// Everything: at most ten minutes, with what comes before and after.
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

/// How far a calibration is; reported before each visit to a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What is being measured.
    pub phase: Phase,
    /// The cell in words: `read of 64 KiB`.
    pub cell: String,
    /// Number of this pass over the unfinished cells, from 1.
    pub pass: u32,
    /// Cells that need no more passes.
    pub cells_done: usize,
    /// All cells.
    pub cells: usize,
    /// Share of the work done, 0..1; never falls.
    pub done: f64,
    /// The time that is left at most: the rest of the budget.
    pub remaining: Duration,
}
