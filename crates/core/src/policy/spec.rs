//! Policy specifications: a name and parameters, such as `pa:hp_threshold=3,turn=500ms`.
//!
//! Problem: policies and their parameters appear on command lines, in scenarios and in experiments, and are
//! explained in help texts, errors and documents. Separate lists of them would go out of date. Approach: the
//! [registry](super::KINDS) holds one [`PolicyKind`] per policy. A policy takes its parameters one by one
//! from [`Parameters`], and the same call documents each: name, default, range, unit, a sentence. The list of
//! parameters is therefore what the policy really takes: [`PolicyKind::parameters`] builds one with all
//! defaults and records what it asked for. A [`PolicySpec`] is checked on creation, so its policy, parameters
//! and values are always valid.
//!
//! Limits: values stay text until a policy takes them, so `turn=1s` and `turn=1000ms` are two specifications.

use super::exec::{Peer, StartCommand};
use super::{KINDS, Needs, Policy, Scene};
use crate::plan::Placement;
use crate::time::parse_duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::ops::RangeInclusive;
use std::str::FromStr;
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

/// A policy with its parameters, both known to the registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Written")]
pub struct PolicySpec {
    name: String,
    parameters: BTreeMap<String, String>,
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
    /// Returns the policy with this name.
    pub fn find(name: &str) -> Result<&'static PolicyKind, PolicyError> {
        KINDS.iter().copied().find(|kind| kind.name == name).ok_or_else(|| PolicyError::Policy {
            name: name.to_owned(),
            known: super::names().collect::<Vec<_>>().join(", "),
            nearest: nearest(name, super::names()).unwrap_or_default(),
        })
    }

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

    fn make(
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
fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    known.min_by_key(|known| strsim::damerau_levenshtein(name, known))
}

impl PolicySpec {
    /// Returns the policy with these parameters, or an error if either is invalid.
    pub fn new(name: &str, parameters: BTreeMap<String, String>) -> Result<Self, PolicyError> {
        PolicyKind::find(name)?.make(&parameters, None)?;
        Ok(Self { name: name.to_owned(), parameters })
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the policy with these parameters added; parameters that it has already keep their values.
    pub fn or(&self, parameters: &BTreeMap<String, String>) -> Result<Self, PolicyError> {
        let mut all = parameters.clone();
        all.extend(self.parameters.clone());
        Self::new(&self.name, all)
    }

    /// Returns the given parameters.
    pub fn parameters(&self) -> &BTreeMap<String, String> {
        &self.parameters
    }

    /// Builds the policy. Its [name](Policy::name) is the whole specification. `commands` starts the command
    /// of a policy that is a separate program; with `None` such policies cannot be built.
    pub fn build(&self, commands: Option<StartCommand<'_>>) -> Result<Box<dyn Policy>, PolicyError> {
        let no_commands: StartCommand<'_> = &|_| Err("no command can be started here".to_owned());
        let kind = PolicyKind::find(&self.name)?;
        let policy = kind.make(&self.parameters, Some(commands.unwrap_or(no_commands)))?;
        Ok(if self.parameters.is_empty() {
            policy
        } else {
            Box::new(Specified { name: self.to_string(), policy })
        })
    }
}

/// The policy with all defaults.
impl From<&PolicyKind> for PolicySpec {
    fn from(kind: &PolicyKind) -> Self {
        Self { name: kind.name.to_owned(), parameters: BTreeMap::new() }
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (name, mut text) = text.split_once(':').unwrap_or((text, ""));
        let kind = PolicyKind::find(name)?;
        let mut parameters = BTreeMap::new();
        if let Some(rest) = kind.rest {
            let known = kind.parameters();
            while let Some((name, others)) = text.split_once('=')
                && known.iter().any(|parameter| parameter.name == name && name != rest)
            {
                let (value, others) = others.split_once(',').unwrap_or((others, ""));
                parameters.insert(name.to_owned(), value.to_owned());
                text = others;
            }
            if !text.is_empty() {
                parameters.insert(rest.to_owned(), text.to_owned());
            }
            return Self::new(name, parameters);
        }
        for item in text.split(',').filter(|_| !text.is_empty()) {
            let wrong = || PolicyError::Syntax { policy: kind.name, text: item.to_owned() };
            let (name, value) = item.split_once('=').ok_or_else(wrong)?;
            if parameters.insert(name.trim().to_owned(), value.trim().to_owned()).is_some() {
                return Err(wrong());
            }
        }
        Self::new(name, parameters)
    }
}

impl Display for PolicySpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let rest = PolicyKind::find(&self.name).ok().and_then(|kind| kind.rest);
        let (last, others): (Vec<_>, Vec<_>) =
            self.parameters.iter().partition(|(name, _)| Some(name.as_str()) == rest);
        let others = others.into_iter().map(|(name, value)| format!("{name}={value}"));
        let all: Vec<String> = others.chain(last.into_iter().map(|(_, value)| value.clone())).collect();
        f.write_str(&self.name)?;
        if all.is_empty() { Ok(()) } else { write!(f, ":{}", all.join(",")) }
    }
}

/// A specification in a file: `"pa:turn=500ms"`, or `{ name = "pa", turn = "500ms" }`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a policy is written \"NAME:PARAMETER=VALUE\" or { name = …, PARAMETER = … }")]
enum Written {
    Text(String),
    Table {
        name: String,
        #[serde(flatten)]
        parameters: ParameterTable,
    },
}

impl TryFrom<Written> for PolicySpec {
    type Error = PolicyError;

    fn try_from(written: Written) -> Result<Self, PolicyError> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Table { name, parameters } => Self::new(&name, parameters.into_texts()),
        }
    }
}

/// A table of parameters in a file, as written.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(transparent)]
pub struct ParameterTable(BTreeMap<String, TableValue>);

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a parameter is a text, a number, or a table of numbers")]
enum TableValue {
    Text(String),
    Integer(i64),
    Number(f64),
    Numbers(BTreeMap<String, f64>),
}

impl ParameterTable {
    /// Returns the parameters as in a specification; those of nested tables get dotted names.
    pub fn into_texts(self) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for (name, value) in self.0 {
            match value {
                TableValue::Text(text) => drop(texts.insert(name, text)),
                TableValue::Integer(number) => drop(texts.insert(name, number.to_string())),
                TableValue::Number(number) => drop(texts.insert(name, number.to_string())),
                TableValue::Numbers(numbers) => {
                    texts.extend(
                        numbers.iter().map(|(key, number)| (format!("{name}.{key}"), number.to_string())),
                    );
                }
            }
        }
        texts
    }
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

/// A policy that is named by its whole specification.
struct Specified {
    name: String,
    policy: Box<dyn Policy>,
}

impl Policy for Specified {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self) -> Needs {
        self.policy.needs()
    }

    fn answers(&mut self, scene: &Scene<'_>) -> bool {
        self.policy.answers(scene)
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        self.policy.place(scene)
    }

    fn failure(&self) -> Option<&str> {
        self.policy.failure()
    }
}
