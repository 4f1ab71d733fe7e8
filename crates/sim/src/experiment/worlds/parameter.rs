//! What a paper leaves open: which value it is, its plausible range, and where that range comes from.

use crate::scenario::put;
use corewise_core::time::parse_duration;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toml::{Table, Value};

/// Digits of a drawn number: it is used as it is shown.
const DIGITS: i32 = 4;

/// A parameter as written in `[[world]]`. It has one of `uniform`, `log`, `times` and `values`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterSpec {
    /// Its name in words.
    pub name: String,
    /// Where it stands in a scenario: `machine.memory.remote_factor`; `*` is each name that there is. All of
    /// them get the same value.
    pub set: Vec<String>,
    /// Whether each name that `*` is gets a value of its own instead.
    #[serde(default)]
    pub own: bool,
    /// Lowest and highest value, all equally likely.
    pub uniform: Option<[Value; 2]>,
    /// The same, all orders of magnitude equally likely.
    pub log: Option<[Value; 2]>,
    /// Lowest and highest factor on what the scenario states, likewise.
    pub times: Option<[Value; 2]>,
    /// Alternatives, in an order that makes sense.
    pub values: Option<Vec<Value>>,
    /// Where the range comes from.
    pub source: String,
}

/// A file of parameters that several experiments share.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterFile {
    /// The parameters.
    #[serde(rename = "world")]
    pub worlds: Vec<ParameterSpec>,
}

/// A parameter, ready to be drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name in words.
    pub name: String,
    /// Where it stands.
    pub set: Vec<String>,
    /// Its range in words.
    pub range: String,
    /// Where that comes from.
    pub source: String,
    #[serde(skip)]
    choice: Choice,
}

/// The values that a parameter can have.
#[derive(Debug, Clone, PartialEq)]
enum Choice {
    Number { low: f64, high: f64, by_magnitude: bool, kind: Kind },
    One(Vec<Value>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// In seconds.
    Time,
    /// Of what the scenario states.
    Factor,
}

/// The value of a parameter in one world.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Draw {
    /// The value as text: as it is written in a scenario, or `1.3 times`.
    pub text: String,
    /// What draws are ordered by: the value, in seconds if it is a time, or the place in the list.
    pub number: f64,
}

impl ParameterSpec {
    /// Returns the parameter, or several if each name has its own; the error says what to change.
    pub fn expand(&self, scenarios: &[Table]) -> Result<Vec<Parameter>, String> {
        let choice = self.choice()?;
        if self.set.is_empty() || self.source.trim().is_empty() {
            return Err("set and source must not be empty".to_owned());
        }
        let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for path in &self.set {
            let mut paths = vec![("", path.clone())];
            if let Some((before, _)) = path.split_once(".*") {
                let tables = scenarios.iter().filter_map(|scenario| find(scenario, before)?.as_table());
                let names: BTreeSet<&String> = tables.flat_map(Table::keys).collect();
                paths = names.into_iter().map(|name| (name.as_str(), path.replacen('*', name, 1))).collect();
            }
            paths.retain(|(_, path)| scenarios.iter().any(|scenario| choice.is_in(scenario, path)));
            if paths.is_empty() {
                return Err(format!("no scenario has `{path}`"));
            }
            for (name, path) in paths {
                by_name.entry(if self.own { name } else { "" }).or_default().push(path);
            }
        }
        let parameter = |(name, set): (&str, Vec<String>)| Parameter {
            name: if name.is_empty() { self.name.clone() } else { format!("{} of {name}", self.name) },
            set,
            range: choice.words(),
            source: self.source.split_whitespace().collect::<Vec<_>>().join(" "),
            choice: choice.clone(),
        };
        Ok(by_name.into_iter().map(parameter).collect())
    }

    fn choice(&self) -> Result<Choice, String> {
        match (&self.uniform, &self.log, &self.times, &self.values) {
            (Some(ends), None, None, None) => number("uniform", ends, false),
            (None, Some(ends), None, None) => number("log", ends, true),
            (None, None, Some(ends), None) => match number("times", ends, true)? {
                Choice::Number { low, high, kind: Kind::Plain, .. } => {
                    Ok(Choice::Number { low, high, by_magnitude: true, kind: Kind::Factor })
                }
                _ => Err("times: write two factors without a unit".to_owned()),
            },
            (None, None, None, Some(values)) if values.len() > 1 => Ok(Choice::One(values.clone())),
            (None, None, None, Some(_)) => Err("values: write two or more".to_owned()),
            _ => Err("give one of uniform, log, times and values".to_owned()),
        }
    }
}

