//! The findings of a comparison: figures, effects, and notes about the runs.

use super::effect::{Effect, Verdict, detectable_with, effect, effect_on_mean};
use super::{Plan, Run, Trial, Workload};
use crate::stats::{Interval, median};
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;

/// The deviation from the median from which a value counts as an outlier: in robust standard deviations, and
/// as a share.
const OUTLIER: (f64, f64) = (5.0, 0.02);
/// Converts the median absolute deviation of normal noise to its standard deviation.
const MAD_TO_DEVIATION: f64 = 1.4826;
/// The smallest change from the first run to the last that is noted.
const DRIFT_NOTED: f64 = 0.01;
/// The smallest load by others that is noted, in PEs on average.
const OTHERS_NOTED: f64 = 0.1;
/// The smallest share of time taken by a hypervisor that is noted.
const STEAL_NOTED: f64 = 0.01;

/// Noted if there is one variant only.
pub const ALONE: &str = "there is one variant only, which is compared with itself: this shows the noise of \
    this machine; --policy, --variant or another command line says what to compare with";

/// A figure of a run that is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Seconds until all applications have completed.
    Wall,
    /// The same, compared by its mean over all runs; `Wall` is compared by typical runs.
    MeanWall,
    /// CPU seconds.
    Cpu,
    /// The geometric mean of the applications' times, in seconds.
    Completion,
    /// The largest over the smallest slowdown of the applications.
    Unfairness,
    /// Completions a second of each application, in runs of a fixed time.
    Throughput,
    /// Joules.
    Energy,
    /// A figure that the commands print under this name.
    Printed(String),
}

/// Serialized as its key, so that it can be a key in JSON.
impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

impl Metric {
    /// Returns the metrics that the runs have, the main one first.
    pub fn all(trials: &[Trial]) -> Vec<Metric> {
        let printed: BTreeSet<&String> = trials.iter().flat_map(|trial| trial.run.printed.keys()).collect();
        let fixed = [
            Metric::Wall,
            Metric::MeanWall,
            Metric::Throughput,
            Metric::Cpu,
            Metric::Completion,
            Metric::Unfairness,
            Metric::Energy,
        ];
        fixed.into_iter().chain(printed.into_iter().cloned().map(Metric::Printed)).collect()
    }

    /// Returns the name for people.
    pub fn name(&self) -> &str {
        match self {
            Metric::Wall => "time",
            Metric::MeanWall => "mean time",
            Metric::Cpu => "CPU time",
            Metric::Completion => "completion (geometric mean)",
            Metric::Unfairness => "unfairness",
            Metric::Throughput => "throughput (completions a second)",
            Metric::Energy => "energy",
            Metric::Printed(name) => name,
        }
    }

    /// Returns the key in JSON.
    pub fn key(&self) -> &str {
        match self {
            Metric::Wall => "wall",
            Metric::MeanWall => "mean_wall",
            Metric::Cpu => "cpu",
            Metric::Completion => "completion",
            Metric::Unfairness => "unfairness",
            Metric::Throughput => "throughput",
            Metric::Energy => "energy",
            Metric::Printed(name) => name,
        }
    }

