//! What earlier runs have taught about programs.
//!
//! Problem: much of a demand shows only after a while, and some of it never in the counters of one run.
//! Approach: what is known when a run begins is a value. It is given to the engine at its start, and
//! recordings hold it, so that a replay decides as the run did.
//! Limits: a thread is recognised by its name alone.

use super::known::KnownDemand;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of threads before they run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knowledge {
    /// The demands of threads, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub demands: BTreeMap<Arc<str>, KnownDemand>,
}

impl Knowledge {
    /// Nothing.
    pub const NONE: &Knowledge = &Knowledge { demands: BTreeMap::new() };

    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.demands.is_empty()
    }

    /// Returns what is known of a thread of this name.
    pub fn of(&self, name: &str) -> KnownDemand {
        self.demands.get(name).copied().unwrap_or_default()
    }
}
