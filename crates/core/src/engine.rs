//! The engine: from one observation to the next actions.
//!
//! Problem: a policy says what would be best now; carried out blindly that makes threads flap, fights with
//! users who placed their own threads, and repeats what the system has refused. Approach: what the
//! world tells becomes what is known of each thread and application (`intake`), as rates and averages over
//! time (`windows`); the policy is asked, and of what it wants only that is let through which stays within
//! the rules of the [module invariants](#what-the-engine-guarantees) and differs from what is in force
//! (`present`). Sources: the one-second control loop and the caching of BulldOver §IV and §V.C; the
//! guarantees are ours.
//!
//! # What the engine guarantees
//!
//! - A thread is bound only to PEs that its user lets it have and that are allowed now; not to those that
//!   another run of corewise has taken, as long as others are left.
//! - A thread that placed itself, or was placed by its user, is never touched.
//! - A thread that inherited corewise's mask is given back its own.
//! - A refused action is not repeated for [`RETRY_AFTER`], an unsupported one never.
//! - At most [`BINDS_PER_PE_MAX`] binds and settings per allowed PE and step.
//! - With a [guard](crate::guard), what hurts the program is taken back.
//!
//! Limits: the engine reads no clock; if steps come late, so do its decisions.

use crate::classify::{FPU_THRESHOLD, FpuClass};
use crate::cpuset::CpuSet;
use crate::guard::{BACK, Findings, Guard, InForce};
use crate::ids::ThreadId;
use crate::machine_model::MachineModel;
use crate::observe::{CounterReading, Event, EventBatch, EventKind, Observation, ThreadReading};
use crate::plan::{Action, Assignment, Change, Placement};
use crate::policy::{Cause, Policy};
use crate::teams::Teams;
use crate::time::Time;
use crate::topology::Topology;
use crate::waits::{Cures, Waits};
use gangs::Gangs;
use intake::Intake;
use present::Present;
use std::sync::Arc;
use std::time::Duration;

mod gangs;
mod intake;
mod present;
mod settings;
mod windows;

/// How long a thread that the system refused to bind is left alone.
pub const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The most binds and settings in one step, per allowed PE: a bound on the work that a step may ask for.
pub const BINDS_PER_PE_MAX: usize = 4;

/// The reason of who is freed because the run ends.
pub const OVER: &str = "the run is over";

/// Time between two observations while a process may be found to spin: enough samples for a share.
const JUDGING_INTERVAL: Duration = Duration::from_millis(50);

/// The least time between two observations for the guard, should it be late.
const LOOK_MIN: Duration = Duration::from_millis(2);

/// The engine's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineConfig {
    /// Time between two steps (BulldOver: one second).
    pub interval: Duration,
    /// The time over which rates and averages are taken, however close the steps are.
    pub window: Duration,
    /// FPU usage from which a thread counts as FPU-intensive, 0..1.
    pub fpu_threshold: f64,
    /// For how long a bound thread counts as [resident](crate::policy::Subject::resident): a policy that
    /// answers to usage leaves it where it is, one that shares PEs in turns has a period of its own.
    pub min_residence: Duration,
    /// What may be done where threads are held up by others that wait.
    pub cures: Cures,
    /// Whether teams of threads may be made smaller.
    pub adapt_team: bool,
    /// The seed of the [guard](crate::guard) that measures what the placement gains; `None`: nobody does.
    pub guard: Option<u64>,
}

impl EngineConfig {
    /// The parameters for steps at an interval: what is long or short follows from it.
    pub fn with_interval(interval: Duration) -> Self {
        Self {
            interval,
            window: interval,
            fpu_threshold: FPU_THRESHOLD,
            min_residence: 3 * interval,
            cures: Cures::default(),
            adapt_team: false,
            guard: None,
        }
    }

    /// Whether anything follows from how long threads wait for a PE.
    pub fn hears_of_delays(&self) -> bool {
        self.cures.any() || self.adapt_team
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self::with_interval(Duration::from_secs(1))
    }
}