    /// Returns the figure of a run; `None` if the machine or the workload does not provide it.
    pub fn of(&self, run: &Run, workload: &Workload) -> Option<f64> {
        let times = || run.completions.iter().map(|completion| completion.seconds);
        let value = match self {
            Metric::Wall => run.wall_seconds,
            // In runs of a fixed time, this is the time of a typical completion.
            Metric::MeanWall if workload.fixed_seconds.is_some() => return None,
            Metric::MeanWall => run.wall_seconds,
            Metric::Throughput if workload.fixed_seconds.is_some() => 1.0 / run.wall_seconds,
            Metric::Throughput => return None,
            Metric::Printed(name) => *run.printed.get(name)?,
            // In runs of a fixed time this is the load, not a cost.
            Metric::Cpu | Metric::Energy if workload.fixed_seconds.is_some() => return None,
            Metric::Cpu => run.user_seconds + run.system_seconds,
            Metric::Completion | Metric::Unfairness if run.completions.len() < 2 => return None,
            Metric::Completion => (times().map(f64::ln).sum::<f64>() / run.completions.len() as f64).exp(),
            // Copies of one command take the same time alone: their times are their slowdowns.
            Metric::Unfairness if workload.is_of_one_command() => {
                times().fold(0.0, f64::max) / times().fold(f64::INFINITY, f64::min)
            }
            Metric::Unfairness => return None,
            Metric::Energy => run.energy_joules?,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

impl Workload {
    fn is_of_one_command(&self) -> bool {
        self.applications.iter().all(|one| one.command == self.applications[0].command)
    }
}

/// The findings of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The number of complete blocks; only these are compared.
    pub blocks: usize,
    /// Each variant, in the plan's order.
    pub variants: Vec<VariantFindings>,
    /// The control against the baseline. The two are the same, so this is the noise of the machine.
    pub noise_floor: Vec<(Metric, Effect)>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The findings about a variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantFindings {
    /// Its name.
    pub name: String,
    /// Its figures; the baseline's include those of the control.
    pub summaries: Vec<(Metric, Summary)>,
    /// Mean CPU seconds in user mode.
    pub user_seconds: f64,
    /// Mean CPU seconds in the kernel.
    pub system_seconds: f64,
    /// Its figures against the baseline's; empty for the baseline itself.
    pub effects: Vec<(Metric, Effect)>,
}

impl VariantFindings {
    /// Returns the effect on a metric, if there is one.
    pub fn effect(&self, metric: &Metric) -> Option<&Effect> {
        self.effects.iter().find(|(one, _)| one == metric).map(|(_, effect)| effect)
    }

    /// Returns the summary of a metric, if there is one.
    pub fn summary(&self, metric: &Metric) -> Option<&Summary> {
        self.summaries.iter().find(|(one, _)| one == metric).map(|(_, summary)| summary)
    }

    /// Returns the summary of its times, in seconds.
    pub fn wall(&self) -> Option<&Summary> {
        self.summary(&Metric::Wall)
    }
}

/// Statistics of several values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; `None` for a single value.
    pub deviation: Option<f64>,
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Summary {
    /// Returns `None` without values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Summary {
            mean,
            deviation: (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()),
            median: median(values)?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// Returns the findings of the runs.
pub fn findings(plan: &Plan, trials: &[Trial]) -> Findings {
    let blocks: Vec<Vec<&Run>> = complete_blocks(plan, trials);
    let metrics = Metric::all(trials);
    let effects_of = |arm: usize| {
        let of = |metric: &Metric| {
            let pairs = pairs(plan, &blocks, arm, metric);
            let effect =
                if *metric == Metric::MeanWall { effect_on_mean(&pairs) } else { effect(&logs(&pairs)) };
            Some((metric.clone(), effect?))
        };
        metrics.iter().filter_map(of).collect::<Vec<_>>()
    };
    let control = plan.variants.len();
    let variants = plan.variants.iter().enumerate().map(|(index, variant)| {
        let runs: Vec<&Run> = runs_of(plan, trials, index).collect();
        let mean = |value: fn(&Run) -> f64| {
            runs.iter().map(|run| value(run)).sum::<f64>() / runs.len().max(1) as f64
        };
        let summary = |metric: &Metric| {
            let values: Vec<f64> = runs.iter().filter_map(|run| metric.of(run, &variant.workload)).collect();
            Some((metric.clone(), Summary::of(&values)?))
        };
        VariantFindings {
            name: variant.name.clone(),
            // The values are those of `Wall`.
            summaries: metrics.iter().filter(|one| **one != Metric::MeanWall).filter_map(summary).collect(),
            user_seconds: mean(|run| run.user_seconds),
            system_seconds: mean(|run| run.system_seconds),
            effects: if index == 0 { Vec::new() } else { effects_of(index) },
        }
    });
    let variants = variants.collect();
    let noise_floor = effects_of(control);
    let notes = notes(plan, trials, &noise_floor);
    Findings { blocks: blocks.len(), variants, noise_floor, notes }
}

/// Returns the difference of times that a number of blocks could detect for every variant, if the rest
/// scatters like the runs so far; `None` for fewer than three blocks.
pub fn detectable(plan: &Plan, trials: &[Trial], blocks: usize) -> Option<f64> {
    let complete = complete_blocks(plan, trials);
    let of_arm = |arm| detectable_with(&logs(&pairs(plan, &complete, arm, &Metric::Wall)), blocks);
    (1..plan.arms()).filter_map(of_arm).reduce(f64::max)
}

/// Returns the runs of a variant; the control's count as the baseline's.
pub(crate) fn runs_of<'a>(
    plan: &'a Plan,
    trials: &'a [Trial],
    variant: usize,
) -> impl Iterator<Item = &'a Run> {
    trials.iter().filter(move |trial| plan.variant_of(trial.arm) == variant).map(|trial| &trial.run)
}

/// Returns the runs of each complete block by arm.
fn complete_blocks<'a>(plan: &Plan, trials: &'a [Trial]) -> Vec<Vec<&'a Run>> {
    let by_arm = |block: &'a [Trial]| {
        let mut block: Vec<&Trial> = block.iter().collect();
        block.sort_by_key(|trial| trial.arm);
        block.into_iter().map(|trial| &trial.run).collect()
    };
    trials.chunks_exact(plan.arms()).map(by_arm).collect()
}

