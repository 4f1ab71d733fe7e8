//! Rates from pairs of readings: what a thread did between them, and with which confidence.
//!
//! Problem: a policy needs to know how much a thread uses the FPU now; the world provides cumulative counts
//! from sources of very different quality. Approach: a view is a pure function of two readings of the same
//! thread. Each number carries the confidence of its source, and numbers that the source lacks are absent.
//! Sources: FPU usage is equation 1 of BulldOver §V.B (`1 - empty cycles / cycles`), the L2 miss ratio is
//! misses per 100 cycles as in its Table I. Limits: a sampled estimate is a proportion of clock samples; its
//! confidence is statistical and does not cover a systematic error of the estimator.

use crate::cpuset::CpuSet;
use crate::ids::{AppId, PeId, ThreadId};
use crate::observe::{
    ApplicationReading, CounterReading, PmuReading, SampleReading, Standing, ThreadReading,
};
use crate::stats::proportion_confidence;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What one thread did in one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadView {
    /// The thread.
    pub thread: ThreadId,
    /// Its application.
    pub app: AppId,
    /// The recent share of the time in which it ran or waited for a PE, 0..1: its demand, not what it
    /// received.
    pub runnable_share: f64,
    /// The PE it ran on last.
    pub last_pe: Option<PeId>,
    /// Whether it may be placed.
    pub standing: Standing,
    /// The PEs that its user permits.
    pub permitted: Arc<CpuSet>,
    /// Its usage of the hardware, from its counters.
    pub usage: Usage,
}

/// Rates from the counters of one thread; what the source lacks is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Share of cycles in which floating-point work is in flight, 0..1.
    pub fpu: Option<Estimate>,
    /// Share of cycles with vector arithmetic in flight, floating-point or integer, 0..1. At least `fpu`.
    pub vector: Option<Estimate>,
    /// Share of user time spent busy-waiting, 0..1.
    pub spin: Option<Estimate>,
    /// Share of memory instructions, 0..1.
    pub memory: Option<Estimate>,
    /// Share of branches, 0..1.
    pub branches: Option<Estimate>,
    /// L2 misses per 100 cycles.
    pub l2_misses_per_100_cycles: Option<Estimate>,
    /// Instructions per cycle.
    pub ipc: Option<Estimate>,
    /// Mispredicted branches per 100 branches.
    pub branch_misses_per_100: Option<Estimate>,
}

/// A number with its confidence and source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its confidence, 0 (a guess) to 1 (counted).
    pub confidence: f64,
    /// Its source.
    pub source: Source,
}

/// The source of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Hardware counters, multiplexed where there are too few. The confidence is the share of the time that
    /// was counted, times the confidence of the formula.
    Counters,
    /// Clock samples. The confidence is that of a proportion of so many samples.
    Samples,
}

/// What one application did in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ApplicationView {
    /// Time-weighted mean number of runnable threads.
    pub tlp_mean: f64,
    /// Share of the time with at least one runnable thread in which there was exactly one, 0..1.
    pub sequential_fraction: Option<f64>,
    /// Whether these two figures are integrated exactly or estimated.
    pub exact: bool,
    /// The number of threads that are runnable at this instant, if the world reports every change.
    pub runnable: Option<u32>,
    /// The only one, if there is exactly one and the world can identify it.
    pub only: Option<ThreadId>,
}

impl Usage {
    /// Returns the usage between two readings of one thread. If the readings come from different sources they
    /// are not comparable, and the later one counts from its start.
    pub fn between(earlier: Option<&CounterReading>, later: &CounterReading) -> Usage {
        match (earlier, later) {
            (Some(CounterReading::Pmu(a)), CounterReading::Pmu(b)) => pmu_usage(Some(a), b),
            (_, CounterReading::Pmu(b)) => pmu_usage(None, b),
            (Some(CounterReading::Sample(a)), CounterReading::Sample(b)) => sample_usage(a, b),
            (_, CounterReading::Sample(b)) => sample_usage(&SampleReading::default(), b),
        }
    }
}

