//! The number of an application's runnable threads from one input to the next.

use crate::observe::ApplicationReading;
use crate::time::Time;

/// A period and what was true in it: the mean number of runnable threads, and the share with exactly one.
pub type Piece = ((u64, u64), f64, f64);

/// What is known of an application's runnable threads.
pub struct Parallelism {
    /// Everything before is known.
    until: Time,
    /// The number of runnable threads at that time.
    count: u32,
    /// Whether every change of the number is reported.
    is_reported: bool,
    /// Whether a change has been reported since the last observation.
    has_changed: bool,
    /// The last reading's integrals, in nanoseconds.
    runnable_thread_ns: u64,
    sequential_ns: u64,
}

impl Parallelism {
    /// An application of which nothing is known before this time.
    pub fn from(began: Time) -> Parallelism {
        Parallelism {
            until: began,
            count: 0,
            is_reported: false,
            has_changed: false,
            runnable_thread_ns: 0,
            sequential_ns: 0,
        }
    }

    /// Takes in a change of the number; returns what was before.
    pub fn change(&mut self, count: u32, at: Time) -> Piece {
        let before = self.since_then(at);
        (self.count, self.is_reported, self.has_changed) = (count, true, true);
        before
    }

    /// Takes in an observation, in which so many threads were runnable; returns what was before: the mean of
    /// the whole time since the last observation, unless changes were reported.
    pub fn observe(&mut self, reading: &ApplicationReading, runnable: u32, at: Time) -> Piece {
        let since_last = at.since(self.until).as_nanos().max(1) as f64;
        let runnable_ns = reading.runnable_thread_ns.saturating_sub(self.runnable_thread_ns) as f64;
        let sequential_ns = reading.sequential_ns.saturating_sub(self.sequential_ns) as f64;
        let before = match std::mem::take(&mut self.has_changed) {
            true => self.since_then(at),
            false => {
                let period = (self.until.0, at.0);
                (period, runnable_ns / since_last, (sequential_ns / since_last).min(1.0))
            }
        };
        if !self.is_reported {
            self.count = runnable;
        }
        self.until = at;
        (self.runnable_thread_ns, self.sequential_ns) = (reading.runnable_thread_ns, reading.sequential_ns);
        before
    }

    fn since_then(&mut self, at: Time) -> Piece {
        let from = self.until;
        self.until = at.max(from);
        ((from.0, at.0), f64::from(self.count), f64::from(u8::from(self.count == 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(runnable_thread_ns: u64, sequential_ns: u64) -> ApplicationReading {
        ApplicationReading { runnable_thread_ns, sequential_ns, ..ApplicationReading::default() }
    }

    #[test]
    fn reported_changes_replace_means_between_observations() {
        let mut of = Parallelism::from(Time(100));
        assert_eq!(of.observe(&reading(300, 50), 4, Time(200)), ((100, 200), 3.0, 0.5));
        assert_eq!(of.change(1, Time(210)), ((200, 210), 4.0, 0.0), "as the observation showed");
        assert_eq!(of.change(4, Time(250)), ((210, 250), 1.0, 1.0));
        assert_eq!(of.observe(&reading(600, 90), 3, Time(300)), ((250, 300), 4.0, 0.0));
        assert_eq!(of.observe(&reading(900, 90), 3, Time(400)), ((300, 400), 3.0, 0.0));
        assert_eq!(of.change(0, Time(450)), ((400, 450), 4.0, 0.0), "no change was reported");
    }
}
