//! Policy specifications: a name and parameters, such as `pa:hp_threshold=3,stay=500ms`.
//!
//! Problem: policies and their parameters appear on command lines, in scenarios and in experiments, and are
//! explained in help texts, errors and documents. Separate lists of them would go out of date. Approach: the
//! [registry](super::KINDS) holds one [`PolicyKind`] per policy, which knows its parameters. A [`PolicySpec`]
//! is checked on creation, so its policy, parameters and values are always valid.
//!
//! Limits: values stay text until a policy takes them, so `stay=1s` and `stay=1000ms` are two specifications.

use super::interface::{Policy, Scene};
use super::kind::{PolicyError, PolicyKind};
use super::needs::Needs;
use super::peer::StartCommand;
use crate::plan::Placement;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// A policy with its parameters, both known to the registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Written")]
pub struct PolicySpec {
    name: String,
    parameters: BTreeMap<String, String>,
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

/// A specification in a file: `"pa:stay=500ms"`, or `{ name = "pa", stay = "500ms" }`.
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
