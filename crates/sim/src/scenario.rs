//! Scenario files: a machine, applications, variants of their scheduling, a stop rule.
//!
//! It contains everything that a result depends on, except the seed. A variant is a policy with pinned PEs.

use crate::decisions::Decisions;
use crate::faults::Faults;
use crate::judge::JudgeSpec;
use crate::machine::{Machine, MachineError, MachineSpec};
use crate::program::{Program, ProgramError, Step, Waiting, duration};
use crate::sim::sched::Os;
use crate::sim::sched::groups::{Class, GroupSpec, NICE_LEVELS};
use crate::sim::state::dispatching::Dispatching;
use crate::sim::state::queues::{QueueSpec, Shelf};
use crate::sim::{Sim, Stop, memory::MemoryUse};
use crate::thread::AppPlan;
use crate::treatments::TreatmentSpec;
pub use crate::variant::{Variant, WaitsSpec};
use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::MachineModel;
use corewise_core::machine_model::contention::Demand;
use corewise_core::observe::Treatment;
use corewise_core::policy::{self, Claims, ParameterTable, PolicySpec, dispatch};
use corewise_core::time::Time;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of threads of one scenario: a limit for typing errors.
const THREADS_MAX: usize = 1 << 20;

/// The answer to what files said before variants were compared seed by seed.
pub(crate) const NO_BASELINE_RUNS: &str = "remove baseline_runs: the default runs with the seeds of all \
     others, as it is compared with them seed by seed; `runs` sets their number";

/// A scenario as written in its file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// The machine.
    pub machine: MachineSpec,
    /// The operating system's scheduler.
    #[serde(default)]
    pub os: Os,
    /// The faults.
    #[serde(default)]
    pub faults: Faults,
    /// What decisions cost.
    #[serde(default)]
    pub decisions: Decisions,
    /// The machine as policies believe it to be: `[predictor]` holds what differs from `[machine]`.
    pub predictor: Option<MachineSpec>,
    /// What programs cost each other by measurements, instead of by the model of `[machine]`.
    #[serde(default)]
    pub judge: Option<JudgeSpec>,
    /// Whether policies receive the events they subscribe to, as on a machine with BPF.
    #[serde(default)]
    pub events: bool,
    /// Whether policies see which processes run beside which, as on a machine with BPF (`--beside`).
    #[serde(default)]
    pub beside: bool,
    /// How claims to fast PEs are enforced, as by `corewise run --claims`.
    #[serde(default)]
    pub claims: Claims,
    /// Whether a guard measures the gain of placements, and reverts those that hurt.
    #[serde(default)]
    pub guard: Option<GuardSpec>,
    /// Time between two decisions of a policy.
    #[serde(default = "one_second", deserialize_with = "duration")]
    pub interval: Duration,
    /// The first seed.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// The number of consecutive seeds.
    #[serde(default = "default_runs")]
    pub runs: u32,
    /// Of former versions; see [`NO_BASELINE_RUNS`].
    #[serde(default)]
    #[doc(hidden)]
    pub baseline_runs: Option<u32>,
    /// When a run ends.
    #[serde(default)]
    pub stop: StopSpec,
    /// The demands of phases, by name.
    pub demand: BTreeMap<String, Demand>,
    /// Factors on programs and demands, to test how much depends on them.
    #[serde(default)]
    pub scale: Scale,
    /// Programs that applications can refer to.
    #[serde(default, rename = "program")]
    pub programs: BTreeMap<String, ProgramSpec>,
    /// Parameters by policy name, for variants that do not give them themselves.
    #[serde(default, rename = "policy")]
    pub policies: BTreeMap<String, ParameterTable>,
    /// The applications.
    #[serde(rename = "application")]
    pub applications: Vec<AppSpec>,
    /// Groups of applications that share weights and quotas, by name.
    #[serde(default, rename = "group")]
    pub groups: BTreeMap<String, GroupSpec>,
    /// Bounded queues between threads of any application, by name.
    #[serde(default, rename = "queue")]
    pub queues: BTreeMap<String, QueueSpec>,
    /// The compared variants; without any, the policy `spread`.
    #[serde(default, rename = "variant")]
    pub variants: Vec<Variant>,
}

/// A guard as written in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSpec {
    /// Relative standard deviation of the reported progress of a thread between two observations.
    pub noise: f64,
}

impl Default for GuardSpec {
    fn default() -> Self {
        Self { noise: 0.02 }
    }
}

