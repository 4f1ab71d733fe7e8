//! Why nothing is predicted.

use crate::machine::MachineError;

/// Why nothing is predicted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WhatIfError {
    /// The recording has no observations.
    #[error("the recording holds no observation")]
    Empty,
    /// No thread used CPU time.
    #[error("no recorded thread used any CPU time")]
    NoWork,
    /// A machine is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Too little is known of the recorded machine.
    #[error("{0}; --recorded-on can describe it")]
    UnknownMachine(MachineError),
    /// The given description belongs to another machine.
    #[error("the recording is of a machine with the PEs {recorded}, but --recorded-on has {given}")]
    OtherMachine {
        /// The PEs of the description.
        given: String,
        /// The PEs that were recorded.
        recorded: String,
    },
    /// The simulated threads make no progress.
    #[error("on that machine the recorded work takes more than 100 times as long as recorded")]
    Endless,
}
