//! From counts of groups to the cumulative metrics of a thread.
//!
//! Each reading closes an interval: what was counted since the last one is scaled for the time in which the
//! group did not count, the formulas of each kind of core are applied to that kind's counts, and the results
//! are added up. So the sums are monotonic, formulas may be other than linear, and a thread that changes
//! between kinds of core is accounted by each kind's own formulas.
//!
//! Scaling: a thread's group is *enabled* while the thread runs and *running* while the group counts. Where
//! groups alternate, a count is multiplied by enabled / running. On a machine with several kinds of core the
//! groups of the other kinds are enabled but do not run; there the thread has one group per kind and
//! all share the factor enabled / (sum of running), which is 1 if nobody else uses the counters.

use super::files::{EventFile, Metric};
use super::group::GroupCounts;
use corewise_core::observe::PmuReading;
use std::sync::Arc;

/// How one kind of core is counted: its file, and which of the file's events each group holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// The events and formulas.
    pub file: Arc<EventFile>,
    /// Positions in `file.events`, per group.
    pub groups: Vec<Vec<usize>>,
}

/// A group that wanted to count for this long and could not is given up for the interval: its events are
/// unknown. Until then the interval is held open, as a thread that ran for a moment may have run just while
/// other groups counted.
const STARVED_NS: u64 = 1_000_000_000;

/// The metrics of one thread since it is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    /// At the end of the last interval: per kind, per group.
    last: Vec<Vec<GroupCounts>>,
    /// Per [`Metric`]; `None` once a part of it is unknown.
    sums: [Option<f64>; Metric::COUNT],
    enabled_ns: u64,
    running_ns: u64,
    /// The lowest among the kinds that the thread ran on.
    confidence: f32,
}

impl Tally {
    /// Nothing counted, by groups that were just opened in these layouts.
    pub fn new(layouts: &[Layout]) -> Self {
        let empty = |group: &Vec<usize>| GroupCounts { counts: vec![0; group.len()], ..Default::default() };
        let last = layouts.iter().map(|layout| layout.groups.iter().map(empty).collect()).collect();
        Self { last, sums: [Some(0.0); Metric::COUNT], enabled_ns: 0, running_ns: 0, confidence: 1.0 }
    }

    /// Closes an interval with the counts `now` (per kind, per group), unless a group still waits to count.
    pub fn add(&mut self, layouts: &[Layout], now: Vec<Vec<GroupCounts>>) {
        let deltas: Vec<Vec<GroupCounts>> = self
            .last
            .iter()
            .zip(&now)
            .map(|(last, now)| last.iter().zip(now).map(|(last, now)| difference(last, now)).collect())
            .collect();
        let times = times(&deltas);
        if times.iter().any(|time| time.running_ns == 0 && (1..STARVED_NS).contains(&time.enabled_ns)) {
            return;
        }
        for (layout, groups) in layouts.iter().zip(&deltas) {
            if groups.iter().any(|group| group.running_ns > 0) {
                self.add_kind(layout, groups, &times);
            }
        }
        self.enabled_ns += times.iter().map(|time| time.enabled_ns).max().unwrap_or_default();
        self.running_ns += times.iter().map(|time| time.running_ns).min().unwrap_or_default();
        self.last = now;
    }

    fn add_kind(&mut self, layout: &Layout, groups: &[GroupCounts], times: &[Times]) {
        let mut counts = vec![None; layout.file.events.len()];
        for ((events, group), time) in layout.groups.iter().zip(groups).zip(times) {
            for (event, count) in events.iter().zip(&group.counts) {
                counts[*event] = time.scale(*count);
            }
        }
        for (metric, sum) in Metric::ALL.into_iter().zip(&mut self.sums) {
            let formula = layout.file.formulas.get(&metric);
            let value = formula.and_then(|formula| formula.formula.value(&counts));
            // Two events are never read at the same instant: a difference of them may fall just below zero.
            *sum = sum.zip(value).map(|(sum, value)| sum + value.max(0.0));
        }
        if let Some(formula) = layout.file.formulas.get(&Metric::FpuBusyCycles) {
            self.confidence = self.confidence.min(formula.confidence);
        }
    }

