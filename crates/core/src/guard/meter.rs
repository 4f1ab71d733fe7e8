//! The work of applications between two looks, and its comparison.
//!
//! Units of work differ between applications, so their ratios are compared, by a geometric mean. An
//! application counts by the CPU time that it uses: a shell that wakes up once in an epoch says nothing about
//! a placement.

use crate::ids::{AppId, PeId, ThreadId};
use crate::observe::{ProgressReading, ProgressSource, ThreadReading};
use crate::time::Time;
use std::collections::BTreeMap;

/// An application that did nothing counts as if it had done this share of its work in the other epoch;
/// otherwise a single pause would be infinitely bad.
const LEAST: f64 = 0.01;

/// The work of each thread at one instant, where it is known.
#[derive(Debug, Clone, Default)]
pub struct Look {
    at: Time,
    work: BTreeMap<ThreadId, Work>,
    /// The PEs on which threads ran last.
    pub places: BTreeMap<ThreadId, PeId>,
    /// The source of the figures; `None` if there are none.
    pub source: Option<ProgressSource>,
}

/// What a thread has done so far.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Its application.
    pub app: AppId,
    /// Its work, in the unit of the application.
    pub work: u64,
    /// Its CPU time, in nanoseconds; 0 if unknown.
    pub cpu_ns: u64,
}

/// Work and CPU time per second, by application.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates(BTreeMap<AppId, Rate>);

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Rate {
    work: f64,
    pes: f64,
}

impl Look {
    /// Takes the work of threads from their readings.
    pub fn new<'a>(at: Time, threads: impl Iterator<Item = &'a ThreadReading> + Clone) -> Look {
        let known = threads.clone().filter_map(|reading| Some((reading, reading.progress?)));
        let work = |(reading, progress): (&ThreadReading, ProgressReading)| {
            let work = Work { app: reading.app, work: progress.work, cpu_ns: reading.cpu_ns };
            (reading.thread, work)
        };
        let work = known.clone().map(work);
        let places = threads.filter_map(|reading| Some((reading.thread, reading.last_pe?)));
        Look {
            at,
            places: places.collect(),
            work: work.collect(),
            source: known.map(|(_, progress)| progress.source).next(),
        }
    }

    /// Takes the work of threads as given.
    pub fn of_work(
        at: Time,
        work: impl Iterator<Item = (ThreadId, Work)>,
        source: Option<ProgressSource>,
    ) -> Look {
        Look { at, work: work.collect(), places: BTreeMap::new(), source }
    }

    /// Returns its time.
    pub fn at(&self) -> Time {
        self.at
    }

    /// Returns the rates since an earlier look, of the threads that are in both.
    pub fn since(&self, earlier: &Look) -> Rates {
        let seconds = self.at.since(earlier.at).as_secs_f64();
        let mut rates: BTreeMap<AppId, Rate> = BTreeMap::new();
        for (thread, now) in &self.work {
            if let Some(before) = earlier.work.get(thread) {
                let rate = rates.entry(now.app).or_default();
                rate.work += now.work.saturating_sub(before.work) as f64 / seconds;
                rate.pes += now.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9 / seconds;
            }
        }
        Rates(if seconds > 0.0 { rates } else { BTreeMap::new() })
    }
}

impl Rates {
    /// Returns the mean over the applications of the logarithm of the ratio of their rates, weighted by their
    /// CPU times (equally, if these are unknown); `None` if no application did any work.
    pub fn log_over(&self, other: &Rates) -> Option<f64> {
        let both = self.0.iter().filter_map(|(app, rate)| Some((*rate, *other.0.get(app)?)));
        let logs = both.filter(|(here, there)| here.work.max(there.work) > 0.0).map(|(here, there)| {
            let least = LEAST * here.work.max(there.work);
            ((here.work.max(least) / there.work.max(least)).ln(), here.pes + there.pes)
        });
        let logs: Vec<(f64, f64)> = logs.collect();
        let is_known = logs.iter().any(|(_, pes)| *pes > 0.0);
        let weighted = logs.into_iter().map(|(log, pes)| (log, if is_known { pes } else { 1.0 }));
        let (sum, all) = weighted.fold((0.0, 0.0), |(sum, all), (log, of)| (sum + log * of, all + of));
        (all > 0.0).then(|| sum / all)
    }