/// The decision maker: one machine, one policy, and what is known of each thread.
pub struct Engine {
    machine: MachineModel,
    policy: Box<dyn Policy>,
    config: EngineConfig,
    intake: Intake,
    present: Present,
    waits: Waits,
    teams: Teams,
    gangs: Gangs,
    guard: Option<Guard>,
    /// What the policy wants, whether or not the guard lets it have it.
    intended: Placement,
    /// When the policy was asked last because the interval was over.
    asked: Option<Time>,
    nothing_to_gain: Option<String>,
}

impl Engine {
    /// An engine for one machine and one policy. A topology will do; more is known of a calibrated machine.
    pub fn new(machine: impl Into<MachineModel>, policy: Box<dyn Policy>, config: EngineConfig) -> Self {
        Self {
            machine: machine.into(),
            policy,
            config,
            intake: Intake::default(),
            present: Present::default(),
            waits: Waits::new(config.cures),
            teams: Teams::new(config.adapt_team),
            gangs: Gangs::default(),
            guard: config.guard.map(Guard::new),
            intended: Placement::default(),
            asked: None,
            nothing_to_gain: None,
        }
    }

    /// Time until the next observation; shorter for a moment when a process may be found to spin, and while
    /// the guard measures.
    pub fn interval(&self) -> Duration {
        let now = self.intake.now;
        let waits = self.waits.is_judged_soon(now).then_some(JUDGING_INTERVAL);
        let guard = self.guard.as_ref().and_then(Guard::due).map(|due| due.since(now).max(LOOK_MIN));
        waits.into_iter().chain(guard).fold(self.config.interval, Duration::min)
    }

    /// The events that the policy wants to hear of, and those that tell who is held up.
    pub fn event_kinds(&self) -> Vec<EventKind> {
        let waits = self.config.hears_of_delays().then_some(EventKind::Delayed);
        self.policy.needs().events.iter().copied().chain(waits).collect()
    }

    /// What is known of the machine.
    pub fn machine(&self) -> &MachineModel {
        &self.machine
    }

    /// What the machine's PEs share.
    pub fn topology(&self) -> &Topology {
        &self.machine.topology
    }

    /// The policy's name, with its parameters.
    pub fn policy_name(&self) -> &str {
        self.policy.name()
    }

    /// Who is bound where, as far as the engine knows.
    pub fn present(&self) -> &Placement {
        self.present.placement()
    }

    /// Why the policy does nothing on this machine, if it said so.
    pub fn nothing_to_gain(&self) -> Option<&str> {
        self.nothing_to_gain.as_deref()
    }

    /// Why the policy has given up, if it has.
    pub fn policy_failure(&self) -> Option<&str> {
        self.policy.failure()
    }

    /// What the guard has found; `None` without one.
    pub fn findings(&self) -> Option<&Findings> {
        self.guard.as_ref().map(Guard::findings)
    }

    /// A thread that the policy wants bound, if the guard is to tell what that gains. Who has PEs of its own
    /// only because its program takes turns is none.
    pub fn guarded(&self) -> Option<ThreadId> {
        self.guard.as_ref().and_then(|_| self.intended.bound.keys().min().copied())
    }

    /// The class of a thread as last decided; of one that ended in the last step, by its last reading.
    pub fn fpu_class(&self, thread: ThreadId) -> FpuClass {
        self.intake.fpu_class(thread)
    }

    /// Takes in an observation and says what to change.
    pub fn step(&mut self, observation: &Observation) -> Vec<Action> {
        let now = observation.at;
        for outcome in &observation.outcomes {
            self.present.take_outcome(outcome, now);
            self.waits.take_outcome(outcome);
            self.teams.take_outcome(outcome);
        }
        // A PE that came after the machine was read is none of its PEs.
        let allowed = observation.allowed.intersection(&self.machine.topology.pes);
        // Two runs that know nothing of each other would choose the same PEs first.
        let untaken = allowed.difference(&observation.taken);
        let allowed = if untaken.is_empty() { allowed } else { untaken };
        self.intake.begin(now, allowed, observation.threads.len());
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
        self.judge_waits(&observation.threads);
        if self.is_policy_due() {
            self.asked = Some(now);
            self.ask(Cause::Interval);
        } else {
            // What it wanted when it was asked may have become impossible.
            keep_to_limits(&mut self.intended, &self.intake);
        }
        if let Some(guard) = &mut self.guard {
            guard.take(now, &observation.threads, !self.intended.bound.is_empty());
        }
        self.decide(&mut actions);
        actions
    }

