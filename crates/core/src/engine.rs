//! The engine: turns one observation into the next actions.
//!
//! Problem: a policy states the best placement for this instant. Applied blindly, it makes threads flap,
//! overrides users who placed their own threads, and repeats what the system has refused. Approach:
//! `intake` turns the readings of the world into the state of each thread (`threads`) and application
//! (`applications`), with rates and averages over time (`windows`). Three deciders want something: the
//! policy (`placing`), the rules of waits (`waiting`) and the guards (`guards`). Limits hold for all of
//! them: `acting` drops what violates the [guarantees](#what-the-engine-guarantees) below, and emits the
//! difference to the placement in force (`present`). Sources: the one-second control loop and the caching
//! of BulldOver §IV and §V.C; the guarantees are ours.
//!
//! # What the engine guarantees
//!
//! - A thread is bound only to PEs that its user permits and that are allowed now. PEs taken by another run
//!   of corewise are avoided as long as others are left.
//! - A thread that a rule keeps on some PEs leaves them neither without a policy nor for the guard.
//! - A thread that set its own mask, or was placed by its user, is never touched.
//! - A thread that inherited a mask set by corewise gets its own mask back.
//! - A thread that works alone in its process keeps its mask: it is moved, as its program may still ask how
//!   many PEs it may use (`moves`).
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
use crate::guard::waits::{WaitsFindings, WaitsGuard};
use crate::guard::{Findings, Guard};
use crate::ids::{AppId, ThreadId};
use crate::losses::Knowledge;
use crate::machine_model::MachineModel;
use crate::observe::{Event, EventBatch, EventKind, Observation, ThreadReading, Treatment};
use crate::own_cost::OwnCost;
use crate::plan::{Action, Placement};
use crate::policy::{Cause, Policy, Predicted, Subject};
use crate::topology::Topology;
use crate::view::ApplicationView;
use acting::Acting;
use guards::Guards;
use intake::Intake;
use limits::drop_invalid;
use placing::Placing;
use present::Present;
use std::sync::Arc;
use std::time::Duration;
use waiting::Waiting;

mod acting;
mod applications;
mod config;
mod confinement;
mod gangs;
mod guards;
mod intake;
mod limits;
mod moves;
mod placing;
mod present;
mod settings;
mod threads;
mod treatments;
mod waiting;
mod windows;

pub use config::EngineConfig;
pub use limits::{BINDS_PER_PE_MAX, RETRY_AFTER};
pub use present::OVER;

/// The minimum time between two observations for the guard, even if it is overdue.
const LOOK_MIN: Duration = Duration::from_millis(2);

/// Decides for one machine with one policy, and holds the state of each thread.
pub struct Engine {
    machine: MachineModel,
    config: EngineConfig,
    intake: Intake,
    placing: Placing,
    waiting: Waiting,
    guards: Guards,
    present: Present,
    own_cost: Option<OwnCost>,
}

impl Engine {
    /// Creates an engine for one machine and one policy. A topology is sufficient; a calibrated machine model
    /// gives better decisions.
    pub fn new(machine: impl Into<MachineModel>, policy: Box<dyn Policy>, config: EngineConfig) -> Self {
        let machine = machine.into();
        Self {
            config,
            intake: Intake::default(),
            placing: Placing::new(policy),
            waiting: Waiting::new(config.waits, machine.switching),
            machine,
            guards: Guards::new(&config),
            present: Present::default(),
            own_cost: config.own_cost.map(OwnCost::new),
        }
    }

    /// Gives it what earlier runs have taught about programs.
    pub fn know(&mut self, knowledge: Arc<Knowledge>) {
        self.intake.knowledge = knowledge;
    }

    /// Returns what earlier runs have taught about programs.
    pub fn knowledge(&self) -> &Arc<Knowledge> {
        &self.intake.knowledge
    }

