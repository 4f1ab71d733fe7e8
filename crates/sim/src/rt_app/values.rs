//! Reads values of a workload, and writes those of a scenario.

use super::error::{RtAppError, at};
use super::json::Json;
use toml::{Table, Value};

pub fn object(path: &str, value: Json) -> Result<Vec<(String, Json)>, RtAppError> {
    match value {
        Json::Object(entries) => Ok(entries),
        other => Err(at(path, format!("{other} stands where an object must"))),
    }
}

pub fn number(path: &str, value: &Json, range: std::ops::RangeInclusive<f64>) -> Result<f64, RtAppError> {
    match value {
        Json::Number(number) if range.contains(number) && number.fract() == 0.0 => Ok(*number),
        other => {
            let (low, high) = (range.start(), range.end());
            Err(at(path, format!("{other} must be a whole number from {low} to {high}")))
        }
    }
}

pub fn cpus(path: &str, value: &Json) -> Result<String, RtAppError> {
    let Json::List(list) = value else { return Err(at(path, "it must be a list of CPUs")) };
    let numbers: Result<Vec<String>, _> =
        list.iter().map(|cpu| number(path, cpu, 0.0..=1e6).map(|cpu| cpu.to_string())).collect();
    let numbers = numbers?;
    if numbers.is_empty() { Err(at(path, "it is empty")) } else { Ok(numbers.join(",")) }
}

pub fn plain_policy(path: &str, value: &Json) -> Result<(), RtAppError> {
    match value {
        Json::Text(policy) if policy == "SCHED_OTHER" => Ok(()),
        other => Err(at(path, format!("{other}: the simulator has SCHED_OTHER only"))),
    }
}

pub fn no_priority(path: &str, value: &Json) -> Result<(), RtAppError> {
    match value {
        Json::Number(0.0) => Ok(()),
        other => Err(at(path, format!("{other}: the simulator has no priorities; leave it out"))),
    }
}

/// Returns a table with one entry.
pub fn one(key: &str, value: Value) -> Value {
    Value::Table(Table::from_iter([(key.to_owned(), value)]))
}

pub fn microseconds(us: f64) -> Value {
    Value::String(format!("{us:.0}us"))
}
