//! One scenario with its variants and several seeds: completion times, and how they compare with the default.
//!
//! The baseline is the operating system's own scheduler without pins. Every variant runs with the same seeds,
//! and is compared with the baseline seed by seed ([`crate::estimate`]): both meet the same chance. An
//! application's time in one run is the geometric mean of its completions, as in parallelism-aware scheduling
//! §3; copies of one name count together. Its speedup is the geometric mean over the seeds of the baseline's
//! time over its own; its spread is the standard deviation of the time over the seeds, relative to the mean.
//! Progress is what an application gets done in a second relative to what it gets done alone on the machine.
//! The weighted speedup is the sum of all applications' progress (A. Snavely, D. Tullsen, ASPLOS 2000);
//! unlike the sum of their instructions it does not grow if more time is given to programs with many
//! instructions a cycle. Fairness is the smallest progress divided by the largest, by completion times: 1 is
//! perfectly fair.
//!
//! A comparison consists of [`Task`]s, one per run, that depend only on the scenario: [`tasks`] lists them,
//! they can run anywhere, and [`combine`] merges the results in the order of the list. So the number of
//! workers does not matter.

use crate::estimate::Estimate;
use crate::machine::Machine;
use crate::scenario::{Scenario, ScenarioError, StopSpec, Variant};
use crate::sim::EVENTS_MAX;
use crate::size;
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
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

mod energy;
mod figures;

pub use energy::EnergyResult;
use energy::RunEnergy;
use figures::{Figures, geometric_mean};

/// Columns of a timeline.
const TIMELINE_COLUMNS: usize = 72;

/// The result of a scenario. Everything in it is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: String,
    /// Always `simulated`.
    pub evidence: &'static str,
    /// A description of the machine.
    pub machine: String,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub runs: u32,
    /// The variants; the first is the baseline.
    pub variants: Vec<VariantResult>,
}

/// One variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantResult {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// Its applications by name.
    pub applications: Vec<AppResult>,
    /// Geometric mean of the applications' speedups over the baseline; `null` if one did not complete.
    pub speedup: Option<Estimate>,
    /// Time until every application has completed once.
    pub all_done_seconds: Option<Estimate>,
    /// The baseline's time until then divided by this one's.
    pub all_done_speedup: Option<Estimate>,
    /// The sum of the applications' progress; meant for runs in which applications restart until a fixed
    /// time.
    pub weighted_speedup: Option<Estimate>,
    /// This sum divided by the baseline's.
    pub weighted_speedup_over_default: Option<Estimate>,
    /// Smallest progress divided by the largest, 0..1.
    pub fairness: Option<Estimate>,
    /// Energy; `null` if the machine's power is not described.
    pub energy: Option<EnergyResult>,
    /// Migrations per run, by the closest thing that both PEs share.
    pub migrations: BTreeMap<&'static str, Estimate>,
    /// Settings of waits that were changed per run, by their kind.
    pub settings: BTreeMap<String, Estimate>,
    /// What some of these figures are in each seed.
    pub by_seed: BySeed,
    /// The findings of the guard in the first run; `null` without a guard.
    pub guard: Option<Findings>,
    /// The timeline of the first run: which thread ran where.
    pub timeline: String,
    /// The duration of that run.
    pub timeline_seconds: f64,
}

/// Figures of a variant in each seed, in the order of the seeds; empty where one is not known in all.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct BySeed {
    /// Geometric mean of the applications' speedups.
    pub speedup: Vec<f64>,
    /// The baseline's time until all are done divided by this one's.
    pub all_done_speedup: Vec<f64>,
    /// The weighted speedup divided by the baseline's.
    pub weighted_speedup_over_default: Vec<f64>,
    /// Mean share of the applications' active time in which one thread was seen to be runnable, 0..1.
    pub sequential_fraction: Vec<f64>,
}

/// One application in one variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AppResult {
    /// Its name.
    pub name: String,
    /// Completion time; `null` if it did not complete in each seed.
    pub seconds: Option<Estimate>,
    /// Standard deviation of the time over the seeds, relative to the mean.
    pub spread: Option<Estimate>,
    /// Time of the baseline divided by the time here.
    pub speedup: Option<Estimate>,
    /// What it gets done in a second, relative to alone on the machine; of all copies together.
    pub progress: Option<Estimate>,
    /// Share of its active time in which exactly one thread was seen to be runnable, 0..1.
    pub sequential_fraction: Option<Estimate>,
    /// Its instructions per second of the whole run.
    pub instructions_per_second: Option<Estimate>,
    /// Share of its CPU time on the fastest PEs, 0..1; `null` if all PEs are equally fast.
    pub fast_share: Option<Estimate>,
    /// Energy of a run that its threads' cores and memory took, in joules; `null` if the machine's power is
    /// not described.
    pub joules: Option<Estimate>,
}

