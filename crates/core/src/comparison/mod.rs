//! Whether one way to run a program is faster than another: a comparison that does not deceive itself.
//!
//! Problem: times of one program differ from run to run by more than what most changes gain, and they drift:
//! the machine warms up, others come and go, a hypervisor takes time. To run one variant ten times and then
//! the other ten times measures that, too.
//!
//! Approach: runs in *blocks*. A block has every variant once, in random order; the next block has them in
//! the reverse order, so that what grows steadily adds nothing. Within each block the first variant, the
//! *baseline*, is run a second time under the name of a *control*. Every figure is a ratio within a block, on
//! a logarithmic scale: what disturbs a whole block cancels out. As both runs of a ratio are disturbed alike,
//! the logarithms lie symmetrically about the truth, and that is all that the interval needs
//! ([`crate::stats::symmetric_centre`]). The control's ratio shows what this machine makes, now, of two
//! things that are the same: its noise floor. A variant is called faster or slower where its interval
//! excludes 1. How many runs there are is fixed before, by number or by time, never by what they show.
//!
//! Sources: R. A. Fisher, "The Design of Experiments", 1935 (randomised blocks); T. Kalibera, R. Jones,
//! "Rigorous Benchmarking in Reasonable Time", ISMM 2013 (ratios with intervals).
//!
//! Limits: each verdict on its own is wrong in at most one of twenty comparisons of equal things; of many
//! verdicts, some are. A disturbance that follows the blocks' own rhythm is not seen. The ratio is that of
//! typical times, not of their sums: runs that are far off count by their rank, not by how far. Where a
//! variant makes times skewed that were not, the ratio is that of neither means nor medians, but between.

mod conduct;
mod effect;
mod findings;
#[cfg(test)]
mod tests;

pub use conduct::{Ending, Executor, Progress, Stage, conduct, order};
pub use effect::{BLOCKS_MIN, Effect, POWER, Verdict, effect};
pub use findings::{Findings, Metric, Summary, VariantFindings, detectable, findings};

use crate::stats::quantile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is to be compared, and how: with it and the trials so far, a comparison can be continued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What is compared; the first is the baseline.
    pub variants: Vec<Variant>,
    /// When it ends.
    pub length: Length,
    /// Runs of each variant beforehand that do not count.
    pub warmup: u32,
    /// Fixes the order of the runs.
    pub seed: u64,
    /// A shell command that is run once before everything.
    pub setup: Option<String>,
    /// A shell command that is run before each run and is not measured.
    pub prepare: Option<String>,
    /// A command that fails ends the comparison, unless this is set.
    pub ignore_failure: bool,
    /// The variants must print the same.
    pub same_output: bool,
    /// A run that takes longer than so many seconds is ended, and has failed.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// Figures that are read from what the commands print.
    #[serde(default)]
    pub printed: Vec<Printed>,
}

/// What is read from what the commands print.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// What it is called.
    pub name: String,
    /// A regular expression; its first group, or else all of it, is a number, or a time with its unit.
    pub pattern: String,
    /// Whether each match is one of many values, of which the [tails](TAILS) count; else the last match does.
    pub is_sample: bool,
}

/// The quantiles of printed samples that are compared, with the fewest samples that tell them.
pub const TAILS: [(f64, &str, usize); 4] =
    [(0.5, "p50", 1), (0.95, "p95", 20), (0.99, "p99", 100), (0.999, "p99.9", 1000)];

impl Printed {
    /// The figures of one run by what was printed: the last value, or the tails of all. None where there are
    /// too few values.
    pub fn figures(&self, values: &[f64]) -> Vec<(String, f64)> {
        if !self.is_sample {
            return values.last().map(|value| (self.name.clone(), *value)).into_iter().collect();
        }
        let told = TAILS.iter().filter(|(_, _, fewest)| values.len() >= *fewest);
        let tail = |&(q, name, _): &(f64, &str, usize)| {
            Some((format!("{} {name}", self.name), quantile(values, q)?))
        };
        told.filter_map(tail).collect()
    }
}

/// One way to run something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// What is run.
    pub workload: Workload,
}

/// Applications that run at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// One entry for each process that is started, copies included.
    pub applications: Vec<Application>,
    /// Each application is started again until all have completed so often; 1 is no restart.
    pub completions: u32,
    /// Instead: each is started again until so many seconds are over.
    #[serde(default)]
    pub fixed_seconds: Option<f64>,
}

