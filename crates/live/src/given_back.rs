//! What the guardian has given back while corewise was stopped or hung.

use crate::LiveWorld;
use corewise_core::plan::{Outcome, OutcomeKind};

impl LiveWorld {
    /// Reports to the engine what is changed no more, if the guardian has given everything back.
    pub(crate) fn take_given_back(&mut self) {
        for (tid, change) in self.parts.actuators.take_given_back() {
            // What has ended meanwhile is not known any more.
            let thread = self.parts.discovery.facts(tid).map(|facts| facts.id());
            let outcome = |thread| Outcome { thread, change, result: OutcomeKind::GivenBack };
            self.outcomes.extend(thread.map(outcome));
        }
    }
}
