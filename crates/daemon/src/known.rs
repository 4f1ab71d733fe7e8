//! What the daemon knows: the loop keeps it up to date, and clients are answered from it.

use crate::events::Events;
use crate::refusals::Refusals;
use crate::replies::Seen;
use crate::treatments::Treatments;
use corewise_core::report::Sources;
use corewise_core::top::Top;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

/// What the daemon knows.
pub struct Known {
    /// The present state.
    pub top: Top,
    /// The sources in use.
    pub sources: Sources,
    /// What clients should know.
    pub notes: Vec<String>,
    /// The rules.
    pub treatments: Rc<RefCell<Treatments>>,
    /// What has happened lately.
    pub events: Events,
    /// Whether it changes anything.
    pub acts: bool,
    /// When it saw the threads first.
    pub seen: Seen,
    /// Who was refused lately to have the rules read again.
    pub refusals: Refusals,
    /// Since when it runs.
    pub began: Instant,
}

impl Known {
    /// Nothing is known yet but how it runs.
    pub fn new(
        (sources, notes): (Sources, Vec<String>),
        treatments: Rc<RefCell<Treatments>>,
        acts: bool,
    ) -> Known {
        let (top, events, seen) = (Top::default(), Events::default(), Seen::default());
        let (refusals, began) = (Refusals::default(), Instant::now());
        Known { top, sources, notes, treatments, events, acts, seen, refusals, began }
    }
}
