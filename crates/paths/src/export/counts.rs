//! How often each transfer and each straight run of instructions was executed, estimated from windows.
//!
//! Problem: optimisers want two counts, of taken transfers and of the straight runs between them; windows
//! show both, but not as often as they were executed (see [`crate::estimate`]). Approach: the counts are made
//! from the same weights of edges as the path profile, so that the accuracy of an estimate
//! ([`crate::accuracy`]) is also that of the exported counts. A taken edge is a transfer. Runs follow from
//! the edges: control that comes to a straight line continues or leaves it at each branch in the proportion
//! of the branch's edges. Readers want integers, so the weights are scaled to [`UNITS_PER_WINDOW`] for the
//! mean window.
//!
//! If more leaves a line than is known to have entered it, or less (an entry that no window shows, a thread's
//! end), the runs are scaled to what leaves. A line without a known entry begins where the first window in it
//! did. Limits: it is assumed that a branch's way does not depend on where the run began, which changes no
//! count of an instruction or a branch; mispredictions are unknown.

use crate::estimate::Estimator;
use crate::graph::{Block, Edge, Exit, Graph};
use crate::path::Step;
use crate::program::Program;
use crate::window::{BranchRecording, Location, ModuleId};
use std::collections::BTreeMap;

/// The count of the mean window. Large enough that a hundredth of it is still resolved.
pub const UNITS_PER_WINDOW: f64 = 1000.0;

/// Runs of less are not followed further, in units.
const FOLLOWED_MIN: f64 = 0.5;

/// Instructions executed one after another, without a taken transfer in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// The first instruction.
    pub first: Location,
    /// Address of the last instruction, in the same module.
    pub last: u64,
    /// Whether control came from another function. A return from a recursive call counts as one, too.
    pub from_outside: bool,
}

/// The estimated counts of one module, in units; the mean window has [`UNITS_PER_WINDOW`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Taken transfers by the addresses of source and target; `None` is an address in another module.
    pub transfers: BTreeMap<(Option<u64>, Option<u64>), u64>,
    /// Straight runs.
    pub runs: BTreeMap<Run, u64>,
    /// The count of each window of the recording, in units; 0 without a branch, or if it contradicts the
    /// code.
    pub weights: Vec<f64>,
    /// The number of windows that contradict the code of their files, or whose file cannot be read; they do
    /// not count.
    pub contradicting: usize,
}

impl Counts {
    /// Counts the windows of a module.
    pub fn new(recording: &BranchRecording, module: ModuleId, program: &dyn Program) -> Counts {
        let mut estimator = Estimator::new(program);
        let mut contradicting = 0;
        let mut counted = Vec::with_capacity(recording.windows.len());
        for window in &recording.windows {
            let before = estimator.window_count();
            contradicting += usize::from(estimator.add(window, None).is_err());
            counted.push(estimator.window_count() > before);
        }
        let mut flow = estimator.flow();
        flow.edges.iter_mut().for_each(|weight| *weight *= UNITS_PER_WINDOW);
        let mut of_counted = flow.weights.iter().map(|weight| weight * UNITS_PER_WINDOW);
        let weight = |counted| if counted { of_counted.next().unwrap_or(0.0) } else { 0.0 };
        let weights = counted.into_iter().map(weight).collect();
        let lines = StraightLines::new(estimator.graph(), &flow.edges);
        let (transfers, runs) = (whole(lines.transfers(module)), whole(lines.runs(module, program)));
        Counts { transfers, runs, weights, contradicting }
    }

    /// Returns how often each straight run was executed, from anywhere, by first and last address.
    pub fn ranges(&self) -> BTreeMap<(u64, u64), u64> {
        let mut ranges = BTreeMap::new();
        for (run, count) in &self.runs {
            *ranges.entry((run.first.address, run.last)).or_default() += count;
        }
        ranges
    }
}

/// Something rare is not impossible: every count is at least 1.
fn whole<K: Ord>(counts: BTreeMap<K, f64>) -> BTreeMap<K, u64> {
    counts.into_iter().map(|(key, count)| (key, count.round().max(1.0) as u64)).collect()
}

/// The counts that enter and leave the straight line before each site.
struct StraightLines<'a, 'p> {
    graph: &'a Graph<'p>,
    /// The units of each edge, by its id.
    edges: &'a [f64],
    /// By site, in units.
    entered: Vec<f64>,
    left: Vec<f64>,
}

