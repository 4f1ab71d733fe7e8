//! The work of applications between two looks, and its comparison.

use crate::ids::{AppId, PeId, ThreadId};
use crate::observe::{ProgressSource, ThreadReading};
use crate::time::Time;
use std::collections::BTreeMap;

/// An application that did nothing counts as if it had done this share of its work in the other epoch;
/// otherwise a single pause would be infinitely bad.
const LEAST: f64 = 0.01;

/// The work of each thread at one instant, where it is known.
#[derive(Debug, Clone, Default)]
pub struct Look {
    at: Time,
    work: BTreeMap<ThreadId, (AppId, u64)>,
    /// The PEs on which threads ran last.
    pub places: BTreeMap<ThreadId, PeId>,
    /// The source of the figures; `None` if there are none.
    pub source: Option<ProgressSource>,
}

/// Work per second, by application.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates(BTreeMap<AppId, f64>);

impl Look {
    /// Takes the work of threads from their readings.
    pub fn new(at: Time, threads: &[ThreadReading]) -> Look {
        let known = threads.iter().filter_map(|reading| Some((reading, reading.progress?)));
        let work = known.clone().map(|(reading, progress)| (reading.thread, (reading.app, progress.work)));
        let places = threads.iter().filter_map(|reading| Some((reading.thread, reading.last_pe?)));
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
        work: impl Iterator<Item = (ThreadId, AppId, u64)>,
        source: Option<ProgressSource>,
    ) -> Look {
        let work = work.map(|(thread, app, work)| (thread, (app, work))).collect();
        Look { at, work, places: BTreeMap::new(), source }
    }

    /// Returns its time.
    pub fn at(&self) -> Time {
        self.at
    }

    /// Returns the rates since an earlier look, of the threads that are in both.
    pub fn since(&self, earlier: &Look) -> Rates {
        let seconds = self.at.since(earlier.at).as_secs_f64();
        let mut rates: BTreeMap<AppId, f64> = BTreeMap::new();
        for (thread, (app, work)) in &self.work {
            if let Some((_, before)) = earlier.work.get(thread) {
                *rates.entry(*app).or_default() += work.saturating_sub(*before) as f64 / seconds;
            }
        }
        Rates(if seconds > 0.0 { rates } else { BTreeMap::new() })
    }
}

impl Rates {
    /// Returns the mean over the applications of the logarithm of the ratio of their rates; `None` if no
    /// application did any work.
    pub fn log_over(&self, other: &Rates) -> Option<f64> {
        let both = self.0.iter().filter_map(|(app, rate)| Some((*rate, *other.0.get(app)?)));
        let logs = both.filter(|(here, there)| here.max(*there) > 0.0).map(|(here, there)| {
            let least = LEAST * here.max(there);
            (here.max(least) / there.max(least)).ln()
        });
        let (sum, count) = logs.fold((0.0, 0), |(sum, count), log| (sum + log, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }

    /// Returns the rates times a factor.
    pub fn times(&self, factor: f64) -> Rates {
        Rates(self.0.iter().map(|(app, rate)| (*app, rate * factor)).collect())
    }

    /// Moves these rates towards others by a share of the difference.
    pub fn approach(&mut self, other: &Rates, share: f64) {
        for (app, rate) in &other.0 {
            let mean = self.0.entry(*app).or_insert(*rate);
            *mean += share * (rate - *mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_s: u64, works: &[(u32, u32, u64)]) -> Look {
        let thread = |tid| ThreadId { tid, generation: 0 };
        let work = works.iter().map(|&(tid, app, work)| (thread(tid), (AppId(app), work)));
        Look { at: Time(at_s * 1_000_000_000), work: work.collect(), ..Look::default() }
    }

    #[test]
    fn applications_count_equally_and_threads_of_one_add_up() {
        let first = look(0, &[(1, 0, 0), (2, 0, 0), (3, 1, 100)]).since(&look(0, &[]));
        assert_eq!(first, Rates::default(), "no time has passed");
        let before = look(0, &[(1, 0, 0), (2, 0, 0), (3, 1, 100)]);
        let slow = look(2, &[(1, 0, 10), (2, 0, 30), (3, 1, 300)]).since(&before);
        // A thread that only one look knows is left out.
        let fast = look(1, &[(1, 0, 0), (2, 0, 80), (3, 1, 200), (4, 1, 9)]).since(&before);
        assert_eq!(slow, Rates(BTreeMap::from([(AppId(0), 20.0), (AppId(1), 100.0)])));
        let log = fast.log_over(&slow).unwrap();
        assert!((log - 4f64.ln() / 2.0).abs() < 1e-12, "one four times as fast, the other as before: {log}");
    }

    #[test]
    fn a_pause_is_bad_but_not_infinitely_and_nothing_tells_nothing() {
        let rates = |rate: f64| Rates(BTreeMap::from([(AppId(0), rate)]));
        assert_eq!(rates(0.0).log_over(&rates(0.0)), None);
        assert!((rates(0.0).log_over(&rates(7.0)).unwrap() - LEAST.ln()).abs() < 1e-12);
        let mut mean = rates(10.0);
        mean.approach(&rates(20.0), 0.25);
        assert_eq!(mean, rates(12.5));
    }
}
