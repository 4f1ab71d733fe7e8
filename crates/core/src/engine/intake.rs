//! The engine's state of each thread, each application and the PEs, built from what the world reports.
//!
//! An observation renews everything. An event updates only what it names, so its cost stays proportional to
//! the change. Consequences for other threads (if an application has one runnable thread, its others rest)
//! are computed only when a policy asks ([`Intake::settle_runnable`]).

use super::config::EngineConfig;
use super::treatments::{InForce, Shown, pes_of};
use super::windows::{ApplicationWindow, ThreadWindow};
use crate::classify::FpuClass;
use crate::cpuset::CpuSet;
use crate::ids::{AppId, ThreadId};
use crate::machine_model::MachineModel;
use crate::observe::{
    ApplicationReading, Hints, Observation, Program, RunnableThreads, Standing, ThreadReading,
};
use crate::plan::{Assignment, Change, Outcome, OutcomeKind, Placement};
use crate::policy::{Cause, Claims, Scene, Subject};
use crate::time::Time;
use crate::topology::Topology;
use crate::view::{ApplicationView, ThreadView};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of all threads and applications.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// The time of the last observation or event.
    pub now: Time,
    /// The PEs that may be used.
    pub allowed: CpuSet,
    /// The PEs that others use or have reserved.
    reserved: CpuSet,
    taken: CpuSet,
    /// How processes are treated.
    pub treatments: InForce,
    /// Every living thread, in the order of the last observation.
    pub subjects: Vec<Subject>,
    /// For each subject, what it shows of itself.
    pub shown: Vec<Shown>,
    /// Every application.
    pub applications: BTreeMap<AppId, ApplicationView>,
    threads: FxHashMap<ThreadId, Thread>,
    application_windows: BTreeMap<AppId, ApplicationWindow>,
    /// The runnable threads of each application, where the world reports every change.
    runnable: BTreeMap<AppId, RunnableThreads>,
    /// For each subject, whether it wanted a PE for half of the last window.
    wanted_recently: Vec<bool>,
    /// The last class of the threads that ended in the last step.
    ended: FxHashMap<ThreadId, FpuClass>,
    /// The time of the observation before the last.
    before: Time,
    /// The time of the last observation.
    observed: Time,
}

#[derive(Debug, Default)]
struct Thread {
    /// Boxed so that lookups of `index` do not have to skip over all windows.
    window: Box<ThreadWindow>,
    /// Its index among the subjects, until its end is reported.
    index: Option<usize>,
}

impl Intake {
    /// Starts a new observation.
    pub fn begin(&mut self, observation: &Observation, machine: &Topology) {
        let (now, threads) = (observation.at, observation.threads.len());
        (self.before, self.observed, self.now) = (self.observed, now, now);
        (self.reserved, self.taken) = (observation.reserved.clone(), observation.taken.clone());
        self.take_allowed(&observation.allowed, machine);
        self.treatments.replace(&observation.treatments);
        self.ended.clear();
        self.subjects.clear();
        self.shown.clear();
        self.wanted_recently.clear();
        self.subjects.reserve(threads);
        self.threads.reserve(threads.saturating_sub(self.threads.len()));
    }

    /// Takes in the PEs that are allowed from now on.
    pub fn take_allowed(&mut self, allowed: &CpuSet, machine: &Topology) {
        // The machine model does not cover PEs that came online after it was made.
        let allowed = allowed.intersection(&machine.pes).difference(&self.reserved);
        // Avoid the PEs of other runs: independent runs of one policy would choose the same PEs first.
        let untaken = allowed.difference(&self.taken);
        self.allowed = if untaken.is_empty() { allowed } else { untaken };
    }

    /// Takes in which programs processes run now: what they ran before says nothing of these.
    pub fn take_programs(&mut self, programs: &[Program]) {
        for leader in programs.iter().map(|program| program.leader) {
            self.threads.get_mut(&leader).into_iter().for_each(|thread| thread.window.begin_anew());
        }
    }

