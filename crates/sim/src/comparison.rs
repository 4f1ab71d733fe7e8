//! One scenario with its variants and several seeds: completion times, and how they compare with the default.
//!
//! The baseline is the operating system's own scheduler without pins. Every variant runs with its seeds (or
//! the first of them: [`Scenario::baseline_runs`]). An application's time in one run is the geometric mean of
//! its completions, as in parallelism-aware scheduling §3; copies of one name count together. A speedup is
//! the ratio of the means over all seeds; its spread is the standard deviation of the time over the seeds,
//! relative to its mean. Fairness is the smallest progress of an application divided by the largest, where
//! progress is its time alone on the machine over its time here: 1 is perfectly fair.
//!
//! A comparison consists of [`Task`]s, one per run, that depend only on the scenario: [`tasks`] lists them,
//! they can run anywhere, and [`combine`] merges the results in the order of the list. So the number of
//! workers does not matter.

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
    /// Number of seeds of the baseline.
    pub baseline_runs: u32,
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
    pub speedup: Option<f64>,
    /// Mean time until every application has completed once, over the seeds.
    pub all_done_seconds: Option<f64>,
    /// The baseline's `all_done_seconds` divided by this one.
    pub all_done_speedup: Option<f64>,
    /// Instructions of all applications per second, mean over the seeds; includes busy-waits.
    pub instructions_per_second: f64,
    /// `instructions_per_second` divided by the baseline's; `null` if the baseline did nothing.
    pub throughput_speedup: Option<f64>,
    /// Smallest progress divided by the largest, 0..1.
    pub fairness: Option<f64>,
    /// Migrations per run, by the closest thing that both PEs share.
    pub migrations: BTreeMap<&'static str, f64>,
    /// Settings of waits that were changed per run, by their kind.
    pub settings: BTreeMap<String, f64>,
    /// The findings of the guard in the first run; `null` without a guard.
    pub guard: Option<Findings>,
    /// The timeline of the first run: which thread ran where.
    pub timeline: String,
    /// The duration of that run.
    pub timeline_seconds: f64,
}

/// One application in one variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AppResult {
    /// Its name.
    pub name: String,
    /// Mean completion time over the seeds; `null` if it did not complete in each of them.
    pub seconds: Option<f64>,
    /// Standard deviation of the time over the seeds, relative to the mean.
    pub spread: Option<f64>,
    /// Mean time of the baseline divided by the mean time here.
    pub speedup: Option<f64>,
    /// Mean share of its active time in which exactly one thread was seen to be runnable, 0..1.
    pub sequential_fraction: Option<f64>,
    /// Its instructions per second of the whole run, mean over the seeds.
    pub instructions_per_second: f64,
    /// Share of its CPU time on the fastest PEs, 0..1; `null` if all PEs are equally fast.
    pub fast_share: Option<f64>,
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
    /// CPU time on the fastest PEs.
    fast_ns: u64,
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
    let together = variants(scenario).into_iter().flat_map(|(variant, runs)| {
        seeds(scenario.seed, runs).map(move |seed| Task(Kind::Together(variant.clone(), seed)))
    });
    alone.chain(together).collect()
}

