//! Cases with answers that arithmetic gives. Ranges are as wide as what is not determined. `cargo test -p
//! corewise-sim --test analytic -- --nocapture` prints what was found. Here is what the topics share.

use corewise_core::time::Time;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;

mod arithmetic;
mod beside;
mod decisions;
mod distance;
mod fairness;
mod groups;
mod memory;
mod power;
mod power_published;
mod queues;
mod scheduler;
mod statistics;
mod waits;
mod wakeups;

/// A scenario: shape, applications, and what else there is to say. Work is in Mcycles at 1 GHz: ms.
fn scenario(topology: &str, applications: &str, rest: &str) -> Scenario {
    let text = format!(
        "name = 'analytic'\n{rest}\napplication = [{applications}]\n\
         demand = {{ int = {{}}, fp = {{ fpu = 1.0 }}, wide = {{ ipc = 3.0 }} }}\n\
         [machine]\nname = 'm'\ntopology = '{topology}'\nghz = 1.0\n"
    );
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Runs the default scheduler.
fn run(scenario: &Scenario, seed: u64) -> Sim {
    let mut sim = scenario
        .simulation(&Variant::policy("default".parse().expect("a policy")), seed)
        .expect("a simulation");
    sim.run_until(Time(u64::MAX));
    sim
}

/// When the last application was done, in seconds; the limit if it was not.
fn all_done(scenario: &Scenario, seed: u64) -> f64 {
    let limit = scenario.stop.time.as_secs_f64();
    run(scenario, seed).all_done().map_or(limit, |at| at.as_secs_f64())
}

/// When the first application was done, in seconds; the limit if it was not.
fn first_done(scenario: &Scenario, seed: u64) -> f64 {
    let sim = run(scenario, seed);
    let (_, completions, ..) = sim.applications().next().expect("an application");
    completions.first().copied().unwrap_or(scenario.stop.time.as_secs_f64())
}

/// Requires that every figure is in its range.
fn check(what: &str, found: &[f64], least: f64, most: f64) {
    let out: Vec<f64> = found.iter().copied().filter(|figure| !(least..=most).contains(figure)).collect();
    let (low, high) = found.iter().fold((f64::MAX, f64::MIN), |(a, b), &x| (a.min(x), b.max(x)));
    println!("{what}: {low:.3} to {high:.3} in {} runs, must be {least} to {most}", found.len());
    let shown: Vec<String> = found.iter().map(|figure| format!("{figure:.3}")).collect();
    assert!(out.is_empty(), "{what}: {} of {} not in {least}..{most}: {shown:?}", out.len(), found.len());
}

/// One figure per seed.
fn seeds(count: u64, figure: impl Fn(u64) -> f64) -> Vec<f64> {
    (1..=count).map(figure).collect()
}

/// Threads that compute, each in a process of its own.
fn hogs(name: &str, copies: u32, mcycles: u32, demand: &str) -> String {
    format!(
        "{{ name = '{name}', copies = {copies}, steps = [{{ each = {{ mcycles = {mcycles}, \
         demand = '{demand}' }} }}] }}"
    )
}

/// A program of parallel regions of 10 µs.
fn team(name: &str, threads: u32, regions: u32, wait: &str) -> String {
    let work = 0.01 * f64::from(threads);
    format!(
        "{{ name = '{name}', threads = {threads}, wait = {wait}, \
         steps = [{{ repeat = {{ times = {regions}, \
         steps = [{{ parallel = {{ mcycles = {work}, demand = 'int' }} }}] }} }}] }}"
    )
}
