//! How often each transfer and each straight run of instructions was executed, estimated from windows.
//!
//! Problem: windows start at moments of time, and each shows about the same number of branches. Code with
//! few branches takes more time per branch, so more windows start in it, and simple counting would make its
//! branches look more frequent than they are. Approach: a window counts with its branches per instruction,
//! as in stitching; that makes its branches a fair sample of all branches. Windows that were not counted
//! (`lbr`, which the processor triggers by branches) have the mean weight. Readers want integers, so the
//! weights are scaled to [`UNITS_PER_WINDOW`] for the mean window.
//!
//! Unlike a branch-record unit, whose first and last entry say nothing about what came before and after, a
//! window knows where it starts and ends. Its first and last run are counted too: without them long runs of
//! branches not taken, which seldom lie within one window as a whole, would count too little. Limits: the
//! first run starts amid a basic block, so the head of a block is counted a little less often than its end;
//! and there is nothing to say which branches were mispredicted.

use crate::window::{End, Location, ModuleId, Recording, Window};
use std::collections::BTreeMap;

/// What the windows count for on average. Large enough that a hundredth of it is still resolved.
pub const UNITS_PER_WINDOW: f64 = 1000.0;

/// Instructions executed one behind the other, without a taken transfer in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// Where control came from; `None` for the first run of a window.
    pub from: Option<Location>,
    /// The first instruction.
    pub first: Location,
    /// Address of the last instruction, which is of the same module.
    pub last: u64,
}

/// The estimated counts of one module, in units of which the mean window has [`UNITS_PER_WINDOW`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Taken transfers by the addresses of source and target; `None` is an address in another module.
    pub transfers: BTreeMap<(Option<u64>, Option<u64>), u64>,
    /// Straight runs.
    pub runs: BTreeMap<Run, u64>,
}

impl Counts {
    /// The counts of a module.
    pub fn new(recording: &Recording, module: ModuleId) -> Counts {
        let mut transfers: BTreeMap<_, f64> = BTreeMap::new();
        let mut runs: BTreeMap<_, f64> = BTreeMap::new();
        let within = |location: Location| (location.module == module).then_some(location.address);
        for (window, weight) in weighted(recording) {
            for transfer in &window.transfers {
                let ends = (within(transfer.from), within(transfer.to));
                if ends != (None, None) {
                    *transfers.entry(ends).or_default() += weight;
                }
            }
            for run in runs_of(window).filter(|run| run.first.module == module) {
                *runs.entry(run).or_default() += weight;
            }
        }
        Counts { transfers: whole(transfers), runs: whole(runs) }
    }

    /// How often each straight run was executed, wherever control came from: first and last address.
    pub fn ranges(&self) -> BTreeMap<(u64, u64), u64> {
        let mut ranges = BTreeMap::new();
        for (run, count) in &self.runs {
            *ranges.entry((run.first.address, run.last)).or_default() += count;
        }
        ranges
    }
}

/// A seldom thing is no impossible thing: every count is at least 1.
fn whole<K: Ord>(counts: BTreeMap<K, f64>) -> BTreeMap<K, u64> {
    counts.into_iter().map(|(key, count)| (key, count.round().max(1.0) as u64)).collect()
}

/// The windows with what each counts for: [`UNITS_PER_WINDOW`] on average. Windows without a branch are
/// left out.
pub fn weighted(recording: &Recording) -> impl Iterator<Item = (&Window, f64)> {
    let known = recording.windows.iter().filter_map(density).filter(|density| *density > 0.0);
    let (windows, sum) = known.fold((0.0, 0.0), |(windows, sum), density| (windows + 1.0, sum + density));
    let weight = move |window: &Window| density(window).map_or(1.0, |density| density * windows / sum);
    recording
        .windows
        .iter()
        .map(move |window| (window, UNITS_PER_WINDOW * weight(window)))
        .filter(|(_, weight)| *weight > 0.0)
}

/// Branches per instruction; `None` where they were not counted.
fn density(window: &Window) -> Option<f64> {
    let (branches, instructions) = (window.branches?, window.instructions?);
    Some(if instructions == 0 { 0.0 } else { f64::from(branches) / f64::from(instructions) })
}

