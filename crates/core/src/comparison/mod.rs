//! Reliable comparisons: whether one way to run a program is faster than another.
//!
//! Problem: the time of a program differs from run to run by more than most changes gain, and it drifts: the
//! machine warms up, other load comes and goes, a hypervisor takes time. Running one variant ten times and
//! then the other ten times measures these effects, too.
//!
//! Approach: runs are made in *blocks*. A block runs every variant once, in random order; the next block runs
//! them in reverse order, so that a steady drift cancels out. In each block the first variant, the
//! *baseline*, runs a second time under the name of a *control*. Every figure is a ratio within a block, on a
//! logarithmic scale, so disturbances of a whole block cancel out. As both runs of a ratio are disturbed
//! alike, the logarithms are symmetric about the truth, which is all that the interval requires
//! ([`crate::stats::symmetric_centre`]). The control's ratio shows what this machine measures, now, for two
//! identical things: its noise floor. A variant is called faster or slower if its interval excludes 1. The
//! number of runs is fixed in advance, by number or by time, never by results. A run in which time stood
//! still (the comparison was stopped, the machine suspended) is made again.
//!
//! Times are compared twice. The ratio of *typical* runs ignores the size of outliers, and so finds small
//! effects in noise. But a program that is delayed for long in some of its runs loses by these alone, and no
//! typical run shows it. So the *mean* time is compared, too ([`Metric::MeanWall`]), with an interval that
//! assumes no shape either ([`crate::stats::ratio_of_sums`]).
//!
//! Sources: R. A. Fisher, "The Design of Experiments", 1935 (randomised blocks); T. Kalibera, R. Jones,
//! "Rigorous Benchmarking in Reasonable Time", ISMM 2013 (ratios with intervals).
//!
//! Limits: each single verdict is wrong in at most one of twenty comparisons of equal things, so among many
//! verdicts some are wrong. A disturbance with the rhythm of the blocks is not detected. If a variant makes
//! times skewed, the ratio of typical times lies between that of the means and that of the medians.

mod conduct;
mod effect;
pub mod figure;
mod findings;
#[cfg(test)]
mod tests;

pub use conduct::{Ending, Executor, Made, Progress, Stage, conduct, order};
pub use effect::{BLOCKS_MIN, Effect, POWER, Verdict, effect, effect_on_mean};
pub use findings::{ALONE, Findings, Metric, Summary, VariantFindings, detectable, disturbances, findings};

use crate::cpuset::CpuSet;
use crate::stats::quantile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is compared, and how. The plan and the trials so far are sufficient to continue a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The variants; the first is the baseline.
    pub variants: Vec<Variant>,
    /// When it ends.
    pub length: Length,
    /// The number of initial runs of each variant that do not count.
    pub warmup: u32,
    /// The random seed of the order of the runs.
    pub seed: u64,
    /// A shell command that is run once before everything.
    pub setup: Option<String>,
    /// A shell command that is run before each run, unmeasured.
    pub prepare: Option<String>,
    /// Whether the comparison continues after a command has failed.
    pub ignore_failure: bool,
    /// Whether the variants must print the same output.
    pub same_output: bool,
    /// The time limit of a run, in seconds; a longer run is ended and counts as failed.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// Figures that are extracted from the output of the commands.
    #[serde(default)]
    pub printed: Vec<Printed>,
}

/// A figure that is extracted from the output of the commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// Its name.
    pub name: String,
    /// A regular expression; its first group, or the whole match, is a number, or a time with its unit.
    pub pattern: String,
    /// Whether each match is one of many samples, which are compared by their [tails](TAILS). Otherwise the
    /// last match is the value.
    pub is_sample: bool,
}

/// The quantiles of printed samples that are compared, with the minimum number of samples for each.
pub const TAILS: [(f64, &str, usize); 4] =
    [(0.5, "p50", 1), (0.95, "p95", 20), (0.99, "p99", 100), (0.999, "p99.9", 1000)];

