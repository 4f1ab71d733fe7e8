//! Copies of programs that share a machine, by how their idle threads wait: the table of
//! `studies/waits/simulated`.
//!
//! `cargo run --release -p corewise-sim --example waits -- [--pes N] [--copies 1,2,4] [--runs N] SCENARIO…`
//! Each scenario holds one program, what the system does on each PE, and variants; with `--pes`, the machine
//! has one cache and so many PEs, and the program as many threads with as much work each. Seconds until all
//! copies have ended: the median over the seeds, with the smallest and the largest; what is cut off by
//! `stop.time` counts as that and is marked by `>`. The last column is how many spin counts and turns
//! corewise changed a run.

use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::plan::SettingKind;
use corewise_core::policy::{self, PolicySpec};
use corewise_core::world::control_loop;
use corewise_sim::machine::Machine;
use corewise_sim::program::Step;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::world::SimWorld;
use std::error::Error;

struct Options {
    pes: Option<usize>,
    copies: Vec<usize>,
    runs: Option<u32>,
    files: Vec<String>,
}

pub fn main(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let options = options(arguments)?;
    println!("| program | copies | unchanged | passive | one thread each | corewise | changes a run |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for file in &options.files {
        let mut scenario = Scenario::parse(&std::fs::read_to_string(file)?)?;
        if let Some(pes) = options.pes {
            scenario.machine.topology = format!("pack:1 l3:1(size=32MB) core:{pes} pu:1");
            let program = &mut scenario.applications[0];
            let before = std::mem::replace(&mut program.threads, pes);
            grow(&mut program.steps, pes as f64 / before as f64);
            let system = scenario.applications.split_off(1);
            scenario.applications.extend((0..pes).map(|pe| {
                let mut of_pe = system[pe % system.len()].clone();
                of_pe.cpus = Some(pe.to_string());
                of_pe
            }));
        }
        for &copies in &options.copies {
            scenario.applications[0].copies = copies;
            line(&scenario, copies, options.runs.unwrap_or(scenario.runs))?;
        }
    }
    Ok(())
}

/// Gives a larger team as much work for each of its threads as before.
fn grow(steps: &mut [Step], factor: f64) {
    for step in steps {
        match step {
            Step::Parallel(work) | Step::Chain { work, divided: true, .. } => work.mcycles *= factor,
            Step::Repeat { steps, .. } => grow(steps, factor),
            _ => {}
        }
    }
}

fn options(arguments: &[String]) -> Result<Options, Box<dyn Error>> {
    let mut options = Options { pes: None, copies: vec![1, 2, 4], runs: None, files: Vec::new() };
    let mut arguments = arguments.iter().cloned();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--pes" => options.pes = Some(value()?.parse()?),
            "--runs" => options.runs = Some(value()?.parse()?),
            "--copies" => options.copies = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            _ => options.files.push(argument),
        }
    }
    Ok(options)
}

fn line(scenario: &Scenario, copies: usize, runs: u32) -> Result<(), Box<dyn Error>> {
    let named = |name: &str| scenario.variants.iter().find(|variant| variant.name == name).cloned();
    let unchanged = Variant::policy(PolicySpec::from(&policy::DEFAULT));
    let mut cells = Vec::new();
    let mut changes = String::new();
    for variant in [Some(unchanged), named("passive"), named("one thread"), named("corewise")] {
        let Some(variant) = variant else {
            cells.push("as unchanged".to_owned());
            continue;
        };
        let (mut seconds, mut spin_counts, mut turns) = (Vec::new(), 0, 0);
        for seed in 1..=u64::from(runs) {
            let (done, changed) = run(scenario, &variant, seed)?;
            seconds.push(done);
            spin_counts += changed[0];
            turns += changed[1];
        }
        cells.push(words(seconds, scenario.stop.time.as_secs_f64()));
        let a_run = |count: u64| count as f64 / f64::from(runs);
        changes = format!("{:.1} spin counts, {:.1} turns", a_run(spin_counts), a_run(turns));
    }
    let name = &scenario.name;
    println!("| `{name}` | {copies} | {} | {changes} |", cells.join(" | "));
    Ok(())
}

/// Returns when all were done, in seconds, and the changed spin counts and turns.
fn run(scenario: &Scenario, variant: &Variant, seed: u64) -> Result<(f64, [u64; 2]), Box<dyn Error>> {
    let machine = Machine::new(scenario.machine.clone())?.reported_model();
    let config = EngineConfig {
        mitigations: variant.waits.mitigations(),
        ..EngineConfig::with_interval(scenario.interval)
    };
    let mut engine = Engine::new(machine, variant.policy.build(None)?, config);
    let mut world = SimWorld::new(scenario.simulation(variant, seed)?, seed);
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    let limit = scenario.stop.time.as_secs_f64();
    let copies = world.sim().applications().filter(|(name, ..)| *name == scenario.applications[0].name);
    let done = copies.map(|(_, runs, ..)| runs.first().copied().unwrap_or(limit)).fold(0.0, f64::max);
    let changed = [SettingKind::SpinCount, SettingKind::Turns];
    Ok((done, changed.map(|kind| world.changed().get(&kind).copied().unwrap_or(0))))
}

fn words(mut seconds: Vec<f64>, limit: f64) -> String {
    seconds.sort_by(f64::total_cmp);
    let (least, most) = (seconds[0], seconds[seconds.len() - 1]);
    let median = (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0;
    let mark = if seconds[seconds.len() / 2] >= limit { "> " } else { "" };
    format!("{mark}{median:.2} ({least:.2} to {most:.2})")
}
