//! The energy of a variant. A figure is that of a whole run: where applications
//! start again until the slowest has ended, runs differ in the work that they do.

use crate::estimate::Estimate;
use serde::Serialize;

/// The energy of one run, in joules.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct RunEnergy {
    pub total: f64,
    pub idle: f64,
    pub uncore: f64,
}

impl From<&crate::sim::power::Energy> for RunEnergy {
    fn from(energy: &crate::sim::power::Energy) -> Self {
        Self { total: energy.total(), idle: energy.idle, uncore: energy.uncore }
    }
}

/// The energy of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EnergyResult {
    /// Energy of a run, in joules.
    pub joules: Estimate,
    /// Of it, that of idle cores.
    pub idle_joules: Estimate,
    /// Of it, that of what the cores of a package share.
    pub uncore_joules: Estimate,
    /// Power over a run, in watts.
    pub watts: Estimate,
    /// Energy of a run times its duration, in joule seconds.
    pub energy_delay_joule_seconds: Estimate,
}
