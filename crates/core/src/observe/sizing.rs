//! How programs choose the number of their threads, as far as that depends on masks.

use serde::{Deserialize, Serialize};

/// What is known of how the program of a thread chooses the number of its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizing {
    /// It does not look at masks, as in a simulation. (Nothing else is known of earlier recordings.)
    #[default]
    Fixed,
    /// It may ask how many PEs it may use while it works with one thread, and have as many threads for good.
    MayAsk,
    /// It has asked while a thread of it was bound: it may do so at any time.
    Asks,
}

impl Sizing {
    /// Returns whether it is that of a program that does not look.
    pub fn is_fixed(&self) -> bool {
        *self == Sizing::Fixed
    }
}
