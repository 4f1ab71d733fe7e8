//! The World that replays a recording, and the engine for it.

use super::{Header, Recording};
use crate::cpuset::CpuSet;
use crate::engine::{Engine, EngineConfig};
use crate::ids::ThreadId;
use crate::machine_model::MachineModel;
use crate::observe::{Event, EventBatch, EventKind, Input, Observation, Standing, ThreadReading};
use crate::plan::{Action, Change, Outcome, OutcomeKind};
use crate::policy::Policy;
use crate::time::Time;
use crate::topology::Topology;
use crate::world::{Look, Wake, World};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What is replayed over a recording.
pub struct Question {
    /// The machine; `None` for the recorded one.
    pub machine: Option<MachineModel>,
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// The FPU usage at or above which a thread counts as FPU-intensive; `None` for that of the run.
    pub fpu_threshold: Option<f64>,
}

/// A replay that is ready for the [control loop](crate::world::control_loop).
pub struct Replay {
    /// The engine.
    pub engine: Engine,
    /// The recording as a world.
    pub world: RecordedWorld,
    /// Whether it asks what the run itself decided.
    pub is_of_the_run: bool,
}

impl Recording {
    /// Prepares a replay.
    ///
    /// The policy of the run on its machine gets the parameters of the run and its inputs, unchanged. As the
    /// engine is a function of these, it decides what the run decided. For anything else the recording tells
    /// neither how the threads would have progressed nor how they would have waited: only the policy's
    /// placement is replayed, without a guard and without changes of waits and teams.
    pub fn replay(self, question: Question) -> Replay {
        let Question { machine, policy, fpu_threshold } = question;
        let of_run = self.header.config();
        let config = EngineConfig { fpu_threshold: fpu_threshold.unwrap_or(of_run.fpu_threshold), ..of_run };
        let decider = self.header.decider.as_ref();
        let is_of_the_run = machine.is_none()
            && decider.is_some_and(|run| run.policy == policy.name() && run.config == config);
        let config = if is_of_the_run { config } else { config.for_placement_alone() };
        let other = machine.as_ref().map(|machine| machine.topology.clone());
        let mut engine = Engine::new(machine.unwrap_or_else(|| self.header.machine()), policy, config);
        engine.know(self.header.knowledge.clone());
        let world = RecordedWorld { is_unchanged: is_of_the_run, ..RecordedWorld::new(self, other) };
        Replay { engine, world, is_of_the_run }
    }
}

impl Header {
    /// Returns the engine's parameters in the run, as far as they are recorded.
    fn config(&self) -> EngineConfig {
        let by_interval = || EngineConfig::with_interval(Duration::from_nanos(self.interval_ns));
        self.decider.as_ref().map_or_else(by_interval, |run| run.config)
    }
}

/// A World that replays a recording. It carries out actions only in its own records. As long as the engine
/// requests the same actions as in the recorded run, the recording is replayed unchanged; threads that are
/// bound differently are shown as if they had been bound so.
pub struct RecordedWorld {
    inputs: VecDeque<Input>,
    /// The number of observations among them.
    observations: usize,
    now: Time,
    kinds: Vec<EventKind>,
    machine: Option<Topology>,
    bound: HashMap<ThreadId, CpuSet>,
    /// The bindings in the recorded run.
    bound_then: HashMap<ThreadId, CpuSet>,
    /// The actions to carry out, and the outcomes of the recorded run since the last input.
    actions: Vec<Action>,
    outcomes_then: Vec<Outcome>,
    /// Whether every input is replayed as it was recorded, whatever is requested.
    is_unchanged: bool,
}

impl RecordedWorld {
    /// Replays the recording on its own machine, or on `machine` if given.
    pub fn new(recording: Recording, machine: Option<Topology>) -> Self {
        Self {
            observations: recording.observations().count(),
            inputs: recording.inputs.into(),
            now: Time(0),
            kinds: Vec::new(),
            machine,
            bound: HashMap::new(),
            bound_then: HashMap::new(),
            actions: Vec::new(),
            outcomes_then: Vec::new(),
            is_unchanged: false,
        }
    }

    /// Carries out the actions. An action that the recorded run took as well has the recorded outcome.
    fn outcomes(&mut self) -> Vec<Outcome> {
        let then = std::mem::take(&mut self.outcomes_then);
        then.iter().for_each(|outcome| take(outcome, &mut self.bound_then));
        let mut outcomes = Vec::new();
        for Action { thread, change, .. } in std::mem::take(&mut self.actions) {
            let is_it = |then: &&Outcome| then.thread == thread && then.change == change;
            let result = match (then.iter().find(is_it), &change) {
                (Some(then), _) => then.result.clone(),
                (None, Change::Bind(_) | Change::Move(_) | Change::Free) => OutcomeKind::Done,
                (None, Change::Set(_) | Change::Reset(_)) => OutcomeKind::Unsupported,
            };
            let outcome = Outcome { thread, change, result };
            take(&outcome, &mut self.bound);
            outcomes.push(outcome);
        }
        outcomes
    }

    fn is_as_recorded(&self) -> bool {
        self.machine.is_none() && self.bound == self.bound_then
    }

    /// Adjusts a reading to the bindings of this replay, and to the machine that replaces the recorded one,
    /// if any; `everywhere` are its allowed PEs.
    fn show(&self, reading: &mut ThreadReading, everywhere: &Arc<CpuSet>) {
        if reading.standing == Standing::Bound || reading.standing == Standing::Inherited {
            reading.standing = Standing::Free;
        }
        if self.machine.is_some() {
            // Its PEs have nothing in common with those of the same numbers here.
            (reading.permitted, reading.last_pe) = (everywhere.clone(), None);
        }
        if let Some(pes) = self.bound.get(&reading.thread) {
            reading.standing = Standing::Bound;
            reading.last_pe = pes.first();
        }
    }