/// The stop rule as written in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopSpec {
    /// The run ends once every application has completed this often. Applications that end earlier are
    /// restarted.
    pub completions: usize,
    /// The run ends at the latest after this time.
    #[serde(deserialize_with = "duration")]
    pub time: Duration,
}

/// An application as written in a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppSpec {
    /// Its name.
    pub name: String,
    /// How many copies run at once.
    #[serde(default = "one")]
    pub copies: usize,
    /// Threads of each.
    #[serde(default = "one")]
    pub threads: usize,
    /// When they start.
    #[serde(default, deserialize_with = "duration")]
    pub start: Duration,
    /// The PEs that it is limited to, in any notation of `corewise topo --pes`; a variant's pin takes
    /// precedence.
    pub cpus: Option<String>,
    /// The nice level of its threads, -20 to 19.
    #[serde(default)]
    pub nice: i32,
    /// The scheduling class of its threads.
    #[serde(default)]
    pub class: Class,
    /// The group that it is in.
    pub group: Option<String>,
    /// Whether the run does not wait for its end, as for what the system does on its own.
    #[serde(default)]
    pub background: bool,
    /// The program that it runs if it has no steps of its own; the one of its name if left out.
    pub program: Option<String>,
    /// How its threads wait for each other; as its program specifies if left out.
    pub wait: Option<Waiting>,
    /// Relative standard deviation of the work from run to run; as its program specifies if left out.
    pub variation: Option<f64>,
    /// How its memory is placed; as its program specifies if left out.
    pub memory: Option<MemoryUse>,
    /// How it is treated, as by the rules and clients of a daemon, in the order of time.
    #[serde(default, rename = "treatment")]
    pub treatments: Vec<TreatmentSpec>,
    /// What each thread does.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// A program as written in a scenario.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// How its threads wait for each other.
    #[serde(default)]
    pub wait: Waiting,
    /// Relative standard deviation of the work from run to run.
    #[serde(default)]
    pub variation: f64,
    /// How its memory is placed.
    #[serde(default)]
    pub memory: MemoryUse,
    /// What each thread does.
    pub steps: Vec<Step>,
}

/// Factors on programs and demands.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scale {
    /// On all work.
    pub work: f64,
    /// On the work of serial steps, in addition to `work`.
    pub serial: f64,
    /// On the L2 misses of all demands.
    pub l2_misses: f64,
    /// On the working sets of all demands.
    pub working_set: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { work: 1.0, serial: 1.0, l2_misses: 1.0, working_set: 1.0 }
    }
}

impl Default for StopSpec {
    fn default() -> Self {
        Self { completions: 1, time: Duration::from_secs(3600) }
    }
}

fn one() -> usize {
    1
}

fn one_second() -> Duration {
    Duration::from_secs(1)
}

fn first_seed() -> u64 {
    1
}

fn default_runs() -> u32 {
    10
}

/// Why a text is not a valid scenario.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The text cannot be parsed.
    #[error("{0}")]
    Syntax(String),
    /// The machine is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A program is invalid.
    #[error("application `{app}`: {source}")]
    Program {
        /// The application.
        app: String,
        /// The problem.
        source: ProgramError,
    },
    /// Something else is invalid.
    #[error("{item} `{name}`: {problem}")]
    Item {
        /// The kind of item.
        item: &'static str,
        /// Its name.
        name: String,
        /// The problem.
        problem: String,
    },
}

