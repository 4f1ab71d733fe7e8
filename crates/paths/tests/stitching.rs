//! Stitching against made-up programs whose paths are known.

mod world;

use corewise_core::random::Random;
use corewise_paths::accuracy::{Agreement, agreement};
use corewise_paths::estimate::{Estimate, Estimator};
use corewise_paths::exact::{PathCounter, ThreadPosition};
use corewise_paths::profile::PathProfile;
use corewise_paths::window::Window;
use std::collections::BTreeMap;
use world::{Trace, World};

fn exact(world: &World, trace: &Trace, longest_block: usize) -> PathProfile {
    let mut counter = PathCounter::new(world, 1 << 22);
    let mut thread = ThreadPosition::default();
    for (start, last) in world.blocks(trace, longest_block) {
        counter.block(&mut thread, start, last);
    }
    assert_eq!(counter.breaks(), 0);
    assert!(counter.without_identity() <= 1, "{} paths without identity", counter.without_identity());
    counter.profile()
}

fn estimate(world: &World, windows: &[Window]) -> Estimate {
    let mut estimator = Estimator::new(world);
    for window in windows {
        estimator.add(window, None).unwrap();
    }
    estimator.estimate()
}

fn judged(world: &World, trace: &Trace, windows: usize, branches: u32) -> (Agreement, PathProfile, Estimate) {
    let truth = exact(world, trace, usize::MAX);
    let windows = world.windows(trace, &mut Random::new(2, 0), windows, branches);
    let estimate = estimate(world, &windows);
    (agreement(&truth, &estimate.profile), truth, estimate)
}

#[test]
fn exact_counts_are_those_of_the_definition() {
    for seed in 0..20 {
        let world = World::random(seed, 8, true);
        let trace = world.run(&mut Random::new(seed, 1), 100_000);
        for longest_block in [usize::MAX, 3] {
            let profile = exact(&world, &trace, longest_block);
            let counted: BTreeMap<_, _> =
                profile.paths.iter().map(|(path, &count)| (path.clone(), count as u64)).collect();
            assert_eq!(counted, world.paths_by_definition(&trace), "seed {seed}");
            let edges: BTreeMap<_, _> =
                profile.edges.iter().map(|(&edge, &count)| (edge, count as u64)).collect();
            assert_eq!(edges, world.edges_by_definition(&trace), "seed {seed}");
        }
    }
}

/// Means over some programs of chance: accuracy, overlap of edges and of paths.
fn mean_agreement(functions: usize, rough: bool, windows: usize) -> [f64; 3] {
    let programs = 8;
    let mut mean = [0.0; 3];
    for seed in 0..programs {
        let world = World::random(seed, functions, rough);
        let trace = world.run(&mut Random::new(seed, 1), 1_000_000);
        let (found, ..) = judged(&world, &trace, windows, 32);
        let each = [found.accuracy, found.edge_overlap, found.path_overlap];
        mean.iter_mut().zip(each).for_each(|(mean, value)| *mean += value / programs as f64);
    }
    mean
}

#[test]
fn estimates_find_the_hot_paths_of_programs_of_chance() {
    // Windows of ten runs of 10 s at 100 samples/s. Another program each time, so the bounds are not tight:
    // an estimate by weights alone has edge overlaps of 0.97 and 0.80.
    for (rough, overlap_min) in [(false, 0.98), (true, 0.95)] {
        let [accuracy, edges, paths] = mean_agreement(8, rough, 10_000);
        assert!(accuracy > 0.99, "accuracy {accuracy}");
        assert!(edges > overlap_min && paths > overlap_min - 0.01, "overlap {edges} {paths}");
    }
}
