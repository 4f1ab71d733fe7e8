//! What a world gets after its start: the heavier sources of a run that begins with light ones
//! ([`crate::upgrade`]), and PEs that come online ([`crate::hot_plug`]).

use crate::error::LiveError;
use crate::hot_plug::HotPlug;
use crate::upgrade::{Deferred, Upgrade};
use crate::wakes::{Name, Wakes};
use corewise_binding::actuators::Actuators;
use corewise_binding::shared::board::SharedBoard;
use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::MachineModel;
use std::cell::RefCell;
use std::rc::Rc;

/// See the module documentation.
pub struct Later {
    /// What the run has yet to get.
    deferred: Option<Deferred>,
    /// Whether everything that sources show is available.
    pub is_complete: bool,
    /// A model of the machine that is not yet taken.
    pub machine: Option<MachineModel>,
    /// What notices PEs that come online.
    pub hot_plug: Option<HotPlug>,
    /// What all runs of the user share, if changes of waits are guarded.
    pub board: Rc<RefCell<Option<SharedBoard>>>,
    /// What the user should know of it.
    pub notes: Vec<String>,
}

impl Later {
    /// Waits for what is deferred, if anything is.
    pub fn new(deferred: Option<Deferred>, board: Rc<RefCell<Option<SharedBoard>>>) -> Later {
        let is_complete = deferred.is_none();
        Later { deferred, is_complete, machine: None, hot_plug: None, board, notes: Vec::new() }
    }

    /// Returns whether the heavier sources are still to come.
    pub fn is_pending(&self) -> bool {
        self.deferred.is_some()
    }

    /// Nobody needs it any more.
    pub fn abandon(&mut self) {
        self.deferred = None;
    }

    /// Notices PEs that have come online.
    pub fn look_for_pes(&mut self, allowed: &CpuSet) {
        if let Some((machine, note)) = self.hot_plug.as_mut().and_then(|plug| plug.look(allowed)) {
            self.machine = machine.or(self.machine.take());
            self.notes.push(note);
        }
    }

    /// Does what is due of what was deferred. Returns the heavier sources once they are ready.
    pub fn due(&mut self, has_teams: bool, actuators: &mut Actuators) -> Result<Option<Upgrade>, LiveError> {
        let Some(mut deferred) = self.deferred.take() else { return Ok(None) };
        let is_due = deferred.is_due();
        if (is_due || has_teams)
            && let Some(arm) = deferred.arm.take()
        {
            self.notes.extend(arm(actuators).err());
        }
        if is_due {
            deferred.begin().map_err(|error| LiveError::Sources(error.to_string()))?;
        }
        match deferred.take() {
            Some(result) => result.map(Some).map_err(LiveError::Sources),
            None => {
                self.deferred = Some(deferred);
                Ok(None)
            }
        }
    }

    /// The heavier sources are in use now, and this is known with them.
    pub fn complete(&mut self, machine: MachineModel, board: Option<SharedBoard>, notes: Vec<String>) {
        (self.machine, self.is_complete) = (Some(machine), true);
        *self.board.borrow_mut() = board;
        self.notes.extend(notes);
    }

    /// Enters what wakes it.
    pub fn enter<'a>(&'a self, wakes: &mut Wakes<'a>) {
        if let Some(deferred) = &self.deferred {
            wakes.due(Name::Upgrade, [deferred.due_within()]);
            wakes.readable(Name::Upgrade, deferred.wake_fd());
        }
    }
}
