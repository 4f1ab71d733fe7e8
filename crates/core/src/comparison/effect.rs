//! What the ratios of blocks amount to: an interval, a verdict, and the least effect that could be told.

use crate::random::Random;
use crate::stats::{SignedRanks, quantile, symmetric_centre};
use serde::Serialize;

/// The fewest blocks after which a verdict is given: of fewer, no interval has 95 %.
pub const BLOCKS_MIN: usize = 6;

/// The probability with which an effect of the size that counts as detectable is found.
pub const POWER: f64 = 0.8;

/// A ratio of a variant's figure to the baseline's, 0 to infinity; below 1 is less time, or less energy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    /// The ratio.
    pub ratio: f64,
    /// Lower end of the 95 % interval; of fewer than [`BLOCKS_MIN`] blocks the lowest ratio.
    pub low: f64,
    /// Upper end; of few blocks the highest.
    pub high: f64,
    /// From so many blocks.
    pub blocks: usize,
    /// A ratio further from 1 than this share would have been told from 1 with a probability of [`POWER`].
    pub detectable: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// What can be said of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies below 1.
    Less,
    /// The interval lies above 1.
    More,
    /// The interval holds 1.
    NotTold,
    /// There are fewer than [`BLOCKS_MIN`] blocks.
    TooFew,
}

/// The effect that the logarithms of the blocks' ratios show, `None` of fewer than three.
pub fn effect(logs: &[f64]) -> Option<Effect> {
    /// Where times have few different values, as CPU times by clock ticks, an interval often ends at 0, and
    /// rounding must not decide on which side of it: less than any clock tells.
    const ROUNDING: f64 = 1e-9;
    let interval = symmetric_centre(logs)?;
    let verdict = match (interval.low, interval.high) {
        _ if logs.len() < BLOCKS_MIN => Verdict::TooFew,
        (_, high) if high < -ROUNDING => Verdict::Less,
        (low, _) if low > ROUNDING => Verdict::More,
        _ => Verdict::NotTold,
    };
    Some(Effect {
        ratio: interval.value.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
        blocks: logs.len(),
        detectable: detectable(logs, interval.value, logs.len()),
        verdict,
    })
}

/// What so many blocks could tell, if they scatter as these logarithms of ratios do: the least share off 1.
/// `None` of fewer than three.
pub fn detectable_with(logs: &[f64], blocks: usize) -> Option<f64> {
    symmetric_centre(logs).map(|interval| detectable(logs, interval.value, blocks.max(BLOCKS_MIN)))
}

/// The effect that is told with probability [`POWER`], as a share off 1.
///
/// Problem: how often an effect is told depends on the test and on the noise, and of few blocks little is
/// known of the noise; formulas for normal noise promise too much. Approach: comparisons are made up of the
/// scatter that was seen, each is tested as the real one is, and the effect is that by which so many of them
/// would have to be shifted to be told. The scatter lies symmetrically about the centre, so each value is as
/// likely to be its mirror image. What few values cannot show, rarer and larger ones, is added as noise of a
/// heavy tail: a share of the scatter that shrinks with the root of the number of values. Source: B. W.
/// Silverman, G. A. Young, "The bootstrap: to smooth or not to smooth?", Biometrika 74(3), 1987; the amount
/// of noise is ours, by `studies/compare/coverage`. Limits: noise that was not seen at all, as a burst in one
/// of many runs, is not foreseen.
fn detectable(logs: &[f64], centre: f64, blocks: usize) -> f64 {
    const MADE_UP: usize = 100;
    /// Times the standard error.
    const ADDED: f64 = 1.5;
    let count = logs.len() as f64;
    // Fewer values than there are scatter less about their own centre than about the true one.
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

/// The value that a variable of Student's t distribution with 4 degrees of freedom stays below with this
/// probability, 0..1 (W. T. Shaw, "Sampling Student's T distribution", J. Comp. Finance 9(4), 2006).
fn student_4(probability: f64) -> f64 {
    let root = (4.0 * probability * (1.0 - probability)).max(f64::MIN_POSITIVE).sqrt();
    let size = 2.0 * ((root.acos() / 3.0).cos() / root - 1.0).max(0.0).sqrt();
    size.copysign(probability - 0.5)
}
