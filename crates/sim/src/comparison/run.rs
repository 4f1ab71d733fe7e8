//! One run: a variant of a scenario with one seed, or one of its applications alone.

use super::energy::RunEnergy;
use crate::machine::Machine;
use crate::scenario::{Scenario, ScenarioError, StopSpec, Variant};
use crate::sim::EVENTS_MAX;
use crate::timeline::Timeline;
use crate::world::SimWorld;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::guard::Findings;
use corewise_core::ids::PeId;
use corewise_core::machine_model::Distance;
use corewise_core::plan::SettingKind;
use corewise_core::policy::exec::StartCommand;
use corewise_core::policy::{self, Policy, PolicyError, PolicySpec};
use corewise_core::topology::CpuKind;
use corewise_core::world::control_loop;
use std::collections::BTreeMap;
use std::time::Duration;

/// Columns of a timeline.
const TIMELINE_COLUMNS: usize = 72;

/// One run that a comparison needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task(pub(super) Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A single copy of that application alone on the machine.
    Alone(String),
    /// A variant with a seed.
    Together(Variant, u64),
}

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// By name.
    pub(super) apps: BTreeMap<String, AppRun>,
    /// The time of the last first completion, in seconds.
    pub(super) all_done: Option<f64>,
    /// The end of the run, in seconds.
    pub(super) seconds: f64,
    pub(super) migrations: BTreeMap<Distance, u64>,
    pub(super) settings: BTreeMap<SettingKind, u64>,
    pub(super) energy: Option<RunEnergy>,
    pub(super) guard: Option<Findings>,
    pub(super) timeline: String,
}

/// The copies of an application in one run.
#[derive(Debug, Default)]
pub(super) struct AppRun {
    /// The time of each copy.
    pub(super) times: Vec<Option<f64>>,
    pub(super) cpu_ns: u64,
    pub(super) instructions: f64,
    /// The work done, without busy-waits.
    pub(super) work: f64,
    /// CPU time on the fastest PEs.
    pub(super) fast_ns: u64,
    pub(super) joules: Option<f64>,
    pub(super) active_ns: u64,
    pub(super) sequential_ns: u64,
}

/// Returns the names of the applications, each once.
pub(super) fn names(scenario: &Scenario) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for app in &scenario.applications {
        if !names.contains(&app.name.as_str()) {
            names.push(&app.name);
        }
    }
    names
}

/// The operating system's own scheduler.
pub(super) fn baseline() -> Variant {
    Variant::policy(PolicySpec::from(&policy::DEFAULT))
}

impl Task {
    /// Executes the run.
    pub fn run(&self, scenario: &Scenario, commands: Option<StartCommand<'_>>) -> Result<Run, ScenarioError> {
        match &self.0 {
            Kind::Alone(name) => simulate(&only(scenario, name), &baseline(), scenario.seed, None),
            Kind::Together(variant, seed) => simulate(scenario, variant, *seed, commands),
        }
    }
}

/// Returns the scenario reduced to a single copy of one of its applications.
fn only(scenario: &Scenario, name: &str) -> Scenario {
    let mut single = scenario.clone();
    single.applications.retain(|app| app.name == name);
    single.applications.truncate(1);
    single.applications[0].copies = 1;
    single
}

