//! Estimates the duration of a NAS benchmark before it has been run, to decide whether to start it.

use crate::kernels::{Nas, ProblemClass};

/// Seconds of one thread on a modest PE for classes S, W, A, B and C.
///
/// A rough estimate: the operations that NPB counts for each class, at the rate that each benchmark reaches
/// on PEs of about 2 GHz. The ratio between classes is what matters; as soon as one class has been run, its
/// time sets the scale.
fn expected(nas: Nas) -> [f64; 5] {
    match nas {
        Nas::Bt => [0.1, 5.0, 90.0, 360.0, 1500.0],
        Nas::Cg => [0.1, 0.5, 2.0, 80.0, 220.0],
        Nas::Ep => [0.5, 1.0, 8.0, 32.0, 128.0],
        Nas::Ft => [0.2, 0.4, 8.0, 100.0, 430.0],
        Nas::Is => [0.02, 0.2, 1.5, 6.0, 25.0],
        Nas::Lu => [0.1, 8.0, 60.0, 250.0, 1000.0],
        Nas::Mg => [0.01, 0.5, 4.0, 20.0, 160.0],
        Nas::Sp => [0.1, 10.0, 60.0, 250.0, 1000.0],
        Nas::Ua => [0.1, 5.0, 50.0, 200.0, 850.0],
    }
}

/// Returns the estimated time of one run in seconds, scaled by the class and time of an earlier run if there
/// is one.
pub(super) fn estimate_s(nas: Nas, class: ProblemClass, run: Option<(ProblemClass, f64)>) -> f64 {
    let expected = expected(nas);
    let scale = run.map_or(1.0, |(other, seconds)| seconds / expected[other as usize]);
    expected[class as usize] * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_sets_the_scale_and_classes_grow() {
        assert_eq!(estimate_s(Nas::Ep, ProblemClass::A, None), 8.0);
        assert_eq!(estimate_s(Nas::Ep, ProblemClass::A, Some((ProblemClass::S, 0.75))), 12.0);
        assert!(Nas::ALL.into_iter().all(|nas| expected(nas).is_sorted()));
    }
}
