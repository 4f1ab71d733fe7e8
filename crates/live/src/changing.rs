//! What the world changes: the actuators, the processes whose waits they change, and what became of changes.

use crate::processes::Processes;
use crate::wakes::{Name, Wakes};
use corewise_binding::actuators::Actuators;
use corewise_core::ids::ThreadId;
use corewise_core::observe::ProcessReading;
use corewise_core::plan::{Action, Outcome, OutcomeKind, SettingKind};
use corewise_discovery::{Discovery, NewThread};

/// What changes threads and processes.
pub struct Changing {
    /// What changes them.
    pub actuators: Actuators,
    /// The processes with several threads, if their waits may be changed.
    pub processes: Option<Processes>,
    /// What bound threads have asked for and could not have, in words.
    pub notes: Vec<String>,
    outcomes: Vec<Outcome>,
}

impl Changing {
    /// Nothing was changed yet.
    pub fn new(actuators: Actuators, processes: Option<Processes>) -> Changing {
        Changing { actuators, processes, notes: Vec::new(), outcomes: Vec::new() }
    }

    /// Registers a thread; `is_read`: so that the times of its process are read.
    pub fn meet(&mut self, thread: &NewThread, is_read: bool) {
        self.actuators.meet(thread);
        self.processes.iter_mut().filter(|_| is_read).for_each(|processes| processes.meet(thread));
    }

    /// Threads have ended.
    pub fn forget(&mut self, ended: &[ThreadId]) {
        let processes = self.processes.iter_mut();
        processes.for_each(|processes| ended.iter().for_each(|thread| processes.forget(*thread)));
    }

    /// Carries out actions.
    pub fn apply(&mut self, actions: &[Action]) {
        self.outcomes.extend(self.actuators.apply(actions));
        if let Some(processes) = &mut self.processes {
            let is_changed = |action: &&Action| action.change.setting_kind() == Some(SettingKind::SpinCount);
            let changed = actions.iter().filter(is_changed);
            changed.for_each(|action| processes.note_waits(action.thread.tid, &self.actuators));
        }
    }

    /// Takes in what the guardian has given back while corewise was stopped or hung.
    pub fn take_given_back(&mut self, discovery: &dyn Discovery) {
        for (tid, change) in self.actuators.take_given_back() {
            // What has ended meanwhile is not known any more.
            let thread = discovery.facts(tid).map(|facts| facts.id());
            let outcome = |thread| Outcome { thread, change, result: OutcomeKind::GivenBack };
            self.outcomes.extend(thread.map(outcome));
        }
    }

    /// Takes in what bound threads have asked for and could not have, from the first bind on. It is said at
    /// once where there is a log.
    pub fn take_asks(&mut self, discovery: &mut dyn Discovery) {
        if !self.actuators.has_bound() {
            return;
        }
        for note in self.actuators.note_asks(discovery.asks().as_deref()) {
            log::warn!(corewise_event = "asked"; "{note}");
            self.notes.push(note);
        }
    }

    /// Returns what became of changes since the last call.
    pub fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Reads the processes, if that is due. Returns those that are to be reported.
    pub fn read_processes(&mut self) -> Vec<ProcessReading> {
        let Changing { actuators, processes, .. } = self;
        processes.as_mut().map_or_else(Vec::new, |processes| processes.read(actuators))
    }

    /// Returns the processes as they were last read.
    pub fn last_processes(&mut self) -> Vec<ProcessReading> {
        let Changing { actuators, processes, .. } = self;
        processes.as_mut().map_or_else(Vec::new, |processes| processes.last(actuators))
    }

    /// Returns whether a process has several threads.
    pub fn has_teams(&self) -> bool {
        self.processes.as_ref().is_some_and(|processes| processes.meter.has_teams())
    }

    /// Returns whether corewise better does not interrupt programs now.
    pub fn is_interruption_harmful(&self) -> bool {
        self.processes.as_ref().is_some_and(|processes| processes.meter.is_any_interruption_harmful())
    }

    /// Enters what wakes it.
    pub fn enter(&self, wakes: &mut Wakes<'_>) {
        wakes.due(Name::Processes, self.processes.as_ref().and_then(Processes::due_within));
        wakes.due(Name::Changes, self.actuators.due_within());
    }
}