impl<'a, 'p> StraightLines<'a, 'p> {
    fn new(graph: &'a Graph<'p>, edges: &'a [f64]) -> Self {
        let (mut entered, mut left) = (vec![0.0; graph.site_count()], vec![0.0; graph.site_count()]);
        for ((_, edge), units) in graph.edges().zip(edges) {
            left[edge.site.0 as usize] += units;
            if let Some(block) = edge.block {
                entered[graph.block(block).site.0 as usize] += units;
            }
        }
        Self { graph, edges, entered, left }
    }

    /// Returns the executed edges that an optimiser treats as taken.
    fn taken(&self) -> impl Iterator<Item = (&Edge, f64)> {
        let edges = self.graph.edges().zip(self.edges).map(|((_, edge), &units)| (edge, units));
        edges.filter(|&(edge, units)| units > 0.0 && edge.step != Some(Step::NotTaken))
    }

    fn transfers(&self, module: ModuleId) -> BTreeMap<(Option<u64>, Option<u64>), f64> {
        let within = |location: Location| (location.module == module).then_some(location.address);
        let mut transfers = BTreeMap::new();
        for (edge, units) in self.taken() {
            let ends = (within(self.graph.site(edge.site).at), within(edge.to));
            if ends != (None, None) {
                *transfers.entry(ends).or_default() += units;
            }
        }
        transfers
    }

    fn runs(&self, module: ModuleId, program: &dyn Program) -> BTreeMap<Run, f64> {
        let function = |at: Location| program.function(at).map(|function| function.start);
        let mut begun: BTreeMap<(Location, bool), (Block, f64)> = BTreeMap::new();
        for (edge, units) in self.taken().filter(|(edge, _)| edge.to.module == module) {
            let Some(block) = edge.block else { continue };
            let from = self.graph.site(edge.site);
            let outside = from.exit == Exit::Return
                || from.at.module != module
                || function(from.at) != function(edge.to);
            begun.entry((edge.to, outside)).or_insert((*self.graph.block(block), 0.0)).1 += units;
        }
        let mut without_entry: BTreeMap<usize, &Block> = BTreeMap::new();
        for block in self.graph.blocks().filter(|block| block.start.module == module) {
            let site = block.site.0 as usize;
            if self.left[site] > 0.0 && self.entered[site] == 0.0 {
                let first = without_entry.entry(site).or_insert(block);
                *first = if block.start < first.start { block } else { first };
            }
        }
        for (site, block) in without_entry {
            begun.insert((block.start, false), (*block, self.left[site]));
        }
        let mut runs = BTreeMap::new();
        for ((first, from_outside), (block, units)) in begun {
            self.follow(block, units, |last, units| {
                *runs.entry(Run { first, last, from_outside }).or_default() += units;
            });
        }
        runs
    }

