//! Stitching against made-up programs whose paths are known.

use corewise_core::random::Random;
use corewise_paths::accuracy::{Agreement, agreement};
use corewise_paths::estimate::{Estimator, PathEstimate};
use corewise_paths::exact::{PathCounter, ThreadPosition};
use corewise_paths::made_up::{Decide, Op, Trace, World};
use corewise_paths::outcome::Mismatch;
use corewise_paths::path::{Path, Step};
use corewise_paths::profile::PathProfile;
use corewise_paths::study::{Grid, study};
use corewise_paths::window::{BranchRecording, End, Location, ModuleId, Transfer, Window};
use proptest::prelude::*;
use std::collections::BTreeMap;

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

fn estimate(world: &World, windows: &[Window]) -> PathEstimate {
    let mut estimator = Estimator::new(world);
    for window in windows {
        estimator.add(window, None).unwrap();
    }
    estimator.estimate()
}

fn judged(
    world: &World,
    trace: &Trace,
    windows: usize,
    branches: u32,
) -> (Agreement, PathProfile, PathEstimate) {
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

#[test]
fn windows_of_a_lower_rate_count_for_more() {
    // Two loops, one phase each.
    let many = Decide::AllBut(20_000);
    let ops = vec![Op::Plain(2), Op::Branch(0, many), Op::Plain(2), Op::Branch(2, many), Op::Jump(0)];
    let world = World::new(&[(0, ops.clone())]);
    let trace = world.run(&mut Random::new(1, 1), 1_000_000);
    let truth = exact(&world, &trace, usize::MAX);
    let windows = world.windows(&trace, &mut Random::new(1, 2), 5_000, 8);
    let mut seconds = 0;
    let of_two = windows.iter().filter_map(|window| {
        let is_in_first = window.start < world.place(0, &ops, 2);
        seconds += u32::from(!is_in_first);
        let period_ns = Some(if is_in_first { 1 } else { 10 });
        (is_in_first || seconds % 10 == 0).then(|| Window { period_ns, ..window.clone() })
    });
    let of_two: Vec<Window> = of_two.collect();
    let without: Vec<Window> = of_two.iter().map(|w| Window { period_ns: None, ..w.clone() }).collect();
    let overlap = |windows: &[Window]| agreement(&truth, &estimate(&world, windows).profile).edge_overlap;
    let (all, with, without) = (overlap(&windows), overlap(&of_two), overlap(&without));
    assert!(with > all - 0.02 && without < with - 0.02, "all {all}, with {with}, without {without}");
}

#[test]
fn a_tail_call_ends_a_path_and_returns_to_the_callers_caller() {
    // f1 jumps to f2, or by way of the linkage table to f3 of another module.
    let main = vec![Op::Call(1), Op::Branch(0, Decide::AllBut(50)), Op::Jump(0)];
    let first = vec![Op::Branch(2, HALF), Op::TailCall(2), Op::TailCall(3)];
    let callee = vec![Op::Branch(1, HALF), Op::Return];
    let world = World::new(&[(0, main.clone()), (0, first.clone()), (0, callee.clone()), (1, callee)]);
    let trace = world.run(&mut Random::new(1, 1), 100_000);
    let (_, truth, estimate) = judged(&world, &trace, 1_000, 16);
    let counted: BTreeMap<_, _> =
        truth.paths.iter().map(|(path, &count)| (path.clone(), count as u64)).collect();
    assert_eq!(counted, world.paths_by_definition(&trace));
    let behind_the_call = world.place(0, &main, 1);
    assert!(truth.paths.keys().any(|path| path.start == behind_the_call), "{:?}", truth.paths.keys());
    let (one, other) = (world.place(1, &first, 0), behind_the_call);
    assert!((share(&estimate.profile, one, other) - 0.5).abs() < 0.02);
}

/// Means over some random programs: accuracy, overlap of edges and of paths.
fn mean_agreement(functions: usize, rough: bool, windows: usize) -> [f64; 3] {
    let programs = 4;
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
    // Windows of ten runs of 10 s at 100 samples/s. The programs differ, so the bounds are not tight.
    for (rough, overlap_min) in [(false, 0.97), (true, 0.95)] {
        let [accuracy, edges, paths] = mean_agreement(8, rough, 10_000);
        assert!(accuracy > 0.99, "accuracy {accuracy}");
        assert!(edges > overlap_min && paths > overlap_min - 0.01, "overlap {edges} {paths}");
    }
}

/// The share of the paths that begin at a place among those that begin at one of two.
fn share(profile: &PathProfile, one: Location, other: Location) -> f64 {
    let begun = |at| profile.paths.iter().filter(|(path, _)| path.start == at).map(|(_, w)| w).sum::<f64>();
    begun(one) / (begun(one) + begun(other))
}

const HALF: Decide = Decide::Chance(0.5);

#[test]
fn code_with_few_branches_is_not_overrated() {
    // Two phases, so long that windows hardly ever see both: only the weight of windows relates them.
    let many = Decide::AllBut(3000);
    let phases = vec![Op::Call(1), Op::Branch(0, many), Op::Call(2), Op::Branch(2, many), Op::Jump(0)];
    let dense = vec![Op::Plain(1), Op::Branch(2, HALF), Op::Branch(3, HALF), Op::Branch(4, HALF), Op::Return];
    let sparse = vec![Op::Plain(60), Op::Branch(2, HALF), Op::Plain(60), Op::Branch(4, HALF), Op::Return];
    let world = World::new(&[(0, phases), (0, dense.clone()), (0, sparse.clone())]);
    let trace = world.run(&mut Random::new(1, 1), 4_000_000);
    let (_, truth, estimate) = judged(&world, &trace, 10_000, 32);
    let (one, other) = (world.place(1, &dense, 0), world.place(2, &sparse, 0));
    let (expected, found) = (share(&truth, one, other), share(&estimate.profile, one, other));
    assert!((expected - found).abs() < 0.04, "{found} instead of {expected}");
}

#[test]
fn what_runs_behind_slow_instructions_is_not_overrated() {
    // A loop of two calls; one callee begins with a cache miss and then has more branches than a window.
    let main = vec![Op::Branch(3, HALF), Op::Call(1), Op::Jump(0), Op::Call(2), Op::Jump(0)];
    let quick = vec![Op::Plain(3), Op::Branch(2, HALF), Op::Branch(1, Decide::AllBut(40)), Op::Return];
    let slow = vec![Op::Slow(2000), Op::Branch(2, HALF), Op::Branch(1, Decide::AllBut(40)), Op::Return];
    let world = World::new(&[(0, main), (0, quick.clone()), (0, slow.clone())]);
    let trace = world.run(&mut Random::new(1, 1), 2_000_000);
    let (found, truth, estimate) = judged(&world, &trace, 10_000, 32);
    let (one, other) = (world.place(1, &quick, 0), world.place(2, &slow, 0));
    let (expected, found_share) = (share(&truth, one, other), share(&estimate.profile, one, other));
    assert!((expected - found_share).abs() < 0.05, "{found_share} instead of {expected}");
    assert!(found.edge_overlap > 0.94, "{found:?}");
}

#[test]
fn what_runs_behind_system_calls_is_not_underrated() {
    // Windows end before the system call, and only few begin in the few instructions after it.
    let mut main = vec![Op::Plain(40), Op::Branch(0, Decide::AllBut(20)), Op::Call(1)];
    main.extend([Op::Branch(5, HALF), Op::Plain(1), Op::Jump(0)]);
    let write = vec![Op::Plain(2), Op::SystemCall, Op::Branch(3, Decide::Chance(0.1)), Op::Return];
    let world = World::new(&[(0, main.clone()), (0, write.clone())]);
    let trace = world.run(&mut Random::new(1, 1), 2_000_000);
    let (_, truth, estimate) = judged(&world, &trace, 10_000, 32);
    let (behind, head) = (world.place(0, &main, 3), world.place(0, &main, 0));
    let (expected, found) = (share(&truth, behind, head), share(&estimate.profile, behind, head));
    assert!((expected / found - 1.0).abs() < 0.1, "{found} instead of {expected}");
}

/// `length` branches, each of which may leave for the end, then a loop.
fn ladder(length: usize, leave: Decide) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..length).flat_map(|_| [Op::Plain(2), Op::Branch(2 * length, leave)]).collect();
    ops.extend([Op::Plain(1), Op::Jump(0)]);
    ops
}

