//! The effect that the ratios of blocks show: an interval, a verdict, and the smallest detectable effect.

use crate::random::Random;
use crate::stats::{Interval, SignedRanks, quantile, ratio_of_sums, symmetric_centre};
use serde::Serialize;

/// The minimum number of blocks for a verdict: fewer do not give a 95 % interval.
pub const BLOCKS_MIN: usize = 6;

/// The probability with which an effect of the detectable size is found.
pub const POWER: f64 = 0.8;

/// The ratio of a variant's figure to the baseline's, 0 to infinity; below 1 means less time, or less energy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    /// The ratio.
    pub ratio: f64,
    /// Lower end of the 95 % interval; with fewer than [`BLOCKS_MIN`] blocks the lowest ratio.
    pub low: f64,
    /// Upper end of the 95 % interval; with fewer blocks the highest ratio.
    pub high: f64,
    /// The number of blocks.
    pub blocks: usize,
    /// The number of blocks in which the variant's figure was below the baseline's.
    pub blocks_below: usize,
    /// The number of blocks in which it was above.
    pub blocks_above: usize,
    /// The smallest deviation from 1 that would have been found with a probability of [`POWER`]; `None` for
    /// effects on the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detectable: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies below 1.
    Less,
    /// The interval lies above 1.
    More,
    /// The interval contains 1.
    #[serde(rename = "not_told")]
    Unclear,
    /// There are fewer than [`BLOCKS_MIN`] blocks.
    TooFew,
}

/// Times may have few distinct values, such as CPU times in clock ticks, so that an interval often ends at 0.
/// Rounding must not decide on which side of 0 it ends; this is less than any clock resolves.
const ROUNDING: f64 = 1e-9;

/// Returns the effect on typical runs that the logarithms of the blocks' ratios show; `None` for fewer than
/// three.
pub fn effect(logs: &[f64]) -> Option<Effect> {
    let interval = symmetric_centre(logs)?;
    let detectable = detectable(logs, interval.value, logs.len());
    Some(Effect::new(interval, logs, Some(detectable)))
}

/// Returns the effect on the mean, or the sum, of all runs; each pair is a variant's figure and the
/// baseline's. `None` for fewer than three.
pub fn effect_on_mean(pairs: &[(f64, f64)]) -> Option<Effect> {
    let Interval { value, low, high, count } = ratio_of_sums(pairs)?;
    let logs: Vec<f64> = pairs.iter().map(|(variant, baseline)| (variant / baseline).ln()).collect();
    let interval = Interval { value: value.ln(), low: low.ln(), high: high.ln(), count };
    Some(Effect::new(interval, &logs, None))
}

impl Effect {
    /// Creates the effect of an interval of the logarithm of the ratio.
    fn new(interval: Interval, logs: &[f64], detectable: Option<f64>) -> Effect {
        let verdict = match (interval.low, interval.high) {
            _ if logs.len() < BLOCKS_MIN => Verdict::TooFew,
            (_, high) if high < -ROUNDING => Verdict::Less,
            (low, _) if low > ROUNDING => Verdict::More,
            _ => Verdict::Unclear,
        };
        Effect {
            ratio: interval.value.exp(),
            low: interval.low.exp(),
            high: interval.high.exp(),
            blocks: logs.len(),
            blocks_below: logs.iter().filter(|log| **log < -ROUNDING).count(),
            blocks_above: logs.iter().filter(|log| **log > ROUNDING).count(),
            detectable,
            verdict,
        }
    }
}

/// Returns the smallest share off 1 that a number of blocks could detect if they scatter like these
/// logarithms of ratios; `None` for fewer than three.
pub fn detectable_with(logs: &[f64], blocks: usize) -> Option<f64> {
    symmetric_centre(logs).map(|interval| detectable(logs, interval.value, blocks.max(BLOCKS_MIN)))
}

/// Returns the effect that is detected with probability [`POWER`], as a share off 1.
///
/// Problem: how often an effect is detected depends on the test and on the noise, and few blocks tell little
/// about the noise; formulas for normal noise promise too much. Approach: comparisons are resampled from the
/// observed scatter, each is tested like the real one, and the effect is the shift that makes the required
/// share of them significant. The scatter is symmetric about the centre, so each value is as likely as its
/// mirror image. Rarer and larger values, which few observations cannot show, are added as heavy-tailed
/// noise: a share of the scatter that shrinks with the square root of the number of values. Source: B. W.
/// Silverman, G. A. Young, "The bootstrap: to smooth or not to smooth?", Biometrika 74(3), 1987; the amount
/// of noise is ours, from `studies/compare/coverage`. Limits: noise that was never observed, such as a burst
/// in one of many runs, is not predicted.
fn detectable(logs: &[f64], centre: f64, blocks: usize) -> f64 {
    const MADE_UP: usize = 100;
    /// Times the standard error.
    const ADDED: f64 = 1.5;
    let count = logs.len() as f64;
    // Few values scatter less about their own centre than about the true one.
    let widened = (count / (count - 1.0)).sqrt();
    let scatter: Vec<f64> = logs.iter().map(|log| (log - centre) * widened).collect();
    let deviation = (scatter.iter().map(|value| value * value).sum::<f64>() / count).sqrt();
    let added = ADDED * deviation / count.sqrt();
    let (ranks, mut random) = (SignedRanks::of(blocks), Random::new(1, blocks as u64));
    let mut draw = || {
        let place = random.unit() * 2.0 * count;
        let sign = if place < count { -1.0 } else { 1.0 };
        sign * scatter[place as usize % logs.len()] + added * student_4(random.unit())
    };
    let needed = (0..MADE_UP).map(|_| {
        let mut made_up: Vec<f64> = (0..blocks).map(|_| draw()).collect();
        made_up.sort_by(f64::total_cmp);
        -ranks.low(&made_up)
    });
    quantile(&needed.collect::<Vec<_>>(), POWER).unwrap_or(0.0).max(0.0).exp_m1()
}

/// Returns the quantile of Student's t distribution with 4 degrees of freedom for a probability, 0..1 (W. T.
/// Shaw, "Sampling Student's T distribution", J. Comp. Finance 9(4), 2006).
fn student_4(probability: f64) -> f64 {
    let root = (4.0 * probability * (1.0 - probability)).max(f64::MIN_POSITIVE).sqrt();
    let size = 2.0 * ((root.acos() / 3.0).cos() / root - 1.0).max(0.0).sqrt();
    size.copysign(probability - 0.5)
}
