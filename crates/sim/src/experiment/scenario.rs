//! A scenario of an experiment: as it is written, and its result.

use crate::comparison::{Comparison, VariantResult};
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
    /// Returns the variant of that name.
    pub fn variant(&self, name: &str) -> Option<&VariantResult> {
        self.comparison.variants.iter().find(|variant| variant.name == name)
    }
}