    /// Takes in the reading of a living thread. Whether the thread may be bound is decided elsewhere.
    pub fn take_thread(&mut self, reading: &ThreadReading, config: &EngineConfig) -> &mut Subject {
        let index = self.subjects.len();
        let thread = self.threads.entry(reading.thread).or_default();
        thread.index = Some(index);
        let window = &mut thread.window;
        if let Some(counters) = &reading.counters {
            window.take_counters(counters, config.fpu_threshold, self.now, config.window);
        }
        let before = if self.now == self.observed { self.before } else { self.observed };
        let demand = window.take_demand(reading, before, self.now, config.window);
        self.wanted_recently.push(demand.runnable);
        self.subjects.push(Subject {
            view: ThreadView {
                thread: reading.thread,
                app: reading.app,
                runnable_share: demand.share,
                last_pe: reading.last_pe,
                standing: reading.standing,
                permitted: reading.permitted.clone(),
                usage: window.usage(),
            },
            name: reading.name.clone(),
            runnable: demand.runnable,
            hints: reading.hints,
            treatment: None,
            fpu_class: window.class(),
            placeable: false,
            resident: false,
            assignment: None,
        });
        self.shown.push(Shown::of(reading));
        self.settle(index);
        &mut self.subjects[index]
    }

    /// Classifies an ended thread by its last reading, for reports, and forgets the thread.
    pub fn take_end(&mut self, reading: &ThreadReading, config: &EngineConfig) {
        let mut window = self.threads.remove(&reading.thread).unwrap_or_default().window;
        if let Some(counters) = &reading.counters {
            window.take_counters(counters, config.fpu_threshold, self.now, config.window);
        }
        self.ended.insert(reading.thread, window.class());
    }

    /// Takes in the readings of all applications. An application without a reading is forgotten.
    pub fn take_applications(&mut self, readings: &[ApplicationReading], config: &EngineConfig) {
        let mut windows = std::mem::take(&mut self.application_windows);
        self.applications.clear();
        for reading in readings {
            let mut window = windows.remove(&reading.app).unwrap_or_default();
            let mut view = window.take(reading, self.before, self.now, config.window);
            if let Some(runnable) = self.runnable.get(&reading.app) {
                (view.runnable, view.only) = (Some(runnable.count), runnable.only);
            }
            self.applications.insert(reading.app, view);
            self.application_windows.insert(reading.app, window);
        }
        self.runnable.retain(|app, _| self.applications.contains_key(app));
    }

    /// Takes in a changed number of runnable threads of an application. One that is not known yet is judged
    /// by that until the next observation.
    pub fn take_runnable(&mut self, mut runnable: RunnableThreads) {
        runnable.only = runnable.only.filter(|&thread| self.subject(thread).is_some());
        // It may have executed a program since the last observation, and belong to another application now.
        if let Some(subject) = runnable.only.and_then(|thread| self.subject_mut(thread)) {
            subject.view.app = runnable.app;
        }
        let view = self.applications.entry(runnable.app).or_insert_with(|| ApplicationView {
            tlp_mean: f64::from(runnable.count),
            sequential_fraction: None,
            exact: false,
            runnable: None,
            only: None,
        });
        (view.runnable, view.only) = (Some(runnable.count), runnable.only);
        self.runnable.insert(runnable.app, runnable);
    }

    /// Takes in hints of a runtime library about a thread.
    pub fn take_hints(&mut self, thread: ThreadId, hints: Hints) {
        if let Some(index) = self.index(thread) {
            self.subjects[index].hints = hints;
        }
    }

    /// Updates a thread's standing from the outcome of an action.
    pub fn take_outcome(&mut self, outcome: &Outcome) {
        let standing = match (&outcome.change, &outcome.result) {
            (Change::Bind(_), OutcomeKind::Done) => Standing::Bound,
            (Change::Free, OutcomeKind::Done | OutcomeKind::GivenBack) => Standing::Free,
            // Until the next observation shows who set the mask.
            (Change::Bind(_) | Change::Free, OutcomeKind::NotOurs) => Standing::SelfPinned,
            (Change::Bind(_) | Change::Free, _) | (Change::Set(_) | Change::Reset(_), _) => return,
        };
        if let Some(index) = self.index(outcome.thread) {
            self.shown[index].standing = standing;
            self.settle(index);
        }
    }

    /// Renames a thread.
    pub fn rename(&mut self, thread: ThreadId, name: &Arc<str>) {
        if let Some(index) = self.index(thread) {
            self.subjects[index].name = name.clone();
        }
    }