impl Printed {
    /// Returns the figures of one run from the printed values: the last value, or the tails of all. Empty if
    /// there are too few values.
    pub fn figures(&self, values: &[f64]) -> Vec<(String, f64)> {
        if !self.is_sample {
            return values.last().map(|value| (self.name.clone(), *value)).into_iter().collect();
        }
        let computable = TAILS.iter().filter(|(_, _, fewest)| values.len() >= *fewest);
        let tail = |&(q, name, _): &(f64, &str, usize)| {
            Some((format!("{} {name}", self.name), quantile(values, q)?))
        };
        computable.filter_map(tail).collect()
    }
}

/// One way to run something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// What it runs.
    pub workload: Workload,
}

/// Applications that run at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// One entry for each process that is started, including copies.
    pub applications: Vec<Application>,
    /// Each application is restarted until all have completed this often; 1 means no restart.
    pub completions: u32,
    /// If set, each application is restarted until this time has passed, in seconds.
    #[serde(default)]
    pub fixed_seconds: Option<f64>,
}

/// A command of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Its name; unique in its workload.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// When it starts, in seconds from the beginning of the run.
    pub start_seconds: f64,
    /// The PEs that it is bound to from its start; otherwise those that corewise may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pes: Option<CpuSet>,
}

/// When a comparison ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// After this number of blocks, that is, of runs of each variant.
    Runs(u32),
    /// When no further block fits into this time, in seconds.
    BudgetSeconds(f64),
}

/// One run, with its place in the order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The block, from 0.
    pub block: usize,
    /// The index of the variant; the index after the last is the control.
    pub arm: usize,
    /// The measurements.
    #[serde(flatten)]
    pub run: Run,
}

/// The measurements of one run. What the machine does not provide is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// Time from the start of the first application until all have completed. In runs of a fixed time it is
    /// the geometric mean, over the applications, of the time of one completion.
    pub wall_seconds: f64,
    /// CPU time in user mode of all started processes that have ended.
    pub user_seconds: f64,
    /// CPU time in the kernel, likewise.
    pub system_seconds: f64,
    /// How long each application took, in the workload's order.
    pub completions: Vec<Completion>,
    /// The first exit code that was not 0, else 0; 128 plus the signal's number after a signal.
    pub exit_code: i32,
    /// Energy of the processor packages during the run.
    pub energy_joules: Option<f64>,
    /// The system's one-minute load average before the run.
    pub load: Option<f64>,
    /// Load by other processes during the run, in PEs.
    pub others_pes: Option<f64>,
    /// The share of the machine's time that a hypervisor took during the run, 0..1.
    pub steal_share: Option<f64>,
    /// The number of processes that outlived the run's commands and were ended.
    pub left_behind: u32,
    /// Whether the run exceeded the time limit and was ended.
    #[serde(default)]
    pub timed_out: bool,
    /// The figures extracted from the output, by name; geometric mean over the applications.
    #[serde(default)]
    pub printed: BTreeMap<String, f64>,
}

/// How long an application took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The application.
    pub application: String,
    /// Its mean time from start to end.
    pub seconds: f64,
    /// How often it completed.
    pub times: u32,
}

/// Properties of the machine that must not change between the first run and the last, as figures from before
/// and after are not comparable. What the machine does not provide is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The kernel release.
    pub kernel: Option<String>,
    /// The processor.
    pub processor: Option<String>,
    /// The scheduler: the name of the kernel's own, or of a sched_ext scheduler.
    pub scheduler: Option<String>,
    /// SMT control as reported by the kernel: on, off, notsupported, …
    pub smt: Option<String>,
    /// Frequency governor, limits and boost.
    pub frequency: Option<String>,
    /// The online PEs.
    pub online: Option<String>,
    /// The PEs that the commands may use.
    pub allowed: Option<String>,
}

impl Setting {
    /// Returns the differences from an earlier setting, in words.
    pub fn changes_since(&self, before: &Setting) -> Vec<String> {
        let named = |setting: &Setting| {
            [
                ("kernel", setting.kernel.clone()),
                ("processor", setting.processor.clone()),
                ("scheduler", setting.scheduler.clone()),
                ("SMT", setting.smt.clone()),
                ("clock", setting.frequency.clone()),
                ("online PEs", setting.online.clone()),
                ("allowed PEs", setting.allowed.clone()),
            ]
        };
        let words = |value: Option<String>| value.unwrap_or_else(|| "not known".to_owned());
        let pairs = named(before).into_iter().zip(named(self)).filter(|((_, old), (_, new))| old != new);
        pairs
            .map(|((name, old), (_, new))| format!("{name}: {} before, {} now", words(old), words(new)))
            .collect()
    }
}

