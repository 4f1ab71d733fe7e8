//! Why a text is not a workload that can be simulated.

use crate::machine::MachineError;

/// Why a text is not a workload that can be simulated.
#[derive(Debug, thiserror::Error)]
pub enum RtAppError {
    /// It is not JSON.
    #[error("it is not strict JSON (rt-app's `workgen` makes it so): {0}")]
    Json(#[from] serde_json::Error),
    /// Something in it is wrong or cannot be simulated.
    #[error("{path}: {problem}")]
    At {
        /// The keys that lead there.
        path: String,
        /// The problem.
        problem: String,
    },
    /// The machine is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine cannot be written into a scenario.
    #[error("the machine cannot be written into a scenario: {0}")]
    Words(#[from] toml::ser::Error),
}

/// Returns the error at a path.
pub(super) fn at(path: &str, problem: impl Into<String>) -> RtAppError {
    RtAppError::At { path: path.to_owned(), problem: problem.into() }
}
