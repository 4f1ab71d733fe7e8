//! A calibrated machine for the simulator: the model of its profile ([`MachineModel::from_profile`]), with
//! what only a simulation needs. Calibrations do not measure the costs of moving and switching, nor the noise
//! of counters: these are the simulator's defaults.

use crate::machine::{Machine, MachineError, MachineSpec, SpeedSpec};
use crate::scenario::merge;
use corewise_core::machine_model::{Absent, MachineModel};
use corewise_core::profile::MachineProfile;

/// Why a profile cannot be used as a machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MeasuredError {
    /// It lacks a measurement that has no default.
    #[error(transparent)]
    Absent(#[from] Absent),
    /// The parameters are invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The scenario describes the machine, too.
    #[error("[machine] has both `profile` and `{field}`: leave out one")]
    Both {
        /// The conflicting field.
        field: &'static str,
    },
    /// The profile cannot be written as a scenario's machine.
    #[error("the machine profile cannot be used in a scenario: {0}")]
    Words(String),
}

/// Removes and returns the profile that a scenario's machine names.
pub fn take_name(scenario: &mut toml::Table) -> Option<String> {
    let machine = scenario.get_mut("machine")?.as_table_mut()?;
    machine.get("profile")?.as_str()?;
    machine.remove("profile").and_then(|name| name.as_str().map(str::to_owned))
}

/// Inserts a calibrated machine below the scenario's own values for its machine, which take precedence.
pub fn put(scenario: &mut toml::Table, profile: &MachineProfile) -> Result<(), MeasuredError> {
    let words = |error: toml::ser::Error| MeasuredError::Words(error.to_string());
    let mut machine = toml::Table::try_from(machine(profile)?.spec).map_err(words)?;
    if let Some(toml::Value::Table(own)) = scenario.remove("machine") {
        if let Some(field) = ["topology", "shape"].into_iter().find(|field| own.contains_key(*field)) {
            return Err(MeasuredError::Both { field });
        }
        // A latency in cycles replaces the one in nanoseconds.
        if let (Some(toml::Value::Table(memory)), Some(toml::Value::Table(own))) =
            (machine.get_mut("memory"), own.get("memory"))
        {
            memory.retain(|key, _| {
                key.strip_suffix("_ns").is_none_or(|name| !own.contains_key(&format!("{name}_cycles")))
            });
        }
        merge(&mut machine, own);
    }
    scenario.insert("machine".to_owned(), toml::Value::Table(machine));
    Ok(())
}

/// Returns the machine of a profile.
pub fn machine(profile: &MachineProfile) -> Result<Machine, MeasuredError> {
    let model = MachineModel::from_profile(profile);
    model.has_clock()?;
    let about = profile.circumstances.processor.as_ref();
    let slower = model.topology.pes.iter().map(|pe| (pe, model.pes[pe.0 as usize].speed));
    let slower = slower.filter(|(_, speed)| *speed != 1.0);
    let spec = MachineSpec {
        name: format!("{} ({})", about.unwrap_or(&profile.reported.origin), profile.evidence),
        speeds: slower.map(|(pe, speed)| SpeedSpec { pes: pe.to_string(), speed, reported: None }).collect(),
        ghz: model.ghz,
        units: model.units,
        memory: model.memory.into(),
        shape: Some(model.topology.clone()),
        ..MachineSpec::plain(&format!("{} PEs as calibrated", model.topology.pes.len()))
    };
    Ok(Machine::new(spec)?)
}

#[cfg(test)]
mod tests;