#[test]
fn long_paths_that_windows_cut_off_are_not_underrated() {
    for length in [28, 48] {
        // Of paths of 28 branches few are seen whole with 32 branches a window, of 48 none.
        let ops = ladder(length, Decide::Chance(0.02));
        let world = World::new(&[(0, ops.clone())]);
        let trace = world.run(&mut Random::new(1, 1), 2_000_000);
        let (found, truth, estimate) = judged(&world, &trace, 10_000, 32);
        let longest = Path { start: world.place(0, &ops, 0), steps: vec![Step::NotTaken; length].into() };
        let (expected, flow) = (truth.flow(&longest), estimate.profile.flow(&longest));
        assert!((flow / expected - 1.0).abs() < 0.1, "{flow} instead of {expected}");
        assert!(found.accuracy > 0.96, "{found:?}");
    }
}

#[test]
fn branches_that_depend_on_each_other_are_not_mixed_up() {
    // Far apart: 10 random branches are between the two that always agree.
    let mut ops = vec![Op::Branch(2, Decide::Remember(0, 0.5)), Op::Plain(1)];
    for _ in 0..10 {
        ops.extend([Op::Branch(ops.len() + 2, Decide::Chance(0.1)), Op::Plain(1)]);
    }
    ops.extend([Op::Branch(ops.len() + 2, Decide::Recall(0)), Op::Plain(1), Op::Jump(0)]);
    let world = World::new(&[(0, ops)]);
    let trace = world.run(&mut Random::new(1, 1), 2_000_000);
    let (found, _, estimate) = judged(&world, &trace, 10_000, 32);
    let disagree = |path: &Path| path.steps.len() == 12 && path.steps[0] != path.steps[11];
    let paths = &estimate.profile.paths;
    let flow: f64 = paths.iter().filter(|(path, _)| disagree(path)).map(|(_, weight)| weight).sum();
    assert!(flow < 0.03 * estimate.profile.total, "{}", flow / estimate.profile.total);
    assert!(found.accuracy > 0.96 && found.path_overlap > 0.9, "{found:?}");
}

