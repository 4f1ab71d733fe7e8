//! How rarely to look, so that corewise's own cost keeps to a limit.
//!
//! Problem: a daemon that watches a whole machine for days must cost next to nothing, whatever runs there:
//! thousands of short processes, thousands of threads. Approach: nearly all of the cost is that of looks, so
//! at twice the interval it is at most about half. The own CPU time of some intervals together ([`LOOKS`]) is
//! compared with the limit. Above it, the interval doubles; when that of half the interval would be within
//! it, too, the interval halves. After each change it is measured anew. Source: multiplicative increase and
//! decrease, as in the binary exponential backoff of Metcalfe and Boggs (see [`crate::backoff`]).
//!
//! Limits: what does not depend on looks is not limited by this. The interval grows to [`STRETCH_MAX`] times
//! its length at most: beyond, most programs would have ended before they are placed, and what the kernel
//! keeps for the next look would not fit its buffers. Until a few intervals have passed, the cost of a sudden
//! load is above the limit.

use crate::time::Time;
use std::time::Duration;

/// The share of the machine that a daemon may take if its user says nothing: 0.5 %.
pub const DEFAULT: f64 = 0.005;

/// The number of intervals after which the cost is judged.
pub const LOOKS: u32 = 4;

/// The most intervals that are made one.
pub const STRETCH_MAX: u32 = 16;

/// While looks are rarer than wanted, the world is woken by events at most so often in an interval.
const ROUNDS: u32 = 50;

/// The limit, and how rarely to look; see the module documentation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnCost {
    /// The share of all PEs that may be taken, 0..1.
    limit: f64,
    stretch: u32,
    /// Since when the cost is measured, and the own CPU time by then, in nanoseconds.
    since: Option<(Time, u64)>,
    /// The last cost that was judged, as a share of all PEs.
    cost: Option<f64>,
}

impl OwnCost {
    /// Limits it to this share of all PEs.
    pub const fn new(limit: f64) -> OwnCost {
        OwnCost { limit, stretch: 1, since: None, cost: None }
    }

    /// Takes in the own CPU time so far, at a look. `interval` is the wanted one, `pes` the number of PEs.
    pub fn take(&mut self, now: Time, own_cpu_ns: u64, interval: Duration, pes: usize) {
        let Some((since, before_ns)) = self.since else {
            self.since = Some((now, own_cpu_ns));
            return;
        };
        let elapsed = now.since(since);
        // A look comes a little early or late.
        if elapsed < self.interval(interval) * LOOKS - interval / 8 {
            return;
        }
        let own_ns = own_cpu_ns.saturating_sub(before_ns) as f64;
        let cost = own_ns / (elapsed.as_nanos() as f64 * pes.max(1) as f64);
        if cost > self.limit {
            self.stretch = (2 * self.stretch).min(STRETCH_MAX);
        } else if 2.0 * cost <= self.limit {
            self.stretch = (self.stretch / 2).max(1);
        }
        (self.since, self.cost) = (Some((now, own_cpu_ns)), Some(cost));
    }

    /// Returns the time between two looks.
    pub fn interval(&self, wanted: Duration) -> Duration {
        wanted * self.stretch
    }

    /// Returns whether looks are rarer than wanted.
    pub fn is_stretched(&self) -> bool {
        self.stretch > 1
    }

    /// Returns how long events are left alone after a round; zero while looks are as frequent as wanted.
    pub fn rest(&self, wanted: Duration) -> Duration {
        if self.is_stretched() { self.interval(wanted) / ROUNDS } else { Duration::ZERO }
    }

    /// Returns why looks are rarer than wanted; `None` if they are not.
    pub fn reason(&self) -> Option<String> {
        let cost = self.cost.filter(|_| self.is_stretched())?;
        let (cost, limit) = (100.0 * cost, 100.0 * self.limit);
        Some(format!("the own cost was {cost:.2} % of the machine, and {limit} % is the limit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The intervals in seconds, a character a look: where each look costs `fixed` plus, for each second
    /// since the one before, `load` milliseconds. Two PEs, 0.5 %: 10 ms a second are permitted.
    fn timeline(looks: &[(usize, u64, u64)]) -> String {
        let (mut own_cost, mut now, mut own_ns) = (OwnCost::new(DEFAULT), Time(0), 0);
        own_cost.take(now, own_ns, SECOND, 2);
        let mut drawn = String::new();
        for &(count, fixed, load) in looks {
            for _ in 0..count {
                let interval = own_cost.interval(SECOND);
                now = now + interval;
                own_ns += (fixed + load * interval.as_secs()) * 1_000_000;
                own_cost.take(now, own_ns, SECOND, 2);
                drawn.push(char::from_digit(interval.as_secs() as u32, 36).unwrap());
            }
        }
        drawn
    }

    #[test]
    fn within_the_limit_looks_are_as_frequent_as_wanted() {
        assert_eq!(timeline(&[(12, 10, 0)]), "111111111111");
        assert_eq!(timeline(&[(12, 0, 10)]), "111111111111");
    }

    #[test]
    fn above_the_limit_looks_become_rarer_until_they_are_within_it() {
        assert_eq!(timeline(&[(16, 11, 0)]), "1111222222222222");
        assert_eq!(timeline(&[(20, 35, 0)]), "11112222444444444444");
    }

    #[test]
    fn when_there_is_room_looks_become_as_frequent_again() {
        assert_eq!(timeline(&[(12, 35, 0), (12, 1, 0)]), "111122224444444422221111");
    }

    #[test]
    fn between_half_the_limit_and_the_limit_nothing_changes() {
        // Twice as often it would cost 12 ms a second.
        assert_eq!(timeline(&[(8, 21, 0), (16, 24, 0)]), "111122224444444444444444");
    }

    #[test]
    fn what_does_not_depend_on_looks_stretches_them_to_the_bound_only() {
        assert_eq!(timeline(&[(24, 0, 20)]), "1111222244448888gggggggg");
        let own_cost = OwnCost { stretch: STRETCH_MAX, ..OwnCost::new(DEFAULT) };
        assert_eq!(own_cost.interval(SECOND), 16 * SECOND);
    }

    #[test]
    fn a_single_expensive_look_counts_only_with_those_beside_it() {
        assert_eq!(timeline(&[(3, 1, 0), (1, 30, 0), (8, 1, 0)]), "111111111111");
    }

    #[test]
    fn rarer_looks_have_a_reason_and_leave_events_alone_for_a_while() {
        let mut own_cost = OwnCost::new(DEFAULT);
        assert_eq!((own_cost.reason(), own_cost.rest(SECOND)), (None, Duration::ZERO));
        own_cost.take(Time(0), 0, SECOND, 2);
        own_cost.take(Time(0) + 4 * SECOND, 100_000_000, SECOND, 2);
        let reason = "the own cost was 1.25 % of the machine, and 0.5 % is the limit";
        assert_eq!(own_cost.reason().as_deref(), Some(reason));
        assert_eq!(own_cost.rest(SECOND), SECOND / 25);
    }
}
