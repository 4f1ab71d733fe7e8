//! What the ratios of blocks amount to: an interval, a verdict, and the least effect that could be told.

use crate::stats::{symmetric_centre, t_quantile_975};
use serde::Serialize;

/// The fewest blocks after which a verdict is given: of fewer, no interval has 95 %.
pub const BLOCKS_MIN: usize = 6;

/// The probability with which an effect of the size that counts as detectable is found.
pub const POWER: f64 = 0.8;

/// What a standard normal variable stays below with probability [`POWER`].
const POWER_QUANTILE: f64 = 0.8416;

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
    /// The standard error of the ratio's logarithm, if that were normal.
    #[serde(skip)]
    standard_error: f64,
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
    let standard_error = interval.width() / 2.0 / t_quantile_975(logs.len() - 1);
    Some(Effect {
        ratio: interval.value.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
        blocks: logs.len(),
        detectable: detectable(standard_error, logs.len()),
        verdict,
        standard_error,
    })
}

impl Effect {
    /// What so many blocks could tell, if they scatter as these do: the least share off 1.
    pub fn detectable_with(&self, blocks: usize) -> f64 {
        let blocks = blocks.max(BLOCKS_MIN);
        detectable(self.standard_error * (self.blocks as f64 / blocks as f64).sqrt(), blocks)
    }
}

/// An effect is told if its estimate lies further from 1 than half an interval; it does so with probability
/// [`POWER`] if the effect itself is further by what the estimate falls short of it with the probability that
/// is left.
fn detectable(standard_error: f64, blocks: usize) -> f64 {
    let errors = t_quantile_975(blocks - 1) + POWER_QUANTILE;
    (standard_error * errors).exp_m1()
}
