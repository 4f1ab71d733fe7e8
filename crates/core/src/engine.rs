//! The engine: turns one observation into the next actions.
//!
//! Problem: a policy states the best placement for this instant. Applied blindly, it makes threads flap,
//! overrides users who placed their own threads, and repeats what the system has refused. Approach: `intake`
//! turns the readings of the world into the state of each thread and application, with rates and averages
//! over time (`windows`). The engine then asks the policy, drops what violates the
//! [guarantees](#what-the-engine-guarantees) below, and emits the difference to the placement in force
//! (`present`). Sources: the one-second control loop and the caching of BulldOver §IV and §V.C; the
//! guarantees are ours.
//!
//! # What the engine guarantees
//!
//! - A thread is bound only to PEs that its user permits and that are allowed now. PEs taken by another run
//!   of corewise are avoided as long as others are left.
//! - A thread that a rule keeps on some PEs leaves them neither without a policy nor for the guard.
//! - A thread that set its own mask, or was placed by its user, is never touched.
//! - A thread that inherited a mask set by corewise gets its own mask back.
//! - A refused action is not repeated for [`RETRY_AFTER`], an unsupported one never.
//! - A thread whose binding was undone three times, by itself or by another program, is not bound again.
//! - Each observation, and each batch of events, leads to at most [`BINDS_PER_PE_MAX`] binds and settings per
//!   allowed PE, whatever they are for. Giving back has no limit.
//! - With a [guard](crate::guard), a placement that hurts the program is reverted, and so are changes of
//!   waits and turns that hurt the programs of all runs together.
//!
//! Limits: the engine reads no clock; if steps come late, so do its decisions.

use crate::board::Note;
use crate::classify::FpuClass;
use crate::guard::waits::{self, WaitsFindings, WaitsGuard};
use crate::guard::{Findings, Guard};
use crate::ids::{AppId, ThreadId};
use crate::machine_model::MachineModel;
use crate::observe::{
    CounterReading, Event, EventBatch, EventKind, Observation, ProcessReading, ThreadReading,
};
use crate::own_cost::OwnCost;
use crate::plan::{Action, Placement, SettingKind};
use crate::policy::{Cause, Policy, Subject};
use crate::time::Time;
use crate::topology::Topology;
use crate::view::ApplicationView;
use crate::waits::{State, Waits};
use gangs::{Gangs, Why};
use intake::{Intake, drop_invalid};
use present::Present;
use std::collections::hash_map::Entry;
use std::time::Duration;

mod acting;
mod config;
mod confinement;
mod gangs;
mod intake;
mod present;
mod settings;
mod treating;
mod treatments;
mod windows;

pub use config::{BINDS_PER_PE_MAX, EngineConfig, RETRY_AFTER};
pub use present::OVER;

/// The minimum time between two observations for the guard, even if it is overdue.
const LOOK_MIN: Duration = Duration::from_millis(2);

/// Decides for one machine with one policy, and holds the state of each thread.
pub struct Engine {
    machine: MachineModel,
    policy: Box<dyn Policy>,
    config: EngineConfig,
    intake: Intake,
    present: Present,
    waits: Waits,
    gangs: Gangs,
    guard: Option<Guard>,
    waits_guard: Option<WaitsGuard>,
    own_cost: Option<OwnCost>,
    /// What the policy wants, whether or not the guard permits it.
    intended: Placement,
    /// When the policy was last asked because the interval had elapsed.
    asked: Option<Time>,
    nothing_to_gain: Option<String>,
}

impl Engine {
    /// Creates an engine for one machine and one policy. A topology is sufficient; a calibrated machine model
    /// gives better decisions.
    pub fn new(machine: impl Into<MachineModel>, policy: Box<dyn Policy>, config: EngineConfig) -> Self {
        Self {
            machine: machine.into(),
            policy,
            config,
            intake: Intake::default(),
            present: Present::default(),
            waits: Waits::new(config.mitigations),
            gangs: Gangs::default(),
            guard: config.guard.map(Guard::new),
            waits_guard: config.guard.filter(|_| config.changes_waits()).map(|_| WaitsGuard::default()),
            own_cost: config.own_cost.map(OwnCost::new),
            intended: Placement::default(),
            asked: None,
            nothing_to_gain: None,
        }
    }

