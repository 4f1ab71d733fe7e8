//! Suspends the tracing of switches when there are too many.
//!
//! Problem. The programs attached to the scheduler's switches and wake-ups cost about 100 ns each time,
//! whatever they do. This is negligible for programs that compute, but two processes that pass a byte back
//! and forth over a pipe switch 600,000 times a second and lose an eighth of their time.
//!
//! Approach. While watching, changes of the number of runnable threads are counted. At more than [`MANY`] per
//! second watching is suspended, except for windows of [`WINDOW`]: after one second, then after two, four and
//! eight, as long as there are as many changes. Between windows the scheduler still counts how long each
//! thread runs and waits. An application is assumed to be as parallel as in the last window: any thread, or
//! exactly one, runs for the same share of its threads' time. This is sampling in time, as in
//! counter multiplexing (`perf_event_open(2)`); the arrangement is ours.
//!
//! Limits. What an application does between two windows is not seen, so its parallelism is an estimate then.
//! If every change must be reported, watching is never suspended, whatever it costs.

use super::facts::Parallelism;
use corewise_core::backoff::Doubling;
use std::time::{Duration, Instant};

/// The number of changes per second that is too many: watching them takes half a percent of a PE.
const MANY: f64 = 50_000.0;

/// The minimum duration of a window, to measure the rate of changes.
const WINDOW: Duration = Duration::from_millis(100);

/// The initial and the maximum duration of a suspension.
const UNWATCHED: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];

/// Whether switches are watched now, and until when.
#[derive(Debug)]
pub(super) struct Pace {
    state: State,
    /// The duration of the next suspension.
    length: Doubling,
}

#[derive(Debug)]
enum State {
    /// The start of watching, and the count of changes at that time.
    Watched {
        since: Instant,
        changes: u32,
        is_urgent: bool,
    },
    Unwatched {
        until: Instant,
    },
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Resume watching.
    Watch,
    /// Suspend watching.
    Leave,
}

impl Pace {
    /// Starts watching.
    pub fn new(now: Instant) -> Pace {
        let [least, most] = UNWATCHED;
        Pace {
            state: State::Watched { since: now, changes: 0, is_urgent: true },
            length: Doubling::new(least, most),
        }
    }

    /// Returns when the next decision is due, if any.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Watched { since, is_urgent, .. } => is_urgent.then(|| since + WINDOW),
            State::Unwatched { until } => Some(until),
        }
    }

    /// Takes in the number of changes so far, which wraps at 2³²; returns what to do now.
    pub fn take(&mut self, now: Instant, changes: impl FnOnce() -> u32) -> Option<Step> {
        match self.state {
            State::Watched { since, changes: before, .. } => {
                let elapsed = now.saturating_duration_since(since);
                if elapsed < WINDOW {
                    return None;
                }
                let changes = changes();
                if f64::from(changes.wrapping_sub(before)) < MANY * elapsed.as_secs_f64() {
                    self.length.restart();
                    self.state = State::Watched { since: now, changes, is_urgent: false };
                    return None;
                }
                self.state = State::Unwatched { until: now + self.length.take() };
                Some(Step::Leave)
            }
            State::Unwatched { until } if now >= until => {
                self.state = State::Watched { since: now, changes: changes(), is_urgent: true };
                Some(Step::Watch)
            }
            State::Unwatched { .. } => None,
        }
    }

    /// Suspends watching for the full duration, as it is not possible.
    pub fn give_up(&mut self, now: Instant) {
        self.state = State::Unwatched { until: now + UNWATCHED[1] };
    }
}

/// The parallelism of an application while watching is suspended. `threads_ns` is the total time for which
/// its threads were runnable by the scheduler's accounting, which is always available.
#[derive(Debug, Default)]
pub(super) struct Estimated {
    /// The counts at the start of the present window.
    window: Parallelism,
    /// What is added to the counts.
    added: Parallelism,
    /// The threads' time when counting stopped, and the counts in the window before.
    unwatched: Option<(u64, Parallelism)>,
}

impl Estimated {
    /// Begins a window with the present counts.
    pub fn begin_window(&mut self, threads_ns: u64, counted: Parallelism) {
        self.added = self.added_by(threads_ns);
        (self.window, self.unwatched) = (counted, None);
    }

    /// Ends the window.
    pub fn end_window(&mut self, threads_ns: u64, counted: Parallelism) {
        let window = Parallelism {
            runnable_thread_ns: counted.runnable_thread_ns.saturating_sub(self.window.runnable_thread_ns),
            active_ns: counted.active_ns.saturating_sub(self.window.active_ns),
            sequential_ns: counted.sequential_ns.saturating_sub(self.window.sequential_ns),
            ..Parallelism::default()
        };
        self.unwatched = Some((threads_ns, window));
    }

