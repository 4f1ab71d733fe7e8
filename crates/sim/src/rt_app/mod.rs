//! Workloads of rt-app as scenarios.
//!
//! Problem: many scheduler workloads are written for rt-app, as JSON. Approach: each task becomes an
//! application of `instance` threads; its phases become steps. Source: rt-app's `doc/tutorial.txt`.
//!
//! | rt-app | here |
//! | --- | --- |
//! | `run` | work: so many microseconds on the PE of `global.calibration`; a number: at speed 1 |
//! | `runtime` | the same, on machines whose PEs are equally fast; else refused, as it is no amount of work |
//! | `sleep` | sleep |
//! | `timer` | sleep: the period less what the events since the last use take when undisturbed |
//! | `lock`, `run`…, `unlock` | a critical section; the lock belongs to one task |
//! | `barrier` | a barrier of all instances of one task |
//! | `loop`, `phases`, `delay`, `instance`, `cpus` of a task | repeat, steps, start, threads, `cpus` |
//! | `loop: -1` of a task | as many loops as `global.duration` has room for when undisturbed |
//!
//! Keys keep their order, and event names may be repeated or carry a suffix (`run1`). What cannot be shown is
//! refused with its path: priorities and other policies than `SCHED_OTHER`, whatever lets one task wait for
//! another (`suspend`, `resume`, `wait`, `signal`, `broad`, `sync`, shared locks and barriers), `mem`,
//! `iorun`, `fork`, `yield`, affinities of phases. Limits: work under rt-app is a fixed time of wall clock,
//! here it is a fixed amount of loops; a timer's delays add up here, where rt-app's next activation keeps its
//! time; what `run` asks of shared units is the default demand unless the scenario's `demand.run` is set.

mod events;
mod json;

#[cfg(test)]
mod tests;

use crate::machine::{Machine, MachineError, MachineSpec};
use corewise_core::ids::PeId;
use events::{Names, Phase};
use json::Json;
use toml::{Table, Value};

/// Settings that do not affect which thread runs when.
const WITHOUT_EFFECT: [&str; 10] = [
    "lock_pages",
    "logdir",
    "log_basename",
    "log_size",
    "ftrace",
    "gnuplot",
    "frag",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
];

/// The latest end of a run: some thirty years.
const US_MAX: f64 = 1e15;

/// A run that takes this many times its undisturbed duration is cut off.
const LONGEST: f64 = 20.0;