    /// Returns the next events before the next observation, restricted to the subscribed kinds.
    fn events(&mut self) -> Option<EventBatch> {
        while let Some(Input::Events(_)) = self.inputs.front() {
            let Some(Input::Events(mut batch)) = self.inputs.pop_front() else { break };
            if self.is_unchanged {
                self.now = batch.at;
                return Some(batch);
            }
            self.outcomes_then.append(&mut batch.outcomes);
            let elsewhere = self.machine.as_ref().map(|machine| Arc::new(machine.allowed.clone()));
            batch.events.retain(|event| {
                // The PEs of a replacement machine do not change.
                self.kinds.contains(&event.kind())
                    && !(elsewhere.is_some() && event.kind() == EventKind::AllowedChanged)
            });
            if batch.events.is_empty() {
                continue;
            }
            self.now = batch.at;
            batch.outcomes = self.outcomes();
            let is_as_recorded = self.is_as_recorded();
            for event in batch.events.iter_mut().filter(|_| !is_as_recorded) {
                if let Event::ThreadStarted(reading) = event {
                    let permitted = reading.permitted.clone();
                    self.show(reading, elsewhere.as_ref().unwrap_or(&permitted));
                }
            }
            return Some(batch);
        }
        None
    }
}

/// Records which thread an action has bound or freed.
fn take(outcome: &Outcome, bound: &mut HashMap<ThreadId, CpuSet>) {
    match (&outcome.change, &outcome.result) {
        (Change::Bind(pes), OutcomeKind::Done) => drop(bound.insert(outcome.thread, pes.clone())),
        (Change::Free | Change::Move(_), OutcomeKind::Done) => drop(bound.remove(&outcome.thread)),
        (Change::Bind(_) | Change::Move(_) | Change::Free, _) | (Change::Set(_) | Change::Reset(_), _) => {}
    }
}

impl World for RecordedWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        // An immediate observation skips pending events.
        let mut observation = loop {
            match self.inputs.pop_front() {
                Some(Input::Observation(observation)) => break observation,
                // Not reached in an unchanged replay, which waits as often as the run did.
                Some(Input::Events(mut batch)) => self.outcomes_then.append(&mut batch.outcomes),
                None => break Observation::default(),
            }
        };
        self.observations = self.observations.saturating_sub(1);
        self.now = observation.at;
        if self.is_unchanged {
            return Ok(observation);
        }
        self.outcomes_then.append(&mut observation.outcomes);
        observation.outcomes = self.outcomes();
        if self.is_as_recorded() {
            return Ok(observation);
        }
        if let Some(machine) = &self.machine {
            observation.allowed = machine.allowed.clone();
            // What the run's neighbours and its users took and permitted were PEs of the recorded machine.
            observation.taken = CpuSet::new();
            observation.applications.iter_mut().for_each(|application| application.allowed = None);
        }
        let everywhere = Arc::new(observation.allowed.clone());
        for reading in &mut observation.threads {
            self.show(reading, &everywhere);
        }
        Ok(observation)
    }

    fn apply(&mut self, actions: &[Action]) {
        self.actions.extend_from_slice(actions);
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        self.kinds = kinds.to_vec();
    }

    /// Advances to the next recorded events or observation, regardless of the deadline.
    fn tune(&mut self, _: Look) {}

    fn better_machine(&mut self) -> Option<MachineModel> {
        None
    }

    fn wait_until(&mut self, _: Time) -> Result<Wake, Self::Error> {
        if let Some(batch) = self.events() {
            return Ok(Wake::Events(batch));
        }
        Ok(if self.observations <= 1 { Wake::Finished } else { Wake::Deadline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PeId;
    use crate::observe::ApplicationReading;
    use crate::policy;
    use crate::report::Sources;

    /// An observation of one thread on PE 1 of two, of which another run had taken PE 0.
    fn recording() -> Recording {
        let topology = Topology::synthetic("core:2 pu:1").unwrap();
        let engine = Engine::new(topology, policy::build("spread").unwrap(), EngineConfig::default());
        let sources = Sources { discovery: String::new(), counters: String::new() };
        let last_pe = Some(PeId(1));
        let observation = Observation {
            at: Time(1),
            allowed: CpuSet::first_n(2),
            taken: CpuSet::first_n(1),
            threads: vec![ThreadReading { last_pe, ..ThreadReading::example(7) }],
            applications: vec![ApplicationReading {
                allowed: Some(CpuSet::first_n(2)),
                ..Default::default()
            }],
            ..Observation::default()
        };
        Recording {
            header: Header::of(&engine, &[], &sources, None),
            inputs: vec![Input::Observation(observation)],
            truncated: false,
        }
    }

    fn shown(machine: Option<&str>) -> Observation {
        let machine = machine.map(|shape| Topology::synthetic(shape).unwrap().into());
        let policy = policy::build("default").unwrap();
        let mut replay = recording().replay(Question { machine, policy, fpu_threshold: None });
        replay.world.observe().unwrap()
    }

    #[test]
    fn what_was_true_of_the_recorded_machine_alone_is_not_carried_to_another_one() {
        let there = shown(Some("core:4 pu:1"));
        assert_eq!((there.allowed.to_string(), there.taken), ("0-3".to_owned(), CpuSet::new()));
        assert_eq!((there.threads[0].last_pe, there.applications[0].allowed.as_ref()), (None, None));
        let Observation { taken, threads, applications, .. } = shown(None);
        assert_eq!(taken, CpuSet::first_n(1), "by another policy on the same machine");
        assert_eq!((threads[0].last_pe, applications[0].allowed.is_some()), (Some(PeId(1)), true));
    }
}
