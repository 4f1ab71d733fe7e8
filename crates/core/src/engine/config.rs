//! The parameters of an engine.

use crate::classify::FPU_THRESHOLD;
use crate::policy::Claims;
use crate::time::nanoseconds;
use crate::waits::WaitChanges;
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
    pub waits: WaitChanges,
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
            waits: WaitChanges::default(),
            guard: None,
            own_cost: None,
        }
    }

    /// Returns the same parameters for an engine that only places threads: it changes no waits,
    /// and nothing guards its placement.
    pub fn for_placement_alone(self) -> Self {
        Self { waits: WaitChanges::default(), guard: None, ..self }
    }

    /// Returns whether any decision depends on how long threads wait for a PE.
    pub fn changes_waits(&self) -> bool {
        self.waits.any()
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self::with_interval(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_the_version_before_name_the_changes_of_waits_otherwise() {
        let config = EngineConfig { waits: WaitChanges::ALL, ..EngineConfig::default() };
        let written = serde_json::to_string(&config).unwrap();
        let before = written.replace("\"waits\"", "\"mitigations\"");
        assert_ne!(before, written);
        for text in [before, written] {
            assert_eq!(serde_json::from_str::<EngineConfig>(&text).unwrap(), config);
        }
    }
}
