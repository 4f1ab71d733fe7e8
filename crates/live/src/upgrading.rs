//! How the heavier sources take the place of the light ones; see [`crate::upgrade`].

use crate::upgrade::Upgrade;
use crate::{LiveError, LiveWorld};
use corewise_core::observe::EventKind;
use corewise_core::world::World;
use corewise_discovery::Discovery;
use corewise_discovery::continued::Continued;
use corewise_sys::proc::Proc;

impl LiveWorld {
    /// Gets what is due of what was deferred.
    pub(crate) fn upgrade_if_due(&mut self) -> Result<(), LiveError> {
        let Some(mut deferred) = self.parts.deferred.take().filter(|_| self.watching) else { return Ok(()) };
        let has_teams = self.parts.processes.as_ref().is_some_and(|processes| processes.meter.has_teams());
        let is_due = deferred.is_due();
        if (is_due || has_teams)
            && let Some(arm) = deferred.arm.take()
        {
            self.notes.extend(arm(&mut self.parts.actuators).err());
        }
        if is_due {
            deferred.begin().map_err(|error| LiveError::Sources(error.to_string()))?;
        }
        match deferred.take() {
            Some(Ok(upgrade)) => self.upgrade(upgrade),
            Some(Err(why)) => Err(LiveError::Sources(why)),
            None => {
                self.parts.deferred = Some(deferred);
                Ok(())
            }
        }
    }

    /// Lets the heavier sources take the place of the light ones.
    fn upgrade(&mut self, upgrade: Upgrade) -> Result<(), LiveError> {
        let Upgrade { discovery, appeared, counters, machine, work, board, notes } = upgrade;
        let first = &mut *self.parts.discovery;
        let (mut discovery, threads) = Continued::after(first, discovery, appeared, &Proc::own())?;
        if self.kinds.contains(&EventKind::TlpChanged) {
            discovery.report_tlp();
        }
        if let Some(followed) = discovery.followed() {
            self.parts.actuators.follow(followed);
        }
        (self.parts.discovery, self.parts.counters) = (Box::new(discovery), counters);
        for taken in threads {
            match taken.is_new {
                true => self.meet(&taken.thread),
                false => self.parts.counters.watch(&taken.thread),
            }
        }
        let now = self.now();
        self.parts.applications.iter_mut().for_each(|application| application.began = now);
        (self.parts.work, self.machine, self.is_complete) = (work, Some(machine), true);
        *self.parts.board.borrow_mut() = board;
        self.notes.extend(notes);
        Ok(())
    }
}
