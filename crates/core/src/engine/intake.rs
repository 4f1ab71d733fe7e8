//! The engine's state of each thread, each application and the PEs, built from what the world reports.
//!
//! An observation renews everything. An event updates only what it names, so its cost stays proportional to
//! the change. Consequences for other threads (if an application has one runnable thread, its others rest)
//! are computed only when a policy asks ([`Intake::settle_runnable`]).

use super::applications::Applications;
use super::config::EngineConfig;
use super::threads::Threads;
use super::treatments::InForce;
use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::losses::Knowledge;
use crate::machine_model::MachineModel;
use crate::observe::{
    ApplicationReading, Hints, Observation, RunnableThreads, Standing, ThreadReading, Treatment,
};
use crate::plan::{Action, Change, Outcome, OutcomeKind};
use crate::policy::{Cause, Claims, Scene, Subject};
use crate::time::Time;
use crate::topology::Topology;
use std::sync::Arc;

/// Why a change of waits is given back that a rule permits no more.
const NOT_PERMITTED: &str = "its rule no longer permits that";

/// The state of all threads and applications.
#[derive(Debug, Default)]
pub struct Intake {
    /// The time of the last observation or event.
    pub now: Time,
    /// The times of the last observation, and of the one before it.
    observed: Time,
    before: Time,
    pes: Pes,
    /// How processes are treated.
    pub treatments: InForce,
    /// The threads.
    pub threads: Threads,
    /// The applications.
    pub applications: Applications,
    /// What earlier runs have taught.
    pub knowledge: Arc<Knowledge>,
}

/// Which PEs there are for threads.
#[derive(Debug, Default)]
struct Pes {
    /// Those that may be used.
    allowed: CpuSet,
    /// Those that others have reserved.
    reserved: CpuSet,
    /// Those that other runs of corewise use.
    taken: CpuSet,
}

impl Intake {
    /// Starts a new observation.
    pub fn begin(&mut self, observation: &Observation, machine: &Topology) {
        (self.before, self.observed, self.now) = (self.observed, observation.at, observation.at);
        (self.pes.reserved, self.pes.taken) = (observation.reserved.clone(), observation.taken.clone());
        self.take_allowed(&observation.allowed, machine);
        self.treatments.replace(&observation.treatments);
        self.threads.begin(observation.threads.len());
    }

    /// Takes in the PEs that are allowed from now on.
    pub fn take_allowed(&mut self, allowed: &CpuSet, machine: &Topology) {
        // The machine model does not cover PEs that came online after it was made.
        let allowed = allowed.intersection(&machine.pes).difference(&self.pes.reserved);
        // Avoid the PEs of other runs: independent runs of one policy would choose the same PEs first.
        let untaken = allowed.difference(&self.pes.taken);
        self.pes.allowed = if untaken.is_empty() { allowed } else { untaken };
    }

    /// Returns the PEs that may be used.
    pub fn allowed(&self) -> &CpuSet {
        &self.pes.allowed
    }

    /// Returns whether everything was observed just now.
    pub fn is_fresh(&self) -> bool {
        self.now == self.observed
    }

    /// Takes in the reading of a living thread.
    pub fn take_thread(&mut self, reading: &ThreadReading, config: &EngineConfig) -> &mut Subject {
        let before = if self.now == self.observed { self.before } else { self.observed };
        self.threads.take(reading, (before, self.now), &mut self.treatments, config)
    }

    /// Takes in the last reading of a thread that has ended.
    pub fn take_end(&mut self, reading: &ThreadReading, config: &EngineConfig) {
        self.threads.take_end(reading, self.now, config);
    }

    /// Takes in the readings of all applications.
    pub fn take_applications(&mut self, readings: &[ApplicationReading], config: &EngineConfig) {
        self.applications.take(readings, (self.before, self.now), config);
    }

