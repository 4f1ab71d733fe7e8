//! The order of the runs, and the loop that has them made.

use super::{Length, Plan, Run, Trial};
use crate::random::Random;
use crate::time::Time;
use std::time::Duration;

/// The seam between the method and the machine that runs things.
pub trait Executor {
    /// Why a run could not be made.
    type Error;

    /// The time now.
    fn now(&self) -> Time;

    /// Runs the variant of that index once; `None` if somebody asked to end, then whatever ran is gone.
    fn run(&mut self, variant: usize) -> Result<Option<Run>, Self::Error>;
}

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It has all its runs.
    Complete,
    /// Somebody asked to end.
    Interrupted,
}

/// What is going on, for whoever waits.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run begins.
    Run {
        /// The variant's name.
        variant: &'a str,
        /// What the run is.
        stage: Stage,
        /// The share of the whole that is done, 0..1.
        done: f64,
        /// The time that is left, once a guess is possible.
        remaining: Option<Duration>,
    },
    /// It is known how long it will take.
    Planned {
        /// Runs, those that were made included.
        runs: usize,
        /// The time that is left.
        remaining: Duration,
    },
    /// A run that counts is made.
    Ran {
        /// It.
        trial: &'a Trial,
    },
    /// A block is complete.
    Block {
        /// All runs so far.
        trials: &'a [Trial],
        /// The blocks that there will be.
        blocks: usize,
    },
}

/// What a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It does not count.
    Warmup,
    /// It does, in this block, from 0.
    Block(usize),
}

/// The arms of a block in the order in which they run: random, and in every second block the reverse of the
/// one before.
pub fn order(seed: u64, arms: usize, block: usize) -> Vec<usize> {
    let mut arms: Vec<usize> = (0..arms).collect();
    Random::new(seed, block as u64 / 2).shuffle(&mut arms);
    if block % 2 == 1 {
        arms.reverse();
    }
    arms
}

/// Makes the runs that are missing, with the warm-ups first, and adds them to `trials`, which hold what was
/// there before in any case.
pub fn conduct<E: Executor>(
    executor: &mut E,
    plan: &Plan,
    trials: &mut Vec<Trial>,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Result<Ending, E::Error> {
    let mut clock = Clock { begin: executor.now(), block: None };
    if clock.is_over(plan, trials.len() / plan.arms(), executor.now()) {
        return Ok(Ending::Complete);
    }
    if warm_up(executor, plan, &mut clock, tell)? == Ending::Interrupted {
        return Ok(Ending::Interrupted);
    }
    let first = trials.len();
    let counted_from = executor.now();
    if clock.block.is_some() {
        clock.tell_plan(plan, first, executor.now(), tell);
    }
    loop {
        let block = trials.len() / plan.arms();
        if clock.is_over(plan, block, executor.now()) {
            return Ok(Ending::Complete);
        }
        let order = order(plan.seed, plan.arms(), block);
        for &arm in &order[trials.len() % plan.arms()..] {
            let now = executor.now();
            tell(&clock.progress(plan, trials.len(), arm, now));
            let Some(run) = executor.run(plan.variant_of(arm))? else { return Ok(Ending::Interrupted) };
            let trial = Trial { block, arm, run };
            tell(&Progress::Ran { trial: &trial });
            trials.push(trial);
        }
        let now = executor.now();
        let is_news = clock.block.is_none();
        let made = (trials.len() - first) as f64;
        clock.block = Some(now.since(counted_from).mul_f64(plan.arms() as f64 / made));
        if is_news {
            clock.tell_plan(plan, trials.len(), now, tell);
        }
        tell(&Progress::Block { trials, blocks: clock.blocks(plan, block + 1, now) });
    }
}

fn warm_up<E: Executor>(
    executor: &mut E,
    plan: &Plan,
    clock: &mut Clock,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> Result<Ending, E::Error> {
    for _ in 0..plan.warmup {
        let begin = executor.now();
        for (index, variant) in plan.variants.iter().enumerate() {
            let (stage, done) = (Stage::Warmup, 0.0);
            tell(&Progress::Run { variant: &variant.name, stage, done, remaining: None });
            if executor.run(index)?.is_none() {
                return Ok(Ending::Interrupted);
            }
        }
        let share = plan.arms() as f64 / plan.variants.len() as f64;
        clock.block = Some(executor.now().since(begin).mul_f64(share));
    }
    Ok(Ending::Complete)
}

/// What is known of the time.
struct Clock {
    begin: Time,
    /// How long a block takes.
    block: Option<Duration>,
}

impl Clock {
    /// Whether there shall be no further block.
    fn is_over(&self, plan: &Plan, blocks: usize, now: Time) -> bool {
        match plan.length {
            Length::Runs(runs) => blocks >= runs as usize,
            Length::BudgetSeconds(budget) => {
                now.since(self.begin).as_secs_f64() + self.block.unwrap_or_default().as_secs_f64() > budget
            }
        }
    }

    /// How many blocks there will be, of which so many are there.
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

    fn tell_plan(&self, plan: &Plan, trials: usize, now: Time, tell: &mut dyn FnMut(&Progress<'_>)) {
        let runs = self.blocks(plan, trials / plan.arms(), now) * plan.arms();
        let remaining = self.remaining(plan, trials, now).unwrap_or_default();
        tell(&Progress::Planned { runs, remaining });
    }
}