    /// Removes a thread that has ended; its last reading is still to come.
    pub fn remove(&mut self, thread: ThreadId) {
        let Some(index) = self.threads.get_mut(&thread).and_then(|thread| thread.index.take()) else {
            return;
        };
        self.subjects.swap_remove(index);
        self.shown.swap_remove(index);
        self.wanted_recently.swap_remove(index);
        if let Some(moved) = self.subjects.get(index).and_then(|s| self.threads.get_mut(&s.view.thread)) {
            moved.index = Some(index);
        }
    }

    /// Updates which threads are runnable. In an application with at most one runnable thread this is known
    /// for the present instant, for all of its threads; otherwise it follows from the last window.
    pub fn settle_runnable(&mut self) {
        if self.runnable.is_empty() {
            return;
        }
        for (subject, &wanted_recently) in self.subjects.iter_mut().zip(&self.wanted_recently) {
            subject.runnable = match self.runnable.get(&subject.view.app) {
                Some(RunnableThreads { count: 0, .. }) => false,
                Some(RunnableThreads { only: Some(only), .. }) => *only == subject.view.thread,
                Some(_) | None => wanted_recently,
            };
        }
    }

    /// Updates where each thread is bound.
    pub fn settle_assignments(&mut self, present: &Placement) {
        for subject in &mut self.subjects {
            let assignment = present.bound.get(&subject.view.thread);
            let is_confinement = |of: &&Assignment| Some(&of.pes) == pes_of(subject);
            subject.assignment = assignment.filter(|of| !is_confinement(of)).cloned();
        }
    }

    /// Returns whether any thread of an application is known to be runnable at this instant.
    pub fn works(&self, app: AppId) -> bool {
        self.runnable.get(&app).is_some_and(|runnable| runnable.count > 0)
    }

    /// Returns the threads that wanted a PE during the last window but rest at this instant.
    pub fn resting(&self) -> impl Iterator<Item = &Subject> {
        let subjects = self.subjects.iter().zip(&self.wanted_recently);
        subjects.filter(|(s, wanted_recently)| **wanted_recently && !s.runnable).map(|(subject, _)| subject)
    }

    /// Returns the policy's view of the state.
    pub fn scene<'a>(&'a self, cause: Cause<'a>, machine: &'a MachineModel, claims: Claims) -> Scene<'a> {
        Scene {
            now: self.now,
            cause,
            machine,
            allowed: &self.allowed,
            claims,
            threads: &self.subjects,
            applications: &self.applications,
        }
    }

    /// Returns whether the guard measures what the placement of a thread gains.
    pub fn is_guarded(&self, thread: ThreadId) -> bool {
        let treatment = self.subject(thread).and_then(|subject| subject.treatment.as_ref());
        treatment.is_none_or(|treatment| treatment.guard)
    }

    /// Returns a living thread.
    pub fn subject(&self, thread: ThreadId) -> Option<&Subject> {
        self.index(thread).map(|index| &self.subjects[index])
    }

    /// Returns a living thread for modification.
    pub fn subject_mut(&mut self, thread: ThreadId) -> Option<&mut Subject> {
        self.index(thread).map(|index| &mut self.subjects[index])
    }

    fn index(&self, thread: ThreadId) -> Option<usize> {
        self.threads.get(&thread).and_then(|thread| thread.index)
    }

    /// Returns the last FPU class of a thread. For a thread that ended in the last step, this is the class
    /// from its last reading.
    pub fn fpu_class(&self, thread: ThreadId) -> FpuClass {
        let living = self.threads.get(&thread).map(|thread| thread.window.class());
        living.or_else(|| self.ended.get(&thread).copied()).unwrap_or_default()
    }
}

/// Drops assignments that violate a rule: unknown or unplaceable threads, and PEs that are not allowed or
/// permitted.
pub(super) fn drop_invalid(wanted: &mut Placement, known: &Intake) {
    wanted.bound.retain(|&thread, assignment| {
        known.subject(thread).is_some_and(|subject| {
            subject.placeable
                && !assignment.pes.is_empty()
                && assignment.pes.is_subset(&known.allowed)
                && assignment.pes.is_subset(&subject.view.permitted)
        })
    });
}
