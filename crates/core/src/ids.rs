//! Identifiers as distinct types, so that threads, PEs and applications cannot be confused.

use serde::{Deserialize, Serialize};

/// A processing element by its OS index: what Linux calls a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeId(pub u32);

/// One thread over its whole life. Linux reuses thread IDs, so an ID alone does not identify a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadId {
    /// The kernel's thread ID (`gettid`).
    pub tid: u32,
    /// Distinguishes threads with the same `tid`: the start time, in a unit that the world chooses.
    pub generation: u64,
}

/// An application: a program with all its processes, or all that was started or attached as one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AppId(pub u32);

impl std::fmt::Display for PeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::fmt::Display for ThreadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.tid)
    }
}