/// The straight runs of a window, in the order of execution. The last one ends with the instruction that the
/// window stopped at: it was not emulated, but it was what the thread did next.
pub fn runs_of(window: &Window) -> impl Iterator<Item = Run> {
    let starts = std::iter::once((None, window.start))
        .chain(window.transfers.iter().map(|transfer| (Some(transfer.from), transfer.to)));
    let ends = window.transfers.iter().map(|transfer| transfer.from).chain(std::iter::once(window.end));
    let count = window.transfers.len();
    starts.zip(ends).enumerate().filter_map(move |(index, ((from, first), end))| {
        let is_run = first.module == end.module
            && if index == count {
                // A branch-record unit does not tell where it was read; a signal leads to its handler.
                !matches!(window.ended, End::Hardware | End::Interrupted) && first.address < end.address
            } else {
                first.address <= end.address
            };
        is_run.then_some(Run { from, first, last: end.address })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{self, EXECUTABLE, LIBRARY};

    #[test]
    fn the_runs_of_a_window_are_what_lies_between_its_transfers() {
        let window = fixture::window(0x100, &[(0x110, 0x140), (0x148, 0x100)], 0x110, (6, 3));
        let runs: Vec<(u64, u64)> = runs_of(&window).map(|run| (run.first.address, run.last)).collect();
        assert_eq!(runs, [(0x100, 0x110), (0x140, 0x148), (0x100, 0x110)]);
    }

    #[test]
    fn nothing_is_said_about_what_lies_behind_the_last_transfer() {
        let window = fixture::window(0x100, &[(0x110, 0x140)], 0x140, (3, 1));
        assert_eq!(runs_of(&window).count(), 1);
        let hardware = Window { ended: End::Hardware, end: fixture::at(0x150), ..window };
        assert_eq!(runs_of(&hardware).count(), 1);
    }

    #[test]
    fn branch_sparse_code_does_not_count_more() {
        // Two loops of the same number of iterations; one iteration of the second has four times as many
        // instructions, so four times as many windows start in it.
        let dense = || fixture::window(0x100, &[(0x110, 0x100), (0x110, 0x100)], 0x100, (10, 2));
        let sparse = || fixture::window(0x200, &[(0x280, 0x200), (0x280, 0x200)], 0x200, (40, 2));
        let windows = vec![dense(), sparse(), sparse(), sparse(), sparse()];
        let counts = Counts::new(&fixture::recording(windows), EXECUTABLE);
        let count = |from, to| counts.transfers[&(Some(from), Some(to))];
        assert_eq!(count(0x110, 0x100), count(0x280, 0x200));
        assert_eq!(count(0x110, 0x100), 5 * 1000);
    }

    #[test]
    fn a_module_knows_no_addresses_of_others() {
        let recording = fixture::two_modules();
        let counts = Counts::new(&recording, EXECUTABLE);
        assert!(counts.transfers.contains_key(&(Some(0x1210), None)));
        assert!(counts.transfers.contains_key(&(None, Some(0x1218))));
        assert!(counts.runs.keys().all(|run| run.first.module == EXECUTABLE));
        let library = Counts::new(&recording, LIBRARY);
        assert_eq!(library.transfers.len(), 2);
        assert_eq!(library.ranges().keys().collect::<Vec<_>>(), [&(0x5000, 0x5008)]);
    }

    #[test]
    fn windows_without_counts_have_the_mean_weight() {
        let mut window = fixture::window(0x100, &[(0x110, 0x100)], 0x100, (10, 1));
        (window.instructions, window.branches) = (None, None);
        let empty = fixture::window(0x100, &[], 0x100, (0, 0));
        let counted = || fixture::window(0x100, &[(0x110, 0x100)], 0x100, (10, 1));
        let weights = |windows| {
            let recording = fixture::recording(windows);
            weighted(&recording).map(|(_, weight)| weight).collect::<Vec<_>>()
        };
        assert_eq!(weights(vec![window.clone(), empty]), [1000.0]);
        assert_eq!(weights(vec![counted(), window, counted()]), [1000.0; 3]);
    }
}
