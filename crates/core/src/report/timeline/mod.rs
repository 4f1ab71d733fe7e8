//! What happened when: how parallel each application was, and which application had which PE.
//!
//! Problem: phases and swaps last milliseconds, runs last hours, and a report must stay small. Lists of the
//! latest events show the end of a long run only. Approach: the run is divided into columns of equal width,
//! and each column holds sums: thread time, time with a single runnable thread, CPU time, time for which
//! threads were bound. When there are too many columns, they become twice as wide: the sums stay exact, and
//! what lasted less than a column shows as its share of the column.
//!
//! A thread that is bound to n PEs counts 1/n on each of them, as it occupies one of them at a time.
//!
//! Limits: where a free thread ran is known as often as the world was observed. The number of runnable
//! threads is known at every change (but for 2 ms, see [`COALESCED_WITHIN`]) if the policy asks for these
//! changes, and otherwise as its mean between two observations. Beyond [`APPLICATIONS_MAX`] applications,
//! those with the least CPU time are summed up.

mod collect;
mod grid;
mod parallelism;

pub use collect::TimelineBuilder;

use crate::ids::PeId;
use crate::observe::COALESCED_WITHIN;
use serde::{Deserialize, Serialize};

/// The width of a column in a short run, in nanoseconds: a few times the time between two reports of changes.
const FIRST_COLUMN_NS: u64 = 4 * COALESCED_WITHIN.as_nanos() as u64;

/// The maximum number of columns: about as many as a screen has.
const COLUMNS_MAX: usize = 1_024;

/// The maximum number of columns of all rows together, which bounds memory on machines with many PEs.
const CELLS_MAX: usize = 32_768;

/// The number of applications with rows of their own: more than there are colours.
const APPLICATIONS_MAX: usize = 32;

/// What happened in each of the columns of equal width into which the run is divided.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// The width of a column, in nanoseconds. The last column may end later than the run.
    pub column_ns: u64,
    /// How parallel each application was.
    pub runnable: Vec<RunnableOverTime>,
    /// What each PE did for each application.
    pub pes: Vec<PeOverTime>,
}

/// The number of an application's runnable threads over time. Lists have one entry per column, from
/// `first_column` on; what is missing at their ends is 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunnableOverTime {
    /// The index among the report's applications; `null` for all others together.
    pub application: Option<usize>,
    /// The index of the first column that is listed.
    pub first_column: usize,
    /// The mean number of runnable threads.
    pub mean: Vec<f64>,
    /// The share of the time with exactly one, 0..1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequential: Vec<f64>,
}

/// What a PE did for an application over time; lists as in [`RunnableOverTime`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeOverTime {
    /// The PE.
    pub pe: PeId,
    /// The index among the report's applications; `null` for all others together.
    pub application: Option<usize>,
    /// The index of the first column that is listed.
    pub first_column: usize,
    /// CPU time of the threads that were seen there at the next observation, as a share of the time. Exceeds
    /// 1 if threads came there after they had run elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<f64>,
    /// That of FPU-intensive threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fpu_intensive: Vec<f64>,
    /// The mean number of threads that corewise had bound there; one that is bound to n PEs counts 1/n.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound: Vec<f64>,
    /// That of threads that also had a higher weight than their user's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weighted: Vec<f64>,
    /// How many threads were newly bound there, or to several PEs with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<f64>,
}

#[cfg(test)]
mod tests;