    /// Returns the rates times a factor.
    pub fn times(&self, factor: f64) -> Rates {
        let times = |rate: &Rate| Rate { work: rate.work * factor, ..*rate };
        Rates(self.0.iter().map(|(app, rate)| (*app, times(rate))).collect())
    }

    /// Moves these rates towards others by a share of the difference.
    pub fn approach(&mut self, other: &Rates, share: f64) {
        for (app, rate) in &other.0 {
            let mean = self.0.entry(*app).or_insert(*rate);
            mean.work += share * (rate.work - mean.work);
            mean.pes += share * (rate.pes - mean.pes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_s: u64, works: &[(u32, u32, u64)]) -> Look {
        let thread = |tid| ThreadId { tid, generation: 0 };
        let work =
            works.iter().map(|&(tid, app, work)| (thread(tid), Work { app: AppId(app), work, cpu_ns: 0 }));
        Look { at: Time(at_s * 1_000_000_000), work: work.collect(), ..Look::default() }
    }

    #[test]
    fn applications_of_unknown_cpu_time_count_equally_and_threads_of_one_add_up() {
        let first = look(0, &[(1, 0, 0), (2, 0, 0), (3, 1, 100)]).since(&look(0, &[]));
        assert_eq!(first, Rates::default(), "no time has passed");
        let before = look(0, &[(1, 0, 0), (2, 0, 0), (3, 1, 100)]);
        let slow = look(2, &[(1, 0, 10), (2, 0, 30), (3, 1, 300)]).since(&before);
        // A thread that only one look knows is left out.
        let fast = look(1, &[(1, 0, 0), (2, 0, 80), (3, 1, 200), (4, 1, 9)]).since(&before);
        let rate = |work| Rate { work, pes: 0.0 };
        assert_eq!(slow, Rates(BTreeMap::from([(AppId(0), rate(20.0)), (AppId(1), rate(100.0))])));
        let log = fast.log_over(&slow).unwrap();
        assert!((log - 4f64.ln() / 2.0).abs() < 1e-12, "one four times as fast, the other as before: {log}");
    }

    #[test]
    fn an_application_counts_by_its_cpu_time() {
        let look = |at_s: u64, shell: u64, solver: u64| {
            let mut look = look(at_s, &[(1, 0, shell), (2, 1, solver)]);
            // The shell uses a millisecond for each piece of work, the solver the whole time.
            for (work, cpu_ns) in look.work.values_mut().zip([shell * 1_000_000, at_s * 1_000_000_000]) {
                work.cpu_ns = cpu_ns;
            }
            look
        };
        let (without, with) =
            (look(1, 0, 100).since(&look(0, 0, 0)), look(2, 1, 300).since(&look(1, 0, 100)));
        let log = with.log_over(&without).unwrap();
        assert!((log - 2f64.ln()).abs() < 0.01, "the solver is twice as fast: {log}");
    }

    #[test]
    fn a_pause_is_bad_but_not_infinitely_and_nothing_tells_nothing() {
        let rates = |work: f64| Rates(BTreeMap::from([(AppId(0), Rate { work, pes: 0.0 })]));
        assert_eq!(rates(0.0).log_over(&rates(0.0)), None);
        assert!((rates(0.0).log_over(&rates(7.0)).unwrap() - LEAST.ln()).abs() < 1e-12);
        let mut mean = rates(10.0);
        mean.approach(&rates(20.0), 0.25);
        assert_eq!(mean, rates(12.5));
    }
}
