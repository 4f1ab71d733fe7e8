//! What the [registry](super::KINDS) knows of a policy.
//!
//! A policy takes its parameters one by one from [`Parameters`], and the same call documents each: name,
//! default, range, unit, a sentence. The list of parameters is therefore what the policy really takes:
//! [`PolicyKind::parameters`] builds one with all defaults and records what it asked for.

use super::interface::Policy;
use super::needs::Needs;
use super::peer::{Peer, StartCommand};
use crate::time::parse_duration;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A policy in the registry.
#[derive(Debug, Clone, Copy)]
pub struct PolicyKind {
    /// The name that users write.
    pub name: &'static str,
    /// The machines on which it has something to do.
    pub machine: &'static str,
    /// What it does, in one sentence.
    pub rule: &'static str,
    /// Why that helps, for readers who have not read the papers.
    pub why: &'static str,
    /// Its source.
    pub source: &'static str,
    /// Whether it makes [claims](super::Claims) to fast PEs.
    pub makes_claims: bool,
    /// The parameter that takes the rest of a specification verbatim, including commas.
    pub rest: Option<&'static str>,
    /// Builds the policy.
    pub make: fn(&mut Parameters<'_>) -> Box<dyn Policy>,
}

/// The documentation of a policy's parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its default value; in words if it depends on the machine.
    pub default: String,
    /// The permitted values, with the range.
    pub values: String,
    /// The unit of a number; empty if there is none or if it is written with the value.
    pub unit: &'static str,
    /// What it means, in one sentence.
    pub doc: &'static str,
}

/// An error in a specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is no such policy.
    #[error("there is no policy `{name}`; there are: {known}; the nearest is `{nearest}`")]
    Policy {
        /// The name as written.
        name: String,
        /// The known policies.
        known: String,
        /// The known policy with the most similar name.
        nearest: &'static str,
    },
    /// The policy has no such parameter.
    #[error("the policy {policy} has no parameter `{name}`; it has: {known}")]
    Parameter {
        /// The policy.
        policy: &'static str,
        /// The name as written.
        name: String,
        /// Its parameters, and the most similar one.
        known: String,
    },
    /// A parameter cannot have this value.
    #[error("the policy {policy}: {parameter}={value}: the value must be {values}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The parameter.
        parameter: String,
        /// The value as written.
        value: String,
        /// The permitted values.
        values: String,
    },
    /// The text is not a list of parameters.
    #[error(
        "the policy {policy}: `{text}` is not a parameter: write NAME=VALUE, each once, separated by commas"
    )]
    Syntax {
        /// The policy.
        policy: &'static str,
        /// The text as written.
        text: String,
    },
    /// The policy's command cannot be started.
    #[error("the policy {policy}: {problem}")]
    Command {
        /// The policy.
        policy: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl PolicyKind {
    /// Returns its parameters.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.with_defaults().1
    }

    /// Returns what it needs with all defaults.
    pub fn needs(&self) -> Needs {
        self.with_defaults().0.needs()
    }

    /// Returns whether the policy runs as a separate program.
    pub fn takes_command(&self) -> bool {
        self.rest.is_some()
    }

    fn with_defaults(&self) -> (Box<dyn Policy>, Vec<Parameter>) {
        let mut parameters = Parameters::new(self.name, &BTreeMap::new(), None);
        let policy = (self.make)(&mut parameters);
        (policy, parameters.asked)
    }

    /// Builds the policy from these parameters.
    pub(super) fn make(
        &self,
        given: &BTreeMap<String, String>,
        commands: Option<StartCommand<'_>>,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let mut parameters = Parameters::new(self.name, given, commands);
        let policy = (self.make)(&mut parameters);
        let Parameters { left, asked, error, .. } = parameters;
        let error = error.or_else(|| {
            let name = left.into_keys().next()?;
            let nearest = nearest(&name, asked.iter().map(|parameter| parameter.name));
            let names: Vec<&str> = asked.iter().map(|parameter| parameter.name).collect();
            let known = match nearest {
                Some(nearest) => format!("{}; the nearest is `{nearest}`", names.join(", ")),
                None => "none".to_owned(),
            };
            Some(PolicyError::Parameter { policy: self.name, name, known })
        });
        error.map_or(Ok(policy), Err)
    }
}

/// Returns the most similar name.
pub(super) fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    known.min_by_key(|known| strsim::damerau_levenshtein(name, known))
}

/// The parameters from which a policy is built. Each call takes one parameter and documents it. An invalid
/// value is recorded as the error, and the default is used in its place.
pub struct Parameters<'a> {
    policy: &'static str,
    left: BTreeMap<String, String>,
    asked: Vec<Parameter>,
    error: Option<PolicyError>,
    commands: Option<StartCommand<'a>>,
}

impl<'a> Parameters<'a> {
    fn new(
        policy: &'static str,
        given: &BTreeMap<String, String>,
        commands: Option<StartCommand<'a>>,
    ) -> Self {
        Self { policy, left: given.clone(), asked: Vec::new(), error: None, commands }
    }

