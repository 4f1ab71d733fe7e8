//! A replay of a run by its own policy decides as the run did, for every policy, whatever happens.

use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::plan::Placement;
use corewise_core::policy::exec::Peer;
use corewise_core::policy::{self, Needs, Policy, PolicySpec, Scene};
use corewise_core::recording::{Header, Question, Recording, to_line};
use corewise_core::report::Sources;
use corewise_core::waits::WaitChanges;
use corewise_core::world::{World, control_loop};
use corewise_sim::fuzz;
use corewise_sim::machine::Machine;
use corewise_sim::scenario::{GuardSpec, Scenario, Variant};
use corewise_sim::world::SimWorld;
use proptest::prelude::*;
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

/// What a policy was shown and what followed, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.borrow_mut().push(line);
    }
}

/// A policy whose scenes are logged.
struct Logged {
    policy: Box<dyn Policy>,
    log: Log,
}

impl Policy for Logged {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn needs(&self) -> Needs {
        self.policy.needs()
    }

    fn answers(&mut self, scene: &Scene<'_>) -> bool {
        self.policy.answers(scene)
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let Scene { now, cause, allowed, threads, applications, .. } = scene;
        self.log.add(format!("{now:?} {cause:?} {allowed} {threads:?} {applications:?}"));
        self.policy.place(scene)
    }

    fn failure(&self) -> Option<&str> {
        self.policy.failure()
    }
}

/// A command that wants all events, and every thread on the first PE that it may use.
struct Command;

impl Peer for Command {
    fn exchange(&mut self, text: &str, _: Duration) -> Result<Option<String>, String> {
        let scene: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Some(threads) = scene["threads"].as_array() else {
            return Ok(Some(r#"{"version":1,"events":true}"#.to_owned()));
        };
        let first = |thread: &serde_json::Value| {
            let pe = thread["may_use_pes"].as_str()?.split(['-', ',']).next()?.to_owned();
            Some(serde_json::json!({ "thread": thread["thread"], "pes": pe }))
        };
        let placeable = threads.iter().filter(|thread| thread["placeable"] == true);
        let bind: Vec<_> = placeable.filter_map(first).collect();
        Ok(Some(serde_json::json!({ "step": scene["step"], "bind": bind }).to_string()))
    }
}

fn logged(name: &str, log: &Log) -> Box<dyn Policy> {
    let spec = if name == "exec" { "exec:a command" } else { name };
    let spec: PolicySpec = spec.parse().expect("a policy");
    let policy = spec.build(Some(&|_| Ok(Box::new(Command)))).expect("a policy");
    Box::new(Logged { policy, log: log.clone() })
}

/// Runs the loop to its end; returns the recorded inputs.
fn drive(world: &mut impl World<Error = Infallible>, engine: &mut Engine, log: &Log) -> String {
    let mut lines = String::new();
    let Ok(()) = control_loop(world, engine, |input, actions, _| {
        log.add(format!("{:?} {actions:?}", input.at()));
        lines += &to_line(input);
    });
    lines
}

/// Runs the random scenario of a seed by a policy, and replays its recording. Returns both logs.
fn run_and_replay(seed: u64, name: &str, guard: bool, waits: WaitChanges) -> [Vec<String>; 2] {
    let mut scenario = Scenario::parse(&fuzz::scenario(seed)).expect("a scenario");
    scenario.guard = guard.then(GuardSpec::default);
    let variant = Variant::policy(PolicySpec::from(&policy::DEFAULT));
    let sim = scenario.simulation(&variant, seed).expect("a simulation");
    let machine = Machine::new(scenario.machine.clone()).expect("a machine").model.topology;
    let config = EngineConfig {
        guard: guard.then_some(seed),
        waits,
        fpu_threshold: 0.3,
        ..EngineConfig::with_interval(scenario.interval)
    };
    let logs = [Log::default(), Log::default()];
    let mut engine = Engine::new(machine, logged(name, &logs[0]), config);
    let sources = Sources { discovery: "simulated".to_owned(), counters: "pmu".to_owned() };
    let header = to_line(&Header::of(&engine, &["simulated".to_owned()], &sources, None));
    let lines = drive(&mut SimWorld::new(sim, seed), &mut engine, &logs[0]);
    let recording = Recording::parse(&(header + &lines)).expect("a recording");
    let question = Question { machine: None, policy: logged(name, &logs[1]), fpu_threshold: None };
    let mut replay = recording.replay(question);
    drive(&mut replay.world, &mut replay.engine, &logs[1]);
    logs.map(|log| log.0.take())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    #[test]
    fn a_replay_by_the_policy_of_the_run_decides_as_the_run(
        seed in 1u64..1_000_000,
        guard: bool,
        spin: bool,
    ) {
        for (index, name) in (0..).zip(policy::names()) {
            let [run, replay] = run_and_replay(seed + index, name, guard, WaitChanges { spin, turns: spin });
            prop_assert_eq!(run.len(), replay.len(), "{}", name);
            for (then, now) in run.iter().zip(&replay) {
                prop_assert_eq!(then, now, "{}", name);
            }
        }
    }
}
