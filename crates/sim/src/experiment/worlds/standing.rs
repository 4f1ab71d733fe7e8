//! Claims over all worlds, the paper's numbers among ours, and the world in which most claims hold.

use super::super::finding::Finding;
use super::super::published::{ExperimentText, Published};
use super::influence::{Influences, influences};
use super::outcome::Outcome;
use super::parameter::{Draw, Parameter};
use super::policies::{PolicyResult, policies};
use super::split::{Condition, condition};
use super::{Worlds, WorldsRequest};
use corewise_core::stats::{quantile, wilson};
use serde::Serialize;

/// A claim holds in at least this share of the worlds.
const HOLDS: f64 = 0.8;

/// The share of worlds up to which it does not.
const HOLDS_NOT: f64 = 0.2;

/// Fewer worlds than that tell nothing about what a claim depends on.
const TELLING: usize = 20;

/// The result of an experiment in all worlds. Everything in it is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorldsResult {
    /// The experiment.
    #[serde(flatten)]
    pub experiment: ExperimentText,
    /// The number of worlds.
    pub worlds: usize,
    /// The seed of the draws.
    pub seed: u64,
    /// Seeds of each scenario in each world.
    pub runs: u32,
    /// What the paper leaves open.
    pub parameters: Vec<Parameter>,
    /// Each claim.
    pub claims: Vec<ClaimResult>,
    /// The paper's numbers in the distribution of ours.
    pub published: Vec<PublishedResult>,
    /// The variants.
    pub policies: Vec<PolicyResult>,
    /// The draws: `[world][parameter]`.
    pub draws: Vec<Vec<Draw>>,
    /// What came of each world.
    pub outcomes: Vec<Outcome>,
}

/// A claim over all worlds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimResult {
    /// The claim.
    pub claim: String,
    /// The paper's number, in words.
    pub paper: String,
    /// The worlds in which it can be checked.
    pub checked: usize,
    /// Those in which it holds.
    pub held: usize,
    /// The share of these, with its 95 % interval.
    pub share: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// What that means.
    pub standing: Standing,
    /// The mean of its figures over the worlds; `null` if it cannot be checked.
    pub figure: Option<Spread>,
    /// Of a claim that a figure is in a range: the shares of worlds in which it is below and above that.
    pub beyond: Option<Beyond>,
    /// What it depends on, if it does.
    pub influences: Option<Influences>,
    /// The condition under which it holds, if there is one.
    pub condition: Option<Condition>,
}

/// Whether a claim holds in all plausible worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// In at least 80 % of them.
    Holds,
    /// In some.
    Depends,
    /// In at most 20 %.
    DoesNotHold,
    /// It cannot be checked in any.
    NotChecked,
}

/// How a figure is spread over the worlds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Below it are 5 % of them.
    pub low: f64,
    /// In the middle.
    pub median: f64,
    /// Above it are 5 %.
    pub high: f64,
}

/// Shares of worlds beyond the paper's range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beyond {
    /// Below.
    pub below: f64,
    /// Above.
    pub above: f64,
}

/// A number of the paper in the distribution of ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedResult {
    /// The paper's number.
    #[serde(flatten)]
    pub published: Published,
    /// Ours.
    pub ours: Spread,
    /// The share of worlds in which ours is smaller.
    pub quantile: f64,
}

/// The world in which most claims of a paper hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LikeliestWorld {
    /// The paper.
    pub source: String,
    /// The number of the world, from 1 on.
    pub world: usize,
    /// The claims that hold in it.
    pub held: usize,
    /// The claims that can be checked.
    pub checked: usize,
    /// Its values: each parameter's name, and the value as text.
    pub values: Vec<(String, String)>,
    /// The claims that do not hold, each with its experiment.
    pub missing: Vec<(String, String)>,
}

impl WorldsResult {
    /// Returns the result from the outcomes of all worlds.
    pub fn new(
        experiment: ExperimentText,
        (findings, published): (&[Finding], &[Published]),
        worlds: Worlds,
        outcomes: Vec<Outcome>,
    ) -> Self {
        let Worlds { request: WorldsRequest { seed, runs, .. }, parameters, draws } = worlds;
        let claim = |(at, finding)| claim(finding, at, &parameters, &draws, &outcomes);
        Self {
            experiment,
            worlds: draws.len(),
            seed,
            runs,
            claims: findings.iter().enumerate().map(claim).collect(),
            published: published.iter().filter_map(|number| place(number, &outcomes)).collect(),
            policies: policies(&outcomes),
            parameters,
            draws,
            outcomes,
        }
    }

    /// Returns how many claims have a standing.
    pub fn count(&self, standing: Standing) -> usize {
        self.claims.iter().filter(|claim| claim.standing == standing).count()
    }
}