    /// Returns all defaults, for a policy that is given none.
    pub fn defaults() -> Self {
        Self::new("", &BTreeMap::new(), None)
    }

    /// Lets a parameter also be given by the name that it had before.
    pub fn rename(&mut self, before: &str, now: &'static str) {
        if !self.left.contains_key(now)
            && let Some(value) = self.left.remove(before)
        {
            self.left.insert(now.to_owned(), value);
        }
    }

    /// Takes a number within a range.
    pub fn number(
        &mut self,
        name: &'static str,
        default: f64,
        range: RangeInclusive<f64>,
        unit: &'static str,
        doc: &'static str,
    ) -> f64 {
        let values = format!("a number from {} to {}", range.start(), range.end());
        let asked = Parameter { name, default: default.to_string(), values, unit, doc };
        self.take(asked, default, |text| text.parse().ok().filter(|value| range.contains(value)))
    }

    /// Takes a share, 0..1.
    pub fn share(&mut self, name: &'static str, default: f64, doc: &'static str) -> f64 {
        self.number(name, default, 0.0..=1.0, "", doc)
    }

    /// Takes a whole number within a range.
    pub fn integer(
        &mut self,
        name: &'static str,
        default: u32,
        range: RangeInclusive<u32>,
        unit: &'static str,
        doc: &'static str,
    ) -> u32 {
        self.integer_or(name, default.to_string(), range, unit, doc).unwrap_or(default)
    }

    /// Takes a whole number within a range. `None` means a default that depends on the scene, described in
    /// words.
    pub fn integer_or(
        &mut self,
        name: &'static str,
        default: String,
        range: RangeInclusive<u32>,
        unit: &'static str,
        doc: &'static str,
    ) -> Option<u32> {
        let values = format!("a whole number from {} to {}", range.start(), range.end());
        let asked = Parameter { name, default, values, unit, doc };
        self.take(asked, None, |text| text.parse().ok().filter(|value| range.contains(value)).map(Some))
    }

    /// Takes a duration within a range, written with its unit.
    pub fn duration(
        &mut self,
        name: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
        doc: &'static str,
    ) -> Duration {
        let values = format!("a time from {:?} to {:?}, with its unit", range.start(), range.end());
        let asked = Parameter { name, default: format!("{default:?}"), values, unit: "", doc };
        self.take(asked, default, |text| parse_duration(text).ok().filter(|value| range.contains(value)))
    }

    /// Takes named numbers above 0, written as `NAME.KEY=NUMBER`.
    pub fn numbers(
        &mut self,
        name: &'static str,
        unit: &'static str,
        doc: &'static str,
    ) -> BTreeMap<String, f64> {
        let values = format!("a number above 0, as {name}.KEY=NUMBER");
        let is_one = |given: &String| given.strip_prefix(name).is_some_and(|key| key.starts_with('.'));
        let given: Vec<String> = self.left.keys().filter(|given| is_one(given)).cloned().collect();
        let mut numbers = BTreeMap::new();
        for given in given {
            let text = self.left.remove(&given).unwrap_or_default();
            match text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0) {
                Some(number) => drop(numbers.insert(given[name.len() + 1..].to_owned(), number)),
                None => self.refuse(&given, text, &values),
            }
        }
        self.asked.push(Parameter { name, default: "none".to_owned(), values, unit, doc });
        numbers
    }

    /// Takes a command, starts it and performs the greeting; when parameters are only listed, no command is
    /// started.
    pub fn command(
        &mut self,
        name: &'static str,
        doc: &'static str,
        greet: impl Fn(&mut dyn Peer) -> Result<(), String>,
    ) -> Option<Box<dyn Peer>> {
        let values = "a command for the shell".to_owned();
        let asked = Parameter { name, default: "none".to_owned(), values: values.clone(), unit: "", doc };
        let command = self.take(asked, String::new(), |text| Some(text.to_owned()));
        if command.trim().is_empty() {
            self.refuse(name, command, &values);
            return None;
        }
        let is_good = self.left.is_empty() && self.error.is_none();
        let start = self.commands.filter(|_| is_good)?;
        let started = start(&command).and_then(|mut peer| greet(&mut *peer).map(|()| peer));
        started
            .map_err(|problem| {
                let problem = format!("`{command}`: {problem}");
                self.error = Some(PolicyError::Command { policy: self.policy, problem });
            })
            .ok()
    }

    fn take<T>(&mut self, asked: Parameter, default: T, parse: impl Fn(&str) -> Option<T>) -> T {
        let mut value = default;
        if let Some(text) = self.left.remove(asked.name) {
            match parse(&text) {
                Some(parsed) => value = parsed,
                None => self.refuse(asked.name, text, &asked.values),
            }
        }
        self.asked.push(asked);
        value
    }

    fn refuse(&mut self, parameter: &str, value: String, values: &str) {
        let (policy, parameter, values) = (self.policy, parameter.to_owned(), values.to_owned());
        self.error.get_or_insert(PolicyError::Value { policy, parameter, value, values });
    }
}
