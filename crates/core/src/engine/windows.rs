//! Rates and averages over time.
//!
//! Problem: steps come every interval, late, or because something happened; a rate "since the last step"
//! would mean something else each time, and a shorter interval would turn a thread that sleeps for a moment
//! into one that wants no PE. Approach: everything is counted over [a window](super::EngineConfig::window) of
//! time. A rate is the difference to one of two [`Marks`] that were set half a window apart at least, so it
//! is over one step where steps are that far apart, and over half a window to a whole one where they are
//! closer. An average forgets exponentially: what is a window old counts half. Source: exponentially weighted
//! means as in the load average of Linux; the two marks are ours. Limits: an average follows a change with
//! the delay of its window.

use crate::classify::{CONFIDENCE_MIN, FpuClass, fpu_class, known_fpu_usage};
use crate::observe::{ApplicationReading, CounterReading, ThreadReading};
use crate::time::Time;
use crate::view::{ApplicationView, Usage, runnable_share, wanted_ns};
use std::time::Duration;

/// Two earlier values of something that only grows.
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
    /// The value that a rate at `now` is counted from; `None`: from the beginning.
    fn base(&self, now: Time, window: Duration) -> Option<&(Time, T)> {
        if self.is_due(now, window) { self.newer.as_ref() } else { self.older.as_ref() }
    }

    /// Takes note of a value, unless the last one is too young. (Half a window, as a step may come early.)
    fn set(&mut self, now: Time, window: Duration, value: impl FnOnce() -> T) {
        if self.is_due(now, window) {
            self.older = self.newer.replace((now, value()));
        }
    }

    fn is_due(&self, now: Time, window: Duration) -> bool {
        self.newer.as_ref().is_none_or(|(at, _)| now.since(*at) >= window / 2)
    }
}

/// A mean over time that forgets: what is a window old counts half.
#[derive(Debug, Clone, Copy, Default)]
struct FadingMean(Option<f64>);

impl FadingMean {
    /// Takes in what held for the time `elapsed`; the mean now.
    fn take(&mut self, value: f64, elapsed: Duration, window: Duration) -> f64 {
        let windows = elapsed.as_secs_f64() / window.as_secs_f64().max(f64::MIN_POSITIVE);
        let kept = (-windows).exp2();
        let mean = self.0.map_or(value, |before| before * kept + value * (1.0 - kept));
        self.0 = Some(mean);
        mean
    }
}

/// What a thread did lately.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadWindow {
    /// The time for which it had wanted a PE.
    wanted_ns: Marks<u64>,
    /// The same at the last reading.
    last: Option<(Time, u64)>,
    share: FadingMean,
    counters: Marks<CounterReading>,
    usage: Usage,
    class: FpuClass,
}

/// How much a thread wants a PE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    /// The share of the time, lately, in which it ran or waited for one, 0..1.
    pub share: f64,
    /// Whether it did for half of the last window.
    pub runnable: bool,
}

impl ThreadWindow {
    /// Takes in a reading. A thread without an earlier one is judged by the time since `before`.
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
            // Where waiting is not told, or not for long enough, the present instant is the best guess.
            _ => reading.runnable,
        };
        let last = self.last.unwrap_or((before, 0));
        let share = self.share.take(share_since(last), now.since(last.0), window);
        let wanted_ns = wanted_ns(reading);
        self.last = Some((now, wanted_ns));
        self.wanted_ns.set(now, window, || wanted_ns);
        Demand { share, runnable }
    }

    /// Renews the rates once enough is known for them; until then the last ones hold. Clock samples gather: a
    /// thread that runs a tenth of the time is judged by ten windows, not never. Counts are exact at once.
    pub fn take_counters(&mut self, counters: &CounterReading, threshold: f64, now: Time, window: Duration) {
        let usage = Usage::between(self.counters.base(now, window).map(|(_, base)| base), counters);
        if known_fpu_usage(&usage).is_some() || matches!(counters, CounterReading::Pmu(_)) {
            self.usage = usage;
            self.class = fpu_class(&usage, threshold, self.class);
            self.counters.set(now, window, || counters.clone());
        } else if usage.spin.is_some_and(|spin| spin.confidence >= CONFIDENCE_MIN) {
            // Who spins most of the time computes too little for anything else to be known soon.
            self.usage.spin = usage.spin;
        }
    }

    /// The rates as last known.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The class by them.
    pub fn class(&self) -> FpuClass {
        self.class
    }
}

/// What an application did lately.
#[derive(Debug, Clone, Default)]
pub(super) struct ApplicationWindow(Marks<ApplicationReading>);

impl ApplicationWindow {
    /// Takes in a reading. An application without an earlier one is judged by the time since `before`.
    pub fn take(
        &mut self,
        reading: &ApplicationReading,
        before: Time,
        now: Time,
        window: Duration,
    ) -> ApplicationView {
        let (base, since) = match self.0.base(now, window) {
            Some((at, base)) => (Some(base), *at),
            None => (None, before),
        };
        let view = ApplicationView::between(base, reading, now.since(since));
        self.0.set(now, window, || reading.clone());
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::SampleReading;

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
    fn that_a_thread_spins_is_known_before_what_it_computes() {
        let mut thread = ThreadWindow::default();
        let reading = SampleReading { judged: 1, spinning: 60, ..SampleReading::default() };
        thread.take_counters(&CounterReading::Sample(reading), 0.1, ms(1000), WINDOW);
        assert_eq!((thread.usage().fpu, thread.class()), (None, FpuClass::Unknown));
        assert!(thread.usage().spin.unwrap().value > 0.9);
    }

    #[test]
    fn a_mean_is_the_same_whatever_the_steps() {
        // Busy in the first second of each two, looked at every second, tenth of a second or millisecond.
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
