//! The effect that pairs of epochs show; valid however often it is evaluated.
//!
//! Problem. Evaluating after each pair and stopping at the first interval without 0 sooner or later finds an
//! effect where there is none. How much the progress of a program scatters, and with which distribution, is
//! not known in advance.
//!
//! Approach. The order of the epochs in each pair was drawn at random. If the placement has no effect, the
//! logarithm of the ratio is therefore as likely positive as negative, whatever the program does and however
//! the speed of the machine varies: it is symmetric about 0. For symmetric numbers `x` the product of `exp(λx
//! - λ²x²/2)` is a bet that gains nothing on average, for every λ; so is its mean over a normal distribution
//! of λ. Such a bet ever exceeds 20 with a probability of 1/20 at most. The interval contains all shifts at
//! which the bet stays below 20. As the bet stays fair for every odd function of `x`, larger differences
//! count as [`CLIPPED`]: outliers do not matter.
//!
//! Source. V. de la Peña, "A general class of exponential inequalities for martingales and ratios", Annals of
//! Probability 27(1), 1999 (symmetric numbers); H. Robbins, "Statistical methods related to the law of the
//! iterated logarithm", Ann. Math. Stat. 41(5), 1970 (the mixture); S. Howard, A. Ramdas, J. McAuliffe,
//! J. Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49(2),
//! 2021. The clipping is Huber's (1964).
//!
//! Limits. Fewer than ten pairs never suffice, however large the effect. If there is an effect, the interval
//! is right only if the numbers scatter symmetrically about it.

/// The largest difference of logarithms of ratios; larger ones count as this.
const CLIPPED: f64 = 0.2;

/// The standard deviation of the bets λ. It decides for which effects the test is fastest, not whether it is
/// right. At 10 these are effects of some percent.
const BETS: f64 = 10.0;

/// A shift is excluded if the bet against it has gained this much, which happens by chance in one of twenty
/// cases at most.
const CLEAR_FROM: f64 = 20.0;

/// The number of halvings of a range: to less than a millionth of it.
const STEPS: u32 = 24;

/// After so many pairs without a result, a trial may end: an effect that they do not show is hardly worth
/// more.
pub const PAIRS_MAX: usize = 60;

/// The logarithms of the ratios of pairs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence(Vec<f64>);

impl Evidence {
    /// Adds the logarithm of the ratio of a pair.
    pub fn take(&mut self, log: f64) {
        self.0.push(log);
    }

    /// Returns the number of pairs.
    pub fn pairs(&self) -> usize {
        self.0.len()
    }

    /// Returns the centre of the logarithms of the pairs' ratios; 0 without pairs.
    pub fn estimate(&self) -> f64 {
        let (mut low, mut high) =
            self.0.iter().fold((0.0, 0.0), |(low, high), &log| (log.min(low), log.max(high)));
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            if self.sums(middle).0 > 0.0 { low = middle } else { high = middle }
        }
        (low + high) / 2.0
    }

    /// Returns the ends of the 95 % interval around the estimate; `None` if they are not known yet.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let estimate = self.estimate();
        Some((self.end(estimate, -1.0)?, self.end(estimate, 1.0)?))
    }

    fn end(&self, estimate: f64, direction: f64) -> Option<f64> {
        let is_out = |distance: f64| self.bet(estimate + direction * distance) >= CLEAR_FROM.ln();
        let farthest = self.0.iter().map(|log| (log - estimate).abs()).fold(0.0, f64::max) + CLIPPED;
        if !is_out(farthest) {
            return None;
        }
        let (mut inside, mut out) = (0.0, farthest);
        for _ in 0..STEPS {
            let middle = (inside + out) / 2.0;
            if is_out(middle) { out = middle } else { inside = middle }
        }
        Some(estimate + direction * out)
    }

    /// Returns the logarithm of the gain of the bet against this shift.
    fn bet(&self, shift: f64) -> f64 {
        let (sum, squares) = self.sums(shift);
        let variance = BETS * BETS;
        let spread = 1.0 + variance * squares;
        variance * sum * sum / (2.0 * spread) - spread.ln() / 2.0
    }

    /// Returns the sums of the clipped differences from a shift, and of their squares.
    fn sums(&self, shift: f64) -> (f64, f64) {
        let clipped = self.0.iter().map(|log| (log - shift).clamp(-CLIPPED, CLIPPED));
        clipped.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The share of trials in which the interval, evaluated after each of `pairs` pairs, ever excludes 0.
    fn share_found(pairs: usize, draw: impl Fn(&mut Random) -> f64) -> f64 {
        const TRIALS: u64 = 100;
        let is_found = |trial: &u64| {
            let (mut random, mut evidence) = (Random::new(trial + 1, pairs as u64), Evidence::default());
            (0..pairs).any(|_| {
                evidence.take(draw(&mut random));
                evidence.interval().is_some_and(|(low, high)| low > 0.0 || high < 0.0)
            })
        };
        (0..TRIALS).filter(is_found).count() as f64 / TRIALS as f64
    }

    #[test]
    fn frequent_looks_find_no_effect_where_there_is_none() {
        let heavy = |random: &mut Random| random.normal() * if random.unit() < 0.1 { 2.0 } else { 0.02 };
        // What the program does alternately is far larger than the noise, but the random order makes it
        // symmetric.
        let waves = |random: &mut Random| if random.unit() < 0.5 { 0.7 } else { -0.7 };
        for share in [
            share_found(60, |random| 0.01 * random.normal()),
            share_found(60, |random| 0.3 * random.normal()),
            share_found(60, heavy),
            share_found(60, waves),
        ] {
            assert!(share <= 0.05, "{share}");
        }
    }

    #[test]
    fn effects_are_found_soon() {
        for (effect, noise, pairs) in [(-0.7, 0.05, 12), (0.05, 0.05, 60), (-0.02, 0.01, 25)] {
            let share = share_found(pairs, |random| effect + noise * random.normal());
            assert!(share >= 0.9, "{effect}: {share}");
        }
    }

    #[test]
    fn the_interval_holds_the_truth_at_all_times() {
        const TRIALS: u64 = 100;
        for truth in [-0.7, 0.0, 0.05] {
            let misses = (0..TRIALS).filter(|trial| {
                let (mut random, mut evidence) = (Random::new(trial + 1, 9), Evidence::default());
                (0..60).any(|_| {
                    evidence.take(truth + 0.05 * random.normal());
                    evidence.interval().is_some_and(|(low, high)| truth < low || truth > high)
                })
            });
            let share = misses.count() as f64 / TRIALS as f64;
            assert!(share <= 0.05, "{truth}: {share}");
        }
    }

    #[test]
    fn nine_pairs_tell_nothing_and_ten_equal_ones_do() {
        let mut evidence = Evidence::default();
        assert_eq!((evidence.estimate(), evidence.interval()), (0.0, None));
        for _ in 0..9 {
            evidence.take(-1.0);
        }
        assert_eq!(evidence.interval(), None);
        evidence.take(-1.0);
        let (low, high) = evidence.interval().unwrap();
        assert!((evidence.estimate() + 1.0).abs() < 1e-6 && low < -1.0 && high < 0.0, "{low} {high}");
    }
}
