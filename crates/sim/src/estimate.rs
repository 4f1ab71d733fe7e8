//! Figures over several seeds, with their 95 % intervals.
//!
//! Problem: a simulated figure varies from seed to seed, and a lead that is smaller than that is none.
//! Approach: two variants meet the same chance in the same seed ([`crate::chance`]), so they are compared
//! seed by seed: the interval is that of the mean of these differences, by Student's t distribution, whatever
//! varies for both alike. Ratios are averaged by their logarithms, so that a ratio and its reciprocal say the
//! same. Sources: A. Law, "Simulation Modeling and Analysis", chapter 10 (paired-t interval); R. Jain, "The
//! Art of Computer Systems Performance Analysis", §13.4; of a standard deviation the interval by χ², whose
//! quantiles are E. Wilson's and M. Hilferty's (PNAS 17, 1931). Limits: with few seeds the level of 95 %
//! holds as far as the differences vary normally; a single seed has no interval.

use corewise_core::stats::{Interval, t_quantile_975};
use serde::Serialize;

/// A mean over seeds with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// The lower end of the interval; `null` with one seed.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

impl Estimate {
    /// Returns a figure that does not vary.
    pub fn exact(value: f64) -> Self {
        Self { value, low: Some(value), high: Some(value) }
    }

    /// Returns the mean of some values, one a seed; `None` without values.
    pub fn mean(values: &[f64]) -> Option<Self> {
        let count = values.len();
        let value = values.iter().sum::<f64>() / count as f64;
        match count {
            0 => None,
            1 => Some(Self { value, low: None, high: None }),
            _ => {
                let error = deviation(values, value) / (count as f64).sqrt();
                let Interval { low, high, .. } = Interval::around(value, error, count - 1, count);
                Some(Self { value, low: Some(low), high: Some(high) })
            }
        }
    }

    /// Returns the geometric mean of some ratios, one a seed; `None` without ratios.
    pub fn mean_ratio(ratios: &[f64]) -> Option<Self> {
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        Some(Self::mean(&logarithms)?.map(f64::exp))
    }

    /// Returns the standard deviation of some values relative to their mean; `None` without values.
    pub fn spread(values: &[f64]) -> Option<Self> {
        let degrees = values.len().checked_sub(1)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let value = deviation(values, mean) / mean;
        let end = |z| value * (degrees as f64 / chi_squared(degrees, z)).sqrt();
        let z = t_quantile_975(usize::MAX);
        let ends = (degrees > 0).then(|| (end(z), end(-z)));
        Some(Self { value, low: ends.map(|ends| ends.0), high: ends.map(|ends| ends.1) })
    }

    /// Applies an increasing function.
    pub fn map(self, function: impl Fn(f64) -> f64) -> Self {
        Self { value: function(self.value), low: self.low.map(&function), high: self.high.map(&function) }
    }

    /// Returns the figure with the opposite sign.
    pub fn negated(self) -> Self {
        Self { value: -self.value, low: self.high.map(|high| -high), high: self.low.map(|low| -low) }
    }

    /// Returns the farther distance of an end of the interval from the value.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.low.zip(self.high)?;
        Some((self.value - low).max(high - self.value))
    }

    /// Returns the difference of two figures that vary independently.
    pub fn minus(&self, other: &Self) -> Self {
        let of = |a: Option<f64>, b: Option<f64>| Some((a?, b?));
        let width = |ends: Option<(f64, f64)>| ends.map(|(a, b)| a.hypot(b));
        let value = self.value - other.value;
        let (own, others) = (self.half_width(), other.half_width());
        let half = width(of(own, others));
        Self { value, low: half.map(|half| value - half), high: half.map(|half| value + half) }
    }
}

/// Returns the standard deviation of some values about their mean; 0 of one value.
fn deviation(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

/// Returns the value of the χ² distribution at a quantile that is given by that of the normal distribution.
fn chi_squared(degrees: usize, z: f64) -> f64 {
    let part = 2.0 / (9.0 * degrees as f64);
    degrees as f64 * (1.0 - part + z * part.sqrt()).max(0.0).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_the_interval_of_the_textbook() {
        assert_eq!(Estimate::mean(&[]), None);
        assert_eq!(Estimate::mean(&[2.0]), Some(Estimate { value: 2.0, low: None, high: None }));
        // R. Jain, example 13.4: six pairs, mean -0.32, interval at 90 % that includes 0; at 95 %:
        // -0.32 ± 2.571 · 9.03 / √6.
        let found = Estimate::mean(&[5.4 - 19.1, 16.6 - 3.5, 0.6 - 3.4, 1.4 - 2.5, 0.6 - 3.6, 7.3 - 1.7]);
        let found = found.expect("six values");
        assert!((found.value + 0.32).abs() < 0.01, "{found:?}");
        assert!((found.half_width().expect("an interval") - 9.48).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn a_ratio_and_its_reciprocal_say_the_same() {
        let ratios = [1.1, 1.3, 0.9, 1.2];
        let found = Estimate::mean_ratio(&ratios).expect("four");
        let other = Estimate::mean_ratio(&ratios.map(|ratio| 1.0 / ratio)).expect("four");
        assert!((found.value * other.value - 1.0).abs() < 1e-12);
        assert!((found.low.unwrap() * other.high.unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_spread_has_the_interval_of_the_tables() {
        // 10 values: the standard deviation times 0.688 and 1.826 (χ² of 9 degrees: 19.02 and 2.70).
        let values: Vec<f64> = (0..10).map(|value| 100.0 + f64::from(value)).collect();
        let found = Estimate::spread(&values).expect("values");
        assert!((found.low.unwrap() / found.value - 0.688).abs() < 0.003, "{found:?}");
        assert!((found.high.unwrap() / found.value - 1.826).abs() < 0.01, "{found:?}");
        assert_eq!(Estimate::spread(&[3.0; 5]), Some(Estimate::exact(0.0)));
    }
}
