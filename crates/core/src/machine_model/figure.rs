//! A figure of the model, how far it can be trusted, and where it comes from.

use serde::Serialize;

/// The confidence of a figure that is a round default.
pub const ASSUMED_CONFIDENCE: f64 = 0.1;

/// A figure of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// The best guess.
    pub value: f64,
    /// Its confidence: 0 (a guess) to 1 (exact).
    pub confidence: f64,
    /// Its source.
    pub source: Source,
}

/// The source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A measurement in a machine profile.
    Profile,
    /// The topology.
    Topology,
    /// None: a round default.
    Assumed,
}

impl Figure {
    /// Returns a round default.
    pub(super) fn assumed(value: f64) -> Self {
        Self { value, confidence: ASSUMED_CONFIDENCE, source: Source::Assumed }
    }
}
