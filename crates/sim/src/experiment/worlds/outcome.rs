//! What an experiment comes to in one world.

use super::super::finding::Finding;
use super::super::measure::Measure;
use super::super::scenario::ScenarioResult;
use serde::{Deserialize, Serialize};

/// The outcome in one world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Each claim, in the order of the experiment.
    pub claims: Vec<ClaimOutcome>,
    /// Each scenario.
    pub scenarios: Vec<ScenarioOutcome>,
}

/// A claim in one world.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClaimOutcome {
    /// Whether it holds; `null` if it cannot be checked.
    pub holds: Option<bool>,
    /// The mean of its figures.
    pub figure: Option<f64>,
}

/// A scenario in one world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioOutcome {
    /// Its name.
    pub name: String,
    /// The figure of each variant, without the default; `null` if an application did not complete.
    pub variants: Vec<(String, Option<f64>)>,
}

impl Outcome {
    /// Returns the outcome of an experiment's results in one world, by the means over its seeds.
    pub fn of(findings: &[Finding], measure: Measure, results: Vec<ScenarioResult>) -> Self {
        let results: Vec<ScenarioResult> = results.into_iter().map(ScenarioResult::by_means).collect();
        let claim = |finding: &Finding| {
            let (holds, figure) = finding.outcome(&results).unzip();
            ClaimOutcome { holds, figure }
        };
        let scenario = |result: &ScenarioResult| {
            let variants = result.comparison.variants.iter().skip(1);
            let figure = |variant| Some(measure.of(variant)?.value);
            ScenarioOutcome {
                name: result.name.clone(),
                variants: variants.map(|variant| (variant.name.clone(), figure(variant))).collect(),
            }
        };
        Self {
            claims: findings.iter().map(claim).collect(),
            scenarios: results.iter().map(scenario).collect(),
        }
    }
}
