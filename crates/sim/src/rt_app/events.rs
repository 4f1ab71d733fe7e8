//! Translates the events of a phase to steps.

use super::error::{RtAppError, at};
use super::global::Global;
use super::json::Json;
use super::values::{microseconds, no_priority, number, object, one, plain_policy};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The events, longer names before their prefixes: rt-app identifies an event by the beginning of its key.
const EVENTS: [&str; 18] = [
    "runtime", "run", "sleep", "mem", "iorun", "timer", "lock", "unlock", "wait", "signal", "broad", "sync",
    "barrier", "suspend", "resume", "yield", "fork", "sem",
];

/// The longest run, sleep or period in microseconds: a day.
const US_MAX: f64 = 86_400e6;

/// Which task uses a lock, barrier or timer of that name.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<(&'static str, String), String>);

impl Names {
    fn claim(&mut self, kind: &'static str, name: &str, task: &str, path: &str) -> Result<(), RtAppError> {
        let owner = self.0.entry((kind, name.to_owned())).or_insert_with(|| task.to_owned());
        if owner == task {
            return Ok(());
        }
        let words = format!("the {kind} `{name}` is shared with {owner}: in the simulator tasks share none");
        Err(at(path, words))
    }
}

/// A phase, or the part of one that has been read.
pub struct Phase<'a> {
    /// Its steps.
    pub steps: Vec<Value>,
    /// Its undisturbed duration.
    pub nominal_us: f64,
    path: &'a str,
    task: &'a str,
    global: &'a Global,
    /// Whether the task has several instances.
    has_instances: bool,
    /// The lock that is held, with the work done under it.
    held: Option<(String, f64)>,
    /// Undisturbed time since each timer was used.
    timers: BTreeMap<String, f64>,
}

impl<'a> Phase<'a> {
    /// Reads a phase.
    pub fn of(
        path: &'a str,
        task: &'a str,
        entries: Vec<(String, Json)>,
        global: &'a Global,
        names: &mut Names,
        has_instances: bool,
    ) -> Result<Self, RtAppError> {
        let mut phase = Phase {
            steps: Vec::new(),
            nominal_us: 0.0,
            path,
            task,
            global,
            has_instances,
            held: None,
            timers: BTreeMap::new(),
        };
        let mut times = 1.0;
        for (key, value) in entries {
            let here = format!("{path}.{key}");
            match key.as_str() {
                "loop" => times = number(&here, &value, 1.0..=4e9)?,
                "policy" => plain_policy(&here, &value)?,
                "priority" => no_priority(&here, &value)?,
                "cpus" => return Err(at(&here, "only a whole task can have CPUs here")),
                key if key.contains("bind") || key.starts_with("util") || key.starts_with("dl-") => {
                    return Err(at(&here, "it cannot be simulated"));
                }
                key => phase.event(key, &here, value, names)?,
            }
        }
        if let Some((lock, _)) = &phase.held {
            return Err(at(path, format!("the lock `{lock}` is held beyond the phase")));
        }
        if times > 1.0 {
            phase.steps = vec![repeat(times, std::mem::take(&mut phase.steps))];
            phase.nominal_us *= times;
        }
        Ok(phase)
    }

    fn event(&mut self, key: &str, here: &str, value: Json, names: &mut Names) -> Result<(), RtAppError> {
        let event = EVENTS.into_iter().find(|event| key.starts_with(event));
        if let (Some((lock, _)), Some(event)) = (&self.held, event)
            && !["run", "runtime", "unlock"].contains(&event)
        {
            return Err(at(here, format!("under the lock `{lock}` only runs can be simulated")));
        }
        match event {
            Some("run") => self.run(number(here, &value, 1.0..=US_MAX)?),
            Some("runtime") if self.global.is_uniform => self.run(number(here, &value, 1.0..=US_MAX)?),
            Some("runtime") => {
                let words = "on a machine with fast and slow PEs a time is not an amount of work: use `run`";
                return Err(at(here, words));
            }
            Some("sleep") => self.sleep(number(here, &value, 1.0..=US_MAX)?),
            Some("timer") => self.timer(here, value, names)?,
            Some("barrier") => {
                let name = text(here, value)?;
                // Each name is one point where all users meet.
                names.claim("barrier", &name, here, here)?;
                self.steps.push(Value::String("barrier".to_owned()));
            }
            Some("lock") => {
                let lock = text(here, value)?;
                names.claim("lock", &lock, self.task, here)?;
                self.held = Some((lock, 0.0));
            }
            Some("unlock") => self.unlock(here, &text(here, value)?)?,
            Some(event) => return Err(at(here, format!("the event `{event}` cannot be simulated"))),
            None => return Err(at(here, "there is no such event or property that can be simulated")),
        }
        Ok(())
    }