    /// Returns the time until the next observation. It is shorter while a process is being checked for
    /// spinning, while the guard measures, and while the policy waits for a phase to last; and longer,
    /// however urgent that is, while the own cost is above its limit.
    pub fn interval(&self) -> Duration {
        if let Some(own_cost) = self.own_cost.filter(OwnCost::is_stretched) {
            return own_cost.interval(self.config.interval);
        }
        let now = self.intake.now;
        let waits = self.waits.judged_within(now);
        let guards =
            [self.guard.as_ref().and_then(Guard::due), self.waits_guard.as_ref().and_then(WaitsGuard::due)];
        let due = guards.into_iter().chain([self.policy.due()]).flatten();
        let due = due.map(|due| due.since(now).max(LOOK_MIN));
        waits.into_iter().chain(due).fold(self.config.interval, Duration::min)
    }

    /// Returns the interval that its own cost permits; `None` if that has no limit.
    pub fn own_interval(&self) -> Option<Duration> {
        self.own_cost.map(|own_cost| own_cost.interval(self.config.interval))
    }

    /// Returns how long the world should leave events alone after it has taken some in.
    pub fn rest(&self) -> Duration {
        self.own_cost.map_or(Duration::ZERO, |own_cost| own_cost.rest(self.config.interval))
    }

    /// Returns why it looks rarer than its interval says, if it does.
    pub fn looks_rarer(&self) -> Option<String> {
        self.own_cost.and_then(|own_cost| own_cost.reason())
    }

    /// Returns the kinds of events to subscribe to: those that the policy needs, times of processes if their
    /// waits may be changed, and changed treatments.
    pub fn event_kinds(&self) -> Vec<EventKind> {
        let waits = self.config.changes_waits().then_some(EventKind::Process);
        self.policy.needs().events.iter().copied().chain(waits).chain([EventKind::Treated]).collect()
    }

    /// Returns its parameters.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns whether clock samples would show something that is worth what they cost.
    pub fn needs_samples(&self) -> bool {
        self.waits.needs_samples()
    }

    /// Replaces the machine model by a better one of the same machine.
    pub fn set_machine(&mut self, machine: impl Into<MachineModel>) {
        self.machine = machine.into();
    }

    /// Returns the machine model.
    pub fn machine(&self) -> &MachineModel {
        &self.machine
    }

    /// Returns the machine's topology.
    pub fn topology(&self) -> &Topology {
        &self.machine.topology
    }

    /// Returns the policy's name, with its parameters.
    pub fn policy_name(&self) -> &str {
        self.policy.name()
    }

    /// Returns where threads are bound, as far as the engine knows.
    pub fn present(&self) -> &Placement {
        self.present.placement()
    }

    /// Returns why the policy does nothing on this machine, if it gave a reason.
    pub fn nothing_to_gain(&self) -> Option<&str> {
        self.nothing_to_gain.as_deref()
    }

    /// Returns whether waits may be changed.
    pub fn handles_waits(&self) -> bool {
        self.config.changes_waits()
    }

    /// Returns why the policy has given up, if it has.
    pub fn policy_failure(&self) -> Option<&str> {
        self.policy.failure()
    }

    /// Returns what the guard has found; `None` without a guard.
    pub fn findings(&self) -> Option<&Findings> {
        self.guard.as_ref().map(Guard::findings)
    }

    /// Returns what the guard has found about waits; `None` without a guard, or if none were changed.
    pub fn waits_findings(&self) -> Option<&WaitsFindings> {
        self.waits_guard.as_ref().and_then(WaitsGuard::findings)
    }

    /// Returns what the other runs of the user are to know of this one's waits, if anything.
    pub fn note(&self) -> Option<&Note> {
        self.waits_guard.as_ref().and_then(WaitsGuard::note)
    }

