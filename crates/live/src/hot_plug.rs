//! PEs that come online while corewise runs.
//!
//! Problem: the machine model describes the PEs that were online when it was made; one that is switched on
//! later would never be used. (One that goes offline and comes back is known.) Approach: as soon as corewise
//! itself may use a PE that is not in the model, the machine is read anew. Limits: clock samples of the whole
//! machine do not cover such a PE, and a machine profile that lacks it stays in use.

use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::MachineModel;

/// Reads the machine anew; the error says why that is not possible.
type Read = Box<dyn FnMut() -> Result<MachineModel, String>>;

/// Notices them.
pub struct HotPlug {
    known: CpuSet,
    read: Read,
}

impl HotPlug {
    /// Notices PEs that are not among the known ones.
    pub fn new(known: CpuSet, read: impl FnMut() -> Result<MachineModel, String> + 'static) -> HotPlug {
        HotPlug { known, read: Box::new(read) }
    }

    /// Returns the machine as it is now, and a note, if PEs may be used that were unknown.
    pub(crate) fn look(&mut self, allowed: &CpuSet) -> Option<(Option<MachineModel>, String)> {
        let new = allowed.difference(&self.known);
        if new.is_empty() {
            return None;
        }
        self.known = self.known.union(&new);
        Some(match (self.read)() {
            Ok(machine) => {
                self.known = self.known.union(&machine.topology.pes);
                (Some(machine), format!("the PEs {new} came online meanwhile and are used since then"))
            }
            Err(why) => (None, format!("the PEs {new} came online meanwhile and are not used: {why}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::topology::Topology;

    #[test]
    fn the_machine_is_read_anew_once_a_pe_is_new() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let read = || Ok(MachineModel::from(Topology::synthetic("core:4 pu:1").unwrap()));
        let mut plug = HotPlug::new(set("0-2"), read);
        assert!(plug.look(&set("0-2")).is_none() && plug.look(&set("1")).is_none());
        let (machine, note) = plug.look(&set("0-3")).expect("PE 3 is new");
        assert_eq!(machine.unwrap().topology.pes, set("0-3"));
        assert!(note.contains("the PEs 3 came online"), "{note}");
        assert!(plug.look(&set("0-1")).is_none() && plug.look(&set("0-3")).is_none(), "it is known now");
        let mut failing = HotPlug::new(set("0"), || Err("a profile".to_owned()));
        let (machine, note) = failing.look(&set("0-1")).unwrap();
        assert!(machine.is_none() && note.ends_with("not used: a profile"), "{note}");
    }
}