    /// Whether the interval is over: the guard looks more often than that.
    fn is_policy_due(&self) -> bool {
        let (now, interval) = (self.intake.now, self.config.interval);
        self.guard.is_none() || self.asked.is_none_or(|asked| now.since(asked) >= interval - interval / 8)
    }

    /// Takes in events and says what to change. What they are not about is not looked at, and the policy is
    /// asked only if it [answers](Policy::answers) to one of them.
    pub fn react(&mut self, batch: &EventBatch) -> Vec<Action> {
        let now = batch.at;
        self.intake.now = now;
        for outcome in &batch.outcomes {
            self.present.take_outcome(outcome, now);
            self.waits.take_outcome(outcome);
            self.teams.take_outcome(outcome);
            self.intake.take_outcome(outcome);
            if let Some(subject) = self.intake.subject_mut(outcome.thread) {
                self.present.judge(subject, now, self.config.min_residence);
            }
        }
        let mut actions = Vec::new();
        let mut waits_change = false;
        for event in &batch.events {
            match event {
                Event::ThreadStarted(reading) => self.meet(reading, &mut actions),
                Event::ThreadEnded(thread) => {
                    self.intake.remove(*thread);
                    self.forget(*thread);
                }
                Event::ThreadRenamed { thread, name } => self.intake.rename(*thread, name),
                Event::TlpChanged(runnable) => self.intake.take_runnable(*runnable),
                Event::Hint { thread, hints } => self.intake.take_hints(*thread, *hints),
                Event::AllowedChanged(pes) => {
                    self.intake.allowed = pes.intersection(&self.machine.topology.pes)
                }
                Event::Delayed(delay) => {
                    waits_change |= self.waits.take(delay, now);
                    waits_change |= self.teams.take(delay, self.machine.topology.pes.len(), now);
                }
            }
        }
        let cause = Cause::Events(&batch.events);
        if self.policy.answers(&self.intake.scene(cause, &self.machine)) {
            self.ask(cause);
            self.decide(&mut actions);
        } else if waits_change {
            let mut wanted = self.present.placement().clone();
            self.become_wanted(&mut wanted, &mut actions);
        }
        actions
    }

    fn forget(&mut self, thread: ThreadId) {
        self.present.forget(thread);
        self.waits.forget(thread);
        self.teams.forget(thread);
    }

    /// Looks which of the processes that are held up spin, and who takes turns.
    fn judge_waits(&mut self, threads: &[ThreadReading]) {
        for leader in self.waits.to_judge() {
            let of_process = threads.iter().filter(|reading| reading.pid == leader.tid);
            let samples = of_process.filter_map(|reading| match &reading.counters {
                Some(CounterReading::Sample(sample)) => Some((reading.thread, sample.into())),
                Some(CounterReading::Pmu(_)) | None => None,
            });
            self.waits.judge(leader, samples.collect(), self.intake.now);
        }
        let threads_of = |leader: ThreadId| {
            let of_process = threads.iter().filter(|reading| reading.pid == leader.tid && !reading.ended);
            (leader, of_process.map(|reading| reading.thread).collect())
        };
        self.gangs.become_those(self.waits.in_turns().map(threads_of).collect());
    }

    /// Takes in the reading of a living thread.
    fn meet(&mut self, reading: &ThreadReading, actions: &mut Vec<Action>) {
        actions.extend(self.present.meet(reading));
        let now = self.intake.now;
        let subject = self.intake.take_thread(reading, &self.config);
        self.present.judge(subject, now, self.config.min_residence);
    }

