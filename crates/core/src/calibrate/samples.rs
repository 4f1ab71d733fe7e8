//! The measurements of a cell, and their evaluation.
//!
//! Problem: a repetition may be disturbed (the hypervisor took the PE away, another thread ran), and what is
//! a disturbance on one PE is normal on another. Approach: a repetition is discarded if a PE lost clearly
//! more of its time than in nine of ten repetitions on the same PE ([`Usual`]). So at most a tenth is
//! discarded, and a PE that always loses half of its time counts as slow, not as noisy. Disturbances that are
//! not visible are left to the trimmed mean.
//!
//! Each visit gives one value of a contrast, and these are averaged ([`stats::trimmed_mean`]). The speed of a
//! PE is different: it is total work over total time, since a PE that several threads share has fast and slow
//! repetitions and no typical one. Its interval comes from linearising the logarithm of that ratio (W. G.
//! Cochran, "Sampling Techniques", 1977, §6.3).
//!
//! Limits: visits are assumed to be independent. A drift during the whole calibration widens the interval,
//! but a constant error is not detected.

use super::TaskRun;
use super::cell::{Arm, Cell, Contrast, Purpose, Term};
use crate::ids::PeId;
use crate::stats::{self, Interval};
use std::collections::BTreeMap;
use std::time::Duration;

/// The runs of each arm; `None` if the arm was not run.
pub(super) type Visit = Vec<Option<Vec<TaskRun>>>;

/// A cell with its measurements.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub cell: Cell,
    pub visits: Vec<Visit>,
    /// For each arm why it cannot be run.
    pub failures: Vec<Option<super::ExecutorError>>,
    /// Whether every NAS run gave the published result.
    pub verified: bool,
    /// Whether all intervals are as narrow as requested.
    pub done: bool,
    /// The time spent on it.
    pub spent: Duration,
}

/// The share of its time that each PE loses at most in undisturbed repetitions.
#[derive(Debug, Clone, Default)]
pub(super) struct Usual(BTreeMap<PeId, f64>);

/// The tolerance on top of the usual loss, 0..1.
const LOST_SLACK: f64 = 0.02;

impl Usual {
    /// Learns from everything measured so far.
    pub fn learn(cells: &[Measured]) -> Self {
        let mut shares: BTreeMap<PeId, Vec<f64>> = BTreeMap::new();
        for (pe, run) in cells.iter().flat_map(Measured::task_runs) {
            shares.entry(pe).or_default().push(lost_share(run));
        }
        let limit = |shares: Vec<f64>| {
            let worst_tenth = stats::quantile(&shares, 0.9)?;
            let scatter = worst_tenth - stats::median(&shares)?;
            Some(worst_tenth + scatter + LOST_SLACK)
        };
        Self(shares.into_iter().filter_map(|(pe, shares)| Some((pe, limit(shares)?))).collect())
    }

    /// Returns whether a repetition should be discarded.
    pub fn is_disturbed(&self, arm: &Arm, runs: &[TaskRun]) -> bool {
        let beyond = |(pe, run)| self.0.get(&pe).is_some_and(|&limit| lost_share(run) > limit);
        matches!(arm, Arm::Tasks(_)) && arm.pes().into_iter().zip(runs).any(beyond)
    }
}

/// Returns the share of a run in which the task could not run, 0..1.
pub(super) fn lost_share(run: &TaskRun) -> f64 {
    let share = run.lost.as_secs_f64() / run.elapsed.as_secs_f64();
    if share.is_finite() { share.min(1.0) } else { 0.0 }
}

impl Measured {
    pub fn new(cell: Cell) -> Self {
        let failures = vec![None; cell.arms.len()];
        let (visits, spent) = (Vec::new(), Duration::ZERO);
        Self { cell, visits, failures, verified: true, done: false, spent }
    }

    /// Returns whether this is a NAS benchmark, whose visits take long.
    pub fn is_nas(&self) -> bool {
        matches!(self.cell.purpose, Purpose::Nas { .. })
    }

