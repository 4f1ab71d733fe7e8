//! What judging samples may cost.
//!
//! Problem: a program that starts, an interpreter or a compiler runs much code a few times only; to judge all
//! of it costs more than 2 % of a PE, and says little of the program. Approach: [`FREE`] and a share of the
//! time ([`SHARE`], unless who uses the samples grants less) may be spent. Beyond, what is judged must have
//! been sampled the more often the more was spent: hot loops soon are, cold code never. What is not judged
//! counts as unknown. Beyond twice that no sample is looked at, as if the clock that takes them were slower.
//! Both times fade ([`FADES`]), so that a quiet day saves nothing for the next one.

use std::time::{Duration, Instant};

/// CPU time for the first judgements, whenever they come.
const FREE: Duration = Duration::from_millis(10);

/// Share of a PE for all others.
pub const SHARE: f64 = 0.01;

/// After so long, a third is left of what was spent and of the time in which it was.
const FADES: Duration = Duration::from_secs(60);

/// CPU time that may be, and was, spent.
#[derive(Debug)]
pub struct Budget {
    share: f64,
    at: Instant,
    /// The time that has passed, and what was spent in it, both faded, in seconds.
    elapsed: f64,
    spent: f64,
}

impl Budget {
    /// Grants this share of a PE from now on.
    pub fn new(share: f64) -> Budget {
        Budget { share, at: Instant::now(), elapsed: 0.0, spent: 0.0 }
    }

    /// Takes in what samples have cost.
    pub fn spend(&mut self, cpu_time: Duration) {
        self.spent += cpu_time.as_secs_f64();
    }

    /// Whether code is to be judged now that was sampled so often.
    pub fn allows(&mut self, visits: u32) -> bool {
        self.pass(Instant::now());
        f64::from(visits) >= self.overdraft()
    }

    /// Whether no sample is to be looked at now.
    pub fn is_overdrawn(&mut self) -> bool {
        self.pass(Instant::now());
        self.overdraft() > 2.0
    }

    /// How many times what was granted has been spent.
    fn overdraft(&self) -> f64 {
        self.spent / (FREE.as_secs_f64() + self.share * self.elapsed)
    }

    fn pass(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let fades = FADES.as_secs_f64();
        let left = (-passed / fades).exp();
        // What has passed fades while it passes.
        let elapsed = self.elapsed * left + fades * (1.0 - left);
        (self.at, self.elapsed, self.spent) = (now, elapsed, self.spent * left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// After so many milliseconds, of which so many were spent at once.
    fn after(elapsed: u32, spent: u32) -> f64 {
        let mut budget = Budget::new(SHARE);
        budget.spend(spent * MS);
        budget.pass(budget.at + elapsed * MS);
        budget.overdraft()
    }

    #[test]
    fn the_more_was_spent_the_more_often_code_must_have_been_sampled() {
        assert!(after(0, 0) <= 1.0 && after(1000, 20) <= 1.0);
        assert!((1.0..2.0).contains(&after(1000, 21)));
        assert!((2.0..3.0).contains(&after(1000, 41)));
        assert!(after(4000, 41) <= 1.0, "in time, all may be judged");
    }

    #[test]
    fn what_is_spent_keeps_to_twice_the_share_after_a_quiet_day_too() {
        let mut budget = Budget::new(0.001);
        let day = 86_400_000;
        budget.pass(budget.at + day * MS);
        let mut spent = 0;
        for _ in 0..100_000 {
            let now = budget.at + MS;
            budget.pass(now);
            if budget.overdraft() <= 2.0 {
                budget.spend(MS);
                spent += 1;
            }
        }
        // 100 s; what the free time and the minute before had left comes on top.
        assert!((200..400).contains(&spent), "{spent} ms");
    }
}
