//! The order of the runs, and the loop that executes them.

use super::{Length, Plan, Run, Trial};
use crate::random::Random;
use crate::time::Time;
use std::time::Duration;

/// The interface between the method and the machine that executes the runs.
pub trait Executor {
    /// Why a run failed to execute.
    type Error;

    /// Returns the present time.
    fn now(&self) -> Time;

    /// Runs the variant of that index once. All processes of the run have then ended.
    fn run(&mut self, variant: usize) -> Result<Made, Self::Error>;
}

/// What came of the attempt to make a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Made {
    /// The run.
    Run(Run),
    /// A run that says nothing about the variant: for so long time stood still meanwhile, as the comparison
    /// was stopped or the machine suspended.
    StoodStill(Duration),
    /// The user interrupted.
    Interrupted,
}

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All runs were made.
    Complete,
    /// The user interrupted.
    Interrupted,
}

/// The state of a comparison, reported while it runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run begins.
    Run {
        /// The variant's name.
        variant: &'a str,
        /// The purpose of the run.
        stage: Stage,
        /// The completed share of the whole, 0..1.
        done: f64,
        /// The remaining time, once it can be estimated.
        remaining: Option<Duration>,
    },
    /// The duration has been estimated.
    Planned {
        /// The number of runs, including those already made.
        runs: usize,
        /// The remaining time.
        remaining: Duration,
    },
    /// A run is made again, because time stood still in it.
    Again {
        /// The variant's name.
        variant: &'a str,
        /// For how long.
        stood_still: Duration,
    },
    /// A run that counts has been made.
    Ran {
        /// The run.
        trial: &'a Trial,
    },
    /// A block is complete.
    Block {
        /// All runs so far.
        trials: &'a [Trial],
        /// The expected number of blocks.
        blocks: usize,
    },
}

/// The purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A warm-up, which does not count.
    Warmup,
    /// A run of this block, from 0.
    Block(usize),
}

/// Returns the arms of a block in run order: random, and in every second block the reverse of the block
/// before.
pub fn order(seed: u64, arms: usize, block: usize) -> Vec<usize> {
    let mut arms: Vec<usize> = (0..arms).collect();
    Random::new(seed, block as u64 / 2).shuffle(&mut arms);
    if block % 2 == 1 {
        arms.reverse();
    }
    arms
}