    /// The sums so far. `None` if the thread did not run since it is watched, or its cycles are unknown.
    pub fn reading(&self, events: &Arc<str>) -> Option<PmuReading> {
        if self.running_ns == 0 {
            return None;
        }
        // Counts are far below 2^53, so nothing is lost; the cast rounds down.
        let metric = |metric: Metric| self.sums[metric as usize].map(|sum| sum as u64);
        let cycles = metric(Metric::Cycles)?;
        let busy = |which| metric(which).map(|busy: u64| busy.min(cycles));
        let fpu_busy_cycles = busy(Metric::FpuBusyCycles);
        Some(PmuReading {
            events: events.clone(),
            cycles,
            instructions: metric(Metric::Instructions),
            fpu_busy_cycles,
            vector_busy_cycles: busy(Metric::VectorBusyCycles),
            formula_confidence: if fpu_busy_cycles.is_some() { self.confidence } else { 0.0 },
            l2_misses: metric(Metric::L2Misses),
            branches: metric(Metric::Branches),
            branch_misses: metric(Metric::BranchMisses),
            enabled_ns: self.enabled_ns,
            running_ns: self.running_ns,
        })
    }
}

fn difference(last: &GroupCounts, now: &GroupCounts) -> GroupCounts {
    GroupCounts {
        enabled_ns: now.enabled_ns.saturating_sub(last.enabled_ns),
        running_ns: now.running_ns.saturating_sub(last.running_ns),
        counts: now.counts.iter().zip(&last.counts).map(|(now, last)| now.saturating_sub(*last)).collect(),
    }
}

/// Times of the groups of the same number of all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    enabled_ns: u64,
    running_ns: u64,
}

impl Times {
    /// What would have been counted all the time. `None` if nothing was counted though it should have been.
    fn scale(&self, count: u64) -> Option<f64> {
        match (self.enabled_ns, self.running_ns) {
            (0, _) => Some(count as f64),
            (_, 0) => None,
            // The times of two kinds are read one after the other: running may come out a little longer.
            (enabled, running) => Some(count as f64 * (enabled as f64 / running as f64).max(1.0)),
        }
    }
}

