//! One scenario, its variants, several seeds: who completed when, and how that compares with the default.
//!
//! Every variant runs with the same seeds as the baseline, the operating system's own scheduler without
//! pins. An application's time in one run is the geometric mean of its completions, as in parallelism-aware
//! scheduling §3; copies of one name count together. A speedup is the ratio of the means over all seeds; its
//! spread is the standard deviation of the time over the seeds, relative to its mean. Fairness is the
//! smallest progress of an application divided by the largest, progress being its time alone on the machine
//! over its time here: 1 is perfectly fair.

use crate::machine::Distance;
use crate::scenario::{Scenario, ScenarioError, Variant};
use crate::timeline::Timeline;
use crate::world::SimWorld;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::policy;
use corewise_core::world::control_loop;
use serde::Serialize;
use std::collections::BTreeMap;

/// Columns of a timeline.
const TIMELINE_COLUMNS: usize = 72;

/// The result of a scenario. Everything in it is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: String,
    /// `simulated`, always.
    pub evidence: &'static str,
    /// The machine in words.
    pub machine: String,
    /// The first seed and how many there were.
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
    pub speedup: Option<f64>,
    /// Mean over the seeds of the time until every application has completed once.
    pub all_done_seconds: Option<f64>,
    /// The baseline's such time divided by this one.
    pub all_done_speedup: Option<f64>,
    /// Smallest progress divided by the largest, 0..1.
    pub fairness: Option<f64>,
    /// Migrations per run, by the closest thing that both PEs share.
    pub migrations: BTreeMap<&'static str, f64>,
    /// Who ran where in the first run.
    pub timeline: String,
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
    /// Share of its CPU time on the fastest PEs, 0..1; `null` where all PEs are equally fast.
    pub fast_share: Option<f64>,
}

/// What one run gave.
struct Run {
    /// By name: the time of each copy, CPU time and that on the fastest PEs.
    apps: BTreeMap<String, (Vec<Option<f64>>, u64, u64)>,
    /// When the last of the first completions was, in seconds.
    all_done: Option<f64>,
    migrations: BTreeMap<Distance, u64>,
    timeline: String,
}

/// Runs a scenario.
pub fn compare(scenario: &Scenario) -> Result<Comparison, ScenarioError> {
    let baseline = Variant::policy("default");
    let alone = alone(scenario, &baseline)?;
    let mut results: Vec<VariantResult> = Vec::new();
    let others = scenario.variants.iter().filter(|variant| **variant != baseline);
    for variant in std::iter::once(&baseline).chain(others) {
        let runs: Vec<Run> = (0..u64::from(scenario.runs))
            .map(|run| simulate(scenario, variant, scenario.seed + run))
            .collect::<Result<_, _>>()?;
        let base = results.first();
        let result = variant_result(scenario, variant, &runs, base, &alone);
        results.push(result);
    }
    Ok(Comparison {
        scenario: scenario.name.clone(),
        evidence: "simulated",
        machine: format!("{}: {}", scenario.machine.name, scenario.machine.topology),
        seed: scenario.seed,
        runs: scenario.runs,
        variants: results,
    })
}

/// Each application's time when a single copy has the machine for itself.
fn alone(scenario: &Scenario, baseline: &Variant) -> Result<BTreeMap<String, f64>, ScenarioError> {
    let mut times = BTreeMap::new();
    for app in &scenario.applications {
        let mut single = scenario.clone();
        single.applications.retain(|other| other.name == app.name);
        single.applications[0].copies = 1;
        let run = simulate(&single, baseline, scenario.seed)?;
        if let Some(Some(time)) = run.apps.get(&app.name).and_then(|(times, _, _)| times.first()) {
            times.insert(app.name.clone(), *time);
        }
    }
    Ok(times)
}

