//! What the world reports of treatments, and which processes it reads because of them.

use crate::LiveWorld;
use crate::treatments::{MakeTreatments, Treated};
use corewise_core::observe::{EventKind, Treatments};
use std::collections::HashSet;
use std::sync::Arc;

impl LiveWorld {
    /// Sets who says from now on how processes are treated.
    pub fn set_treatments(&mut self, by: Box<dyn MakeTreatments>) {
        self.treated = Treated::by(by);
    }

    /// Returns how these processes, which are all, are treated; reads from now on those whose waits may be
    /// changed.
    pub(super) fn treatments(&mut self, processes: &HashSet<u32>) -> Arc<Treatments> {
        let treatments = self.treated.all(processes);
        self.treated.unread.retain(|pid| processes.contains(pid));
        let may_wait = |pid: &u32| treatments.get(pid).is_none_or(|treatment| treatment.waits.any());
        let again: Vec<u32> = self.treated.unread.iter().copied().filter(may_wait).collect();
        again.into_iter().for_each(|pid| self.read_again(pid));
        treatments.keys().filter(|pid| !may_wait(pid)).for_each(|pid| self.leave(*pid));
        treatments
    }

    /// Reports that a process is treated in another way, if it is.
    pub(super) fn note_treatment(&mut self, pid: u32) {
        if self.kinds.contains(&EventKind::Treated) {
            let news = self.treated.news(pid);
            self.events.extend(news);
        }
    }

    /// Looks anew at how a process is treated.
    pub(super) fn treat_anew(&mut self, pid: u32) {
        self.note_treatment(pid);
        let was_unread = self.treated.unread.remove(&pid);
        match self.treated.is_read(pid) {
            true if was_unread => self.read_again(pid),
            true => {}
            false => self.leave(pid),
        }
    }

    /// Reads the threads of a process no more.
    fn leave(&mut self, pid: u32) {
        let processes = self.parts.processes.as_mut();
        if processes.and_then(|processes| processes.leave(pid)).is_some() {
            self.treated.unread.insert(pid);
        }
    }

    /// Reads the threads of a process from now on.
    fn read_again(&mut self, pid: u32) {
        self.treated.unread.remove(&pid);
        self.meet_again(pid);
    }
}
