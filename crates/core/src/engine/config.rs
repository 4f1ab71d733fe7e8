//! What users choose of the engine, and what is fixed.

use crate::classify::FPU_THRESHOLD;
use crate::policy::Claims;
use crate::time::nanoseconds;
use crate::waits::Mitigations;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long the engine leaves a thread alone after the system refused to bind it.
pub const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The maximum number of binds and settings per allowed PE that follow from one observation or one batch of
/// events; it bounds the work of a step. *Ours*: enough for four threads a PE to be placed at once.
pub const BINDS_PER_PE_MAX: usize = 4;

/// The engine's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineConfig {
    /// Time between two steps (BulldOver: one second).
    #[serde(rename = "interval_ns", with = "nanoseconds")]
    pub interval: Duration,
    /// The time over which rates and averages are taken, independent of the time between steps.
    #[serde(rename = "window_ns", with = "nanoseconds")]
    pub window: Duration,
    /// FPU usage at or above which a thread counts as FPU-intensive, 0..1.
    pub fpu_threshold: f64,
    /// How long a bound thread counts as [resident](crate::policy::Subject::resident). Policies that respond
    /// to usage do not move a resident thread; policies that rotate PEs have a period of their own.
    #[serde(rename = "min_residence_ns", with = "nanoseconds")]
    pub min_residence: Duration,
    /// How claims to fast PEs are enforced.
    pub claims: Claims,
    /// What the engine may change about how threads wait.
    #[serde(alias = "mitigations")]
    pub mitigations: Mitigations,
    /// The random seed of the [guard](crate::guard), which measures what the placement gains; `None` runs
    /// without a guard, also of waits.
    pub guard: Option<u64>,
    /// The share of the machine that corewise itself may take, 0..1 ([`crate::own_cost`]); `None`: no limit.
    pub own_cost: Option<f64>,
}

impl EngineConfig {
    /// Returns the parameters for steps at `interval`; the other durations are derived from it.
    pub fn with_interval(interval: Duration) -> Self {
        Self {
            interval,
            window: interval,
            fpu_threshold: FPU_THRESHOLD,
            min_residence: 3 * interval,
            claims: Claims::default(),
            mitigations: Mitigations::default(),
            guard: None,
            own_cost: None,
        }
    }

    /// Returns the same parameters for an engine that only places threads: it changes no waits,
    /// and nothing guards its placement.
    pub fn for_placement_alone(self) -> Self {
        Self { mitigations: Mitigations::default(), guard: None, ..self }
    }

    /// Returns whether any decision depends on how long threads wait for a PE.
    pub fn changes_waits(&self) -> bool {
        self.mitigations.any()
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self::with_interval(Duration::from_secs(1))
    }
}
