//! How often to look at something that may change.
//!
//! Problem: a change must be seen soon, but each look costs something, and most looks show nothing. Approach:
//! the time between two looks is a fixed part of the time since the last event, between a least and a most.
//! What has just changed is looked at often; what has been calm for a second can be late by a twentieth of
//! that. So the delay of a reaction is small compared with what went before, and the number of looks grows
//! with the logarithm of the time only. Source: ours. Limits: it does not know what a look costs
//! (`corewise_sys::allowance` does).

use crate::time::Time;
use std::time::Duration;

/// The time between two looks is this part of the time since the last event.
const PART: u32 = 20;

/// When to look; see the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cadence {
    least: Duration,
    most: Duration,
    event: Time,
}

impl Cadence {
    /// Creates the cadence of something that begins now.
    pub const fn new(least: Duration, most: Duration, now: Time) -> Cadence {
        Cadence { least, most, event: now }
    }

    /// Notes that something happened.
    pub fn note_event(&mut self, now: Time) {
        self.event = now;
    }

    /// Returns the time until the next look.
    pub fn within(&self, now: Time) -> Duration {
        (now.since(self.event) / PART).clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer_until_something_happens() {
        let at = |ms: u64| Time(ms * 1_000_000);
        let ms = Duration::from_millis;
        let mut cadence = Cadence::new(ms(5), ms(50), at(100));
        let within = |cadence: &Cadence| [100, 200, 500, 2_000].map(|now| cadence.within(at(now)));
        assert_eq!(within(&cadence), [ms(5), ms(5), ms(20), ms(50)]);
        cadence.note_event(at(2_000));
        assert_eq!(cadence.within(at(2_000)), ms(5));
    }
}