/// Returns for each block an arm's figure and the baseline's.
///
/// One run is compared with one run for the variants, too, although the control is a second run of the
/// baseline. Noise that only makes runs longer is then equally likely on either side, so the logarithms of
/// the ratios are symmetric about that of the true ratio, whatever the shape of the noise.
fn pairs(plan: &Plan, blocks: &[Vec<&Run>], arm: usize, metric: &Metric) -> Vec<(f64, f64)> {
    let of =
        |block: &[&Run], arm: usize| metric.of(block[arm], &plan.variants[plan.variant_of(arm)].workload);
    blocks.iter().filter_map(|block| Some((of(block, arm)?, of(block, 0)?))).collect()
}

fn logs(pairs: &[(f64, f64)]) -> Vec<f64> {
    pairs.iter().map(|(figure, baseline)| figure.ln() - baseline.ln()).collect()
}

fn notes(plan: &Plan, trials: &[Trial], noise_floor: &[(Metric, Effect)]) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.variants.len() == 1 {
        notes.push(ALONE.to_owned());
    }
    let floor = noise_floor.iter().find(|(metric, _)| *metric == Metric::Wall);
    if let Some((_, floor)) = floor
        && matches!(floor.verdict, Verdict::Less | Verdict::More)
    {
        notes.push(format!(
            "the control differs from the baseline by {:+.1} %, though both are the same: by chance in one \
             of twenty comparisons, else something follows the order of the runs; compare again before you \
             believe a small difference",
            (floor.ratio - 1.0) * 100.0
        ));
    }
    notes.extend(drift(plan, trials));
    notes.extend(outliers(plan, trials));
    let [others, steal] = disturbances(trials);
    notes.extend(others.map(|others| format!("{others}: figures are those of a loaded machine")));
    notes.extend(steal);
    let count = |is: fn(&Run) -> bool| trials.iter().filter(|trial| is(&trial.run)).count();
    let failed = count(|run| run.exit_code != 0);
    if failed > 0 {
        notes.push(format!("{failed} of {} runs failed; their times count like the others", trials.len()));
    }
    let late = count(|run| run.timed_out);
    if late > 0 {
        notes.push(format!(
            "{late} of {} runs took too long and were ended; their real times would be longer",
            trials.len()
        ));
    }
    let left = count(|run| run.left_behind > 0);
    if left > 0 {
        notes.push(format!("{left} of {} runs left processes behind, which were ended", trials.len()));
    }
    notes
}