    /// Returns whether it was visited without failures.
    pub fn has_run(&self) -> bool {
        !self.visits.is_empty() && self.failures.iter().all(Option::is_none)
    }

    /// Returns whether no arm of the contrast has failed.
    pub fn is_possible(&self, contrast: &Contrast) -> bool {
        contrast.0.iter().all(|term| self.failures[term.arm].is_none())
    }

    /// Returns every run of kernels with its PE.
    pub fn task_runs(&self) -> impl Iterator<Item = (PeId, &TaskRun)> {
        self.visits.iter().flat_map(|visit| self.cell.arms.iter().zip(visit)).flat_map(|(arm, runs)| {
            let pes = if matches!(arm, Arm::Tasks(_)) { arm.pes() } else { Vec::new() };
            pes.into_iter().zip(runs.iter().flatten())
        })
    }

    /// Returns how many repetitions of an arm were kept and how many discarded.
    pub fn counts(&self, arm: usize, usual: &Usual) -> (u32, u32) {
        let runs = self.visits.iter().filter_map(|visit| visit[arm].as_ref());
        let (disturbed, kept): (Vec<_>, Vec<_>) =
            runs.partition(|runs| usual.is_disturbed(&self.cell.arms[arm], runs));
        (kept.len() as u32, disturbed.len() as u32)
    }

    /// Returns the contrast with its interval; `None` if too few visits have undisturbed runs of all its
    /// arms.
    pub fn interval(&self, contrast: &Contrast, usual: &Usual) -> Option<Interval> {
        if matches!(self.cell.purpose, Purpose::Speeds { .. }) {
            return self.ratio_of_totals(contrast, usual);
        }
        let log_rate = |visit: &Visit, term: &Term| {
            let runs = self.kept(visit, term.arm, usual)?;
            let rate = if self.cell.arms[term.arm].is_joint() {
                runs.iter().map(TaskRun::rate).sum()
            } else {
                runs.get(term.task)?.rate()
            };
            (rate > 0.0 && rate.is_finite()).then(|| term.weight * rate.ln())
        };
        let value = |visit| contrast.0.iter().map(|term| log_rate(visit, term)).sum::<Option<f64>>();
        let values: Vec<f64> = self.visits.iter().filter_map(value).collect();
        stats::trimmed_mean(&values)
    }

    /// Returns the runs of an arm, unless they should be discarded.
    fn kept<'a>(&self, visit: &'a Visit, arm: usize, usual: &Usual) -> Option<&'a [TaskRun]> {
        visit[arm].as_deref().filter(|runs| !usual.is_disturbed(&self.cell.arms[arm], runs))
    }

    /// Returns the contrast of total work over total time.
    fn ratio_of_totals(&self, contrast: &Contrast, usual: &Usual) -> Option<Interval> {
        let mut value = 0.0;
        let mut residuals = vec![0.0; self.visits.len()];
        let mut count = usize::MAX;
        for term in &contrast.0 {
            let run = |visit| self.kept(visit, term.arm, usual)?.get(term.task).copied();
            let runs: Vec<Option<TaskRun>> = self.visits.iter().map(run).collect();
            let (mut work, mut seconds) = (0.0, 0.0);
            for run in runs.iter().flatten() {
                work += run.work;
                seconds += run.elapsed.as_secs_f64();
            }
            if work <= 0.0 || seconds <= 0.0 {
                return None;
            }
            count = count.min(runs.iter().flatten().count());
            value += term.weight * (work / seconds).ln();
            for (residual, run) in residuals.iter_mut().zip(&runs) {
                let share = run.map(|run| run.work / work - run.elapsed.as_secs_f64() / seconds);
                *residual += term.weight * share.unwrap_or(0.0);
            }
        }
        if count < stats::VALUES_MIN {
            return None;
        }
        let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
        let standard_error = (squares * count as f64 / (count - 1) as f64).sqrt();
        Some(Interval::around(value, standard_error, count - 1, count))
    }
}