fn pmu_usage(earlier: Option<&PmuReading>, later: &PmuReading) -> Usage {
    // Scaled values of a multiplexed group may decrease slightly; this is not negative work.
    let change = |of: fn(&PmuReading) -> Option<u64>| -> Option<f64> {
        Some(of(later)?.saturating_sub(earlier.and_then(of).unwrap_or(0)) as f64)
    };
    let cycles = change(|r| Some(r.cycles)).filter(|&cycles| cycles > 0.0);
    let per = |of: fn(&PmuReading) -> Option<u64>, base: Option<f64>| Some(change(of)? / base?);
    let per_cycle = |of| per(of, cycles);
    let instructions = change(|r| r.instructions).filter(|&instructions| instructions > 0.0);
    let branches = change(|r| r.branches).filter(|&branches| branches > 0.0);
    let enabled_ns = change(|r| Some(r.enabled_ns)).unwrap_or(0.0);
    let running_ns = change(|r| Some(r.running_ns)).unwrap_or(0.0);
    let counted = if enabled_ns > 0.0 { (running_ns / enabled_ns).min(1.0) } else { 0.0 };
    let confidence = counted * f64::from(later.formula_confidence);
    let source = Source::Counters;
    let share =
        |busy: Option<f64>| busy.map(|value| Estimate { value: value.clamp(0.0, 1.0), confidence, source });
    let rate = |value: Option<f64>| value.map(|value| Estimate { value, confidence: counted, source });
    let fpu = share(per_cycle(|r| r.fpu_busy_cycles));
    let vector = share(per_cycle(|r| r.vector_busy_cycles));
    Usage {
        fpu,
        vector: at_least(vector, fpu),
        spin: None,
        memory: None,
        branches: rate(per(|r| r.branches, instructions).map(|share| share.min(1.0))),
        l2_misses_per_100_cycles: rate(per_cycle(|r| r.l2_misses).map(|ratio| 100.0 * ratio)),
        ipc: rate(per_cycle(|r| r.instructions)),
        branch_misses_per_100: rate(
            change(|r| r.branch_misses).zip(branches).map(|(misses, branches)| 100.0 * misses / branches),
        ),
    }
}

fn sample_usage(earlier: &SampleReading, later: &SampleReading) -> Usage {
    let judged = later.judged.saturating_sub(earlier.judged);
    let spinning = later.spinning.saturating_sub(earlier.spinning);
    let share = |sum: f64, of: u64, seen: u64| {
        (of > 0).then(|| {
            let value = (sum / of as f64).clamp(0.0, 1.0);
            Estimate { value, confidence: proportion_confidence(value, seen), source: Source::Samples }
        })
    };
    // What was filled in from other samples is no independent evidence.
    let seen = (judged as f64 - (later.unseen - earlier.unseen)).max(0.0).round() as u64;
    let fpu = share(later.fp - earlier.fp, judged, seen);
    Usage {
        fpu,
        vector: at_least(share(later.vector - earlier.vector, judged, seen), fpu),
        spin: share(spinning as f64, judged + spinning, judged + spinning),
        memory: share(later.memory - earlier.memory, judged, seen),
        branches: share(later.branches - earlier.branches, judged, seen),
        ..Usage::default()
    }
}

/// Raises vector usage to at least FPU usage, since floating-point work occupies the vector unit.
fn at_least(vector: Option<Estimate>, fpu: Option<Estimate>) -> Option<Estimate> {
    match (vector, fpu) {
        (Some(vector), Some(fpu)) if vector.value < fpu.value => Some(fpu),
        (vector, _) => vector,
    }
}

/// Returns the time for which a thread has wanted a PE so far (running or waiting for one), in nanoseconds.
/// Without waiting times this is the time that it ran.
pub fn wanted_ns(reading: &ThreadReading) -> u64 {
    reading.runnable_ns.unwrap_or(reading.cpu_ns)
}

/// Returns the share of an interval in which a thread wanted a PE, 0..1.
pub fn runnable_share(earlier_wanted_ns: u64, later: &ThreadReading, interval: Duration) -> f64 {
    let interval_ns = interval.as_nanos() as f64;
    if interval_ns == 0.0 {
        return 0.0;
    }
    (wanted_ns(later).saturating_sub(earlier_wanted_ns) as f64 / interval_ns).min(1.0)
}