/// Why a text is not a workload that can be simulated.
#[derive(Debug, thiserror::Error)]
pub enum RtAppError {
    /// It is not JSON.
    #[error("it is not strict JSON (rt-app's `workgen` makes it so): {0}")]
    Json(#[from] serde_json::Error),
    /// Something in it is wrong or cannot be simulated.
    #[error("{path}: {problem}")]
    At {
        /// The keys that lead there.
        path: String,
        /// The problem.
        problem: String,
    },
    /// The machine is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine cannot be written into a scenario.
    #[error("the machine cannot be written into a scenario: {0}")]
    Words(#[from] toml::ser::Error),
}

/// Returns the error at a path.
fn at(path: &str, problem: impl Into<String>) -> RtAppError {
    RtAppError::At { path: path.to_owned(), problem: problem.into() }
}

/// The contents of `global`.
struct Global {
    duration_us: Option<f64>,
    /// Millions of cycles per microsecond of `run`.
    mcycles_per_us: f64,
    /// Whether a time is a fixed amount of work on every PE.
    is_uniform: bool,
}

/// Returns the scenario of a workload on a machine.
pub fn scenario(name: &str, text: &str, machine: &MachineSpec) -> Result<Table, RtAppError> {
    let root = object("the file", serde_json::from_str(text)?)?;
    let mut tasks = None;
    let mut global = Vec::new();
    for (key, value) in root {
        match key.as_str() {
            "tasks" if tasks.is_none() => tasks = Some(object("tasks", value)?),
            "tasks" => return Err(at("tasks", "it is there twice")),
            "global" => global.extend(object("global", value)?),
            // rt-app creates resources as tasks name them.
            "resources" => {}
            _ => return Err(at(&key, "there is no such key; there are: tasks, global, resources")),
        }
    }
    let global = Global::of(global, machine)?;
    let mut names = Names::default();
    let mut applications = Vec::new();
    let mut longest_us: f64 = 0.0;
    for (task, value) in tasks.ok_or_else(|| at("tasks", "it is missing"))? {
        let path = format!("tasks.{task}");
        if let Some(built) = Task::of(&path, object(&path, value)?, &global, &mut names)? {
            longest_us = longest_us.max(built.delay_us + built.nominal_us);
            applications.push(Value::Table(built.application(&task)));
        }
    }
    let mut table = Table::new();
    table.insert("name".to_owned(), Value::String(format!("rt-app: {name}")));
    table.insert("machine".to_owned(), Value::Table(Table::try_from(machine)?));
    table.insert("demand".to_owned(), one("run", Value::Table(Table::new())));
    table.insert("application".to_owned(), Value::Array(applications));
    table.insert("stop".to_owned(), one("time", microseconds((LONGEST * longest_us).clamp(1e6, US_MAX))));
    Ok(table)
}

impl Global {
    fn of(entries: Vec<(String, Json)>, machine: &MachineSpec) -> Result<Self, RtAppError> {
        let built = Machine::new(machine.clone())?;
        let speeds = || built.model.topology.allowed.iter().map(|pe| built.model.pes[pe.0 as usize].speed);
        let one = speeds().next().unwrap_or(1.0);
        let is_uniform = speeds().all(|speed| speed == one);
        let mut global = Self { duration_us: None, mcycles_per_us: machine.ghz / 1e3, is_uniform };
        let model = &built.model;
        let first = model.topology.allowed.first();
        let mut calibrated_on = first;
        for (key, value) in entries {
            let path = format!("global.{key}");
            match (key.as_str(), value) {
                ("duration", Json::Number(-1.0)) => global.duration_us = None,
                ("duration", Json::Number(seconds)) if seconds > 0.0 => {
                    global.duration_us = Some(1e6 * seconds);
                }
                ("calibration", Json::Text(text)) => {
                    let number = text.strip_prefix("CPU").and_then(|number| number.parse().ok());
                    let pe = number.map(PeId).filter(|&pe| model.topology.pes.contains(pe));
                    let write = first.map_or(String::new(), |pe| format!(": write CPU{}", pe.0));
                    let words = || at(&path, format!("`{text}` is not a PE of the machine{write}"));
                    calibrated_on = Some(pe.ok_or_else(words)?);
                }
                // Nanoseconds per loop: for a PE of speed 1.
                ("calibration", Json::Number(_)) => calibrated_on = None,
                ("default_policy", Json::Text(policy)) if policy == "SCHED_OTHER" => {}
                ("pi_enabled", Json::Bool(false)) => {}
                (key, _) if WITHOUT_EFFECT.contains(&key) => {}
                (_, value) => return Err(at(&path, format!("{value} cannot be simulated"))),
            }
        }
        if let Some(pe) = calibrated_on {
            global.mcycles_per_us *= model.pes[pe.0 as usize].speed;
        }
        Ok(global)
    }
}

/// A task.
struct Task {
    instances: u32,
    delay_us: f64,
    cpus: Option<String>,
    steps: Vec<Value>,
    /// Its undisturbed duration.
    nominal_us: f64,
}

impl Task {
    /// Returns a task; `None` if it has no instance.
    fn of(
        path: &str,
        entries: Vec<(String, Json)>,
        global: &Global,
        names: &mut Names,
    ) -> Result<Option<Self>, RtAppError> {
        let mut task = Self { instances: 1, delay_us: 0.0, cpus: None, steps: Vec::new(), nominal_us: 0.0 };
        let mut loops = -1.0;
        let mut phases = Vec::new();
        let mut events = Vec::new();
        for (key, value) in entries {
            let here = format!("{path}.{key}");
            match key.as_str() {
                "instance" => task.instances = number(&here, &value, 0.0..=1e6)? as u32,
                "delay" => task.delay_us = number(&here, &value, 0.0..=1e12)?,
                "loop" => loops = number(&here, &value, -1.0..=4e9)?,
                "cpus" => task.cpus = Some(cpus(&here, &value)?),
                "policy" => plain_policy(&here, &value)?,
                "priority" => no_priority(&here, &value)?,
                "phases" => phases.extend(object(&here, value)?),
                _ => events.push((key, value)),
            }
        }
        match (phases.is_empty(), events.first()) {
            (true, _) => phases.push((String::new(), Json::Object(events))),
            (false, Some((key, _))) => {
                return Err(at(&format!("{path}.{key}"), "it stands beside `phases`: put it into a phase"));
            }
            (false, None) => {}
        }
        if task.instances == 0 {
            return Ok(None);
        }
        let shared = task.instances > 1;
        let mut once_us = 0.0;
        for (name, value) in phases {
            let here = if name.is_empty() { path.to_owned() } else { format!("{path}.phases.{name}") };
            let phase = Phase::of(&here, path, object(&here, value)?, global, names, shared)?;
            once_us += phase.nominal_us;
            task.steps.extend(phase.steps);
        }
        let times = match (loops, global.duration_us) {
            (-1.0, None) => {
                let words = "it loops for ever: give it a `loop`, or `global` a `duration`";
                return Err(at(path, words));
            }
            (-1.0, Some(duration_us)) if once_us > 0.0 => ((duration_us - task.delay_us) / once_us).ceil(),
            (-1.0, Some(_)) => return Err(at(path, "it neither runs nor sleeps")),
            (times, _) => times,
        };
        let times = times.clamp(1.0, f64::from(u32::MAX));
        task.nominal_us = times * once_us;
        if times > 1.0 {
            task.steps = vec![events::repeat(times, std::mem::take(&mut task.steps))];
        }
        Ok(Some(task))
    }

    fn application(self, name: &str) -> Table {
        let mut table = Table::new();
        table.insert("name".to_owned(), Value::String(name.to_owned()));
        table.insert("threads".to_owned(), Value::Integer(self.instances.into()));
        if self.delay_us > 0.0 {
            table.insert("start".to_owned(), microseconds(self.delay_us));
        }
        table.extend(self.cpus.map(|cpus| ("cpus".to_owned(), Value::String(cpus))));
        table.insert("steps".to_owned(), Value::Array(self.steps));
        table
    }
}

fn object(path: &str, value: Json) -> Result<Vec<(String, Json)>, RtAppError> {
    match value {
        Json::Object(entries) => Ok(entries),
        other => Err(at(path, format!("{other} stands where an object must"))),
    }
}

fn number(path: &str, value: &Json, range: std::ops::RangeInclusive<f64>) -> Result<f64, RtAppError> {
    match value {
        Json::Number(number) if range.contains(number) && number.fract() == 0.0 => Ok(*number),
        other => {
            let (low, high) = (range.start(), range.end());
            Err(at(path, format!("{other} must be a whole number from {low} to {high}")))
        }
    }
}

fn cpus(path: &str, value: &Json) -> Result<String, RtAppError> {
    let Json::List(list) = value else { return Err(at(path, "it must be a list of CPUs")) };
    let numbers: Result<Vec<String>, _> =
        list.iter().map(|cpu| number(path, cpu, 0.0..=1e6).map(|cpu| cpu.to_string())).collect();
    let numbers = numbers?;
    if numbers.is_empty() { Err(at(path, "it is empty")) } else { Ok(numbers.join(",")) }
}

fn plain_policy(path: &str, value: &Json) -> Result<(), RtAppError> {
    match value {
        Json::Text(policy) if policy == "SCHED_OTHER" => Ok(()),
        other => Err(at(path, format!("{other}: the simulator has SCHED_OTHER only"))),
    }
}

fn no_priority(path: &str, value: &Json) -> Result<(), RtAppError> {
    match value {
        Json::Number(0.0) => Ok(()),
        other => Err(at(path, format!("{other}: the simulator has no priorities; leave it out"))),
    }
}

/// Returns a table with one entry.
fn one(key: &str, value: Value) -> Value {
    Value::Table(Table::from_iter([(key.to_owned(), value)]))
}

fn microseconds(us: f64) -> Value {
    Value::String(format!("{us:.0}us"))
}
