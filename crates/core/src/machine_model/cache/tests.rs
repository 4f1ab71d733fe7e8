use super::*;

fn check(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-5, "{found} is not {expected}");
}

fn filled(curves: &[Curve], capacity: f64) -> Vec<f64> {
    let user = |(index, &curve): (usize, &Curve)| {
        let wanted = curve.wanted(capacity);
        User { cache: 0, index, curve, wanted, held: wanted, alone: 1.0, faster: 1.0 }
    };
    let mut users: Vec<User> = curves.iter().enumerate().map(user).collect();
    fill(&mut users, capacity);
    users.iter().map(|user| user.held).collect()
}

fn power(misses: f64) -> Curve {
    Curve::Power { own: 1e6, misses, exponent: 0.5 }
}

fn line(rate: f64, enough: f64) -> Curve {
    Curve::Line { rate, enough, rest: 0.0 }
}

#[test]
fn a_full_cache_is_full_and_lines_survive_equally_long() {
    for curves in [
        vec![power(1.0), power(5.0), power(0.01)],
        vec![line(1.0, 9e5), line(3.0, 5e5), line(0.1, 8e5)],
        vec![line(1.0, 9e5), power(0.5), line(0.02, 2e5)],
    ] {
        let held = filled(&curves, 1e6);
        check(held.iter().sum(), 1e6);
        let survival = |(curve, &held): (&Curve, &f64)| held / curve.misses(held);
        let survivals: Vec<f64> = curves.iter().zip(&held).map(survival).collect();
        survivals.iter().for_each(|survival| check(*survival, survivals[0]));
    }
}

#[test]
fn a_thread_that_inserts_little_keeps_little_and_one_that_wants_little_keeps_nearly_all() {
    let held = filled(&[line(1.0, 1e6), line(0.1, 1e6)], 1e6);
    assert!(held[0] > held[1] && held[1] > 1e5, "{held:?}");
    let held = filled(&[Curve::Line { rate: 1.0, enough: 1e5, rest: 0.5 }, power(1.0)], 1e6);
    check(held[0], 1e5);
}

#[test]
fn two_equal_sets_have_half_each() {
    // Each misses where its other third is.
    let curve = line(1.0, 1.5e6);
    let held = filled(&[curve, curve], 2e6);
    check(held[0], 1e6);
    check(curve.misses(held[0]), 1.0 / 3.0);
}

#[test]
fn a_curve_by_points_is_linear_between_them() {
    let points = MissCurve::new(&[(0.5, 0.8), (1.0, 0.8), (2.0, 0.1)]).unwrap();
    let curve = Curve::Points { rate: 2.0, enough: 2.0 * MIB, curve: points };
    for (mib, ratio) in [(0.25, 0.9), (0.5, 0.8), (0.75, 0.8), (1.5, 0.45), (2.0, 0.1), (8.0, 0.1)] {
        check(curve.misses(mib * MIB), 2.0 * ratio);
    }
    for survival in [1e3, 1e4, 1e5, 1e6] {
        let (held, _) = curve.held(survival);
        check(held, survival * LINE_BYTES * curve.misses(held));
    }
    for bad in [&[][..], &[(1.0, 0.5), (0.5, 0.2)], &[(1.0, 0.5), (2.0, 0.6)], &[(0.0, 0.5)], &[(1.0, 1.5)]] {
        assert!(MissCurve::new(bad).is_err(), "{bad:?}");
    }
}
