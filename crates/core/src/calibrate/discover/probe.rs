//! Decides with as few repetitions as possible whether a PE is slowed down by those that run beside it.
//!
//! Problem: one measurement may be off by 10 % and more, with some outliers, and thousands of decisions must
//! all be correct. Approach: the observed value is `x = ln(rate / clock) - baseline`, where the baseline is
//! the PE's median when it runs alone; this removes the effect of fast and slow PEs and of a clock that falls
//! when many PEs run. The set runs again and again until Wald's sequential test ("Sequential Tests of
//! Statistical Hypotheses", 1945) has decided for each member: x has the mean 0, or the mean -δ. With the
//! noise σ estimated from the baselines' own scatter, an observation adds its log-likelihood ratio `(-xδ -
//! δ²/2) / σ²`, limited to ±[`EVIDENCE_MAX`] so that no outlier decides.
//!
//! Limits: a slowdown near δ/2 (1.28) fits neither hypothesis and ends in [`Halt::Unclear`]. If an executor
//! does not report the clock, a clock that falls by that much when many PEs run is mistaken for sharing.

use super::halt::Halt;
use crate::calibrate::{Executor, Task, TaskRun};
use crate::ids::PeId;
use crate::kernels::Kernel;
use crate::stats;
use std::collections::BTreeMap;
use std::time::Duration;

/// δ: the smallest slowdown that counts as sharing, as a logarithm (1.65 times).
const EFFECT: f64 = 0.5;

/// The maximum evidence of one observation for or against.
const EVIDENCE_MAX: f64 = 5.0;

/// The evidence that decides: at least four observations that agree.
const EVIDENCE_DECIDES: f64 = 18.0;

/// Repetitions after which a set that is still undecided is given up.
const REPETITIONS_MAX: u32 = 60;

/// The required standard error of a median; six of them are half of [`EFFECT`].
const MEDIAN_ERROR: f64 = 0.04;

/// The minimum and maximum repetitions of tasks that run alone.
const REPETITIONS_ALONE: std::ops::RangeInclusive<usize> = 8..=120;

/// The minimum noise: the conditions of a baseline and of a set differ by this much anyway.
const NOISE_MIN: f64 = 0.03;

/// The machine under test, and the cost of the tests without repetitions.
pub struct Oracle<'a> {
    /// The machine.
    pub executor: &'a mut dyn Executor,
    /// The number of sets of two PEs.
    pub pairs: u64,
    /// The number of larger sets.
    pub groups: u64,
    /// The number of PEs in all of these, and in the runs alone.
    pub members: u64,
}

/// The load of every PE.
pub struct Load {
    /// The kernel.
    pub kernel: Kernel,
    /// The region in bytes of each tested PE; empty for a kernel without regions.
    pub regions: BTreeMap<PeId, u64>,
    /// The duration of one repetition.
    pub window: Duration,
}

/// A load with its baselines, ready to judge.
pub struct Probe {
    load: Load,
    baselines: BTreeMap<PeId, f64>,
    noise: f64,
}

impl Probe {
    /// Measures the baselines of these PEs.
    pub fn new(oracle: &mut Oracle<'_>, load: Load, pes: &[PeId]) -> Result<Self, Halt> {
        oracle.executor.renew_memory();
        let tasks: Vec<Task> = pes.iter().map(|&pe| load.task(pe)).collect();
        let (medians, noise) = alone(oracle.executor, &tasks, load.window)?;
        oracle.members += pes.len() as u64;
        Ok(Self { load, baselines: pes.iter().copied().zip(medians).collect(), noise })
    }

