//! Rates and averages over time.
//!
//! Problem: steps come every interval, late, or in response to an event. A rate "since the last step" would
//! mean something different each time, and with a short interval a thread that sleeps for a moment would
//! appear to want no PE. Approach: everything is counted over [a
//! window](super::config::EngineConfig::window) of time. A rate is the difference to one of two [`Marks`]
//! that are at least half a window apart. It therefore covers one step if steps are that far apart, and
//! between half a window and a whole one if they are closer. An average decays exponentially with a
//! half-life of one window. Sources: exponentially weighted means as in the load average of Linux; the two
//! marks are ours. Limits: an average follows a change with the delay of its window.

use crate::classify::{CONFIDENCE_MIN, FpuClass, fpu_class, known_fpu_usage};
use crate::observe::{ApplicationReading, CounterReading, ThreadReading};
use crate::time::Time;
use crate::view::{ApplicationView, Usage, runnable_share, wanted_ns};
use std::time::Duration;

/// Two earlier values of a quantity that only grows.
#[derive(Debug, Clone)]
struct Marks<T> {
    older: Option<(Time, T)>,
    newer: Option<(Time, T)>,
}

impl<T> Default for Marks<T> {
    fn default() -> Self {
        Self { older: None, newer: None }
    }
}

impl<T> Marks<T> {
    /// Returns the value that a rate at `now` is counted from; `None` means from the beginning.
    fn base(&self, now: Time, window: Duration) -> Option<&(Time, T)> {
        if self.is_due(now, window) { self.newer.as_ref() } else { self.older.as_ref() }
    }

    /// Records a value unless the last one is less than half a window old. (Half a window, as a step may come
    /// early.)
    fn set(&mut self, now: Time, window: Duration, value: impl FnOnce() -> T) {
        if self.is_due(now, window) {
            self.older = self.newer.replace((now, value()));
        }
    }

    fn is_due(&self, now: Time, window: Duration) -> bool {
        self.newer.as_ref().is_none_or(|(at, _)| now.since(*at) >= window / 2)
    }
}

/// An exponentially decaying mean over time with a half-life of one window.
#[derive(Debug, Clone, Copy, Default)]
struct FadingMean(Option<f64>);

impl FadingMean {
    /// Adds a value that held for the time `elapsed`, and returns the new mean.
    fn take(&mut self, value: f64, elapsed: Duration, window: Duration) -> f64 {
        let windows = elapsed.as_secs_f64() / window.as_secs_f64().max(f64::MIN_POSITIVE);
        let kept = (-windows).exp2();
        let mean = self.0.map_or(value, |before| before * kept + value * (1.0 - kept));
        self.0 = Some(mean);
        mean
    }
}

/// The recent activity of a thread.
#[derive(Debug, Clone, Default)]
pub struct ThreadWindow {
    /// Time during which the thread has wanted a PE.
    wanted_ns: Marks<u64>,
    /// Time and `wanted_ns` of the last reading.
    last: Option<(Time, u64)>,
    share: FadingMean,
    counters: Marks<CounterReading>,
    usage: Usage,
    class: FpuClass,
    /// Whether its process runs another program since the last counters.
    is_anew: bool,
}

/// How much a thread wants a PE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// The recent share of the time in which it ran or waited for a PE, 0..1.
    pub share: f64,
    /// Whether it did so for at least half of the last window.
    pub runnable: bool,
}

impl ThreadWindow {
    /// Takes in a reading. Without an earlier reading the thread is judged by the time since `before`.
    pub fn take_demand(
        &mut self,
        reading: &ThreadReading,
        before: Time,
        now: Time,
        window: Duration,
    ) -> Demand {
        let share_since = |(at, ns): (Time, u64)| runnable_share(ns, reading, now.since(at));
        let base = self.wanted_ns.base(now, window).copied();
        let runnable = match (base, reading.runnable_ns) {
            (Some(base), Some(_)) => share_since(base) >= 0.5,
            // Without waiting times, or without enough of them, the present instant is the best guess.
            _ => reading.runnable,
        };
        let last = self.last.unwrap_or((before, 0));
        let share = self.share.take(share_since(last), now.since(last.0), window);
        let wanted_ns = wanted_ns(reading);
        self.last = Some((now, wanted_ns));
        self.wanted_ns.set(now, window, || wanted_ns);
        Demand { share, runnable }
    }

    /// Renews the rates once enough samples exist; until then the last rates hold. Clock samples accumulate,
    /// so that a thread that runs a tenth of the time is judged after ten windows. Counters are exact at
    /// once.
    pub fn take_counters(&mut self, counters: &CounterReading, threshold: f64, now: Time, window: Duration) {
        if std::mem::take(&mut self.is_anew) {
            // What was counted so far is the last program's.
            let mark = Some((now, counters.clone()));
            self.counters = Marks { older: mark.clone(), newer: mark };
            (self.usage, self.class) = (Usage::default(), FpuClass::default());
            return;
        }
        let usage = Usage::between(self.counters.base(now, window).map(|(_, base)| base), counters);
        if known_fpu_usage(&usage).is_some() || matches!(counters, CounterReading::Pmu(_)) {
            self.usage = usage;
            self.class = fpu_class(&usage, threshold, self.class);
            self.counters.set(now, window, || counters.clone());
        } else if usage.spin.is_some_and(|spin| spin.confidence >= CONFIDENCE_MIN) {
            // A thread that spins most of the time computes too little to be classified soon otherwise.
            self.usage.spin = usage.spin;
        }
    }