impl Scenario {
    /// Parses and checks a scenario.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(text, &[])
    }

    /// Parses and checks a scenario in which some values are overridden: `machine.memory.overlap=0.5`.
    pub fn parse_with(text: &str, settings: &[String]) -> Result<Self, ScenarioError> {
        let syntax = |error: toml::de::Error| ScenarioError::Syntax(error.to_string());
        // Without settings, parse the original text, so that errors contain the line.
        let table: toml::Table = toml::from_str(text).map_err(syntax)?;
        let scenario: Scenario = if settings.is_empty() && !table.contains_key("predictor") {
            toml::from_str(text).map_err(syntax)?
        } else {
            return Self::from_table(table, settings);
        };
        scenario.complete()
    }

    /// Checks a scenario that was merged from several texts.
    pub fn from_table(mut table: toml::Table, settings: &[String]) -> Result<Self, ScenarioError> {
        for setting in settings {
            set(&mut table, setting)?;
        }
        believe(&mut table);
        let read: Result<Scenario, _> = table.try_into();
        read.map_err(|error| ScenarioError::Syntax(error.to_string()))?.complete()
    }

    fn complete(mut self) -> Result<Self, ScenarioError> {
        let scenario = &mut self;
        if scenario.variants.is_empty() {
            scenario.variants.push(Variant::policy(PolicySpec::from(&policy::SPREAD)));
        }
        scenario.check()?;
        scenario.believed(&Machine::new(scenario.machine.clone())?)?;
        for variant in &scenario.variants {
            scenario.simulation(variant, scenario.seed)?;
        }
        Ok(self)
    }

    /// Returns a simulation of one variant that has not begun.
    pub fn simulation(&self, variant: &Variant, seed: u64) -> Result<Sim, ScenarioError> {
        let machine = Machine::new(self.machine.clone())?;
        let mut plans = Vec::new();
        let demands: BTreeMap<String, Demand> =
            self.demand.iter().map(|(name, demand)| (name.clone(), self.scale.demand(demand))).collect();
        for app in &self.applications {
            let spec = self.program_of(app)?;
            let mut program = Program::new(&spec.steps, &demands, &self.queues)
                .map_err(|source| ScenarioError::Program { app: app.name.clone(), source })?;
            program.scale(self.scale.work, self.scale.serial);
            let pins = self.pins(variant, app, &machine)?;
            let plan = AppPlan {
                name: app.name.as_str().into(),
                program: Arc::new(program),
                threads: variant.threads.map_or(app.threads, |threads| threads.min(app.threads)),
                adapt_team: variant.adapt_team,
                waiting: variant.wait.or(app.wait).unwrap_or(spec.wait),
                reports_master: variant.reports_master,
                start: Time(0) + app.start,
                pin: self.limit(app, &machine)?,
                weight: app.class.weight(app.nice),
                is_batch: app.class == Class::Batch,
                group: self.group_of(app)?,
                background: app.background,
                variation: app.variation.unwrap_or(spec.variation),
                memory: app.memory.unwrap_or(spec.memory),
                treatments: self.treatments(app, &machine)?,
            };
            plans.extend((0..app.copies).map(|copy| AppPlan {
                pin: pins.as_ref().map_or_else(|| plan.pin.clone(), |pins| Some(pins[copy].clone())),
                ..plan.clone()
            }));
        }
        let stop = Stop { completions: self.stop.completions, at: Time(0) + self.stop.time };
        let mut sim =
            Sim::new(machine, self.os, plans, stop, seed).with_groups(&self.groups).with_faults(self.faults);
        let topology = &sim.machine.model.topology;
        sim.queues = Shelf::all(&self.queues);
        sim.judge = self.judge.as_ref().map(|judge| judge.table(&demands, topology));
        sim.dispatching = dispatching(variant)?;
        // Under the system's own scheduler nobody observes and decides.
        let is_decided = variant.policy.name() != policy::DEFAULT.name || variant.waits.changes().any();
        sim.decisions = if is_decided { self.decisions } else { Decisions::FREE };
        sim.tells_events = self.events;
        sim.samples = variant.waits.changes().any();
        sim.beside = self.beside.then(Default::default);
        sim.progress_noise = self.guard.map(|guard| guard.noise);
        Ok(sim)
    }

    /// Returns the machine as policies believe it to be.
    pub fn believed(&self, machine: &Machine) -> Result<MachineModel, ScenarioError> {
        let Some(spec) = &self.predictor else { return Ok(machine.reported_model()) };
        let believed = Machine::new(spec.clone())?;
        if believed.model.topology.pes != machine.model.topology.pes {
            let problem = "policies must believe in the PEs that there are".to_owned();
            return Err(ScenarioError::Item { item: "predictor", name: spec.topology.clone(), problem });
        }
        Ok(believed.reported_model())
    }

    /// Returns the policy of a variant with the parameters that the scenario gives to all.
    pub fn policy_of(&self, variant: &Variant) -> Result<PolicySpec, ScenarioError> {
        let common = self.policies.get(variant.policy.name()).cloned().unwrap_or_default();
        variant.policy.or(&common.into_texts()).map_err(|error| ScenarioError::Item {
            item: "variant",
            name: variant.name.clone(),
            problem: error.to_string(),
        })
    }

    /// Returns the program of an application.
    pub(crate) fn program_of(&self, app: &AppSpec) -> Result<ProgramSpec, ScenarioError> {
        if !app.steps.is_empty() {
            return Ok(ProgramSpec { steps: app.steps.clone(), ..ProgramSpec::default() });
        }
        let name = app.program.as_ref().unwrap_or(&app.name);
        self.programs.get(name).cloned().ok_or_else(|| ScenarioError::Item {
            item: "application",
            name: app.name.clone(),
            problem: format!("it has no steps, and there is no [program.{name}]"),
        })
    }

    /// Returns the PEs that an application is limited to.
    fn limit(&self, app: &AppSpec, machine: &Machine) -> Result<Option<CpuSet>, ScenarioError> {
        let Some(cpus) = &app.cpus else { return Ok(None) };
        machine.usable(cpus).map(Some).map_err(|problem| ScenarioError::Item {
            item: "application",
            name: app.name.clone(),
            problem: format!("cpus: {problem}"),
        })
    }

    /// Returns how an application is treated.
    fn treatments(&self, app: &AppSpec, machine: &Machine) -> Result<Vec<(Time, Treatment)>, ScenarioError> {
        let treatments = app.treatments.iter().map(|treatment| treatment.on(machine));
        treatments.collect::<Result<_, _>>().map_err(|problem| ScenarioError::Item {
            item: "application",
            name: app.name.clone(),
            problem: format!("treatment: {problem}"),
        })
    }

    /// Returns the place of an application's group.
    fn group_of(&self, app: &AppSpec) -> Result<Option<usize>, ScenarioError> {
        let Some(name) = &app.group else { return Ok(None) };
        let place = self.groups.keys().position(|group| group == name);
        place.map(Some).ok_or_else(|| ScenarioError::Item {
            item: "application",
            name: app.name.clone(),
            problem: format!("there is no [group.{name}]"),
        })
    }

    fn pins(
        &self,
        variant: &Variant,
        app: &AppSpec,
        machine: &Machine,
    ) -> Result<Option<Vec<CpuSet>>, ScenarioError> {
        let Some(pins) = variant.pin.get(&app.name) else { return Ok(None) };
        let fault = |problem| ScenarioError::Item { item: "variant", name: variant.name.clone(), problem };
        if pins.len() != app.copies {
            return Err(fault(format!("{} pins for {} copies of {}", pins.len(), app.copies, app.name)));
        }
        let located = pins.iter().map(|pin| machine.usable(pin));
        located.collect::<Result<_, _>>().map(Some).map_err(fault)
    }

    fn threads(&self) -> usize {
        let threads = self.applications.iter().map(|app| app.copies.saturating_mul(app.threads));
        threads.fold(0, usize::saturating_add)
    }

    /// Returns what is wrong with an application, if anything is.
    fn fault_of(&self, app: &AppSpec) -> Result<Option<&'static str>, ScenarioError> {
        let program = self.program_of(app)?;
        let rules = [
            (app.copies == 0 || app.threads == 0, "copies and threads must be 1 or more"),
            (!NICE_LEVELS.contains(&app.nice), "nice must be -20 to 19"),
            (!app.treatments.is_sorted_by_key(|of| of.from), "its treatments must be in the order of time"),
            (
                !(0.0..=0.3).contains(&app.variation.unwrap_or(program.variation)),
                "variation must be 0 to 0.3",
            ),
        ];
        let broken = rules.iter().find(|(broken, _)| *broken).map(|(_, problem)| *problem);
        Ok(broken.or(app.memory.unwrap_or(program.memory).fault()))
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let fault = |item, name: &str, problem: &str| {
            Err(ScenarioError::Item { item, name: name.to_owned(), problem: problem.to_owned() })
        };
        for app in &self.applications {
            if let Some(problem) = self.fault_of(app)? {
                return fault("application", &app.name, problem);
            }
        }
        for name in self.groups.keys() {
            if let Some(problem) = GroupSpec::fault(name, &self.groups) {
                return fault("group", name, problem);
            }
        }
        for (name, parameters) in &self.policies {
            if let Err(error) = PolicySpec::new(name, parameters.clone().into_texts()) {
                return fault("policy", name, &error.to_string());
            }
        }
        if let Some((field, range)) = self.faults.fault() {
            return fault("faults", field, &format!("must be {range}"));
        }
        for (name, demand) in &self.demand {
            if let Some((field, range)) = demand.fault() {
                return fault("demand", name, &format!("{field} must be {range}"));
            }
        }
        if let Some(problem) = self.judge.as_ref().and_then(|judge| judge.fault(&self.demand)) {
            return fault("judge", &self.name, &problem);
        }
        for variant in &self.variants {
            if variant.threads == Some(0) {
                return fault("variant", &variant.name, "threads must be 1 or more");
            }
            if let Some(app) =
                variant.pin.keys().find(|pin| !self.applications.iter().any(|a| a.name == **pin))
            {
                return fault(
                    "variant",
                    &variant.name,
                    &format!("pins `{app}`, which is not an application"),
                );
            }
        }
        let Scale { work, serial, l2_misses, working_set } = self.scale;
        let factors_are_good =
            [work, serial, l2_misses, working_set].iter().all(|f| *f > 0.0 && f.is_finite());
        let noise = self.guard.map_or(0.0, |guard| guard.noise);
        let rules = [
            (!(0.0..=1.0).contains(&noise), "guard.noise must be 0 to 1"),
            (!factors_are_good, "the factors of scale must be above 0"),
            (self.applications.is_empty(), "it has no application"),
            (self.threads() > THREADS_MAX, "it has more than 1048576 threads"),
            (self.runs == 0, "runs must be 1 or more"),
            (self.baseline_runs.is_some(), NO_BASELINE_RUNS),
            (self.stop.completions == 0, "stop.completions must be 1 or more"),
            (self.stop.time.is_zero(), "stop.time must be above 0"),
            (self.interval < Duration::from_millis(1), "interval must be 1ms or more"),
            (self.os.fault().is_some(), self.os.fault().unwrap_or_default()),
            (self.decisions.fault().is_some(), self.decisions.fault().unwrap_or_default()),
        ];
        match rules.iter().find(|(broken, _)| *broken) {
            Some((_, problem)) => fault("scenario", &self.name, problem),
            None => Ok(()),
        }
    }
}

