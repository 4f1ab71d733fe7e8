//! Replaying a recording leads to the same decisions, to the last byte.

use super::*;
use crate::losses::{Knowledge, KnownDemand};
use crate::observe::Input;
use crate::plan::Action;
use crate::profile::fixture;
use crate::profile::{MachineProfile, Resource};
use crate::recording::{FORMAT, Header, Question, RecordedWorld, Recording, VERSION, to_line};
use crate::report::Sources;
use crate::view::{Estimate, Source};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Four threads of an application, of which one alone is runnable for a while, and one that cannot be bound.
fn threads() -> Vec<ScriptedThread> {
    let mut threads = steady(&[0.0; 5]);
    threads[4].refuses = Some(OutcomeKind::Refused("not permitted".to_owned()));
    threads[4].lives = second(1)..second(3);
    for thread in &mut threads[..3] {
        thread.blocked = vec![Time(2_400_000_000)..Time(2_700_000_000)];
    }
    threads
}

/// What was decided, as text.
type Decided = Vec<(Time, Vec<Action>)>;

fn drive(world: &mut impl World<Error = std::convert::Infallible>, engine: &mut Engine) -> (Decided, String) {
    let (mut decided, mut lines) = (Vec::new(), String::new());
    let Ok(()) = control_loop(world, engine, |input, actions, _| {
        lines += &to_line(input);
        decided.push((input.at(), actions.to_vec()));
    });
    (decided, lines)
}

/// Runs on the machine and replays; returns what was decided, and the recording.
fn check_replay(machine: MachineModel, policy: &dyn Fn() -> Box<dyn Policy>) -> (Decided, Recording) {
    let allowed = vec![(Time(0), machine.topology.allowed.clone())];
    let mut world = ScriptedWorld::new(allowed, threads(), second(4)).with_events();
    let mut engine = Engine::new(machine, policy(), EngineConfig::default());
    let sources = Sources { discovery: "scripted".to_owned(), counters: "sample".to_owned() };
    let header = to_line(&Header::of(&engine, &["test".to_owned()], &sources, None));
    let (decided, lines) = drive(&mut world, &mut engine);
    let recording = Recording::parse(&(header + &lines)).unwrap();
    let question = Question { machine: None, policy: policy(), fpu_threshold: None };
    let mut replay = recording.clone().replay(question);
    let (again, _) = drive(&mut replay.world, &mut replay.engine);
    assert_eq!(format!("{again:?}"), format!("{decided:?}"));
    (decided, recording)
}

#[test]
fn a_replay_decides_the_same_by_the_recorded_events() {
    let machine = machine_of_kinds("core:4 pu:1", &[("fast", "0"), ("slow", "1-3")]);
    let (decided, recording) = check_replay(machine.into(), &|| policy::build("pa").unwrap());
    assert!(recording.inputs.iter().any(|input| input.observation().is_none()));
    assert!(decided.iter().any(|(_, actions)| !actions.is_empty()));
}

/// Counts how often it is asked because its interval has elapsed.
#[derive(Clone, Default)]
struct Counted(Rc<Cell<u32>>);

impl Policy for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, _: &Scene<'_>) -> Placement {
        self.0.set(self.0.get() + 1);
        Placement::default()
    }
}

/// A run with a guard, or one that checks for spinning, is observed more often than its policy decides. A
/// replay of its recording sees all these observations.
#[test]
fn a_policy_is_asked_once_an_interval_however_often_is_observed() {
    let allowed = CpuSet::first_n(2);
    let one = Observation { allowed, ..Observation::default() };
    let observation = |at| Input::Observation(Observation { at: Time(at), ..one.clone() });
    let lines: String = (1..=100).map(|look| to_line(&observation(look * 50_000_000))).collect();
    let topology = Topology::synthetic("core:2 pu:1").unwrap();
    let engine = Engine::new(topology, policy::build("pa").unwrap(), EngineConfig::default());
    let sources = Sources { discovery: String::new(), counters: String::new() };
    let header = to_line(&Header::of(&engine, &[], &sources, None));
    let recording = Recording::parse(&(header + &lines)).unwrap();
    let counted = Counted::default();
    let question = Question { machine: None, policy: Box::new(counted.clone()), fpu_threshold: None };
    let mut replay = recording.replay(question);
    drive(&mut replay.world, &mut replay.engine);
    assert!((5..=6).contains(&counted.0.get()), "{} times in 5 s", counted.0.get());
}