fn simulate(
    scenario: &Scenario,
    variant: &Variant,
    seed: u64,
    commands: Option<StartCommand<'_>>,
) -> Result<Run, ScenarioError> {
    let mut sim = scenario.simulation(variant, seed)?;
    let machine = scenario.believed(&sim.machine)?;
    if seed == scenario.seed {
        sim.timeline = Some(Timeline::new(sim.machine.model.pes.len()));
    }
    let mut world = SimWorld::new(sim, seed);
    // Nothing is decided under `default`, so rare observations suffice.
    let rarely = if variant.policy.name() == "default" { Duration::from_secs(1) } else { Duration::ZERO };
    let interval = scenario.interval.max(rarely);
    let guard = scenario.guard.map(|_| seed);
    let waits = variant.waits.changes();
    let claims = scenario.claims;
    let config = EngineConfig { claims, guard, waits, ..EngineConfig::with_interval(interval) };
    let mut engine = Engine::new(machine, policy_of(scenario, variant, commands)?, config);
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    if let Some(failure) = engine.policy_failure() {
        return Err(fault(variant, failure));
    }
    let sim = world.sim();
    if sim.events() >= EVENTS_MAX {
        return Err(fault(variant, format!("a run has more than {EVENTS_MAX} events")));
    }
    let mut apps: BTreeMap<String, AppRun> = BTreeMap::new();
    let energy = sim.energy();
    for (index, app) in sim.apps.iter().enumerate() {
        let run = apps.entry(app.plan.name.to_string()).or_default();
        run.times.push(geometric_mean(app.completions.iter().copied()));
        run.cpu_ns += app.cpu_ns;
        run.instructions += app.instructions;
        run.work += app.work;
        run.fast_ns += app.fast_ns;
        if let Some(energy) = &energy {
            *run.joules.get_or_insert_default() += energy.applications[index];
        }
        run.active_ns += app.parallelism.active_ns;
        run.sequential_ns += app.parallelism.sequential_ns;
    }
    let names: Vec<&str> = sim.apps.iter().map(|app| &*app.plan.name).collect();
    let timeline = sim.timeline.as_ref().map(|t| t.draw(&names, sim.now, TIMELINE_COLUMNS));
    let all_done = sim.all_done().map(|at| at.as_secs_f64());
    Ok(Run {
        apps,
        all_done,
        seconds: sim.now.as_secs_f64(),
        migrations: sim.migrations().clone(),
        settings: world.changed().clone(),
        energy: energy.as_ref().map(RunEnergy::from),
        guard: engine.findings().copied(),
        timeline: timeline.unwrap_or_default(),
    })
}

/// Returns the policy of a variant. A policy that uses ratios gets those of this scenario.
fn policy_of(
    scenario: &Scenario,
    variant: &Variant,
    commands: Option<StartCommand<'_>>,
) -> Result<Box<dyn Policy>, ScenarioError> {
    let wrong = |error: PolicyError| fault(variant, error);
    let mut spec = scenario.policy_of(variant)?;
    if spec.name() == "static-ipc" && spec.parameters().is_empty() {
        let ratios = ipc_ratios(scenario)?.into_iter();
        let ratios = ratios.map(|(name, ratio)| (format!("ratios.{name}"), ratio.to_string())).collect();
        spec = spec.or(&ratios).map_err(wrong)?;
    }
    spec.build(commands).map_err(wrong)
}

fn fault(variant: &Variant, problem: impl ToString) -> ScenarioError {
    ScenarioError::Item { item: "variant", name: variant.name.clone(), problem: problem.to_string() }
}

/// Returns the ratios for `static-ipc`: how much faster one thread of each application is on a fast PE than
/// on a slow one when it is alone there, "measured a priori" (parallelism-aware scheduling §2.3). Measured by
/// CPU time, which does not depend on waits between steps.
fn ipc_ratios(scenario: &Scenario) -> Result<BTreeMap<String, f64>, ScenarioError> {
    let machine = Machine::new(scenario.machine.clone())?;
    let on = |pe: &PeId| machine.model.topology.allowed.contains(*pe);
    let pe_of = |kind: Option<&CpuKind>| kind.and_then(|kind| kind.pes.iter().find(on));
    let (Some(fast), Some(slow)) =
        (pe_of(machine.model.topology.kinds.first()), pe_of(machine.model.topology.kinds.last()))
    else {
        return Ok(BTreeMap::new());
    };
    let mut ratios = BTreeMap::new();
    for name in names(scenario) {
        let mut single = only(scenario, name);
        single.applications[0].threads = 1;
        single.stop = StopSpec { completions: 1, time: Duration::from_secs(1 << 32) };
        let cpu_ns = |pe: PeId| {
            let mut variant = baseline();
            variant.pin.insert(name.to_owned(), vec![format!("{}", pe.0)]);
            let run = simulate(&single, &variant, scenario.seed, None)?;
            Ok::<_, ScenarioError>(run.apps.get(name).map_or(0, |app| app.cpu_ns) as f64)
        };
        let ratio = cpu_ns(slow)? / cpu_ns(fast)?.max(1.0);
        ratios.insert(name.to_owned(), ratio);
    }
    Ok(ratios)
}

/// Returns the geometric mean; `None` of no values.
pub(super) fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, logs) = values.fold((0, 0.0), |(count, logs), value: f64| (count + 1, logs + value.ln()));
    (count > 0).then(|| (logs / f64::from(count)).exp())
}