impl Scale {
    fn demand(&self, demand: &Demand) -> Demand {
        demand.scaled(self.l2_misses, self.working_set)
    }
}

/// Returns what chooses at each dispatch under a variant.
fn dispatching(variant: &Variant) -> Result<Option<Dispatching>, ScenarioError> {
    let Some(name) = &variant.dispatch else { return Ok(None) };
    let found = dispatch::build(name).map(Dispatching::new).map(Some);
    found.ok_or_else(|| ScenarioError::Item {
        item: "variant",
        name: variant.name.clone(),
        problem: format!(
            "nothing called `{name}` chooses at dispatch; there is {}",
            dispatch::NAMES.join(", ")
        ),
    })
}

/// Completes `[predictor]` by what it does not say about `[machine]`.
fn believe(table: &mut toml::Table) {
    if let Some(toml::Value::Table(believed)) = table.remove("predictor") {
        let mut machine = table.get("machine").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        merge(&mut machine, believed);
        table.insert("predictor".to_owned(), machine.into());
    }
}

/// Merges `over` into a table: nested tables are merged, everything else is replaced.
pub fn merge(table: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(value)) => merge(inner, value),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// Sets the value of `a.b.c=VALUE`, creating tables on the way.
pub(crate) fn set(table: &mut toml::Table, setting: &str) -> Result<(), ScenarioError> {
    let fault = |problem: &str| ScenarioError::Item {
        item: "setting",
        name: setting.to_owned(),
        problem: problem.to_owned(),
    };
    let (path, value) = setting.split_once('=').ok_or_else(|| fault("write PATH=VALUE"))?;
    let parsed: Result<toml::Table, _> = toml::from_str(&format!("value = {value}"));
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    let value = value.ok_or_else(|| fault("the value is not TOML; texts need quotes"))?;
    put(table, path, value).map_err(fault)
}

/// Puts a value at the path `a.b.c`, creating tables on the way; the error describes the problem.
pub(crate) fn put(table: &mut toml::Table, path: &str, value: toml::Value) -> Result<(), &'static str> {
    let mut table = table;
    let (parents, key) = path.rsplit_once('.').map_or((None, path), |(parents, key)| (Some(parents), key));
    for parent in parents.into_iter().flat_map(|parents| parents.split('.')) {
        let entry = table.entry(parent.trim()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = entry.as_table_mut().ok_or("it leads through something that is not a table")?;
    }
    table.insert(key.trim().to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests;
