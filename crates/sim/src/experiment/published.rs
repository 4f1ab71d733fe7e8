//! What an experiment says of its paper.

use serde::{Deserialize, Serialize};

/// Which experiment it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExperimentText {
    /// Its name.
    pub name: String,
    /// Always `simulated`.
    pub evidence: &'static str,
    /// What it shows.
    pub title: String,
    /// The publication.
    pub source: String,
    /// The figure or section in it.
    pub figure: String,
}

/// A number of the paper, as an effect over the default: 0.4 is 40 % faster.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The scenario.
    pub scenario: String,
    /// The variant.
    pub variant: String,
    /// The number, or the lower end of a range.
    pub lowest: f64,
    /// The upper end.
    pub highest: f64,
}
