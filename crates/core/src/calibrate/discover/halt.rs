//! Why a series of tests ended without a result.

use super::super::ExecutorError;

/// Why a series of tests ended without a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Halt {
    /// The user interrupted.
    Interrupted,
    /// The machine could not run a test.
    Failed(ExecutorError),
    /// No partition fits the answers.
    Contradiction,
    /// Slowdowns are too small for the noise.
    Unclear {
        /// The standard deviation.
        noise: f64,
    },
    /// The latency shows no such level.
    NoCache { reported: Option<u64>, seen: Vec<u64> },
}