#[test]
fn a_replay_knows_of_programs_what_the_run_knew() {
    let topology = Topology::synthetic("core:2 pu:1").unwrap();
    let mut engine = Engine::new(topology, policy::build("spread").unwrap(), EngineConfig::default());
    let third = Estimate { value: 1.0 / 3.0, confidence: 0.9, source: Source::Samples };
    let demand = KnownDemand { fpu: Some(third), ..KnownDemand::default() };
    engine.know(Knowledge { demands: [("hmmer".into(), demand)].into() }.into());
    let sources = Sources { discovery: String::new(), counters: String::new() };
    let recording = Recording::parse(&to_line(&Header::of(&engine, &[], &sources, None))).unwrap();
    let policy = policy::build("spread").unwrap();
    let replay = recording.replay(Question { machine: None, policy, fpu_threshold: None });
    assert_eq!(replay.engine.knowledge().of("hmmer"), demand);
}

/// Places threads by figures that only a calibration provides, and reports which.
struct ByFigures;

impl Policy for ByFigures {
    fn name(&self) -> &str {
        "by-figures"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let (near, far) = (PeId(1), PeId(3));
        let slowdown = scene.machine.contention(Resource::Fpu, PeId(0), near).unwrap().slowdown_at(0.7);
        let latency = scene.machine.latency_ns(PeId(0), far);
        let speed = scene.machine.speed(far).unwrap();
        let pe = if slowdown * speed.value > 1.5 { far } else { near };
        let reason = format!("{slowdown:?}, {latency:?}, {speed:?}");
        let assignment = Assignment { pes: CpuSet::single(pe), reason: reason.into() };
        let bound = scene.threads.iter().map(|subject| (subject.view.thread, assignment.clone()));
        Placement { bound: bound.collect(), ..Placement::default() }
    }
}

/// A profile with figures that no short decimal number represents.
fn calibrated() -> MachineProfile {
    let mut profile = fixture::full();
    let figure = |value: f64| crate::profile::Measurement {
        value,
        low: 0.9 * value,
        high: 1.1 * value,
        ..fixture::GOOD
    };
    profile.latencies[0].ns = figure(200.0 / 3.0);
    profile.speeds[0].kernel = crate::kernels::Kernel::IntAddChain;
    profile.speeds[0].relative = figure(2.0 / 3.0);
    profile.contention[0].resource = Resource::Fpu;
    profile.contention[0].points = vec![(0.5, figure(5.0 / 3.0)), (1.0, figure(23.0 / 7.0))];
    profile
}

#[test]
fn a_replay_decides_by_the_measurements_that_the_run_had() {
    let mut machine = MachineModel::from_profile(&calibrated());
    machine.topology.origin = "profile of a test".to_owned();
    machine.topology.allowed = "0-1,3".parse().unwrap();
    let (decided, mut recording) = check_replay(machine, &|| Box::new(ByFigures));
    let figures = format!("{decided:?}");
    assert!(figures.contains("66.66666666666667") && figures.contains("Profile"), "{figures}");
    assert_eq!(recording.header.profile, Some(Arc::new(calibrated())));
    // With the topology alone, all figures are assumed.
    recording.header.profile = None;
    let mut engine = Engine::new(recording.header.machine(), Box::new(ByFigures), EngineConfig::default());
    let (assumed, _) = drive(&mut RecordedWorld::new(recording, None), &mut engine);
    assert_ne!(format!("{assumed:?}"), figures);
}

#[test]
fn a_profile_that_is_damaged_or_of_another_machine_is_named() {
    let header = |profile: MachineProfile, shape: &str| Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        topology: Topology::synthetic(shape).unwrap(),
        profile: Some(Arc::new(profile)),
        knowledge: Arc::default(),
        command: Vec::new(),
        interval_ns: 1,
        decider: None,
        discovery: String::new(),
        counters: String::new(),
        host: None,
    };
    let refusal = |header: &Header| Recording::parse(&to_line(header)).unwrap_err().to_string();
    let other = refusal(&header(calibrated(), "core:2 pu:1"));
    assert!(other.contains("the PEs 0-1,") && other.contains("another one: 0-3"), "{other}");
    let mut damaged = calibrated();
    damaged.contention[0].class = 77;
    let damaged = refusal(&header(damaged, "core:2 pu:2"));
    assert!(damaged.contains("its machine profile cannot be used: ") && damaged.contains("77"), "{damaged}");
}