    /// Takes in a changed number of runnable threads of an application.
    pub fn take_runnable(&mut self, mut runnable: RunnableThreads) {
        runnable.only = runnable.only.filter(|&thread| self.subject(thread).is_some());
        // It may have executed a program since the last observation, and belong to another application now.
        if let Some(subject) = runnable.only.and_then(|thread| self.threads.subject_mut(thread)) {
            subject.view.app = runnable.app;
        }
        self.applications.take_runnable(runnable);
    }

    /// Takes in hints of a runtime library about a thread.
    pub fn take_hints(&mut self, thread: ThreadId, hints: Hints) {
        self.threads.subject_mut(thread).into_iter().for_each(|subject| subject.hints = hints);
    }

    /// Renames a thread.
    pub fn rename(&mut self, thread: ThreadId, name: &Arc<str>) {
        self.threads.subject_mut(thread).into_iter().for_each(|subject| subject.name = name.clone());
    }

    /// Updates a thread's standing from the outcome of an action.
    pub fn take_outcome(&mut self, outcome: &Outcome) {
        let standing = match (&outcome.change, &outcome.result) {
            (Change::Bind(_), OutcomeKind::Done) => Standing::Bound,
            (Change::Free | Change::Move(_), OutcomeKind::Done | OutcomeKind::GivenBack) => Standing::Free,
            // Until the next observation shows who set the mask.
            (Change::Bind(_) | Change::Move(_) | Change::Free, OutcomeKind::NotOurs) => Standing::SelfPinned,
            (_, _) => return,
        };
        self.threads.show(outcome.thread, standing, &mut self.treatments);
    }

    /// A process is treated in another way from now on. Returns its threads.
    pub fn treat(&mut self, pid: u32, treatment: Option<&Arc<Treatment>>) -> Vec<ThreadId> {
        self.threads.treat(pid, treatment, &mut self.treatments)
    }

    /// Updates which threads are runnable. In an application with at most one runnable thread this is known
    /// for the present instant, for all of its threads; otherwise it follows from the last window.
    pub fn settle_runnable(&mut self) {
        let runnable = &self.applications.runnable;
        if runnable.is_empty() {
            return;
        }
        for (subject, wanted_recently) in self.threads.with_demand() {
            subject.runnable = match runnable.get(&subject.view.app) {
                Some(RunnableThreads { count: 0, .. }) => false,
                Some(RunnableThreads { only: Some(only), .. }) => *only == subject.view.thread,
                Some(_) | None => wanted_recently,
            };
        }
    }

    /// Returns the policy's view of the state.
    pub fn scene<'a>(&'a self, cause: Cause<'a>, machine: &'a MachineModel, claims: Claims) -> Scene<'a> {
        Scene {
            now: self.now,
            cause,
            machine,
            knowledge: &self.knowledge,
            allowed: self.allowed(),
            claims,
            threads: self.subjects(),
            applications: &self.applications.views,
        }
    }

    /// Returns whether the guard measures what the placement of a thread gains.
    pub fn is_guarded(&self, thread: ThreadId) -> bool {
        let treatment = self.subject(thread).and_then(|subject| subject.treatment.as_ref());
        treatment.is_none_or(|treatment| treatment.guard)
    }

    /// Returns every living thread, in the order of the last observation.
    pub fn subjects(&self) -> &[Subject] {
        &self.threads.subjects
    }

    /// Returns a living thread.
    pub fn subject(&self, thread: ThreadId) -> Option<&Subject> {
        self.threads.subject(thread)
    }

    /// Gives the reason of the treatments to those actions that give back what is not permitted any more.
    pub fn explain(&self, actions: &mut [Action]) {
        for action in actions {
            if let Some(why) = self.why_not_permitted(action) {
                action.reason = why;
            }
        }
    }

    /// Returns why an action gives back something, if it is because a treatment does not permit it.
    pub fn why_not_permitted(&self, action: &Action) -> Option<Arc<str>> {
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
            Change::Bind(_) | Change::Move(_) | Change::Set(_) => None,
        }
    }
}
