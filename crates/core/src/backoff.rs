//! How long to leave alone what has failed.
//!
//! Problem: what did not help now may help later, but each trial costs something. Approach: exponential
//! backoff. After a failure the next trial waits; the wait doubles with each failure that follows soon after
//! the last wait, up to a maximum, and begins anew after a long time without failures. So the trials of a
//! lost cause cost a vanishing share of the time, and a cause that is lost only now and then is tried at
//! once. Source: R. Metcalfe, D. Boggs, "Ethernet: distributed packet switching for local computer networks",
//! Communications of the ACM 19(7), 1976. Limits: it knows nothing of why something failed.

use crate::time::Time;
use std::time::Duration;

/// A failure this many waits after the last wait is over is not related to the last one.
const FORGOTTEN_AFTER: u32 = 10;

/// The state of one cause that may fail; see the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    /// The end and the length of the last wait.
    last: Option<(Time, Duration)>,
}

impl Backoff {
    /// Creates a backoff that waits for `first` after the first failure, and for at most `most`.
    pub const fn new(first: Duration, most: Duration) -> Backoff {
        Backoff { first, most, last: None }
    }

    /// Notes a failure. Returns when the next trial may begin.
    pub fn fail(&mut self, now: Time) -> Time {
        let wait = match self.last {
            Some((end, wait)) if now.since(end) < FORGOTTEN_AFTER * wait => (2 * wait).min(self.most),
            Some(_) | None => self.first,
        };
        self.last = Some((now + wait, wait));
        now + wait
    }

    /// Returns when the last wait ends, or has ended.
    pub fn end(&self) -> Option<Time> {
        self.last.map(|(end, _)| end)
    }

    /// Returns whether a trial may begin.
    pub fn is_over(&self, now: Time) -> bool {
        self.last.is_none_or(|(end, _)| now >= end)
    }
}

/// A time between two attempts that doubles with each one, up to a maximum: for what is looked for again and
/// again, and becomes ever less likely to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubling {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Doubling {
    /// Begins with `first`; no time is longer than `most`.
    pub const fn new(first: Duration, most: Duration) -> Doubling {
        Doubling { first, most, next: first }
    }

    /// Returns the time until the next attempt; the one after that is twice as long.
    pub fn take(&mut self) -> Duration {
        let taken = self.next;
        self.next = (2 * taken).min(self.most);
        taken
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn each_failure_soon_after_a_wait_doubles_the_next_one() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        assert!(backoff.is_over(at(0)));
        assert_eq!(backoff.fail(at(0)), at(100));
        assert!(!backoff.is_over(at(99)) && backoff.is_over(at(100)));
        assert_eq!(backoff.fail(at(1_000)), at(1_200), "200 ms, as it failed again");
        assert_eq!(backoff.fail(at(1_200)), at(1_500), "300 ms at most");
        assert_eq!(backoff.fail(at(1_500)), at(1_800));
        assert_eq!(backoff.fail(at(4_800)), at(4_900), "long after, all begins anew");
    }

    #[test]
    fn a_time_doubles_up_to_the_most_until_it_begins_anew() {
        let [first, most] = [20, 70].map(Duration::from_millis);
        let mut doubling = Doubling::new(first, most);
        let taken: Vec<u128> = (0..4).map(|_| doubling.take().as_millis()).collect();
        assert_eq!(taken, [20, 40, 70, 70]);
        doubling.restart();
        assert_eq!(doubling.take(), first);
    }
}