fn claim(
    finding: &Finding,
    at: usize,
    parameters: &[Parameter],
    draws: &[Vec<Draw>],
    outcomes: &[Outcome],
) -> ClaimResult {
    let checked = draws.iter().zip(outcomes).filter_map(|(draws, outcome)| {
        Some((draws.as_slice(), outcome.claims[at].holds?, outcome.claims[at].figure?))
    });
    let checked: Vec<(&[Draw], bool, f64)> = checked.collect();
    let holds: Vec<bool> = checked.iter().map(|world| world.1).collect();
    let figures: Vec<f64> = checked.iter().map(|world| world.2).collect();
    let draws: Vec<&[Draw]> = checked.iter().map(|world| world.0).collect();
    let held = holds.iter().filter(|holds| **holds).count();
    let share = held as f64 / holds.len().max(1) as f64;
    let (low, high) = wilson(share, holds.len() as u64);
    let standing = Standing::of(share, holds.len());
    let depends = standing == Standing::Depends && holds.len() >= TELLING;
    let beyond = |(lowest, highest): (f64, f64)| {
        let share = |is_beyond: &dyn Fn(f64) -> bool| {
            figures.iter().filter(|figure| is_beyond(**figure)).count() as f64 / figures.len().max(1) as f64
        };
        Beyond { below: share(&|figure| figure < lowest), above: share(&|figure| figure > highest) }
    };
    ClaimResult {
        claim: finding.claim.clone(),
        paper: finding.paper.clone(),
        checked: holds.len(),
        held,
        share,
        low,
        high,
        standing,
        figure: Spread::of(&figures),
        beyond: finding.check.range().filter(|_| !figures.is_empty()).map(beyond),
        influences: depends.then(|| influences(parameters, &draws, &holds)),
        condition: if depends { condition(parameters, &draws, &holds) } else { None },
    }
}

impl Standing {
    fn of(share: f64, checked: usize) -> Self {
        match share {
            _ if checked == 0 => Standing::NotChecked,
            share if share >= HOLDS => Standing::Holds,
            share if share <= HOLDS_NOT => Standing::DoesNotHold,
            _ => Standing::Depends,
        }
    }
}

impl Spread {
    fn of(figures: &[f64]) -> Option<Self> {
        let at = |q| quantile(figures, q);
        Some(Self { low: at(0.05)?, median: at(0.5)?, high: at(0.95)? })
    }
}

fn place(number: &Published, outcomes: &[Outcome]) -> Option<PublishedResult> {
    let figures = outcomes.iter().filter_map(|outcome| {
        let scenario = outcome.scenarios.iter().find(|scenario| scenario.name == number.scenario)?;
        scenario.variants.iter().find(|(name, _)| *name == number.variant)?.1
    });
    let figures: Vec<f64> = figures.collect();
    let middle = f64::midpoint(number.lowest, number.highest);
    let smaller = figures.iter().filter(|figure| **figure < middle).count();
    Some(PublishedResult {
        published: number.clone(),
        ours: Spread::of(&figures)?,
        quantile: smaller as f64 / figures.len() as f64,
    })
}

/// Returns for each paper the world in which most of its claims hold, of experiments with the same worlds. A
/// parameter that several experiments share has the same value in the world of the same number.
pub fn likeliest(results: &[WorldsResult]) -> Vec<LikeliestWorld> {
    let mut sources: Vec<&str> = Vec::new();
    for result in results.iter().filter(|result| !result.claims.is_empty()) {
        if !sources.contains(&result.experiment.source.as_str()) {
            sources.push(&result.experiment.source);
        }
    }
    let of = |source: &&str| {
        let own: Vec<&WorldsResult> =
            results.iter().filter(|result| result.experiment.source == **source).collect();
        best_world(source, &own)
    };
    sources.iter().filter_map(of).collect()
}

fn best_world(source: &str, results: &[&WorldsResult]) -> Option<LikeliestWorld> {
    let holds = |world: usize| {
        results.iter().flat_map(move |result| {
            let claims = result.claims.iter().zip(&result.outcomes[world].claims);
            claims.map(|(claim, outcome)| (&result.experiment.name, &claim.claim, outcome.holds))
        })
    };
    let held = |world: usize| holds(world).filter(|(.., holds)| *holds == Some(true)).count();
    let worlds = results.iter().map(|result| result.worlds).min()?;
    // The first of those that are alike.
    let world = (0..worlds).rev().max_by_key(|&world| held(world))?;
    let mut values: Vec<(String, String)> = Vec::new();
    for result in results {
        for (parameter, draw) in result.parameters.iter().zip(&result.draws[world]) {
            let value = (parameter.name.clone(), draw.text.clone());
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    let missing = holds(world).filter(|(.., holds)| *holds != Some(true));
    Some(LikeliestWorld {
        source: source.to_owned(),
        world: world + 1,
        held: held(world),
        checked: holds(world).filter(|(.., holds)| holds.is_some()).count(),
        values,
        missing: missing.map(|(experiment, claim, _)| (experiment.clone(), claim.clone())).collect(),
    })
}
