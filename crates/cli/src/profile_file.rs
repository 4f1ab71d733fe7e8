//! Machine profiles on disk.

use anyhow::{Context, Result};
use corewise_core::machine_model::MachineModel;
use corewise_core::profile::{self, MachineProfile};
use corewise_sys::input;
use std::path::Path;

/// Reads and checks a profile.
pub fn read(path: &Path) -> Result<MachineProfile> {
    let shown = path.display();
    let text = input::read(path, input::DATA_MAX).with_context(|| {
        format!("cannot read the machine profile {shown}: `corewise calibrate` makes one")
    })?;
    profile::parse(&String::from_utf8_lossy(&text)).with_context(|| shown.to_string())
}

/// Returns the machine as its profile says that it behaves.
pub fn as_it_behaves(path: &Path, profile: &MachineProfile) -> MachineModel {
    let mut machine = MachineModel::from_profile(profile);
    machine.topology.origin = format!("profile {}", path.display());
    machine
}