#[test]
fn windows_that_disagree_with_the_code_are_rejected() {
    let world = World::random(3, 8, true);
    let trace = world.run(&mut Random::new(3, 1), 100_000);
    let windows = world.windows(&trace, &mut Random::new(3, 2), 200, 16);
    let mut estimator = Estimator::new(&world);
    let mut rejected = 0;
    for window in windows.iter().filter(|window| window.transfers.len() >= 2) {
        let mut moved = window.clone();
        moved.transfers[1].from.address += 4;
        let mut lost = window.clone();
        lost.transfers.remove(0);
        let mut elsewhere = window.clone();
        elsewhere.end.module = ModuleId(9);
        let mut unaligned = window.clone();
        unaligned.start.address += 1;
        assert_eq!(estimator.add(&elsewhere, None), Err(Mismatch::NotReached(elsewhere.end)));
        assert_eq!(estimator.add(&unaligned, None), Err(Mismatch::NoCode(unaligned.start)));
        rejected += usize::from(estimator.add(&moved, None).is_err());
        rejected += usize::from(estimator.add(&lost, None).is_err());
        estimator.add(window, None).unwrap();
    }
    // A few of the others happen to be possible executions.
    assert!(rejected > 250, "{rejected}");
}

#[test]
fn an_estimate_from_nothing_is_empty() {
    let estimate = estimate(&World::random(1, 2, false), &[]);
    assert_eq!((estimate.windows, estimate.profile), (0, PathProfile::default()));
}

