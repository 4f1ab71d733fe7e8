//! What judging samples may cost.
//!
//! Problem: a program that starts, an interpreter or a compiler runs much code a few times only; to judge all
//! of it costs more than 2 % of a PE, and says little of the program. Approach: [`FREE`] and then a share of
//! the time ([`SHARE`]) may be spent. Beyond, what is judged must have been sampled the more often the more
//! was spent: hot loops soon are, cold code never. What is not judged counts as unknown.

use std::time::{Duration, Instant};

/// CPU time for the first judgements, whenever they come.
const FREE: Duration = Duration::from_millis(10);

/// Share of a PE for all others.
const SHARE: f64 = 0.01;

/// CPU time that may be, and was, spent.
#[derive(Debug)]
pub struct Budget {
    since: Instant,
    spent: Duration,
}

impl Budget {
    /// From now on.
    pub fn new() -> Budget {
        Budget { since: Instant::now(), spent: Duration::ZERO }
    }

    /// Takes in what samples have cost.
    pub fn spend(&mut self, cpu_time: Duration) {
        self.spent += cpu_time;
    }

    /// Whether code is to be judged now that was sampled so often.
    pub fn allows(&self, visits: u32) -> bool {
        is_worth(visits, self.spent, self.since.elapsed())
    }
}

fn is_worth(visits: u32, spent: Duration, elapsed: Duration) -> bool {
    let allowed = FREE + elapsed.mul_f64(SHARE);
    f64::from(visits) >= spent.div_duration_f64(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_was_spent_the_more_often_code_must_have_been_sampled() {
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis);
        assert!(is_worth(1, ms(0), Duration::ZERO) && is_worth(1, ms(20), second));
        assert!(!is_worth(1, ms(21), second) && is_worth(2, ms(21), second));
        assert!(!is_worth(2, ms(41), second) && is_worth(3, ms(41), second));
        assert!(is_worth(1, ms(41), 4 * second), "in time, all may be judged");
    }
}