    /// Returns the counts plus the estimate for suspended times.
    pub fn complete(&self, threads_ns: impl FnOnce() -> u64, counted: Parallelism) -> Parallelism {
        let added = self.unwatched.map_or(self.added, |_| self.added_by(threads_ns()));
        Parallelism {
            runnable_thread_ns: counted.runnable_thread_ns + added.runnable_thread_ns,
            active_ns: counted.active_ns + added.active_ns,
            sequential_ns: counted.sequential_ns + added.sequential_ns,
            exact: counted.exact && added == Parallelism::default(),
            ..counted
        }
    }

    fn added_by(&self, threads_ns: u64) -> Parallelism {
        let Some((before_ns, window)) = self.unwatched else { return self.added };
        let more_ns = threads_ns.saturating_sub(before_ns);
        let share = |of_window: u64| {
            (more_ns as f64 * of_window as f64 / window.runnable_thread_ns.max(1) as f64) as u64
        };
        Parallelism {
            runnable_thread_ns: self.added.runnable_thread_ns + more_ns,
            active_ns: self.added.active_ns + share(window.active_ns),
            sequential_ns: self.added.sequential_ns + share(window.sequential_ns),
            ..self.added
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Draws one column per second, where the state is checked whenever it is due and every second; `#` if
    /// the second ends watched.
    fn drawn(changes_each_second: &[u32]) -> String {
        let start = Instant::now();
        let (mut pace, mut now, mut changes, mut drawn) = (Pace::new(start), start, 0u32, String::new());
        let mut is_watched = true;
        for (second, rate) in (1..).zip(changes_each_second) {
            let end = start + Duration::from_secs(second);
            while now < end {
                let next = pace.due().filter(|due| *due < end).unwrap_or(end);
                if is_watched {
                    let passed = (next - now).as_secs_f64();
                    changes = changes.wrapping_add((f64::from(*rate) * passed) as u32);
                }
                now = next;
                match pace.take(now, || changes) {
                    Some(Step::Watch) => is_watched = true,
                    Some(Step::Leave) => is_watched = false,
                    None => {}
                }
            }
            drawn.push(if is_watched { '#' } else { '.' });
        }
        drawn
    }

    #[test]
    fn many_changes_are_left_unwatched_ever_longer_and_few_are_watched() {
        assert_eq!(drawn(&[1_000; 8]), "########");
        assert_eq!(drawn(&[600_000; 8]), "........");
        // A drop is seen in the next window.
        let falls: Vec<u32> = [600_000; 4].into_iter().chain([1_000; 8]).collect();
        assert_eq!(drawn(&falls), ".......#####");
        // A rise is seen after at most a second. The fifth second ends in a window.
        let rises: Vec<u32> = [1_000; 3].into_iter().chain([600_000; 3]).collect();
        assert_eq!(drawn(&rises), "###.#.");
    }

    #[test]
    fn the_windows_are_a_small_part_of_the_time() {
        let start = Instant::now();
        let (mut pace, mut now, mut watched) = (Pace::new(start), start, Duration::ZERO);
        let mut changes = u32::MAX - 1_000;
        while now < start + 100_000 * MS {
            let due = pace.due().expect("many changes are looked at soon");
            if matches!(pace.state, State::Watched { .. }) {
                watched += due - now;
                changes = changes.wrapping_add((600_000.0 * (due - now).as_secs_f64()) as u32);
            }
            now = due;
            pace.take(now, || changes);
        }
        assert!(watched < 2_000 * MS, "{watched:?}");
    }

    #[test]
    fn what_nobody_counts_is_as_parallel_as_in_the_last_window() {
        let counted = |threads_ns: u64, active_ns: u64, sequential_ns: u64| Parallelism {
            runnable_thread_ns: threads_ns,
            active_ns,
            sequential_ns,
            exact: true,
            ..Parallelism::default()
        };
        let mut estimated = Estimated::default();
        estimated.begin_window(500, counted(500, 400, 300));
        assert_eq!(estimated.complete(|| 500, counted(500, 400, 300)), counted(500, 400, 300));
        // Of 150 thread-nanoseconds, 100 with any thread and 50 with exactly one.
        estimated.end_window(650, counted(650, 500, 350));
        let then = estimated.complete(|| 950, counted(650, 500, 350));
        assert_eq!(then, Parallelism { exact: false, ..counted(950, 700, 450) });
        let at_rest = estimated.complete(|| 950, counted(650, 500, 350));
        assert_eq!(at_rest, then, "who sleeps meanwhile is not parallel");
        estimated.begin_window(950, counted(650, 500, 350));
        let later = estimated.complete(|| 1_000, counted(700, 540, 380));
        assert_eq!(later, Parallelism { exact: false, ..counted(1_000, 740, 480) });
    }
}
