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

mod error;
mod events;
mod global;
mod json;
mod values;

#[cfg(test)]
mod tests;

pub use error::RtAppError;

use crate::machine::MachineSpec;
use error::at;
use events::{Names, Phase};
use global::Global;
use json::Json;
use toml::{Table, Value};
use values::{cpus, microseconds, no_priority, number, object, one, plain_policy};

/// The latest end of a run: some thirty years.
const US_MAX: f64 = 1e15;

/// A run that takes this many times its undisturbed duration is cut off.
const LONGEST: f64 = 20.0;

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
