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

mod energy;
mod figures;
mod results;
mod run;

pub use energy::EnergyResult;
pub use results::{AppResult, BySeed, Comparison, VariantResult};
pub use run::{Run, Task};

use crate::scenario::{Scenario, ScenarioError, Variant};
use crate::size;
use corewise_core::policy::exec::StartCommand;
use figures::Figures;
use run::{Kind, baseline, names};

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

/// Returns the variants, the baseline first.
fn variants(scenario: &Scenario) -> Vec<Variant> {
    let baseline = baseline();
    let others = scenario.variants.iter().filter(|variant| **variant != baseline).cloned();
    std::iter::once(baseline.clone()).chain(others).collect()
}
