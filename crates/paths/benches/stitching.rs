//! The cost of stitching 100,000 windows of 32 branches, and of counting the paths of a million blocks.
//!
//! `cargo bench -p corewise-paths`

use corewise_core::random::Random;
use corewise_paths::estimate::Estimator;
use corewise_paths::exact::{PathCounter, ThreadPosition};
use corewise_paths::made_up::World;
use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let world = World::random(7, 100, false);
    let trace = world.run(&mut Random::new(7, 1), 10_000_000);
    let windows = world.windows(&trace, &mut Random::new(7, 2), 100_000, 32);
    let mut group = criterion.benchmark_group("paths");
    group.sample_size(10);
    group.throughput(Throughput::Elements(windows.len() as u64));
    group.bench_function("stitch windows", |b| {
        b.iter(|| {
            let mut estimator = Estimator::new(&world);
            windows.iter().for_each(|window| estimator.add(window, None).unwrap());
            estimator.estimate()
        });
    });
    let blocks = world.blocks(&trace, usize::MAX);
    group.throughput(Throughput::Elements(blocks.len() as u64));
    group.bench_function("count blocks exactly", |b| {
        b.iter(|| {
            let mut counter = PathCounter::new(&world, 1 << 24);
            let mut thread = ThreadPosition::default();
            blocks.iter().for_each(|&(start, last)| counter.block(&mut thread, start, last));
            counter.paths()
        });
    });
    group.finish();
    criterion.final_summary();
}