/// A command of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// What it is called; unique in its workload.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// When it starts, in seconds from the beginning of the run.
    pub start_seconds: f64,
}

/// When a comparison ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// After so many blocks, which are runs of each variant.
    Runs(u32),
    /// When no further block fits into so many seconds.
    BudgetSeconds(f64),
}

/// One run, with its place in the order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The block, from 0.
    pub block: usize,
    /// The index of the variant; one beyond the last is the control.
    pub arm: usize,
    /// What was measured.
    #[serde(flatten)]
    pub run: Run,
}

/// What one run showed. What the machine does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// From the start of the first application until all have completed; in runs of a fixed time the
    /// geometric mean over the applications of the time that one completion takes.
    pub wall_seconds: f64,
    /// CPU time in user mode of everything that was started and has ended.
    pub user_seconds: f64,
    /// CPU time in the kernel, likewise.
    pub system_seconds: f64,
    /// How long each application took, in the workload's order.
    pub completions: Vec<Completion>,
    /// 0, or the first that was not; 128 and the signal's number where one killed.
    pub exit_code: i32,
    /// Energy of the processors' packages meanwhile.
    pub energy_joules: Option<f64>,
    /// The system's load average of one minute before the run.
    pub load: Option<f64>,
    /// PEs' worth of time that others took meanwhile.
    pub others_pes: Option<f64>,
    /// The share of the machine's time that a hypervisor took meanwhile, 0..1.
    pub steal_share: Option<f64>,
    /// Processes that outlived the run's commands and were ended.
    pub left_behind: u32,
    /// Whether it was ended because it took too long.
    #[serde(default)]
    pub timed_out: bool,
    /// What was read from what the commands printed, by name; the geometric mean over the applications.
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
    /// How often it has completed.
    pub times: u32,
}

/// What must stay the same from the first run to the last: figures of before and after a change of these are
/// not comparable. What the machine does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The processor.
    pub processor: Option<String>,
    /// Who schedules: the kernel's own scheduler by name, or a sched_ext scheduler.
    pub scheduler: Option<String>,
    /// SMT as the kernel has it: on, off, notsupported, …
    pub smt: Option<String>,
    /// Governor, limits and boost.
    pub frequency: Option<String>,
    /// The PEs that are online.
    pub online: Option<String>,
    /// The PEs that the commands may use.
    pub allowed: Option<String>,
}

impl Setting {
    /// What differs from an earlier setting, each in words.
    pub fn changes_since(&self, before: &Setting) -> Vec<String> {
        let told = |setting: &Setting| {
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
        let pairs = told(before).into_iter().zip(told(self)).filter(|((_, old), (_, new))| old != new);
        pairs
            .map(|((name, old), (_, new))| format!("{name}: {} before, {} now", words(old), words(new)))
            .collect()
    }
}

/// What is wrong with a plan, or with the runs that are said to be made by it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// There is nothing to run.
    #[error("there is nothing to run: name a command")]
    Nothing,
    /// A name stands for two things.
    #[error("there are two {0} called `{1}`: give each a name of its own")]
    SameName(&'static str, String),
    /// A command has no words.
    #[error("the command of `{0}` is empty: write a program and its arguments")]
    EmptyCommand(String),
    /// A command has a word that no program can get.
    #[error("the command of `{0}` holds a zero byte, which no command can: take it out")]
    ZeroByte(String),
    /// A number is out of its range.
    #[error("{name} is {value}: write a number from {low} to {high}")]
    Range {
        /// What it is of.
        name: String,
        /// The number.
        value: f64,
        /// The least.
        low: f64,
        /// The greatest.
        high: f64,
    },
    /// The runs are not those that the plan makes.
    #[error("run {0} is not the one that the plan makes there: the file was changed, start again without it")]
    Foreign(usize),
}

impl Plan {
    /// Whether it can be carried out.
    pub fn check(&self) -> Result<(), PlanError> {
        /// More make no sense, and would not end.
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

    /// Whether these are the first runs that the plan makes.
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

    /// The number of runs in a block: every variant, and the control.
    pub fn arms(&self) -> usize {
        self.variants.len() + 1
    }

    /// The index of the variant that an arm runs.
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