/// Executes the missing runs, starting with the warm-ups, and appends them to `trials`. Earlier trials are
/// always kept.
pub fn conduct<E: Executor>(
    executor: &mut E,
    plan: &Plan,
    trials: &mut Vec<Trial>,
    report: &mut dyn FnMut(&Progress<'_>),
) -> Result<Ending, E::Error> {
    let mut clock = Clock { begin: executor.now(), block: None };
    if clock.is_over(plan, trials.len() / plan.arms(), executor.now()) {
        return Ok(Ending::Complete);
    }
    if warm_up(executor, plan, &mut clock, report)? == Ending::Interrupted {
        return Ok(Ending::Interrupted);
    }
    let first = trials.len();
    let counted_from = executor.now();
    if clock.block.is_some() {
        clock.report_plan(plan, first, executor.now(), report);
    }
    loop {
        let block = trials.len() / plan.arms();
        if clock.is_over(plan, block, executor.now()) {
            return Ok(Ending::Complete);
        }
        let order = order(plan.seed, plan.arms(), block);
        for &arm in &order[trials.len() % plan.arms()..] {
            let now = executor.now();
            report(&clock.progress(plan, trials.len(), arm, now));
            let Some(run) = run(executor, plan, plan.variant_of(arm), report)? else {
                return Ok(Ending::Interrupted);
            };
            let trial = Trial { block, arm, run };
            report(&Progress::Ran { trial: &trial });
            trials.push(trial);
        }
        let now = executor.now();
        let is_news = clock.block.is_none();
        let made = (trials.len() - first) as f64;
        clock.block = Some(now.since(counted_from).mul_f64(plan.arms() as f64 / made));
        if is_news {
            clock.report_plan(plan, trials.len(), now, report);
        }
        report(&Progress::Block { trials, blocks: clock.blocks(plan, block + 1, now) });
    }
}

/// Runs a variant until time did not stand still meanwhile. Returns `None` if the user interrupted.
fn run<E: Executor>(
    executor: &mut E,
    plan: &Plan,
    variant: usize,
    report: &mut dyn FnMut(&Progress<'_>),
) -> Result<Option<Run>, E::Error> {
    loop {
        match executor.run(variant)? {
            Made::Run(run) => return Ok(Some(run)),
            Made::Interrupted => return Ok(None),
            Made::StoodStill(stood_still) => {
                report(&Progress::Again { variant: &plan.variants[variant].name, stood_still });
            }
        }
    }
}

fn warm_up<E: Executor>(
    executor: &mut E,
    plan: &Plan,
    clock: &mut Clock,
    report: &mut dyn FnMut(&Progress<'_>),
) -> Result<Ending, E::Error> {
    for _ in 0..plan.warmup {
        let begin = executor.now();
        for (index, variant) in plan.variants.iter().enumerate() {
            let (stage, done) = (Stage::Warmup, 0.0);
            report(&Progress::Run { variant: &variant.name, stage, done, remaining: None });
            if run(executor, plan, index, report)?.is_none() {
                return Ok(Ending::Interrupted);
            }
        }
        let share = plan.arms() as f64 / plan.variants.len() as f64;
        clock.block = Some(executor.now().since(begin).mul_f64(share));
    }
    Ok(Ending::Complete)
}

/// What is known about the time.
struct Clock {
    begin: Time,
    /// The duration of a block.
    block: Option<Duration>,
}

impl Clock {
    /// Returns whether no further block should start.
    fn is_over(&self, plan: &Plan, blocks: usize, now: Time) -> bool {
        match plan.length {
            Length::Runs(runs) => blocks >= runs as usize,
            Length::BudgetSeconds(budget) => {
                now.since(self.begin).as_secs_f64() + self.block.unwrap_or_default().as_secs_f64() > budget
            }
        }
    }

    /// Returns the expected number of blocks, given the number of completed ones.
    fn blocks(&self, plan: &Plan, there: usize, now: Time) -> usize {
        match plan.length {
            Length::Runs(runs) => runs as usize,
            Length::BudgetSeconds(budget) => {
                let left = (budget - now.since(self.begin).as_secs_f64()).max(0.0);
                let block = self.block.unwrap_or_default().as_secs_f64();
                there + if block > 0.0 { (left / block) as usize } else { 0 }
            }
        }
    }

    fn remaining(&self, plan: &Plan, trials: usize, now: Time) -> Option<Duration> {
        let runs = self.blocks(plan, trials / plan.arms(), now) * plan.arms();
        Some(self.block?.mul_f64(runs.saturating_sub(trials) as f64 / plan.arms() as f64))
    }

    fn progress<'a>(&self, plan: &'a Plan, trials: usize, arm: usize, now: Time) -> Progress<'a> {
        let runs = self.blocks(plan, trials / plan.arms(), now) * plan.arms();
        Progress::Run {
            variant: &plan.variants[plan.variant_of(arm)].name,
            stage: Stage::Block(trials / plan.arms()),
            done: (trials as f64 / runs.max(1) as f64).min(1.0),
            remaining: self.remaining(plan, trials, now),
        }
    }

    fn report_plan(&self, plan: &Plan, trials: usize, now: Time, report: &mut dyn FnMut(&Progress<'_>)) {
        let runs = self.blocks(plan, trials / plan.arms(), now) * plan.arms();
        let remaining = self.remaining(plan, trials, now).unwrap_or_default();
        report(&Progress::Planned { runs, remaining });
    }
}
