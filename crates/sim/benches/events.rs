//! The cost of simulating, by number of PEs and threads. The threads are a mixture of
//! compute- and memory-bound ones that use the FPU more or less, some of which wait for each other.
//!
//! `cargo bench -p corewise-sim`. Each benchmark simulates one second; a line before it tells the events in
//! it.

use corewise_core::time::Time;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;
use criterion::{BatchSize, Criterion};

/// Simulated time of one iteration.
const SECOND: Time = Time(1_000_000_000);

fn scenario(topology: &str, groups: u32) -> Scenario {
    let text = format!(
        "name = 'bench'\n[machine]\nname = 'm'\ntopology = '{topology}'\nghz = 2.0\n\
         [demand]\nint = {{ ipc = 1.5 }}\nfp = {{ fpu = 0.8 }}\n\
         mem = {{ l2_misses_per_100_cycles = 1.0, working_set_mib = 8.0 }}\n\
         [[application]]\nname = 'int'\ncopies = {groups}\nsteps = [{{ each = {{ mcycles = 1e6, \
         demand = 'int' }} }}]\n\
         [[application]]\nname = 'fp'\ncopies = {groups}\nsteps = [{{ each = {{ mcycles = 1e6, \
         demand = 'fp' }} }}]\n\
         [[application]]\nname = 'mem'\ncopies = {groups}\nsteps = [{{ each = {{ mcycles = 1e6, \
         demand = 'mem' }} }}]\n\
         [[application]]\nname = 'loop'\ncopies = {}\nthreads = 4\nsteps = \
         [{{ repeat = {{ times = 1000000, steps = [\
         {{ serial = {{ mcycles = 2, demand = 'int' }} }}, {{ parallel = {{ mcycles = 80, \
         demand = 'fp', imbalance = 0.1 }} }}] }} }}]\n",
        groups / 4
    );
    Scenario::parse(&text).expect("a scenario")
}

fn started(scenario: &Scenario) -> Sim {
    scenario.simulation(&Variant::policy("default"), 1).expect("a simulation")
}

fn simulate(criterion: &mut Criterion, name: &str, scenario: &Scenario) {
    let mut once = started(scenario);
    once.run_until(SECOND);
    println!("{name}: {} events in a simulated second", once.events());
    criterion.bench_function(name, |bencher| {
        let run = |mut sim: Sim| {
            sim.run_until(SECOND);
            sim
        };
        bencher.iter_batched(|| started(scenario), run, BatchSize::LargeInput);
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let small = "pack:1 l3:2(size=16MB) l2:4(size=2MB) module:1 core:2 pu:1";
    let node = "pack:1 l3:4(size=32MB) l2:8(size=1MB) core:1 pu:2";
    for (topology, pes, threads) in [
        (small.to_owned(), 16, 32),
        (small.to_owned(), 16, 128),
        (format!("numa:1 {node}"), 64, 128),
        (format!("numa:1 {node}"), 64, 512),
        (format!("numa:8 {node}"), 512, 1024),
        (format!("numa:8 {node}"), 512, 4096),
    ] {
        let name = format!("second of {pes} PEs, {threads} threads");
        simulate(&mut criterion, &name, &scenario(&topology, threads / 4));
    }
    criterion.final_summary();
}
