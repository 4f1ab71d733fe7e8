//! The effect of sampling period, number of runs and length of windows: the paper's Figures 3, 4 and 5.
//!
//! A few recordings suffice for all of it. A longer period is emulated by dropping windows, and shorter
//! windows by dropping their last branches; a sampler with those settings would have recorded the same, apart
//! from its own cost to the program.

use crate::accuracy::{Agreement, agreement};
use crate::estimate::Estimator;
use crate::profile::PathProfile;
use crate::program::Program;
use crate::window::{BranchRecording, ModuleId};
use serde::{Deserialize, Serialize};

/// The settings to try, in all combinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// One in this many windows is kept; at least 1.
    pub one_in: Vec<usize>,
    /// This many recordings are used, from the first.
    pub runs: Vec<usize>,
    /// This many branches of each window are used; of the largest number, all that a window has.
    pub branches: Vec<usize>,
}

/// The result of one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Mean time between windows of a running thread, in ns.
    pub period_ns: u64,
    /// The number of recordings used.
    pub runs: usize,
    /// The maximum number of branches used of a window.
    pub branches: usize,
    /// The number of windows used, without those that disagree with the code.
    pub windows: usize,
    /// The number of different paths that windows contained whole.
    pub paths_seen_whole: usize,
    /// The agreement of the estimate with the truth.
    pub agreement: Agreement,
}

/// Stitches the runs once for every setting of the grid that they allow, over the wanted modules only. All
/// recordings and the truth must number their modules alike ([`crate::modules::ModuleTable`]).
pub fn study(
    program: &dyn Program,
    truth: &PathProfile,
    runs: &[BranchRecording],
    grid: &Grid,
    wanted: impl Fn(ModuleId) -> bool,
) -> Vec<Row> {
    let truth = truth.in_modules(&wanted);
    let mut rows = Vec::new();
    for &one_in in grid.one_in.iter().filter(|&&one_in| one_in > 0) {
        let longest = grid.branches.iter().max();
        for &used in grid.runs.iter().filter(|&&used| (1..=runs.len()).contains(&used)) {
            for &branches in &grid.branches {
                let cut_at = (Some(&branches) != longest).then_some(branches);
                let mut estimator = Estimator::new(program);
                for run in &runs[..used] {
                    for window in run.windows.iter().step_by(one_in) {
                        _ = estimator.add(window, cut_at); // Those that disagree are not counted.
                    }
                }
                let estimate = estimator.estimate();
                rows.push(Row {
                    period_ns: runs[0].period_ns * one_in as u64,
                    runs: used,
                    branches,
                    windows: estimate.windows,
                    paths_seen_whole: estimate.paths_seen_whole,
                    agreement: agreement(&truth, &estimate.profile.in_modules(&wanted)),
                });
            }
        }
    }
    rows
}
