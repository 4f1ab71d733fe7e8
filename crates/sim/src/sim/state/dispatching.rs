//! The policy that the system asks, and what it knows.

use crate::pmu::Counters;
use corewise_core::policy::dispatch::{Dispatch, EventsPerCycle};

/// The policy that is asked, and what is known of each thread.
pub(crate) struct Dispatching {
    pub policy: Box<dyn Dispatch>,
    /// Each thread's counters when it left a PE, and what it did in the slice before.
    pub slices: Vec<(Counters, Option<EventsPerCycle>)>,
}

impl Dispatching {
    /// Knows no thread yet.
    pub fn new(policy: Box<dyn Dispatch>) -> Self {
        Self { policy, slices: Vec::new() }
    }

    /// Returns what a thread did in its last slice.
    pub fn last(&self, thread: usize) -> Option<EventsPerCycle> {
        self.slices.get(thread)?.1
    }
}
