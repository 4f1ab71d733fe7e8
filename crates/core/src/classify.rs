//! Classes by rates. "Unknown" is a class of its own, so that no decision rests on a guess.

use crate::view::{Estimate, Usage};
use serde::{Deserialize, Serialize};

/// How much a thread uses the FPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FpuClass {
    /// At or above the threshold.
    Intensive,
    /// Below the threshold.
    Light,
    /// Not enough is known.
    #[default]
    Unknown,
}

/// The default threshold of FPU usage. The BulldOver daemon only ranks; a threshold keeps threads that hardly
/// use the FPU from being bound at all. 0.4 lies in the wide gap of the paper's Table I between h264ref
/// (0.15) and povray (0.72).
pub const FPU_THRESHOLD: f64 = 0.4;

/// Half the width of the band around the threshold in which a thread keeps its previous class.
const FPU_HYSTERESIS: f64 = 0.1;

/// The minimum confidence of an estimate for a decision. It is reached by about 20 (clear cases) to 60 clock
/// samples, and by formulas that their event files rate as fair.
pub const CONFIDENCE_MIN: f64 = 0.5;

/// The share of the active time above which a phase counts, 0..1 (parallelism-aware scheduling §4 gives the 7
/// %). The paper applies it to the sequential part of a parallel program. We also apply it to the parallel
/// part of a sequential program: a helper thread that wakes occasionally, or a shell that waits for a PE next
/// to the command it has just started, does not make a program parallel.
const NOTABLE_SHARE: f64 = 0.07;

/// How parallel a program is over time (parallelism-aware scheduling, §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ParallelismClass {
    /// Single-threaded: more than one runnable thread for at most 7 % of its active time.
    #[serde(rename = "ST")]
    SingleThreaded,
    /// Partially sequential: more than 7 % of its active time with one runnable thread.
    #[serde(rename = "PS")]
    PartiallySequential,
    /// Highly parallel: everything else.
    #[serde(rename = "HP")]
    HighlyParallel,
}

/// What limits a program: computation or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IntensityClass {
    /// Compute-intensive.
    #[serde(rename = "CI")]
    Compute,
    /// Memory-intensive.
    #[serde(rename = "MI")]
    Memory,
}

/// L2 misses per 100 cycles at or above which a program counts as memory-intensive. In Table I of BulldOver
/// the programs known as memory-bound (mcf 1.62, milc 1.74, soplex 2.14, bwaves 0.98) lie above it, the
/// compute-bound ones (hmmer 0.07, gobmk 0.08, gromacs 0.05) far below.
pub const MEMORY_INTENSIVE_L2_MISSES: f64 = 0.7;

/// Returns FPU usage if its confidence suffices for a decision.
pub fn known_fpu_usage(usage: &Usage) -> Option<Estimate> {
    usage.fpu.filter(|estimate| estimate.confidence >= CONFIDENCE_MIN)
}

/// Returns the FPU class by FPU usage and the previous class, which a thread keeps while it is near the
/// threshold. Only floating-point work counts: comparing strings or searching hash tables with integer
/// vectors is no reason to separate threads.
pub fn fpu_class(usage: &Usage, threshold: f64, before: FpuClass) -> FpuClass {
    let Some(estimate) = known_fpu_usage(usage) else {
        // A thread that slept through the interval keeps its class.
        return before;
    };
    let needed = match before {
        FpuClass::Intensive => threshold - FPU_HYSTERESIS,
        FpuClass::Light => threshold + FPU_HYSTERESIS,
        FpuClass::Unknown => threshold,
    };
    if estimate.value >= needed { FpuClass::Intensive } else { FpuClass::Light }
}

/// Returns the class of an application by the fraction of its active time with exactly one runnable thread
/// and by the maximum number of threads that were runnable at once; `None` if it was never active.
pub fn parallelism_class(sequential_fraction: Option<f64>, runnable_max: u32) -> Option<ParallelismClass> {
    let sequential = sequential_fraction?;
    Some(if runnable_max <= 1 || sequential >= 1.0 - NOTABLE_SHARE {
        ParallelismClass::SingleThreaded
    } else if sequential > NOTABLE_SHARE {
        ParallelismClass::PartiallySequential
    } else {
        ParallelismClass::HighlyParallel
    })
}

/// Returns whether a program is compute- or memory-intensive by its L2 misses per 100 cycles; `None` without
/// that counter.
pub fn intensity_class(l2_misses_per_100_cycles: Option<f64>) -> Option<IntensityClass> {
    let misses = l2_misses_per_100_cycles?;
    Some(if misses >= MEMORY_INTENSIVE_L2_MISSES { IntensityClass::Memory } else { IntensityClass::Compute })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Source;

    fn usage(value: f64, confidence: f64) -> Usage {
        Usage { fpu: Some(Estimate { value, confidence, source: Source::Samples }), ..Usage::default() }
    }

    #[test]
    fn near_the_threshold_a_thread_keeps_its_class() {
        use FpuClass::*;
        for (value, before, expected) in [
            (0.45, Unknown, Intensive),
            (0.39, Unknown, Light),
            (0.45, Light, Light),
            (0.35, Intensive, Intensive),
            (0.29, Intensive, Light),
            (0.51, Light, Intensive),
        ] {
            assert_eq!(fpu_class(&usage(value, 0.9), 0.4, before), expected, "{value} after {before:?}");
        }
    }

    #[test]
    fn integer_vectors_do_not_make_a_thread_fpu_intensive() {
        let estimate = |value| Some(Estimate { value, confidence: 0.9, source: Source::Samples });
        let sorting = Usage { fpu: estimate(0.0), vector: estimate(0.8), ..Usage::default() };
        assert_eq!(fpu_class(&sorting, FPU_THRESHOLD, FpuClass::Unknown), FpuClass::Light);
        let of_unknown_fpu = Usage { fpu: None, vector: estimate(0.8), ..Usage::default() };
        assert_eq!(fpu_class(&of_unknown_fpu, FPU_THRESHOLD, FpuClass::Unknown), FpuClass::Unknown);
    }

    #[test]
    fn a_guess_decides_nothing() {
        assert_eq!(fpu_class(&usage(0.99, 0.4), 0.4, FpuClass::Unknown), FpuClass::Unknown);
        assert_eq!(fpu_class(&Usage::default(), 0.4, FpuClass::Intensive), FpuClass::Intensive);
    }

    #[test]
    fn parallelism_classes_are_the_papers() {
        use ParallelismClass::*;
        let check = |sequential, max, expected| {
            assert_eq!(parallelism_class(sequential, max), expected, "{sequential:?} {max}");
        };
        check(Some(1.0), 1, Some(SingleThreaded));
        check(Some(0.96), 4, Some(SingleThreaded));
        check(Some(0.92), 4, Some(PartiallySequential));
        check(Some(0.08), 4, Some(PartiallySequential));
        check(Some(0.07), 4, Some(HighlyParallel));
        check(None, 4, None);
    }

    #[test]
    fn intensity_needs_its_counter() {
        assert_eq!(intensity_class(None), None);
        assert_eq!(intensity_class(Some(1.62)), Some(IntensityClass::Memory));
        assert_eq!(intensity_class(Some(0.07)), Some(IntensityClass::Compute));
    }
}
