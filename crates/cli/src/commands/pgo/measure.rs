//! Measures which variant is faster.
//!
//! The order of runs, the intervals and the verdicts are those of [`corewise_core::comparison`]; a round is
//! one of its blocks. A variant is preferred to the one before it only if the verdict is that it takes less
//! time.
//!
//! Limits: CPU time is user and system time of the run and of all processes that it waited for; a program
//! that waits for a disk or a peer gains less in wall-clock time. The interval includes the present noise of
//! this machine, not the effect of how code happens to lie in memory.

use corewise_core::comparison::{Effect, Verdict, effect, order};
use corewise_core::stats::median;
use serde::Serialize;

/// The seed of the orders; it is fixed so that results are repeatable.
const SEED: u64 = 1;

/// How much faster a variant is than another one, as a share: 0.1 is 10 % more work in the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// The mean.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The CPU times of a variant, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Times {
    /// Its name.
    pub variant: &'static str,
    /// One for each round.
    pub seconds: Vec<f64>,
}

impl Times {
    /// Returns the median, in seconds; 0 without times.
    pub fn median(&self) -> f64 {
        median(&self.seconds).unwrap_or(0.0)
    }

    /// Returns the ratio to another variant's times of the same rounds; `None` for fewer than three.
    fn effect(&self, other: &Times) -> Option<Effect> {
        let pairs = self.seconds.iter().zip(&other.seconds);
        let logs: Vec<f64> = pairs.map(|(own, others)| (own / others).ln()).collect();
        effect(&logs)
    }

    /// Returns the gain over another variant; `None` for fewer than three rounds.
    pub fn gain_over(&self, other: &Times) -> Option<Gain> {
        let Effect { ratio, low, high, .. } = self.effect(other)?;
        // The lowest ratio of times is the highest gain.
        Some(Gain { value: 1.0 / ratio - 1.0, low: 1.0 / high - 1.0, high: 1.0 / low - 1.0 })
    }
}

/// Measures rounds of all variants; `run` returns the CPU time of one.
pub fn rounds<E>(
    variants: &[&'static str],
    count: u32,
    mut run: impl FnMut(&'static str, u32) -> Result<f64, E>,
) -> Result<Vec<Times>, E> {
    let mut times: Vec<Times> =
        variants.iter().map(|variant| Times { variant, seconds: Vec::new() }).collect();
    for round in 1..=count {
        for index in order(SEED, variants.len(), round as usize - 1) {
            let seconds = run(variants[index], round)?;
            times[index].seconds.push(seconds);
        }
    }
    Ok(times)
}

/// Returns the variant to keep. Each is derived from the one before it; the first is the baseline.
pub fn fastest(times: &[Times]) -> Option<&Times> {
    times.iter().reduce(|kept, next| {
        let gains = next.effect(kept).is_some_and(|effect| effect.verdict == Verdict::Less);
        if gains { next } else { kept }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variant that is this much faster on a machine whose speed drifts by a factor of two, with
    /// independent noise of 1 %.
    fn times(variant: &'static str, faster: f64, own: u32) -> Times {
        let drift = |round: u32| 1.0 + f64::from(round) / 16.0;
        let noise = |round: u32| if round >> own & 1 == 0 { 0.99 } else { 1.01 };
        let seconds = (0..16).map(|round| drift(round) * noise(round) / faster).collect();
        Times { variant, seconds }
    }

    #[test]
    fn only_what_certainly_gains_is_kept() {
        let baseline = times("baseline", 1.0, 0);
        let kept = |others: &[(&'static str, f64)]| {
            let others = others.iter().enumerate();
            let others = others.map(|(index, (name, faster))| times(name, *faster, 1 + index as u32));
            let all: Vec<Times> = std::iter::once(baseline.clone()).chain(others).collect();
            fastest(&all).unwrap().variant
        };
        assert_eq!(kept(&[("sample", 1.1), ("bolt", 1.2)]), "bolt");
        assert_eq!(kept(&[("sample", 1.1), ("bolt", 1.1)]), "sample");
        assert_eq!(kept(&[("sample", 0.9), ("bolt", 1.1)]), "bolt");
        assert_eq!(kept(&[("sample", 0.9), ("bolt", 0.95)]), "baseline");
        assert_eq!(kept(&[("sample", 1.0)]), "baseline");
        assert_eq!(kept(&[]), "baseline");
        let gain = times("sample", 1.1, 1).gain_over(&baseline).unwrap();
        assert!(gain.low > 0.08 && gain.high < 0.12 && (gain.value - 0.1).abs() < 0.01, "{gain:?}");
    }

    #[test]
    fn few_rounds_prove_nothing() {
        let of = |variant, seconds| Times { variant, seconds: vec![seconds; 5] };
        assert_eq!(fastest(&[of("baseline", 2.0), of("sample", 1.0)]).unwrap().variant, "baseline");
    }

    #[test]
    fn every_variant_runs_once_a_round() {
        let mut log = Vec::new();
        let run = |variant, round| {
            log.push((round, variant));
            Ok::<f64, ()>(f64::from(round))
        };
        let times = rounds(&["baseline", "sample", "bolt"], 4, run).unwrap();
        assert!(times.iter().all(|times| times.seconds == [1.0, 2.0, 3.0, 4.0]));
        assert!(log.chunks(3).any(|round| round[0].1 != "baseline"), "{log:?}");
    }
}