fn number(key: &str, ends: &[Value; 2], by_magnitude: bool) -> Result<Choice, String> {
    let read = |value: &Value| match value {
        Value::Integer(whole) => Some((*whole as f64, Kind::Plain)),
        Value::Float(number) => Some((*number, Kind::Plain)),
        Value::String(text) => Some((parse_duration(text).ok()?.as_secs_f64(), Kind::Time)),
        _ => None,
    };
    let (Some((low, kind)), Some((high, other))) = (read(&ends[0]), read(&ends[1])) else {
        return Err(format!("{key}: write two numbers, or two times with their units (\"10ms\")"));
    };
    if kind != other || !(low < high && high.is_finite()) {
        return Err(format!("{key}: the range is empty: write the lower end first, both in the same unit"));
    }
    if by_magnitude && low <= 0.0 {
        return Err(format!("{key}: both ends must be above 0"));
    }
    Ok(Choice::Number { low, high, by_magnitude, kind })
}

impl Choice {
    fn words(&self) -> String {
        match self {
            Choice::Number { low, high, by_magnitude, kind } => {
                let spread = if *by_magnitude { ", by magnitude" } else { "" };
                format!("{} to {}{spread}", kind.shown(*low), kind.shown(*high))
            }
            Choice::One(values) => joined(values.iter()),
        }
    }

    /// Returns whether a scenario has that value, or can have it.
    fn is_in(&self, scenario: &Table, path: &str) -> bool {
        if let Choice::Number { kind: Kind::Factor, .. } = self {
            return find(scenario, path).and_then(as_number).is_some();
        }
        // Other tables may be left out; a demand or a program that nobody states would be a new one.
        let mut names = path.splitn(3, '.');
        match (names.next(), names.next()) {
            (Some(table @ ("demand" | "program")), Some(name)) => {
                find(scenario, &format!("{table}.{name}")).is_some()
            }
            _ => true,
        }
    }
}

impl Kind {
    /// Returns the value as text.
    fn shown(self, value: f64) -> String {
        match self {
            Kind::Plain => value.to_string(),
            Kind::Factor => format!("{value} times"),
            Kind::Time => format!("{:?}", Duration::from_secs_f64(value)),
        }
    }
}

fn joined<'a>(values: impl Iterator<Item = &'a Value>) -> String {
    values.map(Value::to_string).collect::<Vec<_>>().join(" or ")
}

/// Rounds to some digits.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    // By way of the text, so that 0.3 is 0.3.
    format!("{value:.*e}", digits as usize - 1).parse().unwrap_or(value)
}

/// Returns what stands at a path.
fn find<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = table.get(names.next()?)?;
    names.try_fold(first, |value, name| value.as_table()?.get(name))
}

impl Parameter {
    /// Returns its value for a position in 0..1.
    pub fn at(&self, position: f64) -> Draw {
        match &self.choice {
            Choice::Number { low, high, by_magnitude, kind } => {
                let value = if *by_magnitude {
                    low * (high / low).powf(position)
                } else {
                    low + (high - low) * position
                };
                let number = rounded(value, DIGITS);
                Draw { text: kind.shown(number), number }
            }
            Choice::One(values) => {
                let place = ((position * values.len() as f64) as usize).min(values.len() - 1);
                Draw { text: values[place].to_string(), number: place as f64 }
            }
        }
    }

    /// Returns whether the values are alternatives of a list.
    pub fn is_list(&self) -> bool {
        matches!(self.choice, Choice::One(_))
    }

    /// Returns a bound between two draws that people can read, and the values below or above it in words.
    pub fn bound(&self, below: f64, above: f64) -> f64 {
        let middle = f64::midpoint(below, above);
        let short = |digits| Some(rounded(middle, digits)).filter(|bound| below <= *bound && *bound < above);
        if self.is_list() { middle } else { (2..=DIGITS).find_map(short).unwrap_or(below) }
    }

    /// Returns the values on one side of a bound in words.
    pub fn side(&self, bound: f64, is_above: bool) -> String {
        match &self.choice {
            Choice::Number { kind, .. } => {
                format!("is {} {}", if is_above { "above" } else { "at most" }, kind.shown(bound))
            }
            Choice::One(values) => {
                let split = bound.ceil() as usize;
                let side = if is_above { &values[split..] } else { &values[..split] };
                format!("is {}", joined(side.iter()))
            }
        }
    }

    /// Sets the value in a scenario that has it.
    pub fn apply(&self, scenario: &mut Table, draw: &Draw) -> Result<(), String> {
        for path in &self.set {
            if !self.choice.is_in(scenario, path) {
                continue;
            }
            let value = match &self.choice {
                Choice::One(values) => values[draw.number as usize].clone(),
                Choice::Number { kind: Kind::Plain, .. } => Value::Float(draw.number),
                Choice::Number { kind: Kind::Time, .. } => Value::String(format!("{}s", draw.number)),
                Choice::Number { kind: Kind::Factor, .. } => {
                    let stated = find(scenario, path).and_then(as_number).unwrap_or(f64::NAN);
                    Value::Float(rounded(stated * draw.number, DIGITS))
                }
            };
            put(scenario, path, value).map_err(ToOwned::to_owned)?;
        }
        Ok(())
    }
}

fn as_number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}