    /// Asks the policy what it wants.
    fn ask(&mut self, cause: Cause<'_>) {
        self.intake.settle_runnable();
        self.intake.settle_assignments(shown(self.guard.as_ref(), &self.present, &self.intended));
        let mut wanted = self.policy.place(&self.intake.scene(cause, &self.machine));
        self.nothing_to_gain = wanted.nothing_to_gain.take();
        // Who rests for a moment will be back, and its assignment costs nobody anything till then.
        for subject in self.intake.resting() {
            if let Some(assignment) = &subject.assignment {
                wanted.bound.entry(subject.view.thread).or_insert_with(|| assignment.clone());
            }
        }
        keep_to_limits(&mut wanted, &self.intake);
        self.intended = wanted;
    }

    /// Adds the actions towards what the policy wants, as far as the guard and the rules let it.
    fn decide(&mut self, actions: &mut Vec<Action>) {
        let in_force = self.guard.as_ref().map_or(InForce::Placement, Guard::in_force);
        let is_placed = in_force == InForce::Placement;
        if is_placed && self.gangs.is_empty() {
            return self.decide_as_intended(actions);
        }
        let mut wanted = self.intended.clone();
        match in_force {
            InForce::Placement => {}
            InForce::Before(places) => {
                let back: Arc<str> = BACK.into();
                let assignment = |pe| Assignment { pes: CpuSet::single(pe), reason: back.clone() };
                wanted.bound = places.iter().map(|(thread, pe)| (*thread, assignment(*pe))).collect();
            }
            InForce::Nothing => wanted.bound.clear(),
        }
        self.gangs.assignment(&mut wanted, self.present.placement(), &self.intake);
        keep_to_limits(&mut wanted, &self.intake);
        let before = actions.len();
        self.become_wanted(&mut wanted, actions);
        if let (false, Some(guard)) = (is_placed, &self.guard) {
            let frees = actions[before..].iter_mut().filter(|action| action.change == Change::Free);
            let reason: Arc<str> = guard.reason().into();
            frees.for_each(|action| action.reason = reason.clone());
        }
    }

    /// The same where nothing alters what the policy wants: without a copy of its thousands of assignments.
    fn decide_as_intended(&mut self, actions: &mut Vec<Action>) {
        let mut wanted = std::mem::take(&mut self.intended);
        let settings = wanted.settings.clone();
        self.become_wanted(&mut wanted, actions);
        self.intended = Placement { settings, ..wanted };
    }

    /// Adds the actions towards a placement that keeps to the rules, and to the waits as they should be.
    fn become_wanted(&mut self, wanted: &mut Placement, actions: &mut Vec<Action>) {
        self.waits.add_to(wanted);
        self.teams.add_to(wanted);
        let known = &self.intake;
        self.present.guard_settings(wanted, &known.subjects, known.now);
        // Before the first observation no PE is known to be allowed, but waits can be changed.
        let most = BINDS_PER_PE_MAX * known.allowed.len().max(1);
        self.present.become_wanted(wanted, most, known, actions);
    }

    /// The actions that give back everything that is still changed.
    pub fn release_all(&mut self) -> Vec<Action> {
        self.present.release_all()
    }
}

fn lets_place(guard: Option<&Guard>) -> bool {
    guard.is_none_or(|guard| guard.in_force() == InForce::Placement)
}

/// The placement that the policy takes to be in force: that the guard measures without it is no matter of
/// the policy's.
fn shown<'a>(guard: Option<&Guard>, present: &'a Present, intended: &'a Placement) -> &'a Placement {
    if lets_place(guard) { present.placement() } else { intended }
}

/// Drops from a wanted placement the assignments that no policy may want.
fn keep_to_limits(wanted: &mut Placement, known: &Intake) {
    wanted.bound.retain(|&thread, assignment| {
        known.subject(thread).is_some_and(|subject| {
            subject.placeable
                && !assignment.pes.is_empty()
                && assignment.pes.is_subset(&known.allowed)
                && assignment.pes.is_subset(&subject.view.permitted)
        })
    });
}

#[cfg(test)]
mod tests;