    /// Its process has executed another program, whose rates are not known yet.
    pub fn begin_anew(&mut self) {
        self.is_anew = self.counters.newer.is_some();
    }

    /// Returns the last known rates.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the FPU class by these rates.
    pub fn class(&self) -> FpuClass {
        self.class
    }
}

/// The recent activity of an application.
#[derive(Debug, Clone, Default)]
pub struct ApplicationWindow {
    marks: Marks<ApplicationReading>,
    /// Since when its first reading counts.
    since: Option<Time>,
}

impl ApplicationWindow {
    /// Takes in a reading. Without an earlier reading the application is judged by the time since `before` at
    /// its first one: everything that it did is counted from there.
    pub fn take(
        &mut self,
        reading: &ApplicationReading,
        before: Time,
        now: Time,
        window: Duration,
    ) -> ApplicationView {
        let first = *self.since.get_or_insert(before);
        let (base, since) = match self.marks.base(now, window) {
            Some((at, base)) => (Some(base), *at),
            None => (None, first),
        };
        let view = ApplicationView::between(base, reading, now.since(since));
        self.marks.set(now, window, || reading.clone());
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{PmuReading, SampleReading};

    const WINDOW: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn a_rate_is_over_one_step_or_over_most_of_a_window() {
        for (step_ms, least, most) in
            [(1000, 1000, 1000), (3000, 3000, 3000), (999, 999, 999), (100, 500, 1000)]
        {
            let mut marks = Marks::default();
            for at in (1..100).map(|step| ms(step * step_ms)) {
                if let Some((base, _)) = marks.base(at, WINDOW) {
                    let over = at.since(*base).as_millis() as u64;
                    assert!((least..=most).contains(&over), "{over} ms at steps of {step_ms} ms");
                } else {
                    assert!(at <= ms(step_ms.max(600)), "{at:?}");
                }
                marks.set(at, WINDOW, || ());
            }
        }
    }

    #[test]
    fn a_tlp_is_over_the_time_that_it_is_counted_from_however_close_the_looks() {
        let mut application = ApplicationWindow::default();
        let mut before = ms(0);
        for at in [450, 500, 550, 600, 960, 1000, 1500].map(ms) {
            let reading = ApplicationReading { runnable_thread_ns: 4 * at.0, ..Default::default() };
            let view = application.take(&reading, before, at, WINDOW);
            assert!((view.tlp_mean - 4.0).abs() < 1e-9, "{} at {at:?}", view.tlp_mean);
            before = at;
        }
    }

    #[test]
    fn what_the_last_program_computed_says_nothing_of_the_next_one() {
        let mut thread = ThreadWindow::default();
        let take = |thread: &mut ThreadWindow, at: u64, fpu_cycles| {
            let reading = PmuReading {
                events: "test".into(),
                cycles: 1_000_000 * at,
                instructions: None,
                fpu_busy_cycles: Some(fpu_cycles),
                vector_busy_cycles: None,
                formula_confidence: 1.0,
                l2_misses: None,
                branches: None,
                branch_misses: None,
                enabled_ns: 1_000_000_000 * at,
                running_ns: 1_000_000_000 * at,
            };
            thread.take_counters(&CounterReading::Pmu(reading), 0.1, ms(1000 * at), WINDOW);
            thread.class()
        };
        assert_eq!(take(&mut thread, 1, 900_000), FpuClass::Intensive);
        assert_eq!(take(&mut thread, 2, 1_800_000), FpuClass::Intensive);
        thread.begin_anew();
        assert_eq!(take(&mut thread, 3, 1_800_000), FpuClass::Unknown);
        assert_eq!(take(&mut thread, 4, 1_800_000), FpuClass::Light);
        assert!(thread.usage().fpu.unwrap().value < 0.01);
    }

    #[test]
    fn that_a_thread_spins_is_known_before_what_it_computes() {
        let mut thread = ThreadWindow::default();
        let reading = SampleReading { judged: 1, spinning: 60, ..SampleReading::default() };
        thread.take_counters(&CounterReading::Sample(reading), 0.1, ms(1000), WINDOW);
        assert_eq!((thread.usage().fpu, thread.class()), (None, FpuClass::Unknown));
        assert!(thread.usage().spin.unwrap().value > 0.9);
    }

    #[test]
    fn a_mean_is_the_same_whatever_the_steps() {
        // Busy in every other second, sampled every second, tenth of a second or millisecond.
        let after = |steps_per_second: u64| {
            let mut mean = FadingMean::default();
            for step in 0..5 * steps_per_second {
                let busy = if (step / steps_per_second).is_multiple_of(2) { 1.0 } else { 0.0 };
                mean.take(busy, WINDOW / steps_per_second as u32, WINDOW);
            }
            mean.0.unwrap()
        };
        assert!((after(1) - 0.6875).abs() < 1e-9, "half of the last second, a quarter of that before…");
        for steps_per_second in [10, 1000] {
            let mean = after(steps_per_second);
            assert!((mean - after(1)).abs() < 1e-9, "{mean} with {steps_per_second} steps a second");
        }
    }
}
