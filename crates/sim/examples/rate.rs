//! How many events a second are simulated, by number of PEs and policy, and a digest of what came out.
//!
//! `cargo run --release -p corewise-sim --example rate`, with a number of PEs and a policy to measure only
//! that. Two threads for each PE: some only compute, some need memory, some wait at barriers that come every
//! 1 to 2 ms, some sleep most of the time. CPU time of this thread, which other programs disturb least, and
//! the best of three. Two versions that print the same digest simulate the same to the nanosecond.

use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::world::control_loop;
use corewise_sim::machine::Machine;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;
use corewise_sim::world::SimWorld;
use nix::time::{ClockId, clock_gettime};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

const PES: [u32; 5] = [2, 16, 64, 128, 512];
const POLICIES: [&str; 2] = ["default", "spread"];
const RUNS: usize = 3;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |word: &str| wanted.is_empty() || wanted.iter().any(|other| other == word);
    println!("| PEs | threads | policy | events | million events a second | digest |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for pes in PES.into_iter().filter(|pes| is_wanted(&pes.to_string()) || wanted.len() == 1) {
        for policy in POLICIES.into_iter().filter(|policy| is_wanted(policy) || wanted.len() == 1) {
            let scenario = scenario(pes);
            let runs: Vec<(f64, u64, u64)> = (0..RUNS).map(|_| run(&scenario, policy)).collect();
            let (seconds, events, digest) =
                runs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("runs");
            let millions = events as f64 / seconds / 1e6;
            println!("| {pes} | {} | {policy} | {events} | {millions:.2} | {digest:016x} |", 2 * pes);
        }
    }
}

/// The mixture for so many PEs, for a time in which about as much happens on each machine.
fn scenario(pes: u32) -> Scenario {
    let topology = match pes {
        2 => "pack:1 l3:1(size=16MB) l2:2(size=2MB) core:1 pu:1".to_owned(),
        16 => "pack:1 l3:2(size=16MB) l2:4(size=2MB) core:1 pu:2".to_owned(),
        _ => format!("numa:{} pack:1 l3:4(size=32MB) l2:8(size=1MB) core:1 pu:2", pes / 64),
    };
    let seconds = (256 / pes).clamp(1, 32);
    let threads = 2 * pes;
    // Of 16 threads 4 are in a team, 2 sleep, and the others do nothing but compute or wait for memory.
    let (teams, sleepers) = (threads.div_ceil(16), threads / 8);
    let rest = threads.saturating_sub(4 * teams + sleepers);
    let memory = rest / 2;
    let app = |name: &str, copies: u32, threads: u32, steps: &str| match copies {
        0 => String::new(),
        _ => format!(
            "[[application]]\nname = '{name}'\ncopies = {copies}\nthreads = {threads}\nsteps = {steps}\n"
        ),
    };
    let text = format!(
        "name = 'rate'\n[machine]\nname = 'm'\ntopology = '{topology}'\nghz = 2.0\n\
         [stop]\ntime = '{seconds}s'\n\
         [demand]\nint = {{ ipc = 1.5 }}\nfp = {{ fpu = 0.8 }}\n\
         mem = {{ l2_misses_per_100_cycles = 1.0, working_set_mib = 8.0 }}\n{}{}{}{}",
        app("int", rest - memory, 1, "[{ each = { mcycles = 1e6, demand = 'int' } }]"),
        app("mem", memory, 1, "[{ each = { mcycles = 1e6, demand = 'mem' } }]"),
        app(
            "team",
            teams,
            4.min(threads),
            "[{ repeat = { times = 1000000, steps = [{ parallel = { mcycles = 12, demand = 'fp', imbalance = \
             0.3 } }, { parallel = { mcycles = 6, demand = 'mem' } }] } }]",
        ),
        app(
            "sleeper",
            sleepers,
            1,
            "[{ repeat = { times = 1000000, steps = [{ each = { mcycles = 0.5, demand = 'int' } }, \
             { sleep_about = '3ms' }] } }]",
        ),
    );
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// CPU time in seconds, events, and a digest of the results.
fn run(scenario: &Scenario, policy: &str) -> (f64, u64, u64) {
    let variant = Variant::policy(policy.parse().expect("a policy"));
    let sim = scenario.simulation(&variant, 1).expect("a simulation");
    let machine = Machine::new(scenario.machine.clone()).expect("a machine");
    let machine = scenario.believed(&machine).expect("a machine");
    let policy = variant.policy.build(None).expect("a policy");
    let mut world = SimWorld::new(sim, 1);
    let mut engine = Engine::new(machine, policy, EngineConfig::with_interval(Duration::from_millis(100)));
    let before = cpu_seconds();
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    let seconds = cpu_seconds() - before;
    (seconds, world.sim().events(), digest(world.sim()))
}

fn digest(sim: &Sim) -> u64 {
    let mut hasher = DefaultHasher::new();
    sim.events().hash(&mut hasher);
    for (_, times, cpu_ns, fast_ns) in sim.applications() {
        let times: Vec<u64> = times.iter().map(|time| time.to_bits()).collect();
        (times, cpu_ns, fast_ns).hash(&mut hasher);
    }
    hasher.finish()
}

/// CPU time of this thread so far.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(now).as_secs_f64()
}
