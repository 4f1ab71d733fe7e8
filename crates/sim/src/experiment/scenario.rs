//! A scenario of an experiment: as it is written, and its result.

use crate::comparison::{Comparison, VariantResult};
use crate::estimate::Estimate;
use serde::{Deserialize, Serialize};

/// A scenario of an experiment as written in its file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioSpec {
    /// Its name in the results.
    pub name: String,
    /// Files over those of the experiment.
    #[serde(default)]
    pub files: Vec<String>,
    /// Values over all files.
    #[serde(default)]
    pub with: toml::Table,
}

/// The result of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioResult {
    /// Its name in the experiment.
    pub name: String,
    /// Its results.
    pub comparison: Comparison,
}

impl ScenarioResult {
    /// Returns the result as if its means were exact: what they say without their intervals.
    pub(super) fn by_means(mut self) -> Self {
        for variant in &mut self.comparison.variants {
            let by_seed = &mut variant.by_seed;
            for ratios in [
                &mut by_seed.speedup,
                &mut by_seed.all_done_speedup,
                &mut by_seed.weighted_speedup_over_default,
            ] {
                // Two alike: an interval of no width.
                *ratios = Estimate::mean_ratio(ratios).map_or_else(Vec::new, |mean| vec![mean.value; 2]);
            }
            let shares = &mut by_seed.sequential_fraction;
            *shares = Estimate::mean(shares).map_or_else(Vec::new, |mean| vec![mean.value; 2]);
            for app in &mut variant.applications {
                app.spread = app.spread.map(|spread| Estimate::exact(spread.value));
            }
        }
        self
    }

    /// Returns the variant of that name.
    pub fn variant(&self, name: &str) -> Option<&VariantResult> {
        self.comparison.variants.iter().find(|variant| variant.name == name)
    }
}
