//! One rule.

use crate::condition::{Condition, Mismatch};
use crate::error::Place;
use crate::facts::Facts;
use crate::settings::Settings;

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Where it is written.
    pub place: Place,
    /// What must hold, at least one condition.
    pub conditions: Vec<Condition>,
    /// What applies then.
    pub settings: Settings,
}

impl Rule {
    /// Returns the first condition that does not hold for a process; `None` if the rule matches.
    pub fn mismatch(&self, facts: &Facts) -> Option<Mismatch<'_>> {
        self.conditions.iter().find_map(|condition| condition.mismatch(facts))
    }
}
