//! The statistics behind decisions and reports.

use crate::random::Random;

/// Returns half the width of the 95 % Wilson score interval of a proportion `p` seen in `n` trials.
///
/// `p` is in 0..=1; the result is in 0..=0.5, and 0.5 if `n` is 0, when nothing is known. Source: E. B.
/// Wilson, "Probable Inference", JASA 22 (1927). The interval stays valid for `p` near 0 and 1 and for small
/// `n`, where the textbook interval shrinks to nothing.
pub fn wilson_half_width(p: f64, n: u64) -> f64 {
    const Z: f64 = 1.96;
    if n == 0 {
        return 0.5;
    }
    let n = n as f64;
    let spread = (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    (Z / (1.0 + Z * Z / n) * spread).min(0.5)
}

/// Returns both ends of the 95 % Wilson score interval of a proportion `p` seen in `n` trials.
pub fn wilson(p: f64, n: u64) -> (f64, f64) {
    const Z: f64 = 1.96;
    if n == 0 {
        return (0.0, 1.0);
    }
    let weight = Z * Z / n as f64;
    let (centre, half) = ((p + weight / 2.0) / (1.0 + weight), wilson_half_width(p, n));
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// Returns the confidence of a proportion, 0..1: 1 if it is known exactly, 0.5 if its 95 % interval is
/// ±0.125, 0 if that is ±0.25 or wider.
pub fn proportion_confidence(p: f64, n: u64) -> f64 {
    (1.0 - 4.0 * wilson_half_width(p.clamp(0.0, 1.0), n)).max(0.0)
}

/// Returns the median, or `None` without values. The values need not be sorted; the middle two are averaged.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the `q` quantile (0..=1) with linear interpolation between neighbours, or `None` without values.
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
    /// Upper end of the interval.
    pub high: f64,
    /// The number of values.
    pub count: usize,
}

impl Interval {
    /// Returns the interval around a value with this standard error and degrees of freedom.
    pub fn around(value: f64, standard_error: f64, degrees: usize, count: usize) -> Self {
        let half = t_quantile_975(degrees) * standard_error;
        Self { value, low: value - half, high: value + half, count }
    }

    /// Returns the width of the interval.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// The share of the values that a trimmed mean drops at each end.
const TRIMMED: f64 = 0.2;

/// The minimum number of values for an interval.
pub const VALUES_MIN: usize = 3;

/// Returns the mean of the values without the lowest and the highest fifth, or `None` for fewer than
/// [`VALUES_MIN`].
///
/// The interval is based on the winsorised variance, as the dropped values still tell about the scatter.
/// Below five values nothing is dropped and the interval is the textbook's. Source: J. W. Tukey, D. H.
/// McLaughlin, Sankhyā A 25(3), 1963; K. K. Yuen, Biometrika 61(1), 1974, compares two means by it.
pub fn trimmed_mean(values: &[f64]) -> Option<Interval> {
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
    Some(Interval::around(mean, standard_error, count - 2 * cut - 1, count))
}

/// Returns the centre of symmetry of the values with its 95 % interval, or `None` for fewer than
/// [`VALUES_MIN`].
///
/// Problem: intervals based on a standard error are wrong if that is poorly known, as for few values that are
/// skewed or contain outliers; resampling few values makes it worse. Approach: if values lie symmetrically
/// about a centre, each is as likely above as below it, whatever the shape of the distribution. So the ranks
/// of their distances have a known distribution (Wilcoxon's signed ranks), and the interval contains the
/// centres that are compatible with it. It is found among the means of all pairs of values (each with itself,
/// too); their median is the estimate. So neither leaves the range of the values. Sources: J. L. Hodges, E.
/// L. Lehmann, Ann. Math. Stat. 34(2), 1963; J. W. Tukey's interval in M. Hollander, D. A. Wolfe,
/// "Nonparametric Statistical Methods", chapter 3. Limits: fewer than six values do not give a 95 % interval;
/// the range of the values is used instead.
pub fn symmetric_centre(values: &[f64]) -> Option<Interval> {
    let count = values.len();
    if count < VALUES_MIN {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let pairs = count * (count + 1) / 2;
    let outside = signed_rank_outside(count);
    Some(Interval {
        value: (pair_mean(&sorted, pairs.div_ceil(2)) + pair_mean(&sorted, pairs / 2 + 1)) / 2.0,
        low: pair_mean(&sorted, outside + 1),
        high: pair_mean(&sorted, pairs - outside),
        count,
    })
}

/// Returns the ratio of the sum of the first values of the pairs to that of the second ones, with its 95 %
/// interval; `None` for fewer than [`VALUES_MIN`] pairs. All values are above 0.
///
/// Problem: where values are of two very different sizes, such as the times of a program that is delayed
/// in some runs, neither ranks nor a normal distribution describe their sum. Approach: the same ratio is
/// taken of subsets of the pairs, each pair being in or out with equal probability. If the values of a pair,
/// the first one divided by the true ratio, are exchangeable, then the true ratio is equally likely between
/// any two neighbours of all these ratios, whatever the shape of the distribution: of 2ⁿ possible exchanges
/// exactly those of the subsets with smaller ratios change the sums in one direction. The interval is
/// therefore the inversion of the exact test by exchanges (Fisher, 1935). Source: J. A. Hartigan, "Using
/// subsample values as typical values", J. Am. Stat. Assoc. 64(328), 1969, which shows that random subsets do
/// as well as all. Limits: if the first values have another shape than the second ones, the level holds
/// approximately, and for few pairs of which one or two dominate the sums it does not; fewer than six pairs
/// give the range of the subsets.
pub fn ratio_of_sums(pairs: &[(f64, f64)]) -> Option<Interval> {
    /// All subsets are taken of up to twelve pairs, else as many drawn ones.
    const SUBSETS: u64 = (1 << 12) - 1;
    let count = pairs.len();
    if count < VALUES_MIN {
        return None;
    }
    let sums = |is_in: &mut dyn FnMut(usize) -> bool| {
        let chosen = pairs.iter().enumerate().filter(|(index, _)| is_in(*index));
        chosen.fold((0.0, 0.0), |sums, (_, pair)| (sums.0 + pair.0, sums.1 + pair.1))
    };
    let ratio = |is_in: &mut dyn FnMut(usize) -> bool| {
        let (first, second) = sums(is_in);
        (second > 0.0).then_some(first / second)
    };
    let mut random = Random::new(1, count as u64);
    let mut drawn = || {
        const BITS: usize = 32;
        let mut bits = 0;
        ratio(&mut |index| {
            if index % BITS == 0 {
                bits = random.below(1 << BITS);
            }
            bits >> (index % BITS) & 1 == 1
        })
    };
    let mut ratios: Vec<f64> = match 1_u64.checked_shl(count as u32).map(|all| all - 1) {
        Some(all) if all <= SUBSETS => {
            (1..=all).filter_map(|subset| ratio(&mut |index| subset >> index & 1 == 1)).collect()
        }
        _ => (0..SUBSETS).filter_map(|_| drawn()).collect(),
    };
    ratios.sort_by(f64::total_cmp);
    // One more than the ratios, for the exchange of no pair, which any test allows.
    let outside = ((0.025 * (ratios.len() + 1) as f64) as usize).max(1);
    let (low, high) = (*ratios.get(outside - 1)?, *ratios.get(ratios.len() - outside)?);
    Some(Interval { value: ratio(&mut |_| true)?, low, high, count })
}

/// Computes the intervals of [`symmetric_centre`] for many sets of the same number of values.
#[derive(Debug, Clone, Copy)]
pub struct SignedRanks {
    outside: usize,
}

impl SignedRanks {
    /// Prepares for sets of `count` values, at least one.
    pub fn of(count: usize) -> Self {
        Self { outside: signed_rank_outside(count) }
    }

    /// Returns the lower end of the interval of values in ascending order.
    pub fn low(self, sorted: &[f64]) -> f64 {
        pair_mean(sorted, self.outside + 1)
    }
}

/// Returns the mean of two values (or of one with itself) at a place, from 1, in the order of all such means.
/// Bisects a range, as there may be too many means to store.
fn pair_mean(sorted: &[f64], place: usize) -> f64 {
    /// The error is below a rounding error of the range.
    const STEPS: u32 = 60;
    let up_to = |mean: f64| {
        let mut end = sorted.len();
        let partners = sorted.iter().enumerate().map(|(index, value)| {
            while end > 0 && (sorted[end - 1] + value) / 2.0 > mean {
                end -= 1;
            }
            end.saturating_sub(index)
        });
        partners.sum::<usize>()
    };
    let (mut low, mut high) = (sorted[0], sorted[sorted.len() - 1]);
    if up_to(low) >= place {
        return low;
    }
    for _ in 0..STEPS {
        let middle = low + (high - low) / 2.0;
        if up_to(middle) >= place { high = middle } else { low = middle }
    }
    high
}

/// Returns how many means of pairs lie beyond each end of the interval: the largest sum of ranks that `count`
/// values, each above or below with equal probability, reach in at most 2.5 % of all cases.
fn signed_rank_outside(count: usize) -> usize {
    /// From here on the normal distribution is exact to a rank or two.
    const NORMAL_FROM: usize = 100;
    let n = count as f64;
    if count >= NORMAL_FROM {
        let (mean, variance) = (n * (n + 1.0) / 4.0, n * (n + 1.0) * (2.0 * n + 1.0) / 24.0);
        return (mean - t_quantile_975(usize::MAX) * variance.sqrt() - 0.5) as usize;
    }
    // The probability of each sum: every rank contributes or not.
    let mut sums = vec![0.0; count * (count + 1) / 2 + 1];
    sums[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..sums.len()).rev() {
            let with = if sum >= rank { sums[sum - rank] } else { 0.0 };
            sums[sum] = (sums[sum] + with) / 2.0;
        }
    }
    let mut below = 0.0;
    let is_rare = |probability: &&f64| {
        below += **probability;
        below <= 0.025
    };
    sums.iter().take_while(is_rare).count().saturating_sub(1)
}

/// Returns the value that a variable of Student's t distribution exceeds in 2.5 % of all cases; `degrees` is
/// at least 1.
///
/// Bisects the exact probability, a finite sum for whole degrees of freedom (Abramowitz, Stegun, "Handbook of
/// Mathematical Functions", 26.7.3 and 26.7.4).
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

/// Returns the probability that a t-distributed variable lies within ±t.
fn t_within(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    // Term k is the term before it times cos² (k-1)/k; for odd degrees the formula is shifted by one.
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
    fn the_interval_of_a_proportion_is_that_of_the_textbook() {
        // R. Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I.
        for (successes, trials, low, high) in [(81.0, 263, 0.2553, 0.3662), (15.0, 148, 0.0624, 0.1605)] {
            let (found_low, found_high) = wilson(successes / trials as f64, trials);
            assert!((found_low - low).abs() < 1e-4 && (found_high - high).abs() < 1e-4, "{found_low}");
        }
        assert_eq!(wilson(0.0, 20).0, 0.0);
        assert_eq!(wilson(0.5, 0), (0.0, 1.0));
    }

    #[test]
    fn confidence_grows_with_trials_and_is_zero_without() {
        assert_eq!(proportion_confidence(0.5, 0), 0.0);
        let at = |n| proportion_confidence(0.5, n);
        assert!(at(10) < at(60) && at(60) < at(100) && at(100) < at(1000));
        assert!((at(60) - 0.5).abs() < 0.02, "sixty samples in the middle: about ±0.125");
        // The textbook value for p = 0.5, n = 100: interval 0.404..0.596.
        assert!((wilson_half_width(0.5, 100) - 0.096).abs() < 0.001);
        // Ten samples that all say "yes" are no proof: the interval is 0.72..1.
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

    #[test]
    fn a_centre_and_its_interval_are_those_of_worked_examples() {
        // M. Hollander, D. A. Wolfe, "Nonparametric Statistical Methods", chapter 3 (depression scores):
        // estimate -0.46 and, at a level of 0.96, the interval -0.786 to -0.010.
        let data = [-0.952, 0.147, -1.022, -0.43, -0.62, -0.59, -0.49, 0.08, -0.01];
        let found = symmetric_centre(&data).unwrap();
        let digits = [found.value, found.low, found.high].map(|value| (value * 1e3).round() / 1e3);
        assert_eq!(digits, [-0.46, -0.786, -0.01]);
        // From the tables of the signed-rank statistic: the largest sum of at most 2.5 %.
        let table = [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52), (50, 434)];
        for (count, outside) in table {
            assert_eq!(signed_rank_outside(count), outside, "{count} values");
        }
        // Here the exact sum and that of the normal distribution meet.
        assert!(signed_rank_outside(100).abs_diff(1955) <= 2, "{}", signed_rank_outside(100));
    }

    #[test]
    fn the_ratio_of_sums_is_compatible_with_every_exchange_of_pairs() {
        // Of the 64 exchanges of six pairs only none and all are as extreme as pairs that all agree.
        let pairs = [(1.0, 2.0), (1.0, 4.0), (1.0, 3.0), (2.0, 5.0), (1.0, 20.0), (1.0, 2.5)];
        let found = ratio_of_sums(&pairs).unwrap();
        assert!(
            (found.value - 7.0 / 36.5).abs() < 1e-12 && found.low == 0.05 && found.high == 0.5,
            "{found:?}"
        );
        assert_eq!(ratio_of_sums(&pairs[..2]), None);
        // Only the 64 of 4096 exchanges that change none of the six large differences are as extreme.
        let two_sizes: Vec<(f64, f64)> =
            (0..12).map(|index| (1.2, if index % 2 == 0 { 0.6 } else { 11.0 })).collect();
        let found = ratio_of_sums(&two_sizes).unwrap();
        assert!(found.high < 1.0 && (found.value - 14.4 / 69.6).abs() < 1e-12, "{found:?}");
        assert!(
            symmetric_centre(&two_sizes.iter().map(|(a, b)| (a / b).ln()).collect::<Vec<_>>()).unwrap().high
                > 0.0
        );
        // Of more pairs, drawn subsets do as well.
        let found = ratio_of_sums(&[&two_sizes[..], &two_sizes[..]].concat()).unwrap();
        assert!(found.high < 0.7 && found.low > 0.1, "{found:?}");
    }

    #[test]
    fn the_centre_of_few_or_equal_values_is_no_riddle() {
        assert_eq!(symmetric_centre(&[1.0, 2.0]), None);
        let equal = symmetric_centre(&[2.0; 9]).unwrap();
        assert_eq!((equal.value, equal.low, equal.high), (2.0, 2.0, 2.0));
        let few = symmetric_centre(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((few.value, few.low, few.high), (2.0, 1.0, 3.0), "the range of the values");
        // Five values that agree and one outlier: resampled standard errors made this zero to thousands.
        let skewed = symmetric_centre(&[0.69, 0.70, 0.69, 0.71, 0.70, 2.3]).unwrap();
        assert!(skewed.low == 0.69 && skewed.high == 2.3 && (skewed.value - 0.70).abs() < 0.01, "{skewed:?}");
    }

    /// The same things compared: whatever the noise, at most one of twenty intervals excludes 1.
    #[test]
    fn the_interval_of_the_ratio_of_sums_covers_the_truth_whatever_the_noise() {
        const TRIALS: u64 = 400;
        let noises: [&dyn Fn(&mut Random) -> f64; 4] = [
            &|random| 1.0 + 0.02 * random.normal(),
            &|random| if random.unit() < 0.5 { 0.6 } else { 11.0 },
            &|random| if random.unit() < 0.1 { 20.0 } else { 1.0 + 0.1 * random.unit() },
            // Pareto with an infinite variance.
            &|random| (-(1.0 - random.unit()).ln() / 1.5).exp(),
        ];
        for count in [6, 12, 20] {
            for (index, draw) in noises.iter().enumerate() {
                let covers = |trial: &u64| {
                    let mut random = Random::new(trial + 1, count as u64);
                    let pairs: Vec<(f64, f64)> =
                        (0..count).map(|_| (draw(&mut random), draw(&mut random))).collect();
                    let found = ratio_of_sums(&pairs).unwrap();
                    found.low <= 1.0 && 1.0 <= found.high
                };
                let share = (0..TRIALS).filter(covers).count() as f64 / TRIALS as f64;
                // 95 %, less two standard errors of this number of trials.
                assert!(share >= 0.93, "{count} values of noise {index}: {share}");
            }
        }
    }

    #[test]
    fn the_interval_of_the_centre_covers_the_truth_whatever_the_noise() {
        const TRIALS: u64 = 1000;
        let bursts = |random: &mut Random| {
            let mut time = || 1.0 + 0.01 * random.normal() - 0.05 * (1.0 - random.unit()).ln();
            (time() / time()).ln()
        };
        let outliers = |random: &mut Random| random.normal() * if random.unit() < 0.1 { 8.0 } else { 1.0 };
        // Pareto with an infinite variance: one of a hundred takes more than ten times as long as the median.
        let heavy = |random: &mut Random| ((1.0 - random.unit()) / (1.0 - random.unit())).ln() / 1.5;
        for count in [6, 8, 12, 20] {
            for draw in [&Random::normal as &dyn Fn(&mut Random) -> f64, &bursts, &outliers, &heavy] {
                let covers = |trial: &u64| {
                    let mut random = Random::new(trial + 1, count as u64);
                    let values: Vec<f64> = (0..count).map(|_| draw(&mut random)).collect();
                    let found = symmetric_centre(&values).unwrap();
                    found.low <= 0.0 && 0.0 <= found.high
                };
                let share = (0..TRIALS).filter(covers).count() as f64 / TRIALS as f64;
                assert!((0.935..=0.985).contains(&share), "{count} values: {share}");
            }
        }
    }

    /// Noise with outliers in one of ten values, half of them up: the true value is 0.
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