    /// Returns the time until the next observation. It is shorter while a process is being checked for
    /// spinning, while the guard measures, and while the policy waits for a phase to last; and longer,
    /// however urgent that is, while the own cost is above its limit.
    pub fn interval(&self) -> Duration {
        if let Some(own_cost) = self.own_cost.filter(OwnCost::is_stretched) {
            return own_cost.interval(self.config.interval);
        }
        let now = self.intake.now;
        let due = self.guards.due().chain(self.placing.policy.due()).chain(self.present.due(now));
        let due = due.map(|due| due.since(now).max(LOOK_MIN));
        self.waiting.judged_within(now).into_iter().chain(due).fold(self.config.interval, Duration::min)
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
        self.placing.policy.needs().events.iter().copied().chain(waits).chain([EventKind::Treated]).collect()
    }

    /// Returns its parameters.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns whether clock samples would show something that is worth what they cost.
    pub fn needs_samples(&self) -> bool {
        self.waiting.needs_samples()
    }

    /// Replaces the machine model by a better one of the same machine.
    pub fn set_machine(&mut self, machine: impl Into<MachineModel>) {
        self.machine = machine.into();
        self.waiting.set_costs(self.machine.switching);
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
        self.placing.policy.name()
    }

    /// Returns where threads are bound, as far as the engine knows.
    pub fn present(&self) -> &Placement {
        self.present.placement()
    }

    /// Returns why the policy does nothing on this machine, if it gave a reason.
    pub fn nothing_to_gain(&self) -> Option<&str> {
        self.placing.nothing_to_gain.as_deref()
    }

    /// Returns what the placement that the policy wants is predicted to lose and to gain; `None` where that
    /// is not known, or nothing is bound.
    pub fn predicted(&self) -> Option<&Predicted> {
        self.placing.predicted.as_ref()
    }

    /// Returns whether waits may be changed.
    pub fn handles_waits(&self) -> bool {
        self.config.changes_waits()
    }

    /// Returns why the policy has given up, if it has.
    pub fn policy_failure(&self) -> Option<&str> {
        self.placing.policy.failure()
    }

    /// Returns what the guard has found; `None` without a guard.
    pub fn findings(&self) -> Option<&Findings> {
        self.guards.placement.as_ref().map(Guard::findings)
    }

    /// Returns what the guard has found about waits; `None` without a guard, or if none were changed.
    pub fn waits_findings(&self) -> Option<&WaitsFindings> {
        self.guards.waits.as_ref().and_then(WaitsGuard::findings)
    }

    /// Returns what the other runs of the user are to know of this one's waits, if anything.
    pub fn note(&self) -> Option<&Note> {
        self.guards.waits.as_ref().and_then(WaitsGuard::note)
    }

