//! How much CPU time a repeated piece of corewise's own work may take.
//!
//! Problem: work such as looking at threads must be prompt when something has just begun, and must cost next
//! to nothing in the long run, however long a single look takes. Approach: a token bucket. CPU time is
//! granted as a share of the time that passes, and up to a burst of it can be saved.

use std::time::{Duration, Instant};

/// The most CPU time that is saved, if nothing else is said.
pub const BURST: Duration = Duration::from_millis(3);

/// The CPU time that some work may take now.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// The granted share of a PE.
    share: f64,
    /// The most that is saved.
    burst: Duration,
    /// CPU time in seconds; negative after more was spent than was there.
    left: f64,
    at: Instant,
}

impl Allowance {
    /// Grants a `share` of a PE from now on, with everything saved that can be.
    pub fn new(share: f64) -> Allowance {
        Allowance::with_burst(share, BURST)
    }

    /// The same, with so much that can be saved.
    pub fn with_burst(share: f64, burst: Duration) -> Allowance {
        Allowance { share, burst, left: burst.as_secs_f64(), at: Instant::now() }
    }

    /// Takes note that the work took so much CPU time. Returns after which time it may be done again.
    pub fn spend(&mut self, cost: Duration) -> Duration {
        self.spend_at(cost, Instant::now())
    }

    /// The same, at this time.
    pub fn spend_at(&mut self, cost: Duration, now: Instant) -> Duration {
        let granted = self.share * now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + granted).min(self.burst.as_secs_f64()) - cost.as_secs_f64();
        self.at = now;
        Duration::from_secs_f64((-self.left / self.share).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_is_prompt_at_first_and_keeps_to_its_share_in_the_long_run() {
        let mut allowance = Allowance::new(0.01);
        let (mut now, end) = (allowance.at, allowance.at + 100_000 * MS);
        let (mut prompt, mut spent) = (0, Duration::ZERO);
        while now < end {
            let within = allowance.spend_at(MS / 2, now);
            spent += MS / 2;
            prompt += usize::from(within.is_zero() && now < allowance.at + 50 * MS && spent <= BURST);
            now += within.max(5 * MS);
        }
        assert_eq!(prompt, 6, "what is saved suffices for six");
        let share = spent.as_secs_f64() / 100.0;
        assert!((0.0099..0.0101).contains(&share), "{share} of a PE");
    }

    #[test]
    fn no_more_is_saved_than_a_burst() {
        let mut allowance = Allowance::new(0.5);
        let later = allowance.at + 1_000_000 * MS;
        assert_eq!(allowance.spend_at(BURST, later), Duration::ZERO);
        assert_eq!(allowance.spend_at(MS, later), 2 * MS);
    }
}