/// Returns the comparison of a scenario from the results of all its [`tasks`].
pub fn combine(scenario: &Scenario, runs: &[Run]) -> Comparison {
    let names = names(scenario);
    let (alone_runs, mut rest) = runs.split_at(names.len());
    let mut alone = BTreeMap::new();
    for (name, run) in names.iter().zip(alone_runs) {
        if let Some(Some(time)) = run.apps.get(*name).and_then(|app| app.times.first()) {
            alone.insert((*name).to_owned(), *time);
        }
    }
    let mut results: Vec<VariantResult> = Vec::new();
    for (variant, count) in variants(scenario) {
        let (runs, others) = rest.split_at(count as usize);
        rest = others;
        let result = variant_result(scenario, &variant, runs, results.first(), &alone);
        results.push(result);
    }
    Comparison {
        scenario: scenario.name.clone(),
        evidence: "simulated",
        machine: format!("{}: {}", scenario.machine.name, scenario.machine.topology),
        seed: scenario.seed,
        runs: scenario.runs,
        baseline_runs: scenario.baseline_runs.unwrap_or(scenario.runs),
        variants: results,
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

/// Returns the variants with the numbers of their runs, the baseline first.
fn variants(scenario: &Scenario) -> Vec<(Variant, u32)> {
    let baseline = baseline();
    let others = scenario.variants.iter().filter(|variant| **variant != baseline);
    let others = others.map(|variant| (variant.clone(), scenario.runs));
    let first = (baseline.clone(), scenario.baseline_runs.unwrap_or(scenario.runs));
    std::iter::once(first).chain(others).collect()
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
    let machine = sim.machine.reported_model();
    if seed == scenario.seed {
        sim.timeline = Some(Timeline::new(sim.machine.model.pes.len()));
    }
    let mut world = SimWorld::new(sim, seed);
    // Nothing is decided under `default`, so rare observations suffice.
    let rarely = if variant.policy.name() == "default" { Duration::from_secs(1) } else { Duration::ZERO };
    let interval = scenario.interval.max(rarely);
    let guard = scenario.guard.map(|_| seed);
    let cures = variant.waits.cures();
    let config = EngineConfig { guard, cures, ..EngineConfig::with_interval(interval) };
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
    for app in &sim.apps {
        let run = apps.entry(app.plan.name.to_string()).or_default();
        run.times.push(geometric_mean(app.completions.iter().copied()));
        run.cpu_ns += app.cpu_ns;
        run.instructions += app.instructions;
        run.fast_ns += app.fast_ns;
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

fn variant_result(
    scenario: &Scenario,
    variant: &Variant,
    runs: &[Run],
    baseline: Option<&VariantResult>,
    alone: &BTreeMap<String, f64>,
) -> VariantResult {
    let amp = !scenario.machine.speeds.is_empty();
    let applications: Vec<AppResult> =
        names(scenario).into_iter().map(|name| app_result(name, amp, runs, baseline)).collect();
    let count = runs.len() as f64;
    let migrations = Distance::MOVES
        .into_iter()
        .map(|distance| {
            let all: u64 = runs.iter().filter_map(|run| run.migrations.get(&distance)).sum();
            (distance.word(), all as f64 / count)
        })
        .filter(|(_, per_run)| *per_run > 0.0)
        .collect();
    let mut settings: BTreeMap<String, f64> = BTreeMap::new();
    for (kind, changes) in runs.iter().flat_map(|run| &run.settings) {
        *settings.entry(kind.to_string()).or_default() += *changes as f64 / count;
    }
    let progress: Option<Vec<f64>> =
        applications.iter().map(|app| Some(alone.get(&app.name)? / app.seconds?)).collect();
    let fairness = progress.map(|progress| {
        let smallest = progress.iter().copied().fold(f64::INFINITY, f64::min);
        smallest / progress.iter().copied().fold(0.0, f64::max)
    });
    let all_done: Option<Vec<f64>> = runs.iter().map(|run| run.all_done).collect();
    let all_done = all_done.map(|times| times.iter().sum::<f64>() / count);
    let all_done_baseline = baseline.map_or(all_done, |baseline| baseline.all_done_seconds);
    let instructions_per_second = applications.iter().map(|app| app.instructions_per_second).sum();
    let instructions_of_baseline = baseline.map_or(instructions_per_second, |b| b.instructions_per_second);
    let speedups: Option<Vec<f64>> = applications.iter().map(|app| app.speedup).collect();
    VariantResult {
        name: variant.name.clone(),
        policy: variant.policy.to_string(),
        speedup: speedups.and_then(|speedups| geometric_mean(speedups.into_iter())),
        all_done_seconds: all_done,
        instructions_per_second,
        throughput_speedup: (instructions_of_baseline > 0.0)
            .then(|| instructions_per_second / instructions_of_baseline),
        all_done_speedup: all_done_baseline.zip(all_done).map(|(base, time)| base / time),
        fairness,
        migrations,
        settings,
        guard: runs.first().and_then(|run| run.guard),
        timeline: runs.first().map(|run| run.timeline.clone()).unwrap_or_default(),
        timeline_seconds: runs.first().map_or(0.0, |run| run.seconds),
        applications,
    }
}

fn app_result(name: &str, amp: bool, runs: &[Run], baseline: Option<&VariantResult>) -> AppResult {
    let entries = || runs.iter().filter_map(|run| run.apps.get(name));
    let times: Option<Vec<f64>> = entries()
        .map(|app| {
            let copies: Option<Vec<f64>> = app.times.iter().copied().collect();
            geometric_mean(copies?.into_iter())
        })
        .collect();
    let mean = times.as_ref().map(|times| times.iter().sum::<f64>() / times.len() as f64);
    let deviation = times.as_ref().zip(mean).map(|(times, mean)| {
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        (squares / (times.len().max(2) - 1) as f64).sqrt() / mean
    });
    let base = match baseline {
        Some(result) => result.applications.iter().find(|result| result.name == name).and_then(|r| r.seconds),
        None => mean,
    };
    let (cpu, fast) = entries().fold((0, 0), |(cpu, fast), app| (cpu + app.cpu_ns, fast + app.fast_ns));
    let rates = runs.iter().filter_map(|run| Some(run.apps.get(name)?.instructions / run.seconds));
    let (active, sequential) =
        entries().fold((0, 0), |(a, s), app| (a + app.active_ns, s + app.sequential_ns));
    AppResult {
        name: name.to_owned(),
        seconds: mean,
        spread: deviation,
        speedup: base.zip(mean).map(|(base, mean)| base / mean),
        sequential_fraction: (active > 0).then(|| sequential as f64 / active as f64),
        instructions_per_second: rates.sum::<f64>() / runs.len() as f64,
        fast_share: (amp && cpu > 0).then(|| fast as f64 / cpu as f64),
    }
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, logs) = values.fold((0, 0.0), |(count, logs), value: f64| (count + 1, logs + value.ln()));
    (count > 0).then(|| (logs / f64::from(count)).exp())
}
