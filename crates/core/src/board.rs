//! What all runs of a user share: epochs without changed waits and their results ([`crate::guard::waits`]).

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// The board as one run reads it at one instant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Board {
    /// The clock that all runs share: the machine's, not the run's.
    pub clock: Time,
    /// What the other runs have written, by the number of the run.
    pub notes: Vec<(u32, Note)>,
}

/// What a run writes on the board.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Note {
    /// Whether it changes waits or turns now, as far as its rules go.
    pub changes: bool,
    /// How many of its processes take turns.
    pub gangs: u32,
    /// The pairs of epochs that it asks all runs to hold: the last two.
    pub asks: Vec<Ask>,
    /// The last verdict that it knows of.
    pub verdict: Agreed,
    /// The logarithms that its last pairs gave, by the second of the pair; `None` if it was late.
    pub results: Vec<(u64, Option<f64>)>,
}

/// A pair of epochs, in a second of the common clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The second.
    pub second: u64,
    /// The length of the epoch without changes, in milliseconds.
    pub off_ms: u64,
}

/// What holds between pairs for all runs: the newest verdict on the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Agreed {
    /// The second in which it was given.
    pub second: u64,
    /// Whether all changes are taken back.
    pub is_off: bool,
}