/// One run that a comparison needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// A single copy of that application alone on the machine.
    Alone(String),
    /// A variant with a seed.
    Together(Variant, u64),
}

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// By name.
    apps: BTreeMap<String, AppRun>,
    /// The time of the last first completion, in seconds.
    all_done: Option<f64>,
    /// The end of the run, in seconds.
    seconds: f64,
    migrations: BTreeMap<Distance, u64>,
    settings: BTreeMap<SettingKind, u64>,
    energy: Option<RunEnergy>,
    guard: Option<Findings>,
    timeline: String,
}

/// The copies of an application in one run.
#[derive(Debug, Default)]
struct AppRun {
    /// The time of each copy.
    times: Vec<Option<f64>>,
    cpu_ns: u64,
    instructions: f64,
    /// The work done, without busy-waits.
    work: f64,
    /// CPU time on the fastest PEs.
    fast_ns: u64,
    joules: Option<f64>,
    active_ns: u64,
    sequential_ns: u64,
}

/// Runs a scenario. `commands` starts the commands of policies that are other programs.
pub fn compare(scenario: &Scenario, commands: Option<StartCommand<'_>>) -> Result<Comparison, ScenarioError> {
    let tasks = tasks(scenario);
    size::check(scenario, tasks.len())?;
    let runs: Vec<Run> = tasks.iter().map(|task| task.run(scenario, commands)).collect::<Result<_, _>>()?;
    Ok(combine(scenario, &runs))
}

/// Returns the seeds of `runs` runs, starting with the first; 0 follows the largest seed.
pub fn seeds(first: u64, runs: u32) -> impl Iterator<Item = u64> + Clone {
    (0..runs).map(move |number| first.wrapping_add(number.into()))
}

/// Returns the last of these seeds.
pub fn last_seed(first: u64, runs: u32) -> u64 {
    first.wrapping_add(u64::from(runs)).wrapping_sub(1)
}

/// Returns the runs that a comparison needs, in the order that [`combine`] expects.
pub fn tasks(scenario: &Scenario) -> Vec<Task> {
    let alone = names(scenario).into_iter().map(|name| Task(Kind::Alone(name.to_owned())));
    let together = variants(scenario).into_iter().flat_map(|variant| {
        seeds(scenario.seed, scenario.runs).map(move |seed| Task(Kind::Together(variant.clone(), seed)))
    });
    alone.chain(together).collect()
}

/// Returns the comparison of a scenario from the results of all its [`tasks`].
pub fn combine(scenario: &Scenario, runs: &[Run]) -> Comparison {
    let (alone, together) = runs.split_at(names(scenario).len());
    let mut runs = together.chunks(scenario.runs as usize);
    let baseline = runs.clone().next().unwrap_or_default();
    let result = |variant: &Variant| {
        let runs = runs.next().unwrap_or_default();
        Figures { scenario, alone, runs, baseline }.result(variant)
    };
    Comparison {
        scenario: scenario.name.clone(),
        evidence: "simulated",
        machine: format!("{}: {}", scenario.machine.name, scenario.machine.topology),
        seed: scenario.seed,
        runs: scenario.runs,
        variants: variants(scenario).iter().map(result).collect(),
    }
}

/// Returns the names of the applications, each once.
fn names(scenario: &Scenario) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for app in &scenario.applications {
        if !names.contains(&app.name.as_str()) {
            names.push(&app.name);
        }
    }
    names
}

/// The operating system's own scheduler.
fn baseline() -> Variant {
    Variant::policy(PolicySpec::from(&policy::DEFAULT))
}

/// Returns the variants, the baseline first.
fn variants(scenario: &Scenario) -> Vec<Variant> {
    let baseline = baseline();
    let others = scenario.variants.iter().filter(|variant| **variant != baseline).cloned();
    std::iter::once(baseline.clone()).chain(others).collect()
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
    let mitigations = variant.waits.mitigations();
    let claims = scenario.claims;
    let config = EngineConfig { claims, guard, mitigations, ..EngineConfig::with_interval(interval) };
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