fn times(kinds: &[Vec<GroupCounts>]) -> Vec<Times> {
    let groups = kinds.iter().map(Vec::len).max().unwrap_or_default();
    let of = |number: usize| {
        let of_kinds = || kinds.iter().filter_map(move |groups| groups.get(number));
        Times {
            enabled_ns: of_kinds().map(|group| group.enabled_ns).max().unwrap_or_default(),
            running_ns: of_kinds().map(|group| group.running_ns).sum(),
        }
    };
    (0..groups).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(name: &str, formula: &str, confidence: f32, groups: &[&[usize]]) -> Layout {
        let text = format!(
            "title = 't'\nsource = 's'\ncounters = 4\ncpu = []\n\
             event = [ {{ name = 'cycles', raw = 1, is = 'C' }}, {{ name = 'x', raw = 2, is = 'X' }} ]\n\
             [formula]\ncycles = {{ is = 'cycles', confidence = 1, note = 'Exact.' }}\n\
             fpu_busy_cycles = {{ is = '{formula}', confidence = {confidence}, note = 'An estimate.' }}\n"
        );
        let file = Arc::new(EventFile::parse(name, None, &text).unwrap());
        Layout { file, groups: groups.iter().map(|group| group.to_vec()).collect() }
    }

    fn group(enabled_ns: u64, running_ns: u64, counts: &[u64]) -> GroupCounts {
        GroupCounts { enabled_ns, running_ns, counts: counts.to_vec() }
    }

    /// Cycles, busy cycles, confidence, enabled and running.
    fn shown(tally: &Tally) -> Option<(u64, Option<u64>, f32, u64, u64)> {
        let reading = tally.reading(&"test".into())?;
        let PmuReading { cycles, fpu_busy_cycles, formula_confidence, enabled_ns, running_ns, .. } = reading;
        Some((cycles, fpu_busy_cycles, formula_confidence, enabled_ns, running_ns))
    }

    #[test]
    fn formulas_are_applied_to_intervals_not_to_sums() {
        let layouts = [layout("a", "min(cycles, 10 * x)", 0.5, &[&[0, 1]])];
        let mut tally = Tally::new(&layouts);
        assert_eq!(shown(&tally), None);
        tally.add(&layouts, vec![vec![group(10, 10, &[100, 50])]]);
        assert_eq!(shown(&tally), Some((100, Some(100), 0.5, 10, 10)));
        // The second phase has no events at all: 10 * 50 of the first must not spill into it.
        tally.add(&layouts, vec![vec![group(50, 50, &[500, 50])]]);
        assert_eq!(shown(&tally), Some((500, Some(100), 0.5, 50, 50)));
    }

    #[test]
    fn groups_that_alternate_are_scaled_each_by_its_own_time() {
        let layouts = [layout("a", "cycles - x", 1.0, &[&[0], &[1]])];
        let mut tally = Tally::new(&layouts);
        tally.add(&layouts, vec![vec![group(100, 50, &[500]), group(100, 25, &[100])]]);
        assert_eq!(shown(&tally), Some((1_000, Some(600), 1.0, 100, 25)));
    }

    #[test]
    fn an_interval_stays_open_until_every_group_was_counted() {
        let layouts = [layout("a", "cycles - x", 1.0, &[&[0], &[1]])];
        let mut tally = Tally::new(&layouts);
        tally.add(&layouts, vec![vec![group(100, 100, &[500]), group(100, 0, &[0])]]);
        assert_eq!(shown(&tally), None);
        tally.add(&layouts, vec![vec![group(200, 150, &[900]), group(200, 50, &[100])]]);
        assert_eq!(shown(&tally), Some((1_200, Some(800), 1.0, 200, 50)));
        let starved = 200 + STARVED_NS;
        tally.add(&layouts, vec![vec![group(starved, starved - 50, &[2_000]), group(starved, 50, &[100])]]);
        let (cycles, busy, ..) = shown(&tally).unwrap();
        assert_eq!((cycles, busy), (2_300, None), "what was never counted is unknown");
    }

    #[test]
    fn kinds_of_core_are_computed_apart_and_then_added() {
        let fast = layout("fast", "min(cycles, x)", 0.6, &[&[0, 1]]);
        let slow = layout("slow", "min(cycles, 2 * x)", 0.4, &[&[0, 1]]);
        let layouts = [fast, slow];
        let mut tally = Tally::new(&layouts);
        // 30 of 100 ns on the fast kind, the rest on the slow one: nothing was multiplexed, so nothing is
        // scaled.
        tally.add(&layouts, vec![vec![group(100, 30, &[300, 200])], vec![group(100, 70, &[400, 100])]]);
        assert_eq!(shown(&tally), Some((700, Some(400), 0.4, 100, 100)));
        // Someone else uses the counters half of the time.
        tally.add(&layouts, vec![vec![group(300, 130, &[1_300, 200])], vec![group(300, 70, &[400, 100])]]);
        assert_eq!(shown(&tally), Some((2_700, Some(400), 0.4, 300, 200)));
    }

    #[test]
    fn a_kind_without_a_formula_makes_the_sum_unknown_once_the_thread_ran_there() {
        let fast = layout("fast", "x", 0.6, &[&[0, 1]]);
        let mut slow = layout("slow", "x", 0.6, &[&[0, 1]]);
        Arc::make_mut(&mut slow.file).formulas.remove(&Metric::FpuBusyCycles);
        let layouts = [fast, slow];
        let mut tally = Tally::new(&layouts);
        tally.add(&layouts, vec![vec![group(50, 50, &[300, 200])], vec![group(50, 0, &[0, 0])]]);
        assert_eq!(shown(&tally), Some((300, Some(200), 0.6, 50, 50)));
        tally.add(&layouts, vec![vec![group(100, 50, &[300, 200])], vec![group(100, 50, &[100, 50])]]);
        assert_eq!(shown(&tally), Some((400, None, 0.0, 100, 100)));
    }

    proptest! {
        /// A steady thread whose group counts only part of the time: the estimate meets the truth.
        #[test]
        fn scaling_recovers_a_steady_rate(
            rate in 1u64..5_000, shares in prop::collection::vec((1u64..1_000_000, 1u64..=100), 1..20),
        ) {
            let layouts = [layout("a", "min(cycles, x)", 1.0, &[&[0, 1]])];
            let mut tally = Tally::new(&layouts);
            let mut now = group(0, 0, &[0, 0]);
            for (duration_ns, percent) in shares {
                let running_ns = (duration_ns * percent).div_ceil(100);
                now.enabled_ns += duration_ns;
                now.running_ns += running_ns;
                now.counts[0] += running_ns * rate;
                let before = shown(&tally);
                tally.add(&layouts, vec![vec![now.clone()]]);
                prop_assert!(shown(&tally) > before, "sums never fall");
            }
            let cycles = tally.reading(&"test".into()).unwrap().cycles as f64;
            let truth = (now.enabled_ns * rate) as f64;
            prop_assert!((cycles - truth).abs() <= truth * 1e-9 + 1.0, "{} {}", cycles, truth);
        }
    }
}
