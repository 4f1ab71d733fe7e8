//! Worlds that are finished, as text: a run can stop and go on, and several machines can share one.
//!
//! Problem: ten thousand worlds take days. Approach: a line of JSON for each world as it is finished, after
//! a first line that says what was asked for. Each world has its own draws and seeds, the same at all times
//! and on all machines; so the worlds of several files together are those of one run, and the result is the
//! same to the byte. Nothing here starts or distributes anything: an existing batch system does. Limits: a
//! line that was being written when a run was killed is lost, and its world is simulated again; lines of
//! another version of corewise are refused, as it may simulate otherwise.

use super::WorldsRequest;
use super::outcome::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// What was asked for: the first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The version of corewise.
    pub corewise: String,
    /// The experiments, as they were named.
    pub experiments: Vec<String>,
    /// The number of worlds.
    pub worlds: u32,
    /// The seed of the draws.
    pub seed: u64,
    /// Seeds of each scenario in each world.
    pub runs: u32,
    /// Policies that are judged beside the experiments' variants.
    pub policies: Vec<String>,
}

/// A finished world: every other line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinishedWorld {
    /// The experiment, by its place among those that were asked for.
    pub experiment: usize,
    /// The number of the world, from 0 on.
    pub world: usize,
    /// What came of it.
    pub outcome: Outcome,
}

/// The worlds of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// What was asked for.
    pub asked: Asked,
    /// What came of each world that is finished, by experiment and world.
    pub outcomes: BTreeMap<(usize, usize), Outcome>,
}

/// Every n-th world, from a first one on: `I/N`, from `1/N` to `N/N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    of: u32,
}

/// Why finished worlds cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FinishedError {
    /// A line is none of ours.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1 on.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// Files hold the worlds of different requests.
    #[error("its worlds are of another request: {found}, not {expected}")]
    Other {
        /// What was asked for there.
        found: Box<Asked>,
        /// What is asked for here.
        expected: Box<Asked>,
    },
    /// A world has not the claims of its experiment.
    #[error("world {} of {experiment} has not the claims of this experiment", world + 1)]
    Claims {
        /// The experiment.
        experiment: String,
        /// The world's number, from 0 on.
        world: usize,
    },
    /// Worlds are missing.
    #[error("{missing} of {all} worlds are missing, the first is world {} of {experiment}", world + 1)]
    Missing {
        /// How many.
        missing: usize,
        /// Of how many.
        all: usize,
        /// The experiment of the first one.
        experiment: String,
        /// Its number, from 0 on.
        world: usize,
    },
}

impl Asked {
    /// What a request asks of experiments.
    pub fn new(corewise: &str, experiments: &[&str], request: &WorldsRequest) -> Self {
        Self {
            corewise: corewise.to_owned(),
            experiments: experiments.iter().map(|name| (*name).to_owned()).collect(),
            worlds: request.count,
            seed: request.seed,
            runs: request.runs,
            policies: request.policies.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the request.
    pub fn request(&self) -> Result<WorldsRequest, FinishedError> {
        let policies = self.policies.iter().map(|policy| policy.parse());
        let policies: Result<_, _> = policies.collect();
        Ok(WorldsRequest {
            count: self.worlds,
            seed: self.seed,
            runs: self.runs,
            policies: policies.map_err(|error| bad_line(1, error))?,
        })
    }
}

impl Display for Asked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { corewise, experiments, worlds, seed, runs, policies } = self;
        let experiments = experiments.join(" and ");
        write!(f, "{worlds} worlds of {experiments}, seed {seed}, {runs} seeds in each")?;
        policies.iter().try_for_each(|policy| write!(f, ", policy {policy}"))?;
        write!(f, " (corewise {corewise})")
    }
}

impl Finished {
    /// No world of what is asked for.
    pub fn none(asked: Asked) -> Self {
        Self { asked, outcomes: BTreeMap::new() }
    }

    /// Reads a file's text; also returns how many bytes of it are whole lines.
    pub fn parse(text: &str) -> Result<(Self, usize), FinishedError> {
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].lines().enumerate();
        let (_, first) = lines.next().ok_or_else(|| bad_line(1, "it is not whole"))?;
        let asked: Asked = serde_json::from_str(first).map_err(|error| bad_line(1, error))?;
        let mut finished = Self::none(asked);
        for (number, line) in lines {
            let FinishedWorld { experiment, world, outcome } =
                serde_json::from_str(line).map_err(|error| bad_line(number + 1, error))?;
            if experiment >= finished.asked.experiments.len() || world >= finished.asked.worlds as usize {
                return Err(bad_line(number + 1, "no such world was asked for"));
            }
            finished.outcomes.insert((experiment, world), outcome);
        }
        Ok((finished, whole))
    }

    /// Fails if these are not the worlds of what is asked for.
    pub fn check(&self, expected: &Asked) -> Result<(), FinishedError> {
        if self.asked == *expected {
            return Ok(());
        }
        let (found, expected) = (Box::new(self.asked.clone()), Box::new(expected.clone()));
        Err(FinishedError::Other { found, expected })
    }

    /// Adds the worlds of another file.
    pub fn add(&mut self, other: Self) -> Result<(), FinishedError> {
        other.check(&self.asked)?;
        self.outcomes.extend(other.outcomes);
        Ok(())
    }

    /// Returns what came of all worlds of an experiment with so many claims, in order.
    pub fn of_experiment(&self, experiment: usize, claims: usize) -> Result<Vec<Outcome>, FinishedError> {
        let all = self.asked.worlds as usize;
        let outcome = |world| self.outcomes.get(&(experiment, world));
        let mut missing = (0..all).filter(|&world| outcome(world).is_none());
        if let Some(world) = missing.next() {
            let (missing, experiment) = (1 + missing.count(), self.asked.experiments[experiment].clone());
            return Err(FinishedError::Missing { missing, all, experiment, world });
        }
        let has_others = |&world: &usize| outcome(world).is_some_and(|of| of.claims.len() != claims);
        if let Some(world) = (0..all).find(has_others) {
            let experiment = self.asked.experiments[experiment].clone();
            return Err(FinishedError::Claims { experiment, world });
        }
        Ok((0..all).filter_map(outcome).cloned().collect())
    }
}

impl Shard {
    /// All worlds.
    pub const ALL: Shard = Shard { number: 1, of: 1 };

    /// Returns whether a world belongs to it.
    pub fn has(self, world: usize) -> bool {
        world % self.of as usize == self.number as usize - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no part of all worlds: write I/N with I from 1 to N, such as 2/8");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let (number, of) = (number.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
        if (1..=of).contains(&number) { Ok(Self { number, of }) } else { Err(wrong()) }
    }
}

fn bad_line(line: usize, problem: impl ToString) -> FinishedError {
    FinishedError::Line { line, problem: problem.to_string() }
}
