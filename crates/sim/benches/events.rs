//! The cost of simulating, by number of PEs and threads.
//!
//! `cargo bench -p corewise-sim`. Each benchmark simulates one second; a line before it tells the events in
//! it. The example `cost` measures more sizes, and memory.

mod mixture;

use corewise_core::time::Time;
use corewise_sim::sim::Sim;
use criterion::{BatchSize, Criterion};

/// Simulated time of one iteration.
const SECOND: Time = Time(1_000_000_000);

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    for (pes, threads) in [(16, 32), (16, 128), (64, 128), (64, 512), (512, 1024), (512, 4096)] {
        let name = format!("second of {pes} PEs, {threads} threads");
        let scenario = mixture::scenario(pes, threads);
        let mut once = mixture::started(&scenario);
        once.run_until(SECOND);
        println!("{name}: {} events in a simulated second", once.events());
        criterion.bench_function(&name, |bencher| {
            let run = |mut sim: Sim| {
                sim.run_until(SECOND);
                sim
            };
            bencher.iter_batched(|| mixture::started(&scenario), run, BatchSize::LargeInput);
        });
    }
    criterion.final_summary();
}
