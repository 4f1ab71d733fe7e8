//! What a rule asks of a process.
//!
//! In patterns `*` stands for any text, also for none and across `/`; `?` for one character; everything
//! else for itself. These are the patterns of udev's rules, without its character classes, and just those
//! of `wildmatch`, which depends on nothing. `globset` also gives brackets, braces and backslashes a
//! meaning, and by its `?` one byte: `é` is two.

use crate::facts::{Fact, Facts};
use std::fmt;
use wildmatch::WildMatch;

/// A condition: one of the patterns must describe the fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The fact.
    pub fact: Fact,
    /// The patterns, at least one.
    pub patterns: Vec<String>,
}

/// Why a condition does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch<'a> {
    /// The condition.
    pub condition: &'a Condition,
    /// The fact in words; `None` if it is unknown.
    pub found: Option<String>,
}

impl Condition {
    /// Returns why the condition does not hold for a process, or nothing.
    pub fn mismatch(&self, facts: &Facts) -> Option<Mismatch<'_>> {
        let Some(texts) = facts.texts(self.fact) else {
            return Some(Mismatch { condition: self, found: None });
        };
        // Only who writes a `/` means a unit that somebody else than the system has made, whatever `*` is.
        let is_meant = |pattern: &str, text: &str| {
            self.fact != Fact::Unit || pattern.contains('/') == text.contains('/')
        };
        let fits =
            |pattern: &str, text: &str| is_meant(pattern, text) && WildMatch::new(pattern).matches(text);
        let holds = self.patterns.iter().any(|pattern| texts.iter().any(|text| fits(pattern, text)));
        (!holds).then(|| Mismatch { condition: self, found: Some(facts.shown(self.fact)) })
    }
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.condition.fact.word();
        let patterns = self.condition.patterns.join("` or `");
        match &self.found {
            Some(found) => write!(f, "{word} is {found}, not `{patterns}`"),
            None => write!(f, "{word} is unknown, so it is not `{patterns}`"),
        }
    }
}
