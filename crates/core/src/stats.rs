//! The few statistics that decisions and reports rest on.

use crate::random::Random;

/// Half the width of the 95 % Wilson score interval of a proportion `p` seen in `n` trials.
///
/// `p` in 0..=1; the result is in 0..=0.5, and 0.5 where `n` is 0: nothing is known.
/// Source: E. B. Wilson, "Probable Inference", JASA 22 (1927). It stays honest at `p` near 0 and 1 and at
/// small `n`, where the textbook interval shrinks to nothing.
pub fn wilson_half_width(p: f64, n: u64) -> f64 {
    const Z: f64 = 1.96;
    if n == 0 {
        return 0.5;
    }
    let n = n as f64;
    let spread = (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    (Z / (1.0 + Z * Z / n) * spread).min(0.5)
}

/// How far a proportion can be trusted, 0..1: 1 when it is known exactly, 0.5 when its 95 % interval is
/// ±0.125, 0 when that is ±0.25 or wider.
pub fn proportion_confidence(p: f64, n: u64) -> f64 {
    (1.0 - 4.0 * wilson_half_width(p.clamp(0.0, 1.0), n)).max(0.0)
}

/// The median, `None` of nothing. The values need no order; the middle two are averaged.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The `q` quantile (0..=1) with linear interpolation between neighbours, `None` of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = q.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    Some(below + (above - below) * position.fract())
}

/// A mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The mean.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// From so many values.
    pub count: usize,
}

impl Interval {
    /// The interval around a value with that standard error and degrees of freedom.
    pub fn around(value: f64, standard_error: f64, degrees: usize, count: usize) -> Self {
        let half = t_quantile_975(degrees) * standard_error;
        Self { value, low: value - half, high: value + half, count }
    }

    /// From end to end.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// The share of the values that a trimmed mean leaves out at each end.
const TRIMMED: f64 = 0.2;

/// The fewest values of which an interval is believed.
pub const VALUES_MIN: usize = 3;

/// The mean of the values without the lowest and the highest fifth, `None` of fewer than [`VALUES_MIN`].
///
/// The interval rests on the winsorised variance, as the values left out still tell how much they scatter.
/// Below five values nothing is left out and it is the textbook's. Source: J. W. Tukey, D. H. McLaughlin,
/// Sankhyā A 25(3), 1963; K. K. Yuen, Biometrika 61(1), 1974, compares two means by it.
pub fn trimmed_mean(values: &[f64]) -> Option<Interval> {
    let trimmed = Trimmed::of(values)?;
    Some(Interval::around(trimmed.mean, trimmed.standard_error, trimmed.degrees, values.len()))
}

/// The same mean with an interval by resampling, `None` of fewer than [`VALUES_MIN`] values.
///
/// How far off the mean can be is not taken from a table but from the values themselves: it is seen how far
/// the means of samples drawn from them (with replacement, by `random`) are off this one, each in units of
/// its own standard error. The interval is symmetric. Where too many samples hold nothing but equal values to
/// say, as of very few values, it is that of [`trimmed_mean`]. Source: the bootstrap-t, B. Efron, R.
/// Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 12; with trimmed means: R. Wilcox,
/// "Introduction to Robust Estimation and Hypothesis Testing", section 4.4.
pub fn bootstrap_mean(values: &[f64], random: &mut Random) -> Option<Interval> {
    const SAMPLES: usize = 999;
    let found = Trimmed::of(values)?;
    let mut deviation = || {
        let sample: Vec<f64> = (0..values.len()).map(|_| values[random.below(values.len())]).collect();
        let sample = Trimmed::of(&sample)?;
        let off = (sample.mean - found.mean).abs();
        Some(if off == 0.0 { 0.0 } else { off / sample.standard_error })
    };
    let deviations: Vec<f64> = (0..SAMPLES).filter_map(|_| deviation()).collect();
    let half = quantile(&deviations, 0.95)? * found.standard_error;
    if !half.is_finite() {
        return trimmed_mean(values);
    }
    Some(Interval { value: found.mean, low: found.mean - half, high: found.mean + half, count: values.len() })
}

/// A trimmed mean with what its interval is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trimmed {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Degrees of freedom, for Student's t.
    pub degrees: usize,
}