#[test]
fn a_study_shows_that_more_windows_and_longer_ones_see_more_paths() {
    let world = World::random(5, 20, false);
    let trace = world.run(&mut Random::new(5, 1), 1_000_000);
    let truth = exact(&world, &trace, usize::MAX);
    let run = |seed| BranchRecording {
        period_ns: 10_000_000,
        windows: world.windows(&trace, &mut Random::new(seed, 2), 1000, 32),
        ..BranchRecording::default()
    };
    let runs: Vec<BranchRecording> = (0..4).map(run).collect();
    let grid = Grid { one_in: vec![1, 10], runs: vec![1, 4, 5], branches: vec![4, 32] };
    let rows = study(&world, &truth, &runs, &grid, |_| true);
    let seen = |period, runs, branches| {
        let mut row =
            rows.iter().filter(|row| (row.period_ns, row.runs, row.branches) == (period, runs, branches));
        row.next().map(|row| row.paths_seen_whole)
    };
    assert_eq!(rows.len(), 8, "there are no 5 runs");
    assert!(seen(10_000_000, 4, 32) > seen(10_000_000, 1, 32));
    assert!(seen(10_000_000, 1, 32) > seen(100_000_000, 1, 32));
    assert!(seen(10_000_000, 4, 32) > seen(10_000_000, 4, 4));
    let best = rows.iter().map(|row| row.agreement.accuracy).fold(0.0, f64::max);
    assert!(best > 0.96, "{rows:#?}");
}

#[test]
fn profiles_survive_being_written_and_add_up() {
    let world = World::random(4, 8, false);
    let trace = world.run(&mut Random::new(4, 1), 50_000);
    let profile = exact(&world, &trace, usize::MAX);
    let text = serde_json::to_string(&profile).unwrap();
    let mut read: PathProfile = serde_json::from_str(&text).unwrap();
    assert_eq!(read, profile);
    read.merge(&profile);
    assert_eq!(read.total, 2.0 * profile.total);
    let found = agreement(&profile, &read);
    assert!(found.accuracy == 1.0 && found.path_overlap > 0.999 && found.edge_overlap > 0.999, "{found:?}");
}

#[test]
fn few_paths_lead_to_places_that_no_window_shows() {
    let shares = (0..40u64).map(|seed| {
        let world = World::random(seed, 1 + seed as usize % 11, true);
        let trace = world.run(&mut Random::new(seed, 1), 30_000);
        let windows = world.windows(&trace, &mut Random::new(seed, 2), 300, 16 + seed as u32 % 24);
        let estimate = estimate(&world, &windows);
        estimate.open / estimate.profile.total
    });
    let shares: Vec<f64> = shares.collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean < 0.03, "{mean} in the mean: {shares:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_begins_also_ends(
        seed in 0u64..1_000_000,
        functions in 1usize..12,
        rough: bool,
        branches in 1u32..40,
    ) {
        let world = World::random(seed, functions, rough);
        let trace = world.run(&mut Random::new(seed, 1), 30_000);
        let windows = world.windows(&trace, &mut Random::new(seed, 2), 300, branches);
        let estimate = estimate(&world, &windows);
        let listed: f64 = estimate.profile.paths.values().sum();
        let total = estimate.profile.total;
        let ended = listed + estimate.rare + estimate.open;
        prop_assert!((ended - total).abs() <= 1e-6 * total, "{} of {}", ended, total);
        // In a rough world, chance decides how much of the code no window shows.
        prop_assert!(rough || branches < 16 || listed >= 0.8 * total, "{} of {}", listed, total);
    }

    #[test]
    fn no_window_makes_the_stitcher_panic(
        seed in 0u64..1000,
        places in prop::collection::vec((0u32..3, 0u64..200), 2..40),
    ) {
        let world = World::random(seed, 4, true);
        let at = |&(module, index): &(u32, u64)| {
            Location { module: ModuleId(module), address: 0x1000 + 2 * index }
        };
        let pairs = places[1..].chunks_exact(2);
        let transfers = pairs.map(|pair| Transfer { from: at(&pair[0]), to: at(&pair[1]) });
        let window = Window {
            tid: 1,
            time_ns: 0,
            start: at(&places[0]),
            transfers: transfers.collect(),
            end: at(&places[places.len() - 1]),
            instructions: None,
            branches: None,
            ended: End::Full,
            period_ns: None,
        };
        let mut estimator = Estimator::new(&world);
        _ = estimator.add(&window, None);
        estimator.estimate();
        let mut counter = PathCounter::new(&world, 10);
        let mut thread = ThreadPosition::default();
        for pair in places.windows(2) {
            counter.block(&mut thread, at(&pair[0]), at(&pair[1]));
        }
        counter.profile();
    }
}