    /// Continues from a block, and passes on the end of each run from there, with its units.
    fn follow(&self, mut block: Block, mut units: f64, mut run: impl FnMut(u64, f64)) {
        loop {
            let (index, site) = (block.site.0 as usize, self.graph.site(block.site));
            if self.left[index] == 0.0 {
                // The rest ends in the line, at an instruction that no window goes beyond.
                return run(block.start.address, units);
            }
            let arrived = if self.entered[index] > 0.0 { self.entered[index] } else { self.left[index] };
            let mut next = None;
            let mut taken = 0.0;
            for &id in &site.edges {
                let edge = self.graph.edge_of(id);
                let share = self.edges[id.0 as usize] / arrived;
                if edge.step == Some(Step::NotTaken) {
                    next = edge.block.map(|block| (block, share));
                } else {
                    taken += share;
                }
            }
            if taken > 0.0 {
                run(site.at.address, units * taken);
            }
            match next {
                Some((following, share)) if units * share >= FOLLOWED_MIN => {
                    (block, units) = (*self.graph.block(following), units * share);
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::agreement;
    use crate::export::fixture::{self, EXECUTABLE, LIBRARY};
    use crate::made_up::{Decide, LENGTH, Op, Trace, World};
    use crate::profile::{FromTo, PathProfile};
    use corewise_core::code::Flow;
    use corewise_core::random::Random;
    use rustc_hash::FxHashMap;

    /// Executes a made-up program, and records it like a sampler.
    fn recorded(world: &World, windows: usize) -> (Trace, BranchRecording) {
        let trace = world.run(&mut Random::new(1, 1), 1_000_000);
        let recording = fixture::recording(world.windows(&trace, &mut Random::new(1, 2), windows, 32));
        (trace, recording)
    }

    /// How often each way out of each branch was taken, by the counts alone, as an optimiser computes it.
    fn edges_of(counts: &Counts, module: ModuleId, world: &World) -> FxHashMap<FromTo, f64> {
        let at = |address| Location { module, address };
        let mut edges = FxHashMap::default();
        for (&(from, to), &count) in &counts.transfers {
            if let (Some(from), Some(to)) = (from, to) {
                *edges.entry((at(from), at(to))).or_default() += count as f64;
            }
        }
        for (run, &count) in &counts.runs {
            for address in (run.first.address..run.last).step_by(LENGTH as usize) {
                if matches!(world.instruction(at(address)).unwrap().flow, Flow::Branch(_)) {
                    *edges.entry((at(address), at(address + LENGTH))).or_default() += count as f64;
                }
            }
        }
        edges
    }

    #[test]
    fn an_optimiser_gets_edges_as_right_as_those_of_the_estimate() {
        for seed in 0..4 {
            let world = World::random(seed, 8, true);
            let (trace, recording) = recorded(&world, 2000);
            let mut estimator = Estimator::new(&world);
            recording.windows.iter().for_each(|window| estimator.add(window, None).unwrap());
            let estimated = estimator.estimate().profile;
            let truth = world.edges_by_definition(&trace);
            for module in [EXECUTABLE, LIBRARY] {
                let within = |((from, to), _): &(FromTo, f64)| [from.module, to.module] == [module; 2];
                let profile = |edges: &mut dyn Iterator<Item = (FromTo, f64)>| PathProfile {
                    edges: edges.filter(within).collect(),
                    ..PathProfile::default()
                };
                let truth = profile(&mut truth.iter().map(|(&edge, &count)| (edge, count as f64)));
                let overlap = |with: PathProfile| agreement(&truth, &with).edge_overlap;
                let exported = edges_of(&Counts::new(&recording, module, &world), module, &world);
                let exported = overlap(profile(&mut exported.into_iter()));
                let estimated = overlap(profile(&mut estimated.edges.clone().into_iter()));
                assert!((exported - estimated).abs() < 0.002, "seed {seed}: {exported}, {estimated}");
            }
        }
    }

    #[test]
    fn a_run_falls_on_as_often_as_its_branches_do() {
        // A loop of one branch that is seldom taken and one that is always.
        let half = Decide::Chance(0.25);
        let ops = vec![Op::Plain(1), Op::Branch(4, half), Op::Plain(1), Op::Jump(0), Op::Jump(0)];
        let world = World::new(&[(0, ops.clone())]);
        let counts = Counts::new(&recorded(&world, 2000).1, EXECUTABLE, &world);
        let place = |op| world.place(0, &ops, op).address;
        let run = |first, last| counts.ranges()[&(place(first), place(last))] as f64;
        let (left, fell) = (run(0, 1), run(0, 3));
        assert!((left / (left + fell) - 0.25).abs() < 0.03, "{left} {fell}");
        assert!((run(4, 4) / left - 1.0).abs() < 0.03);
        assert_eq!(counts.runs.len(), 3);
        assert!(counts.runs.keys().all(|run| !run.from_outside));
    }

    #[test]
    fn a_module_knows_no_addresses_of_others() {
        let (recording, program) = (fixture::two_modules(), fixture::program());
        let counts = Counts::new(&recording, EXECUTABLE, &program);
        assert!(counts.transfers.contains_key(&(Some(0x1210), None)));
        assert!(counts.transfers.contains_key(&(None, Some(0x1218))));
        assert!(counts.runs.keys().all(|run| run.first.module == EXECUTABLE));
        let library = Counts::new(&recording, LIBRARY, &program);
        assert_eq!(library.transfers.len(), 2);
        assert_eq!(library.ranges().keys().collect::<Vec<_>>(), [&(0x5000, 0x5008)]);
    }

    #[test]
    fn windows_that_contradict_the_code_count_nothing_and_are_counted() {
        let mut recording = fixture::two_modules();
        let whole = Counts::new(&recording, EXECUTABLE, &fixture::program());
        assert_eq!((whole.contradicting, whole.weights.len()), (0, 3));
        let mut wrong = recording.windows[0].clone();
        wrong.transfers[0].from.address = 0x110c;
        recording.windows.insert(0, wrong);
        let counts = Counts::new(&recording, EXECUTABLE, &fixture::program());
        assert_eq!((counts.contradicting, counts.weights[0]), (1, 0.0));
        assert_eq!((&counts.transfers, &counts.runs), (&whole.transfers, &whole.runs));
        assert_eq!(counts.weights[1..], whole.weights);
    }
}