    fn run(&mut self, us: f64) {
        self.pass(us);
        let mcycles = us * self.global.mcycles_per_us;
        match &mut self.held {
            Some((_, done)) => *done += mcycles,
            None => self.steps.push(one("each", work(mcycles))),
        }
    }

    fn sleep(&mut self, us: f64) {
        self.pass(us);
        self.steps.push(one("sleep", microseconds(us)));
    }

    fn pass(&mut self, us: f64) {
        self.nominal_us += us;
        self.timers.values_mut().for_each(|since| *since += us);
    }

    /// Sleeps for the rest of the period.
    fn timer(&mut self, here: &str, value: Json, names: &mut Names) -> Result<(), RtAppError> {
        let (mut name, mut period) = (None, None);
        for (key, value) in object(here, value)? {
            let inner = format!("{here}.{key}");
            match (key.as_str(), value) {
                ("ref", Json::Text(text)) => name = Some(text),
                ("period", value) => period = Some(number(&inner, &value, 1.0..=US_MAX)?),
                ("mode", Json::Text(mode)) if mode == "relative" || mode == "absolute" => {}
                (_, value) => return Err(at(&inner, format!("{value} cannot be simulated"))),
            }
        }
        let name = name.ok_or_else(|| at(here, "it has no `ref`"))?;
        let period = period.ok_or_else(|| at(here, "it has no `period`"))?;
        if !name.starts_with("unique") {
            if self.has_instances {
                let words =
                    format!("the instances share the timer `{name}`: let its `ref` begin with unique");
                return Err(at(here, words));
            }
            names.claim("timer", &name, self.task, here)?;
        }
        // At its first use a timer counts from the beginning of the phase.
        let left = period - self.timers.get(&name).copied().unwrap_or(self.nominal_us);
        if left >= 1.0 {
            self.sleep(left);
        }
        self.timers.insert(name, 0.0);
        Ok(())
    }

    fn unlock(&mut self, here: &str, lock: &str) -> Result<(), RtAppError> {
        match self.held.take() {
            Some((held, done)) if held == lock && done > 0.0 => {
                let entries = [("lock".to_owned(), Value::String(held)), ("work".to_owned(), work(done))];
                self.steps.push(one("critical", Value::Table(Table::from_iter(entries))));
                Ok(())
            }
            Some((held, _)) if held == lock => Err(at(here, "nothing runs under the lock")),
            _ => Err(at(here, format!("the lock `{lock}` is not held in {}", self.path))),
        }
    }
}

fn text(path: &str, value: Json) -> Result<String, RtAppError> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err(at(path, format!("{other} stands where a name must"))),
    }
}

fn work(mcycles: f64) -> Value {
    let entries = [
        ("mcycles".to_owned(), Value::Float(mcycles)),
        ("demand".to_owned(), Value::String("run".to_owned())),
    ];
    Value::Table(Table::from_iter(entries))
}

/// Returns steps that are repeated.
pub fn repeat(times: f64, steps: Vec<Value>) -> Value {
    let entries =
        [("times".to_owned(), Value::Integer(times as i64)), ("steps".to_owned(), Value::Array(steps))];
    one("repeat", Value::Table(Table::from_iter(entries)))
}