/// Returns what others took from the runs, in words: other processes, and a hypervisor.
pub fn disturbances(trials: &[Trial]) -> [Option<String>; 2] {
    let mean = |value: fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = trials.iter().filter_map(|trial| value(&trial.run)).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let (others, steal) = (mean(|run| run.others_pes), mean(|run| run.steal_share));
    [
        (others > OTHERS_NOTED).then(|| format!("others took {others:.1} PEs' worth of time")),
        (steal > STEAL_NOTED)
            .then(|| format!("a hypervisor took {:.0} % of the machine's time", steal * 100.0)),
    ]
}

/// Returns whether times grow or shrink from the first run to the last: the slope of a line through their
/// logarithms, with each arm taken about its own median.
fn drift(plan: &Plan, trials: &[Trial]) -> Option<String> {
    const RUNS_MIN: usize = 6;
    let points: Vec<f64> = about_medians(plan, trials);
    let count = points.len();
    if count < RUNS_MIN {
        return None;
    }
    let middle = (count - 1) as f64 / 2.0;
    let mean = points.iter().sum::<f64>() / count as f64;
    let places = || points.iter().enumerate().map(|(place, value)| (place as f64 - middle, value - mean));
    let squares: f64 = places().map(|(place, _)| place * place).sum();
    let slope = places().map(|(place, value)| place * value).sum::<f64>() / squares;
    let degrees = count - 2;
    let rest: f64 = places().map(|(place, value)| (value - slope * place).powi(2)).sum();
    let slope = Interval::around(slope, (rest / degrees as f64 / squares).sqrt(), degrees, count);
    let change = (slope.value * (count - 1) as f64).exp_m1();
    let is_clear = slope.low > 0.0 || slope.high < 0.0;
    (is_clear && change.abs() >= DRIFT_NOTED).then(|| {
        format!(
            "times drifted by {:+.1} % from the first run to the last; the order of the runs balances that",
            change * 100.0
        )
    })
}

/// Returns the runs that are far off the others of their arm. They are kept: the interval gives them less
/// weight.
fn outliers(plan: &Plan, trials: &[Trial]) -> Option<String> {
    let points = about_medians(plan, trials);
    let mut deviations: Vec<Vec<f64>> = vec![Vec::new(); plan.arms()];
    for (trial, point) in trials.iter().zip(&points) {
        deviations[trial.arm].push(point.abs());
    }
    let typical: Vec<f64> =
        deviations.iter().map(|all| median(all).unwrap_or(0.0) * MAD_TO_DEVIATION).collect();
    let is_far =
        |(trial, point): &(&Trial, &f64)| point.abs() > (OUTLIER.0 * typical[trial.arm]).max(OUTLIER.1);
    let far: Vec<(&Trial, &f64)> = trials.iter().zip(&points).filter(is_far).collect();
    let (worst, point) = far.iter().max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()))?;
    Some(format!(
        "{} of {} runs are outliers and count less; the farthest is `{}` in block {}: {:.3} s, {:+.0} %",
        far.len(),
        trials.len(),
        plan.variants[plan.variant_of(worst.arm)].name,
        worst.block + 1,
        worst.run.wall_seconds,
        point.exp_m1() * 100.0
    ))
}

/// Returns the logarithm of each run's time about the median of its arm.
fn about_medians(plan: &Plan, trials: &[Trial]) -> Vec<f64> {
    let log = |trial: &Trial| trial.run.wall_seconds.max(1e-9).ln();
    let of_arm = |arm: usize| {
        let logs: Vec<f64> = trials.iter().filter(|trial| trial.arm == arm).map(log).collect();
        median(&logs).unwrap_or(0.0)
    };
    let medians: Vec<f64> = (0..plan.arms()).map(of_arm).collect();
    trials.iter().map(|trial| log(trial) - medians[trial.arm]).collect()
}
