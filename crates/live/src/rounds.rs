//! Durations of rounds in bounded memory: of very many, every second one is kept, then every fourth, and so
//! on; the longest is always kept.

use std::time::{Duration, Instant};

/// The maximum number that is kept.
const KEPT_MAX: usize = 4096;

/// A sample of durations; see the module documentation.
#[derive(Debug)]
pub struct Rounds {
    kept: Vec<Duration>,
    longest: Option<Duration>,
    /// One in this many rounds is kept.
    stride: u64,
    seen: u64,
    /// The start of the present round.
    began: Option<Instant>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { kept: Vec::new(), longest: None, stride: 1, seen: 0, began: None }
    }
}

impl Rounds {
    /// A round begins.
    pub fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// The present round ends, if one has begun.
    pub fn end(&mut self) {
        if let Some(began) = self.began.take() {
            self.add(began.elapsed());
        }
    }

    /// Adds a round.
    fn add(&mut self, round: Duration) {
        self.longest = self.longest.max(Some(round));
        if self.seen.is_multiple_of(self.stride) {
            self.kept.push(round);
        }
        self.seen += 1;
        if self.kept.len() > KEPT_MAX {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// Returns the kept durations and the longest.
    pub fn sample(&self) -> Vec<Duration> {
        let longest = self.longest.filter(|longest| !self.kept.contains(longest));
        self.kept.iter().copied().chain(longest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millions_of_rounds_keep_their_median_and_the_longest_in_bounded_room() {
        let mut rounds = Rounds::default();
        for round in 0..3_000_000u64 {
            rounds.add(Duration::from_micros(round % 1000));
        }
        rounds.add(Duration::from_secs(9));
        let mut sample = rounds.sample();
        assert!(sample.len() <= KEPT_MAX + 1, "{}", sample.len());
        sample.sort();
        assert_eq!(sample.last(), Some(&Duration::from_secs(9)));
        let median = sample[sample.len() / 2].as_micros();
        assert!((400..600).contains(&median), "{median}");
    }
}
