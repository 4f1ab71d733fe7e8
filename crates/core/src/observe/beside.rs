//! Readings of which processes ran beside which.

use crate::topology::DomainKind;
use serde::{Deserialize, Serialize};

/// For how long threads of two processes, or two of one process, ran at the same time on PEs whose closest
/// common domain is of this kind. Raw, cumulative and monotonic; summed over all pairs of PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BesideReading {
    /// Both processes, the lower ID first.
    pub processes: (u32, u32),
    /// What their PEs share.
    pub shared: DomainKind,
    /// The common time, in nanoseconds.
    pub ns: u64,
}
