//! What a comparison finds.

use super::energy::EnergyResult;
use crate::estimate::Estimate;
use corewise_core::guard::Findings;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a scenario. Everything in it is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: String,
    /// Always `simulated`.
    pub evidence: &'static str,
    /// A description of the machine.
    pub machine: String,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub runs: u32,
    /// The variants; the first is the baseline.
    pub variants: Vec<VariantResult>,
}

/// One variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantResult {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// Its applications by name.
    pub applications: Vec<AppResult>,
    /// Geometric mean of the applications' speedups over the baseline; `null` if one did not complete.
    pub speedup: Option<Estimate>,
    /// Time until every application has completed once.
    pub all_done_seconds: Option<Estimate>,
    /// The baseline's time until then divided by this one's.
    pub all_done_speedup: Option<Estimate>,
    /// The sum of the applications' progress; meant for runs in which applications restart until a fixed
    /// time.
    pub weighted_speedup: Option<Estimate>,
    /// This sum divided by the baseline's.
    pub weighted_speedup_over_default: Option<Estimate>,
    /// Smallest progress divided by the largest, 0..1.
    pub fairness: Option<Estimate>,
    /// Energy; `null` if the machine's power is not described.
    pub energy: Option<EnergyResult>,
    /// Migrations per run, by the closest thing that both PEs share.
    pub migrations: BTreeMap<&'static str, Estimate>,
    /// Settings of waits that were changed per run, by their kind.
    pub settings: BTreeMap<String, Estimate>,
    /// What some of these figures are in each seed.
    pub by_seed: BySeed,
    /// The findings of the guard in the first run; `null` without a guard.
    pub guard: Option<Findings>,
    /// The timeline of the first run: which thread ran where.
    pub timeline: String,
    /// The duration of that run.
    pub timeline_seconds: f64,
}

/// Figures of a variant in each seed, in the order of the seeds; empty where one is not known in all.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct BySeed {
    /// Geometric mean of the applications' speedups.
    pub speedup: Vec<f64>,
    /// The baseline's time until all are done divided by this one's.
    pub all_done_speedup: Vec<f64>,
    /// The weighted speedup divided by the baseline's.
    pub weighted_speedup_over_default: Vec<f64>,
    /// Mean share of the applications' active time in which one thread was seen to be runnable, 0..1.
    pub sequential_fraction: Vec<f64>,
}

/// One application in one variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AppResult {
    /// Its name.
    pub name: String,
    /// Completion time; `null` if it did not complete in each seed.
    pub seconds: Option<Estimate>,
    /// Standard deviation of the time over the seeds, relative to the mean.
    pub spread: Option<Estimate>,
    /// Time of the baseline divided by the time here.
    pub speedup: Option<Estimate>,
    /// What it gets done in a second, relative to alone on the machine; of all copies together.
    pub progress: Option<Estimate>,
    /// Share of its active time in which exactly one thread was seen to be runnable, 0..1.
    pub sequential_fraction: Option<Estimate>,
    /// Its instructions per second of the whole run.
    pub instructions_per_second: Option<Estimate>,
    /// Share of its CPU time on the fastest PEs, 0..1; `null` if all PEs are equally fast.
    pub fast_share: Option<Estimate>,
    /// Energy of a run that its threads' cores and memory took, in joules; `null` if the machine's power is
    /// not described.
    pub joules: Option<Estimate>,
}
