//! All rules together, and what they mean for a process.

use crate::error::{Place, Problem, RuleError, RuleErrors};
use crate::facts::{Fact, Facts};
use crate::read::{self, SourceFile};
use crate::rule::Rule;
use crate::settings::{DaemonSettings, Settings, Watch};
use std::collections::BTreeMap;

/// The rules of all files, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// What holds for the whole daemon.
    pub daemon: DaemonSettings,
    /// The rules, of which the first that matches wins.
    pub rules: Vec<Rule>,
}

/// What the rules say about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched<'a> {
    /// The rule that matches, if one does.
    pub rule: Option<&'a Rule>,
    /// Whether the process is watched at all.
    pub watched: bool,
    /// What applies to it.
    pub settings: Settings,
}

impl Rules {
    /// Reads the rules of files, the first file first; returns all, or everything that is wrong.
    pub fn read(files: &[SourceFile]) -> Result<Rules, RuleErrors> {
        let mut rules = Rules::default();
        let mut errors = Vec::new();
        for file in files {
            let read::Written { daemon, rules: more, errors: found } = read::file(file);
            rules.daemon = rules.daemon.or(daemon);
            rules.rules.extend(more);
            errors.extend(found);
        }
        errors.extend(rules.same_names());
        if errors.is_empty() { Ok(rules) } else { Err(RuleErrors(errors)) }
    }

    fn same_names(&self) -> Vec<RuleError> {
        let mut places: BTreeMap<&str, &Place> = BTreeMap::new();
        let mut errors = Vec::new();
        for rule in &self.rules {
            match places.get(rule.name.as_str()) {
                Some(&first) => {
                    let problem = Problem::SameName { name: rule.name.clone(), first: first.clone() };
                    errors.push(RuleError { place: rule.place.clone(), problem });
                }
                None => drop(places.insert(&rule.name, &rule.place)),
            }
        }
        errors
    }

    /// Returns whether any rule asks for a fact, so that one that is expensive need not be found out.
    pub fn ask_for(&self, fact: Fact) -> bool {
        self.rules.iter().flat_map(|rule| &rule.conditions).any(|condition| condition.fact == fact)
    }

    /// Returns what applies to a process.
    pub fn matching(&self, facts: &Facts) -> Matched<'_> {
        let rule = self.rules.iter().find(|rule| rule.mismatch(facts).is_none());
        let mut settings = rule.map(|rule| rule.settings.clone()).unwrap_or_default();
        settings.waits = settings.waits.or(self.daemon.waits);
        settings.guard = settings.guard.or(self.daemon.guard);
        let may_be_watched = rule.is_some() || self.daemon.watch.unwrap_or_default() == Watch::All;
        Matched { rule, watched: may_be_watched && !settings.leave_alone, settings }
    }
}
