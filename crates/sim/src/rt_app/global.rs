//! What a workload says for all its tasks.

use super::error::{RtAppError, at};
use super::json::Json;
use crate::machine::{Machine, MachineSpec};
use corewise_core::ids::PeId;

/// Settings that do not affect which thread runs when.
const WITHOUT_EFFECT: [&str; 10] = [
    "lock_pages",
    "logdir",
    "log_basename",
    "log_size",
    "ftrace",
    "gnuplot",
    "frag",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
];

/// The contents of `global`.
pub struct Global {
    /// How long a task loops that has no number of loops.
    pub duration_us: Option<f64>,
    /// Millions of cycles per microsecond of `run`.
    pub mcycles_per_us: f64,
    /// Whether a time is a fixed amount of work on every PE.
    pub is_uniform: bool,
}

impl Global {
    /// Reads `global`.
    pub fn of(entries: Vec<(String, Json)>, machine: &MachineSpec) -> Result<Self, RtAppError> {
        let built = Machine::new(machine.clone())?;
        let speeds = || built.model.topology.allowed.iter().map(|pe| built.model.pes[pe.0 as usize].speed);
        let one = speeds().next().unwrap_or(1.0);
        let is_uniform = speeds().all(|speed| speed == one);
        let mut global = Self { duration_us: None, mcycles_per_us: machine.ghz / 1e3, is_uniform };
        let model = &built.model;
        let first = model.topology.allowed.first();
        let mut calibrated_on = first;
        for (key, value) in entries {
            let path = format!("global.{key}");
            match (key.as_str(), value) {
                ("duration", Json::Number(-1.0)) => global.duration_us = None,
                ("duration", Json::Number(seconds)) if seconds > 0.0 => {
                    global.duration_us = Some(1e6 * seconds);
                }
                ("calibration", Json::Text(text)) => {
                    let number = text.strip_prefix("CPU").and_then(|number| number.parse().ok());
                    let pe = number.map(PeId).filter(|&pe| model.topology.pes.contains(pe));
                    let write = first.map_or(String::new(), |pe| format!(": write CPU{}", pe.0));
                    let words = || at(&path, format!("`{text}` is not a PE of the machine{write}"));
                    calibrated_on = Some(pe.ok_or_else(words)?);
                }
                // Nanoseconds per loop: for a PE of speed 1.
                ("calibration", Json::Number(_)) => calibrated_on = None,
                ("default_policy", Json::Text(policy)) if policy == "SCHED_OTHER" => {}
                ("pi_enabled", Json::Bool(false)) => {}
                (key, _) if WITHOUT_EFFECT.contains(&key) => {}
                (_, value) => return Err(at(&path, format!("{value} cannot be simulated"))),
            }
        }
        if let Some(pe) = calibrated_on {
            global.mcycles_per_us *= model.pes[pe.0 as usize].speed;
        }
        Ok(global)
    }
}
