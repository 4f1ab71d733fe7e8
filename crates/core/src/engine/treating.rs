//! What follows from the [treatments](Treatment) of processes for their threads and waits.
//!
//! The world says what may be done with a process. Here follows from it that a thread is left alone, which
//! PEs it may use, what may be changed about waits, and why something is given back that was permitted
//! before.

use super::Engine;
use super::intake::{Intake, drop_invalid};
use crate::observe::{Standing, Treatment};
use crate::plan::{Action, Change};
use std::sync::Arc;

/// Why a change of waits is given back that a rule permits no more.
const NOT_PERMITTED: &str = "its rule no longer permits that";

impl Intake {
    /// Works out who decides about a thread, and which PEs it may use, by what it shows and its treatment.
    pub(super) fn settle(&mut self, index: usize) {
        let (subject, shown) = (&mut self.subjects[index], &self.shown[index]);
        subject.treatment = self.treatments.of(shown.pid).cloned();
        let treatment = subject.treatment.as_deref();
        let is_left_alone = treatment.is_some_and(|treatment| treatment.left_alone.is_some());
        subject.view.standing = match shown.standing {
            Standing::Free | Standing::Bound if is_left_alone => Standing::LeftAlone,
            standing => standing,
        };
        subject.view.permitted = match treatment.and_then(|treatment| treatment.pes.as_ref()) {
            Some(pes) => self.treatments.narrow(&shown.permitted, pes),
            None => Arc::clone(&shown.permitted),
        };
    }

    /// A process is treated in another way from now on. Returns the indices of its threads.
    pub(super) fn treat(&mut self, pid: u32, treatment: Option<&Arc<Treatment>>) -> Vec<usize> {
        self.treatments.set(pid, treatment);
        let threads = self.shown.iter().enumerate().filter(|(_, shown)| shown.pid == pid);
        let threads: Vec<usize> = threads.map(|(index, _)| index).collect();
        threads.iter().for_each(|&index| self.settle(index));
        threads
    }

    /// Gives the reason of the treatments to those actions that give back what is not permitted any more.
    pub(super) fn explain(&self, actions: &mut [Action]) {
        for action in actions {
            if let Some(why) = self.why_not_permitted(action) {
                action.reason = why;
            }
        }
    }

    /// Returns why an action gives back something, if it is because a treatment does not permit it.
    pub(super) fn why_not_permitted(&self, action: &Action) -> Option<Arc<str>> {
        match action.change {
            // A process has the ID of its first thread.
            Change::Reset(kind) if kind.is_of_process() => {
                let treatment = self.treatments.of(action.thread.tid)?;
                let why = || treatment.left_alone.clone().unwrap_or_else(|| NOT_PERMITTED.into());
                (!treatment.waits.permit(kind)).then(why)
            }
            Change::Free | Change::Reset(_) => {
                self.subject(action.thread)?.treatment.as_ref()?.left_alone.clone()
            }
            Change::Bind(_) | Change::Set(_) => None,
        }
    }
}

impl Engine {
    /// Takes note that a process is treated in another way. Returns whether something else may be wanted.
    pub(super) fn treat(&mut self, pid: u32, treatment: Option<&Arc<Treatment>>) -> bool {
        for index in self.intake.treat(pid, treatment) {
            let subject = &mut self.intake.subjects[index];
            self.present.judge(subject, self.intake.now, self.config.min_residence);
        }
        self.limit_waits();
        drop_invalid(&mut self.intended, &self.intake);
        true
    }

    /// Takes note of which changes of waits the treatments permit.
    pub(super) fn limit_waits(&mut self) {
        let treatments = &self.intake.treatments;
        self.waits.limit(|pid| treatments.waits(pid));
    }
}