    /// Returns for each of these PEs whether it is slowed down when all of them run.
    pub fn slowed(&self, oracle: &mut Oracle<'_>, pes: &[PeId]) -> Result<Vec<bool>, Halt> {
        *if pes.len() == 2 { &mut oracle.pairs } else { &mut oracle.groups } += 1;
        oracle.members += pes.len() as u64;
        let tasks: Vec<Task> = pes.iter().map(|&pe| self.load.task(pe)).collect();
        let mut evidence = vec![0.0f64; pes.len()];
        for _ in 0..REPETITIONS_MAX {
            let observed = run(oracle.executor, &tasks, self.load.window)?;
            for ((sum, value), pe) in evidence.iter_mut().zip(observed).zip(pes) {
                // A decision is final: further evidence would only let a late outlier undo it.
                if sum.abs() < EVIDENCE_DECIDES
                    && let Some(value) = value
                {
                    *sum += self.evidence(value - self.baselines[pe]);
                }
            }
            if evidence.iter().all(|sum| sum.abs() >= EVIDENCE_DECIDES) {
                return Ok(evidence.iter().map(|&sum| sum > 0.0).collect());
            }
        }
        Err(Halt::Unclear { noise: self.noise })
    }

    fn evidence(&self, x: f64) -> f64 {
        let ratio = (-x * EFFECT - EFFECT * EFFECT / 2.0) / (self.noise * self.noise);
        ratio.clamp(-EVIDENCE_MAX, EVIDENCE_MAX)
    }
}

impl Load {
    fn task(&self, pe: PeId) -> Task {
        Task::new(pe, self.kernel, self.regions.get(&pe).copied().unwrap_or(0))
    }
}

/// Returns the medians of the values of tasks that run one at a time, and the noise of a single measurement.
/// Each median is as exact as [`MEDIAN_ERROR`] requires, if [`REPETITIONS_ALONE`] allow.
pub fn alone(executor: &mut dyn Executor, tasks: &[Task], window: Duration) -> Result<(Vec<f64>, f64), Halt> {
    let mut observed: Vec<Vec<f64>> = vec![Vec::new(); tasks.len()];
    let (least, most) = (*REPETITIONS_ALONE.start(), *REPETITIONS_ALONE.end());
    let (mut wanted, mut noise) = (least, 0.0);
    // A second round follows if the first shows that the noise requires it.
    for _ in 0..2 {
        for (task, values) in tasks.iter().zip(&mut observed) {
            for _ in values.len()..wanted {
                values.extend(run(executor, std::slice::from_ref(task), window)?.first().copied().flatten());
            }
            if values.len() < least / 2 {
                return Err(Halt::Unclear { noise: f64::INFINITY });
            }
        }
        noise = scatter(&observed).max(NOISE_MIN);
        // A median's standard error is 1.25 σ / √n.
        wanted = ((1.25 * noise / MEDIAN_ERROR).powi(2).ceil() as usize).clamp(least, most);
    }
    Ok((observed.iter().filter_map(|values| stats::median(values)).collect(), noise))
}

/// Runs one repetition, unless the user interrupts. Returns the logarithm of each task's work per second of
/// run time and per GHz; `None` if the task could run for less than half of its time, or did nothing.
fn run(executor: &mut dyn Executor, tasks: &[Task], window: Duration) -> Result<Vec<Option<f64>>, Halt> {
    if executor.interrupted() {
        return Err(Halt::Interrupted);
    }
    let repetition = executor.run(tasks, window).map_err(Halt::Failed)?;
    let pace = |run: &TaskRun| {
        let ran = run.elapsed.saturating_sub(run.lost).as_secs_f64();
        let counts = 2.0 * ran > run.elapsed.as_secs_f64() && run.work > 0.0;
        counts.then(|| (run.work / ran / run.clock_ghz.unwrap_or(1.0)).ln())
    };
    Ok(repetition.runs.iter().map(pace).collect())
}

/// Returns the standard deviation of values around each list's own median, estimated from the median
/// deviation.
fn scatter(lists: &[Vec<f64>]) -> f64 {
    let deviations = |list: &Vec<f64>| {
        let middle = stats::median(list).unwrap_or_default();
        list.iter().map(|value| (value - middle).abs()).collect::<Vec<f64>>()
    };
    let all: Vec<f64> = lists.iter().flat_map(deviations).collect();
    1.4826 * stats::median(&all).unwrap_or_default()
}
