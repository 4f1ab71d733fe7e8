//! The few statistics that decisions and reports rest on.

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
}