/// An error in a plan, or in the runs that claim to follow it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The plan contains nothing to run.
    #[error("there is nothing to run: name a command")]
    Nothing,
    /// A name is used twice.
    #[error("there are two {0} called `{1}`: give each a name of its own")]
    SameName(&'static str, String),
    /// A command is empty.
    #[error("the command of `{0}` is empty: write a program and its arguments")]
    EmptyCommand(String),
    /// A command contains a zero byte, which no program can receive.
    #[error("the command of `{0}` contains a zero byte, which commands cannot: remove it")]
    ZeroByte(String),
    /// A number is out of its range.
    #[error("{name} is {value}: write a number from {low} to {high}")]
    Range {
        /// The parameter.
        name: String,
        /// The number.
        value: f64,
        /// The minimum.
        low: f64,
        /// The maximum.
        high: f64,
    },
    /// The runs do not follow the plan.
    #[error("run {0} is not the one that the plan makes there: the file was changed, start again without it")]
    Foreign(usize),
}

impl Plan {
    /// Checks whether the plan can be carried out.
    pub fn check(&self) -> Result<(), PlanError> {
        /// Larger numbers are not useful, and such a plan would not end.
        const MANY: f64 = 1e6;
        unique("variants", self.variants.iter().map(|variant| &variant.name))?;
        for variant in &self.variants {
            let workload = &variant.workload;
            unique("applications", workload.applications.iter().map(|one| &one.name))?;
            for application in &workload.applications {
                if application.command.is_empty() || application.command[0].is_empty() {
                    return Err(PlanError::EmptyCommand(application.name.clone()));
                }
                if application.command.iter().any(|word| word.contains('\0')) {
                    return Err(PlanError::ZeroByte(application.name.clone()));
                }
                let name = format!("the start of `{}` in seconds", application.name);
                in_range(name, application.start_seconds, 0.0, MANY)?;
            }
            in_range("the number of completions".to_owned(), f64::from(workload.completions), 1.0, MANY)?;
            let fixed = workload.fixed_seconds.unwrap_or(1.0);
            in_range("the fixed time in seconds".to_owned(), fixed, 0.01, MANY)?;
        }
        in_range("the timeout in seconds".to_owned(), self.timeout_seconds.unwrap_or(1.0), 0.001, 1e9)?;
        if !self.printed.is_empty() {
            unique("printed figures", self.printed.iter().map(|printed| &printed.name))?;
        }
        in_range("the number of warm-ups".to_owned(), f64::from(self.warmup), 0.0, MANY)?;
        match self.length {
            Length::Runs(runs) => in_range("the number of runs".to_owned(), f64::from(runs), 1.0, MANY),
            Length::BudgetSeconds(seconds) => in_range("the budget in seconds".to_owned(), seconds, 0.0, 1e9),
        }
    }

    /// Checks that these are the first runs of the plan.
    pub fn check_trials(&self, trials: &[Trial]) -> Result<(), PlanError> {
        for (block, runs) in trials.chunks(self.arms()).enumerate() {
            for (index, (trial, arm)) in runs.iter().zip(order(self.seed, self.arms(), block)).enumerate() {
                if trial.block != block || trial.arm != arm || !trial.run.wall_seconds.is_finite() {
                    return Err(PlanError::Foreign(block * self.arms() + index + 1));
                }
            }
        }
        Ok(())
    }

    /// Returns the number of runs in a block: every variant, and the control.
    pub fn arms(&self) -> usize {
        self.variants.len() + 1
    }

    /// Returns the index of the variant that an arm runs.
    pub fn variant_of(&self, arm: usize) -> usize {
        if arm < self.variants.len() { arm } else { 0 }
    }
}

fn unique<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), PlanError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(PlanError::SameName(what, name.clone()));
        }
    }
    if seen.is_empty() { Err(PlanError::Nothing) } else { Ok(()) }
}

fn in_range(name: String, value: f64, low: f64, high: f64) -> Result<(), PlanError> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(PlanError::Range { name, value, low, high }) }
}