fn simulate(scenario: &Scenario, variant: &Variant, seed: u64) -> Result<Run, ScenarioError> {
    let mut sim = scenario.simulation(variant, seed)?;
    let topology = sim.machine.topology.clone();
    if seed == scenario.seed {
        sim.timeline = Some(Timeline::new(sim.machine.pes.len()));
    }
    let mut world = SimWorld::new(sim, seed);
    let policy = policy::by_name(&variant.policy).ok_or_else(|| ScenarioError::Item {
        item: "variant",
        name: variant.name.clone(),
        problem: format!("there is no policy `{}`", variant.policy),
    })?;
    let interval = scenario.interval;
    let config = EngineConfig { interval, min_residence: 3 * interval, ..EngineConfig::default() };
    let mut engine = Engine::new(topology, policy, config);
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    let sim = world.sim();
    let mut apps: BTreeMap<String, (Vec<Option<f64>>, u64, u64)> = BTreeMap::new();
    for (name, completions, cpu_ns, fast_ns) in sim.applications() {
        let (times, cpu, fast) = apps.entry(name.to_owned()).or_default();
        times.push(geometric_mean(completions.iter().copied()));
        *cpu += cpu_ns;
        *fast += fast_ns;
    }
    let names: Vec<&str> = sim.applications().map(|(name, _, _, _)| name).collect();
    let timeline = sim.timeline.as_ref().map(|t| t.draw(&names, sim.now, TIMELINE_COLUMNS));
    let all_done = sim.all_done().map(|at| at.as_secs_f64());
    Ok(Run { apps, all_done, migrations: sim.migrations().clone(), timeline: timeline.unwrap_or_default() })
}

fn variant_result(
    scenario: &Scenario,
    variant: &Variant,
    runs: &[Run],
    baseline: Option<&VariantResult>,
    alone: &BTreeMap<String, f64>,
) -> VariantResult {
    let amp = !scenario.machine.speeds.is_empty();
    let mut applications: Vec<AppResult> = Vec::new();
    for app in &scenario.applications {
        if applications.iter().all(|result| result.name != app.name) {
            applications.push(app_result(&app.name, amp, runs, baseline));
        }
    }
    let count = runs.len() as f64;
    let migrations = Distance::MOVES
        .into_iter()
        .map(|distance| {
            let all: u64 = runs.iter().filter_map(|run| run.migrations.get(&distance)).sum();
            (distance.word(), all as f64 / count)
        })
        .filter(|(_, per_run)| *per_run > 0.0)
        .collect();
    let progress: Option<Vec<f64>> =
        applications.iter().map(|app| Some(alone.get(&app.name)? / app.seconds?)).collect();
    let fairness = progress.map(|progress| {
        let smallest = progress.iter().copied().fold(f64::INFINITY, f64::min);
        smallest / progress.iter().copied().fold(0.0, f64::max)
    });
    let all_done: Option<Vec<f64>> = runs.iter().map(|run| run.all_done).collect();
    let all_done = all_done.map(|times| times.iter().sum::<f64>() / count);
    let all_done_baseline = baseline.map_or(all_done, |baseline| baseline.all_done_seconds);
    let speedups: Option<Vec<f64>> = applications.iter().map(|app| app.speedup).collect();
    VariantResult {
        name: variant.name.clone(),
        policy: variant.policy.clone(),
        speedup: speedups.and_then(|speedups| geometric_mean(speedups.into_iter())),
        all_done_seconds: all_done,
        all_done_speedup: all_done_baseline.zip(all_done).map(|(base, time)| base / time),
        fairness,
        migrations,
        timeline: runs.first().map(|run| run.timeline.clone()).unwrap_or_default(),
        applications,
    }
}

fn app_result(name: &str, amp: bool, runs: &[Run], baseline: Option<&VariantResult>) -> AppResult {
    let entries = || runs.iter().filter_map(|run| run.apps.get(name));
    let times: Option<Vec<f64>> = entries()
        .map(|(times, _, _)| {
            let copies: Option<Vec<f64>> = times.iter().copied().collect();
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
    let (cpu, fast) = entries().fold((0, 0), |(cpu, fast), (_, c, f)| (cpu + c, fast + f));
    AppResult {
        name: name.to_owned(),
        seconds: mean,
        spread: deviation,
        speedup: base.zip(mean).map(|(base, mean)| base / mean),
        fast_share: (amp && cpu > 0).then(|| fast as f64 / cpu as f64),
    }
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, logs) = values.fold((0, 0.0), |(count, logs), value: f64| (count + 1, logs + value.ln()));
    (count > 0).then(|| (logs / f64::from(count)).exp())
}