/// Returns the share of an interval in which a thread wanted a PE and did not spin, 0..1.
pub fn working_share(earlier: Option<&ThreadReading>, later: &ThreadReading, interval: Duration) -> f64 {
    let wanted = runnable_share(earlier.map_or(0, wanted_ns), later, interval);
    let counters = later.counters.as_ref();
    let usage = counters.map(|now| Usage::between(earlier.and_then(|before| before.counters.as_ref()), now));
    let spin = usage.and_then(|usage| usage.spin).map_or(0.0, |spin| spin.value);
    let ran_ns = later.cpu_ns.saturating_sub(earlier.map_or(0, |before| before.cpu_ns)) as f64;
    (wanted - spin * ran_ns / interval.as_nanos().max(1) as f64).max(0.0)
}

impl ApplicationView {
    /// Returns what an application did between two readings `interval` apart, or since its start without
    /// `earlier`.
    pub fn between(
        earlier: Option<&ApplicationReading>,
        later: &ApplicationReading,
        interval: Duration,
    ) -> ApplicationView {
        let change = |of: fn(&ApplicationReading) -> u64| of(later).saturating_sub(earlier.map_or(0, of));
        let active_ns = change(|r| r.active_ns);
        let interval_ns = interval.as_nanos().max(1) as f64;
        ApplicationView {
            tlp_mean: change(|r| r.runnable_thread_ns) as f64 / interval_ns,
            sequential_fraction: (active_ns > 0)
                .then(|| (change(|r| r.sequential_ns) as f64 / active_ns as f64).min(1.0)),
            exact: later.exact,
            runnable: None,
            only: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Hints;

    fn pmu(cycles: u64, fpu_busy: Option<u64>, enabled_ns: u64, running_ns: u64) -> PmuReading {
        PmuReading {
            events: "test".into(),
            cycles,
            instructions: Some(cycles * 2),
            fpu_busy_cycles: fpu_busy,
            vector_busy_cycles: None,
            formula_confidence: 1.0,
            l2_misses: Some(cycles / 50),
            branches: None,
            branch_misses: None,
            enabled_ns,
            running_ns,
        }
    }

    fn counted(value: f64, confidence: f64) -> Option<Estimate> {
        Some(Estimate { value, confidence, source: Source::Counters })
    }

    fn sample(judged: u64, spinning: u64, fp: f64, vector: f64) -> CounterReading {
        CounterReading::Sample(SampleReading { judged, spinning, fp, vector, ..SampleReading::default() })
    }

    #[test]
    fn fpu_usage_is_the_papers_equation_over_the_interval() {
        let earlier = CounterReading::Pmu(pmu(1_000, Some(1_000), 10, 10));
        let later = CounterReading::Pmu(pmu(2_000, Some(1_250), 20, 20));
        let usage = Usage::between(Some(&earlier), &later);
        assert_eq!(usage.fpu, counted(0.25, 1.0));
        assert_eq!(usage.ipc, counted(2.0, 1.0));
        assert_eq!(usage.l2_misses_per_100_cycles, counted(2.0, 1.0));
        assert_eq!(usage.branch_misses_per_100, None);
    }

    #[test]
    fn a_counter_that_the_machine_lacks_stays_absent() {
        let usage = Usage::between(None, &CounterReading::Pmu(pmu(1_000, None, 10, 10)));
        assert_eq!((usage.fpu, usage.vector), (None, None));
        assert_eq!(Usage::between(None, &CounterReading::Pmu(pmu(0, Some(0), 0, 0))).fpu, None);
    }

    #[test]
    fn branches_are_a_share_of_the_instructions() {
        let reading = PmuReading { branches: Some(300), ..pmu(1_000, None, 10, 10) };
        let usage = Usage::between(None, &CounterReading::Pmu(reading));
        assert_eq!(usage.branches, counted(0.15, 1.0));
    }

    #[test]
    fn multiplexing_lowers_the_confidence() {
        let usage = Usage::between(None, &CounterReading::Pmu(pmu(1_000, Some(500), 100, 25)));
        assert_eq!(usage.ipc, counted(2.0, 0.25));
        assert_eq!(usage.fpu, counted(0.5, 0.25));
    }

    #[test]
    fn a_formula_that_is_half_trusted_and_half_counted_is_trusted_by_a_quarter() {
        let reading = PmuReading { formula_confidence: 0.5, ..pmu(1_000, Some(500), 100, 50) };
        let usage = Usage::between(None, &CounterReading::Pmu(reading));
        assert_eq!(usage.fpu, counted(0.5, 0.25));
    }

    #[test]
    fn the_vector_unit_is_used_at_least_as_much_as_the_fpu() {
        for (vector, expected) in [(80.0, 0.8), (30.0, 0.5)] {
            let usage = Usage::between(None, &sample(100, 0, 50.0, vector));
            assert_eq!(usage.vector.unwrap().value, expected);
        }
    }

    #[test]
    fn samples_tell_memory_and_branches_too() {
        let at = |judged, memory, branches| {
            CounterReading::Sample(SampleReading { judged, memory, branches, ..SampleReading::default() })
        };
        let usage = Usage::between(Some(&at(100, 50.0, 10.0)), &at(300, 90.0, 30.0));
        let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value);
        assert_eq!((value(usage.memory), value(usage.branches)), (Some(0.2), Some(0.1)));
    }

    #[test]
    fn a_thread_is_runnable_for_the_share_of_the_interval_in_which_it_wanted_a_pe() {
        let reading = |runnable_ns| ThreadReading {
            thread: ThreadId { tid: 1, generation: 0 },
            pid: 1,
            app: AppId(0),
            name: "test".into(),
            cpu_ns: 250,
            runnable_ns,
            runnable: true,
            last_pe: None,
            standing: Standing::Free,
            permitted: Arc::new(CpuSet::first_n(1)),
            counters: None,
            hints: Hints::default(),
            progress: None,
            sizing: crate::observe::Sizing::Fixed,
            ended: false,
        };
        let share = |earlier, later, ns| runnable_share(earlier, &reading(later), Duration::from_nanos(ns));
        assert_eq!(share(100, Some(400), 1_000), 0.3);
        assert_eq!(share(200, None, 1_000), 0.05, "by the time that it ran");
        assert_eq!(
            (share(0, Some(400), 100), share(400, Some(100), 100), share(0, Some(1), 0)),
            (1.0, 0.0, 0.0)
        );
    }

    #[test]
    fn an_application_is_what_it_did_between_two_readings() {
        let at = |runnable_thread_ns, active_ns, sequential_ns| ApplicationReading {
            runnable_thread_ns,
            active_ns,
            sequential_ns,
            runnable_max: 2,
            exact: true,
            app: AppId(0),
            name: "test".into(),
            ..ApplicationReading::default()
        };
        let (earlier, later) = (at(100, 80, 60), at(400, 180, 85));
        let view = ApplicationView::between(Some(&earlier), &later, Duration::from_nanos(200));
        assert_eq!((view.tlp_mean, view.sequential_fraction), (1.5, Some(0.25)));
        let idle = ApplicationView::between(Some(&earlier), &earlier, Duration::from_nanos(200));
        assert_eq!((idle.tlp_mean, idle.sequential_fraction), (0.0, None));
    }

    #[test]
    fn spinning_is_kept_apart_from_what_a_thread_computes() {
        let usage = Usage::between(Some(&sample(100, 0, 90.0, 90.0)), &sample(200, 300, 140.0, 120.0));
        let (fpu, vector, spin) = (usage.fpu.unwrap(), usage.vector.unwrap(), usage.spin.unwrap());
        assert_eq!((fpu.value, vector.value, spin.value), (0.5, 0.5, 0.75));
        assert!(fpu.confidence < spin.confidence, "300 samples say less than 400");
    }

    #[test]
    fn what_was_not_seen_is_no_evidence() {
        let reading = SampleReading { judged: 400, unseen: 390.0, fp: 300.0, ..SampleReading::default() };
        let usage = Usage::between(None, &CounterReading::Sample(reading));
        let fpu = usage.fpu.unwrap();
        assert_eq!(fpu.value, 0.75);
        assert!(fpu.confidence < 0.5, "ten windows' worth: {}", fpu.confidence);
        let seen = SampleReading { unseen: 0.0, ..reading };
        assert!(Usage::between(None, &CounterReading::Sample(seen)).fpu.unwrap().confidence > 0.8);
    }

    #[test]
    fn no_samples_are_no_estimate() {
        assert_eq!(Usage::between(Some(&sample(9, 0, 3.0, 3.0)), &sample(9, 0, 3.0, 3.0)), Usage::default());
    }

    #[test]
    fn a_changed_source_counts_from_its_own_start() {
        let pmu = CounterReading::Pmu(pmu(1_000, Some(0), 10, 10));
        assert_eq!(Usage::between(Some(&pmu), &sample(10, 0, 10.0, 10.0)).fpu.unwrap().value, 1.0);
    }
}