impl Trimmed {
    /// `None` of fewer than [`VALUES_MIN`] values.
    pub fn of(values: &[f64]) -> Option<Trimmed> {
        let count = values.len();
        if count < VALUES_MIN {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = (TRIMMED * count as f64) as usize;
        let kept = &sorted[cut..count - cut];
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        let (low, high) = (kept[0], kept[kept.len() - 1]);
        let winsorised = |value: &f64| value.clamp(low, high);
        let winsorised_mean = sorted.iter().map(winsorised).sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|value| (winsorised(value) - winsorised_mean).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        let share_kept = if cut == 0 { 1.0 } else { 1.0 - 2.0 * TRIMMED };
        let standard_error = deviation / (share_kept * (count as f64).sqrt());
        Some(Trimmed { mean, standard_error, degrees: Trimmed::degrees_of(count) })
    }

    /// The degrees of freedom of so many values, at least [`VALUES_MIN`].
    pub fn degrees_of(count: usize) -> usize {
        count - 2 * (TRIMMED * count as f64) as usize - 1
    }
}

/// The value that a variable of Student's t distribution exceeds in 2.5 % of all cases; `degrees` at least 1.
///
/// Bisection of the exact probability, a finite sum for whole degrees of freedom (Abramowitz, Stegun,
/// "Handbook of Mathematical Functions", 26.7.3 and 26.7.4).
pub fn t_quantile_975(degrees: usize) -> f64 {
    /// From here on it differs from the normal distribution's 1.96 by less than 0.3 %.
    const NORMAL_FROM: usize = 500;
    if degrees >= NORMAL_FROM {
        return 1.959964;
    }
    let (mut low, mut high): (f64, f64) = (0.0, 13.0);
    for _ in 0..48 {
        let middle = (low + high) / 2.0;
        if t_within(middle, degrees) < 0.95 { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The probability that a t-distributed variable lies within ±t.
fn t_within(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    // Term k is the one before times cos² (k-1)/k, with k even below odd degrees' formula shifted by one.
    let (mut term, first) = if odd { (cos, 3) } else { (1.0, 2) };
    let mut sum = 0.0;
    if degrees > 1 {
        sum = term;
        for k in (first..degrees).step_by(2) {
            term *= cos * cos * (k - 1) as f64 / k as f64;
            sum += term;
        }
    }
    if odd { std::f64::consts::FRAC_2_PI * (angle + sin * sum) } else { sin * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_grows_with_trials_and_is_zero_without() {
        assert_eq!(proportion_confidence(0.5, 0), 0.0);
        let at = |n| proportion_confidence(0.5, n);
        assert!(at(10) < at(60) && at(60) < at(100) && at(100) < at(1000));
        assert!((at(60) - 0.5).abs() < 0.02, "sixty samples in the middle: about ±0.125");
        // The textbook value for p = 0.5, n = 100: interval 0.404..0.596.
        assert!((wilson_half_width(0.5, 100) - 0.096).abs() < 0.001);
        // Ten samples that all say "yes" are still no proof: the interval is 0.72..1.
        assert!((proportion_confidence(1.0, 10) - 0.44).abs() < 0.01);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[0.0, 10.0], 0.9), Some(9.0));
    }

    #[test]
    fn quantiles_of_student_are_those_of_the_tables() {
        for (degrees, expected) in [
            (1, 12.706205),
            (2, 4.302653),
            (3, 3.182446),
            (4, 2.776445),
            (5, 2.570582),
            (9, 2.262157),
            (10, 2.228139),
            (29, 2.045230),
            (100, 1.983972),
            (499, 1.964729),
            (5000, 1.960439),
        ] {
            let found = t_quantile_975(degrees);
            assert!((found - expected).abs() < 5e-4, "{degrees}: {found} instead of {expected}");
        }
    }

    #[test]
    fn few_values_have_the_interval_of_the_textbook() {
        assert_eq!(trimmed_mean(&[1.0, 2.0]), None);
        let found = trimmed_mean(&[1.0, 2.0, 3.0]).unwrap();
        // Standard error 1/√3, two degrees of freedom: 2 ± 2.484.
        assert!((found.value - 2.0).abs() < 1e-12 && (found.high - 4.4841).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn a_trimmed_mean_is_that_of_a_worked_example() {
        // R. Wilcox, "Introduction to Robust Estimation and Hypothesis Testing", chapter 4: self-awareness
        // data, 20 % trimmed mean 282.7 and interval 160.4 to 405.
        let data = [
            77., 87., 88., 114., 151., 210., 219., 246., 253., 262., 296., 299., 306., 376., 428., 515.,
            666., 1310., 2611.,
        ];
        let found = trimmed_mean(&data).unwrap();
        assert!((found.value - 282.7).abs() < 0.1, "{found:?}");
        assert!((found.low - 160.4).abs() < 1.0 && (found.high - 405.0).abs() < 1.0, "{found:?}");
    }

    /// The share of seeded trials in which the bootstrap's interval covers 0.
    fn bootstrap_coverage(count: usize, draw: impl Fn(&mut Random) -> f64) -> f64 {
        const TRIALS: u64 = 400;
        let covers = |trial: &u64| {
            let mut random = Random::new(trial + 1, count as u64);
            let values: Vec<f64> = (0..count).map(|_| draw(&mut random)).collect();
            let found = bootstrap_mean(&values, &mut random).unwrap();
            found.low <= 0.0 && 0.0 <= found.high
        };
        (0..TRIALS).filter(covers).count() as f64 / TRIALS as f64
    }

    #[test]
    fn the_bootstrap_covers_the_truth() {
        // Ratios of times that are longer now and then, each for itself.
        let bursts = |random: &mut Random| {
            let mut time = || 1.0 + 0.01 * random.normal() - 0.05 * (1.0 - random.unit()).ln();
            (time() / time()).ln()
        };
        let outliers = |random: &mut Random| random.normal() * if random.unit() < 0.1 { 8.0 } else { 1.0 };
        for (count, share) in [
            (6, bootstrap_coverage(6, Random::normal)),
            (10, bootstrap_coverage(10, outliers)),
            (20, bootstrap_coverage(20, bursts)),
        ] {
            assert!((0.93..=0.995).contains(&share), "{count} values: {share}");
        }
    }

    #[test]
    fn the_bootstrap_of_equal_or_few_values_is_no_riddle() {
        let of = |values: &[f64]| bootstrap_mean(values, &mut Random::new(1, 1));
        assert_eq!(of(&[1.0, 2.0]), None);
        let equal = of(&[2.0; 9]).unwrap();
        assert_eq!((equal.value, equal.low, equal.high), (2.0, 2.0, 2.0));
        assert_eq!(of(&[1.0, 2.0, 3.0]), trimmed_mean(&[1.0, 2.0, 3.0]), "too few to resample");
    }

    /// Noise with outliers in one of ten values, half of them up: the truth is 0.
    #[test]
    fn intervals_cover_the_truth_and_outliers_do_not_matter() {
        const TRIALS: usize = 4000;
        for count in [3, 5, 8, 12, 30] {
            let mut random = Random::new(11, count as u64);
            let covered = (0..TRIALS).filter(|_| {
                let mut value = || random.normal() * if random.unit() < 0.1 { 8.0 } else { 1.0 };
                let values: Vec<f64> = (0..count).map(|_| value()).collect();
                let found = trimmed_mean(&values).unwrap();
                found.low <= 0.0 && 0.0 <= found.high
            });
            let share = covered.count() as f64 / TRIALS as f64;
            assert!((0.92..=0.985).contains(&share), "{count} values: {share}");
        }
    }
}