    /// Returns notes for the user: which threads were left alone because others undid their bindings.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.present.notes()
    }

    /// Returns a thread that the policy wants bound, if a guard is to measure what that gains. Threads that
    /// have their own PEs only because their program takes turns do not count.
    pub fn guarded(&self) -> Option<ThreadId> {
        let guarded = self.intended.bound.keys().filter(|thread| self.intake.is_guarded(**thread));
        self.guard.as_ref().and_then(|_| guarded.min().copied())
    }

    /// Returns the last FPU class of a thread. For a thread that ended in the last step, this is the class
    /// from its last reading.
    pub fn fpu_class(&self, thread: ThreadId) -> FpuClass {
        self.intake.fpu_class(thread)
    }

    /// Returns what is known of a living thread.
    pub fn subject(&self, thread: ThreadId) -> Option<&Subject> {
        self.intake.subject(thread)
    }

    /// Returns what an application did recently.
    pub fn application(&self, app: AppId) -> Option<&ApplicationView> {
        self.intake.applications.get(&app)
    }

    /// Takes in an observation and returns the actions that follow from it.
    pub fn step(&mut self, observation: &Observation) -> Vec<Action> {
        let now = observation.at;
        if let Some(own_cost) = &mut self.own_cost {
            let pes = self.machine.topology.pes.len();
            // Looking more rarely makes answers no cheaper: who asks has a budget of their own.
            let own_ns = observation.own_cpu_ns.saturating_sub(observation.answers_cpu_ns);
            own_cost.take(now, own_ns, self.config.interval, pes);
        }
        for outcome in &observation.outcomes {
            self.present.take_outcome(outcome, now);
            self.waits.take_outcome(outcome);
        }
        self.intake.begin(observation, &self.machine.topology);
        self.limit_waits();
        self.intake.take_programs(&observation.programs);
        self.waits.take_programs(&observation.programs);
        let mut actions = Vec::new();
        for reading in &observation.threads {
            if reading.ended {
                self.intake.take_end(reading, &self.config);
                self.forget(reading.thread);
                continue;
            }
            self.meet(reading, &mut actions);
        }
        self.intake.take_applications(&observation.applications, &self.config);
        for reading in &observation.processes {
            self.take_process(reading);
        }
        self.judge_waits(&observation.threads);
        if self.is_policy_due() {
            self.asked = Some(now);
            self.ask(Cause::Interval);
        } else {
            // A placement that was valid when the policy chose it may have become impossible.
            drop_invalid(&mut self.intended, &self.intake);
        }
        if let Some(guard) = &mut self.guard {
            let known = &self.intake;
            let wanted = self.intended.bound.keys().any(|thread| known.is_guarded(*thread));
            let guarded = |reading: &&ThreadReading| known.treatments.is_guarded(reading.pid);
            guard.take(now, observation.threads.iter().filter(guarded), wanted);
        }
        if let (Some(guard), Some(board)) = (&mut self.waits_guard, &observation.board) {
            let (changes, threads) = (self.waits.is_any_changed_for_others(), &observation.threads[..]);
            let gangs = self.waits.in_state(State::Turns).count() as u32;
            guard.take(board, waits::Present { now, threads, changes, gangs });
        }
        self.decide(&mut actions);
        actions
    }

    /// Returns whether the policy's interval has elapsed, or it wants to be asked. While a process is checked
    /// for spinning or the guard measures, observations are more frequent than that.
    fn is_policy_due(&self) -> bool {
        let (now, interval) = (self.intake.now, self.config.interval);
        if self.policy.due().is_some_and(|due| due <= now) {
            return true;
        }
        self.asked.is_none_or(|asked| now.since(asked) >= interval - interval / 8)
    }

    /// Takes in events and returns the actions that follow from them. Only the threads and applications named
    /// in the events are updated, and the policy is asked only if it [answers](Policy::answers) one of them.
    pub fn react(&mut self, batch: &EventBatch) -> Vec<Action> {
        let now = batch.at;
        self.intake.now = now;
        for outcome in &batch.outcomes {
            self.present.take_outcome(outcome, now);
            self.waits.take_outcome(outcome);
            self.intake.take_outcome(outcome);
            if let Some(subject) = self.intake.subject_mut(outcome.thread) {
                self.present.judge(subject, now, self.config.min_residence);
            }
        }
        let mut actions = Vec::new();
        let mut is_changed = false;
        for event in &batch.events {
            match event {
                // An observation that was made while this event waited shows the thread as it is now.
                Event::ThreadStarted(reading) if self.intake.subject(reading.thread).is_some() => {}
                Event::ThreadStarted(reading) => self.meet(reading, &mut actions),
                Event::ThreadEnded(thread) => {
                    self.intake.remove(*thread);
                    self.forget(*thread);
                }
                Event::ThreadRenamed { thread, name } => self.intake.rename(*thread, name),
                Event::TlpChanged(runnable) => self.intake.take_runnable(*runnable),
                Event::Hint { thread, hints } => self.intake.take_hints(*thread, *hints),
                Event::AllowedChanged(pes) => self.intake.take_allowed(pes, &self.machine.topology),
                Event::Process(reading) => is_changed |= self.take_process(reading),
                Event::Treated { pid, treatment } => is_changed |= self.treat(*pid, treatment.as_ref()),
            }
        }
        let cause = Cause::Events(&batch.events);
        if self.policy.answers(&self.intake.scene(cause, &self.machine, self.config.claims)) {
            self.ask(cause);
            self.decide(&mut actions);
        } else if is_changed {
            let mut wanted = self.present.placement().clone();
            drop_invalid(&mut wanted, &self.intake);
            self.apply_wanted(&mut wanted, &mut actions);
        }
        actions
    }

    /// Takes in the times of a process. Returns whether other waits are wanted.
    fn take_process(&mut self, reading: &ProcessReading) -> bool {
        let may = self.intake.treatments.waits(reading.leader.tid);
        // Times of an epoch without changes say nothing about the rules.
        if self.is_disturbed(reading.at) {
            self.waits.skip(reading, may);
            return false;
        }
        self.waits.take(reading, may, self.intake.now)
    }

    fn forget(&mut self, thread: ThreadId) {
        self.present.forget(thread);
        self.waits.forget(thread);
    }

    /// Returns whether an epoch of the guard of waits has disturbed what happened at this time.
    fn is_disturbed(&self, since: Time) -> bool {
        self.waits_guard.as_ref().is_some_and(|guard| guard.disturbs(since))
    }

    /// Determines which of the delayed processes spin, and which processes take turns or are kept apart.
    fn judge_waits(&mut self, threads: &[ThreadReading]) {
        if self.is_disturbed(self.intake.now) {
            self.waits.judge_anew();
            return;
        }
        for leader in self.waits.to_judge() {
            let of_process = threads.iter().filter(|reading| reading.pid == leader.tid);
            let samples = of_process.filter_map(|reading| match &reading.counters {
                Some(CounterReading::Sample(sample)) => Some((reading.thread, sample)),
                Some(CounterReading::Pmu(_)) | None => None,
            });
            self.waits.judge(leader, samples.collect(), self.intake.now);
        }
        let threads_of = |(why, leader): (Why, ThreadId)| {
            let of_process = threads.iter().filter(|reading| reading.pid == leader.tid && !reading.ended);
            (leader, (why, of_process.map(|reading| reading.thread).collect()))
        };
        let in_turns = self.waits.in_state(State::Turns).map(|leader| (Why::Turns, leader));
        let apart = self.waits.apart(self.intake.now).map(|leader| (Why::Yields, leader));
        self.gangs.set_members(in_turns.chain(apart).map(threads_of).collect());
    }

    /// Takes in the reading of a living thread.
    fn meet(&mut self, reading: &ThreadReading, actions: &mut Vec<Action>) {
        actions.extend(self.present.meet(reading, &self.intake.allowed));
        let now = self.intake.now;
        let subject = self.intake.take_thread(reading, &self.config);
        self.present.judge(subject, now, self.config.min_residence);
    }

    /// Asks the policy what it wants, if there is a PE: before the first observation none is known, and a
    /// scene without PEs has no right answer.
    fn ask(&mut self, cause: Cause<'_>) {
        if self.intake.allowed.is_empty() {
            return drop_invalid(&mut self.intended, &self.intake);
        }
        self.intake.settle_runnable();
        self.intake.settle_assignments(shown(self.guard.as_ref(), &self.present, &self.intended));
        let mut wanted = self.policy.place(&self.intake.scene(cause, &self.machine, self.config.claims));
        self.nothing_to_gain = wanted.nothing_to_gain.take();
        // A thread that rests briefly will want its PE again, and keeping its assignment costs nothing until
        // then.
        for subject in self.intake.resting() {
            let (thread, key) = (subject.view.thread, (subject.view.thread, SettingKind::Weight));
            let Some(assignment) = &subject.assignment else { continue };
            // A claim passes to the thread of the application that works now.
            let has_claim = self.present.placement().settings.contains_key(&key);
            if has_claim && self.intake.works(subject.view.app) {
                continue;
            }
            if let Entry::Vacant(entry) = wanted.bound.entry(thread) {
                entry.insert(assignment.clone());
                let weight = self.present.placement().settings.get(&key);
                wanted.settings.extend(weight.map(|weight| (key, weight.clone())));
            }
        }
        drop_invalid(&mut wanted, &self.intake);
        self.intended = wanted;
    }

    /// Returns the actions that restore everything that is still changed.
    pub fn release_all(&mut self) -> Vec<Action> {
        self.present.release_all()
    }
}

/// Returns the placement that the policy should see as in force. While the guard measures without the
/// placement, that is the intended one: the guard's trials are invisible to policies.
fn shown<'a>(guard: Option<&Guard>, present: &'a Present, intended: &'a Placement) -> &'a Placement {
    if guard.is_none_or(Guard::is_in_force) { present.placement() } else { intended }
}

#[cfg(test)]
mod tests;
