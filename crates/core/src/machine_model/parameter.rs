//! The parameters of the predictor.

use super::figure::ASSUMED_CONFIDENCE;
use serde::{Deserialize, Serialize};

/// A parameter of the predictor and its source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name, as in a scenario of the simulator.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Its confidence, 0..1.
    pub confidence: f64,
    /// The measurement that it comes from; `None` for a round default.
    pub from: Option<String>,
}

/// Sharing of execution units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Units {
    /// Cycles lost when two threads want the shared FPU at once: 0 (it serves both), 1 (one waits), or more
    /// where they disturb each other beyond that.
    pub fpu_conflict: f64,
    /// Cycles lost when two threads want the issue slots of an SMT core at once, likewise.
    pub issue_conflict: f64,
    /// Cycles lost when two threads want the divider of an SMT core at once, likewise.
    pub divider_conflict: f64,
    /// Cycles lost when two threads want an SMT core's window of instructions (reorder buffer) at once,
    /// likewise.
    pub window_conflict: f64,
    /// Instructions that a core can issue per cycle.
    pub issue_width: f64,
    /// Share of its time in the core that a thread loses by each busy neighbour on its SMT core, whatever
    /// they execute: to buffers, predictors and first-level caches that the hardware divides.
    pub smt_cost: f64,
}

/// Caches and memory. Their sizes are part of the topology.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Latency of an L2 miss that the L3 serves, in nanoseconds.
    pub l3_latency_ns: f64,
    /// Latency of a miss that idle local memory serves, in nanoseconds.
    pub memory_latency_ns: f64,
    /// Share of a miss's latency that is hidden behind other work, 0 to 0.99.
    pub overlap: f64,
    /// Bandwidth of one memory node, in GB (10⁹ bytes) per second.
    pub bandwidth_gb_per_s: f64,
    /// Latency of another node's memory as a multiple of the local one.
    pub remote_factor: f64,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            fpu_conflict: 1.0,
            issue_conflict: 1.0,
            divider_conflict: 1.0,
            window_conflict: 1.0,
            issue_width: 4.0,
            smt_cost: 0.0,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            l3_latency_ns: 15.0,
            memory_latency_ns: 80.0,
            overlap: 0.7,
            bandwidth_gb_per_s: 20.0,
            remote_factor: 1.5,
        }
    }
}

impl Parameter {
    /// Returns a round default.
    pub(super) fn assumed(name: &'static str, value: f64) -> Self {
        Self { name, value, confidence: ASSUMED_CONFIDENCE, from: None }
    }
}
