//! The machine that a session runs on.

use crate::options::ThisMachine;
use anyhow::Result;
use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::MachineModel;
use corewise_core::topology::Topology;
use corewise_live::HotPlug;
use corewise_render::terminal::message;
use corewise_sys::affinity;
use corewise_topology as topology;
use std::cell::OnceCell;

/// The machine that corewise runs on, loaded on first use.
pub struct Machine {
    options: ThisMachine,
    model: OnceCell<MachineModel>,
}

impl Machine {
    /// Creates it; files about the machine are read at once.
    pub fn of(options: ThisMachine) -> Result<Machine> {
        let is_as_found = options.is_as_found();
        let machine = Machine { options, model: OnceCell::new() };
        if !is_as_found {
            machine.model()?;
        }
        Ok(machine)
    }

    /// Returns what notices PEs that come online, besides those that are online now.
    pub fn hot_plug(&self) -> HotPlug {
        let options = self.options.clone();
        let known = self.model.get().map_or_else(affinity::online_pes, |model| model.topology.pes.clone());
        HotPlug::new(known, move || options.model().map_err(|error| format!("{error:#}")))
    }

    /// Returns its topology.
    pub fn topology(&self) -> Result<&Topology> {
        Ok(&self.model()?.topology)
    }

    pub fn model(&self) -> Result<&MachineModel> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let model = self.options.model()?;
        withheld(&model.topology).iter().for_each(message);
        Ok(self.model.get_or_init(|| model))
    }

    /// Returns the model if it was needed already.
    pub fn loaded(&self) -> Option<&MachineModel> {
        self.model.get()
    }

    /// Returns the model, if some of these PEs are of another kind than the others.
    pub fn of_several_kinds(&self, pes: &CpuSet) -> Option<&MachineModel> {
        let model = if self.is_of_one_kind() { None } else { self.model().ok() }?;
        let kinds = model.topology.kinds.iter().filter(|kind| kind.pes.intersects(pes));
        (kinds.count() > 1).then_some(model)
    }

    /// Returns whether its PEs are of one kind, by what is known instantly.
    pub fn is_of_one_kind(&self) -> bool {
        self.model.get().map_or_else(topology::is_of_one_kind, |model| model.topology.kinds.len() <= 1)
    }
}

/// Returns a note about a kind of PEs of which none may be used.
fn withheld(topology: &Topology) -> Option<String> {
    let Topology { kinds, allowed, .. } = topology;
    let kind = kinds.iter().find(|kind| kinds.len() > 1 && !kind.pes.intersects(allowed))?;
    Some(format!(
        "the {} PEs {} may not be used: the affinity mask or the cpuset that corewise was started with \
         allows {allowed} only (taskset -p $$ shows it)",
        kind.name, kind.pes
    ))
}