    /// Returns notes for the user: which threads were left alone because others undid their bindings.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.present.notes()
    }

    /// Returns a thread that the policy wants bound, if a guard is to measure what that gains. Threads that
    /// have their own PEs only because their program takes turns do not count.
    pub fn guarded(&self) -> Option<ThreadId> {
        self.guards.placement.as_ref().and_then(|_| self.placing.guarded(&self.intake).min())
    }

    /// Returns the last FPU class of a thread. For a thread that ended in the last step, this is the class
    /// from its last reading.
    pub fn fpu_class(&self, thread: ThreadId) -> FpuClass {
        self.intake.threads.fpu_class(thread)
    }

    /// Returns what is known of a living thread.
    pub fn subject(&self, thread: ThreadId) -> Option<&Subject> {
        self.intake.subject(thread)
    }

    /// Returns what an application did recently.
    pub fn application(&self, app: AppId) -> Option<&ApplicationView> {
        self.intake.applications.views.get(&app)
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
            self.waiting.take_outcome(outcome);
        }
        self.intake.begin(observation, &self.machine.topology);
        self.waiting.limit(&self.intake.treatments);
        self.intake.threads.take_programs(&observation.programs);
        self.waiting.take_programs(&observation.programs);
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
            self.waiting.take_process(reading, &self.intake, &self.guards);
        }
        self.waiting.judge(&observation.threads, now, &self.guards);
        if self.placing.begin(now, self.config.interval) {
            self.ask(Cause::Interval);
        } else {
            // A placement that was valid when the policy chose it may have become impossible.
            drop_invalid(&mut self.placing.intended, &self.intake);
        }
        let is_placed = self.placing.guarded(&self.intake).next().is_some();
        self.guards.take_threads(observation, &self.intake, is_placed);
        let (changes, gangs) = self.waiting.for_others();
        self.guards.take_board(observation, changes, gangs);
        self.acting().decide(&mut actions);
        actions
    }

    /// Takes in events and returns the actions that follow from them. Only the threads and applications named
    /// in the events are updated, and the policy is asked only if it [answers](Policy::answers) one of them.
    pub fn react(&mut self, batch: &EventBatch) -> Vec<Action> {
        let now = batch.at;
        self.intake.now = now;
        for outcome in &batch.outcomes {
            self.present.take_outcome(outcome, now);
            self.waiting.take_outcome(outcome);
            self.intake.take_outcome(outcome);
            self.judge(outcome.thread);
        }
        let mut actions = Vec::new();
        let mut is_changed = false;
        for event in &batch.events {
            is_changed |= self.take_event(event, &mut actions);
        }
        let cause = Cause::Events(&batch.events);
        if self.placing.policy.answers(&self.intake.scene(cause, &self.machine, self.config.claims)) {
            self.ask(cause);
            self.acting().decide(&mut actions);
        } else if is_changed {
            self.acting().settle_waits(&mut actions);
        }
        actions
    }

    /// Takes in an event. Returns whether something else may be wanted, whatever the policy says.
    fn take_event(&mut self, event: &Event, actions: &mut Vec<Action>) -> bool {
        match event {
            // An observation that was made while this event waited shows the thread as it is now.
            Event::ThreadStarted(reading) if self.intake.subject(reading.thread).is_some() => {}
            Event::ThreadStarted(reading) => self.meet(reading, actions),
            Event::ThreadEnded(thread) => {
                self.intake.threads.remove(*thread);
                self.forget(*thread);
            }
            Event::ThreadRenamed { thread, name } => self.intake.rename(*thread, name),
            Event::TlpChanged(runnable) => self.intake.take_runnable(*runnable),
            Event::Hint { thread, hints } => self.intake.take_hints(*thread, *hints),
            Event::AllowedChanged(pes) => self.intake.take_allowed(pes, &self.machine.topology),
            Event::Process(reading) => {
                return self.waiting.take_process(reading, &self.intake, &self.guards);
            }
            Event::Treated { pid, treatment } => {
                self.treat(*pid, treatment.as_ref());
                return true;
            }
        }
        false
    }

    fn forget(&mut self, thread: ThreadId) {
        self.present.forget(thread);
        self.waiting.forget(thread);
    }

    /// Takes in the reading of a living thread.
    fn meet(&mut self, reading: &ThreadReading, actions: &mut Vec<Action>) {
        actions.extend(self.present.meet(reading, self.intake.allowed()));
        let now = self.intake.now;
        let subject = self.intake.take_thread(reading, &self.config);
        self.present.judge(subject, now, self.config.min_residence);
    }

    /// Takes note that a process is treated in another way.
    fn treat(&mut self, pid: u32, treatment: Option<&Arc<Treatment>>) {
        for thread in self.intake.treat(pid, treatment) {
            self.judge(thread);
        }
        self.waiting.limit(&self.intake.treatments);
        drop_invalid(&mut self.placing.intended, &self.intake);
    }

    /// Updates whether a thread may be bound now.
    fn judge(&mut self, thread: ThreadId) {
        let now = self.intake.now;
        if let Some(subject) = self.intake.threads.subject_mut(thread) {
            self.present.judge(subject, now, self.config.min_residence);
        }
    }

    fn ask(&mut self, cause: Cause<'_>) {
        let by = (cause, &self.machine, self.config.claims);
        self.placing.ask(by, self.present.placement(), &mut self.intake, &self.guards);
    }

    fn acting(&mut self) -> Acting<'_> {
        let Engine { placing, waiting, guards, present, intake, .. } = self;
        Acting { placing, waiting, guards, present, known: intake }
    }

    /// Returns the actions that restore everything that is still changed.
    pub fn release_all(&mut self) -> Vec<Action> {
        self.present.release_all()
    }
}

#[cfg(test)]
mod tests;
