//! Predictions from recordings of the simulator itself, held against what really happens there.

use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::policy::{self, Policy};
use corewise_core::recording::{FORMAT, Header, Recording, VERSION};
use corewise_core::world::control_loop;
use corewise_sim::machine::Machine;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::what_if::{Prediction, Question, predict};
use corewise_sim::world::SimWorld;
use std::time::Duration;

/// Four threads that differ on four modules of two PEs, and one that mostly sleeps.
const MODULES: &str = "name = 'modules'\n\
    machine = { name = 'modules', topology = 'pack:1 l3:1(size=8MB) l2:2(size=2MB) module:1 core:2 pu:1' }\n\
    demand.fp = { fpu = 0.7, ipc = 1.2 }\ndemand.int = { ipc = 1.5, l2_misses_per_100_cycles = 0.05 }\n\
    [[application]]\nname = 'fp'\ncopies = 2\nsteps = [{ each = { mcycles = 8000, demand = 'fp' } }]\n\
    [[application]]\nname = 'int'\ncopies = 2\nsteps = [{ each = { mcycles = 8000, demand = 'int' } }]\n\
    [[application]]\nname = 'sleeper'\n\
    steps = [{ repeat = { times = 60, steps = [{ each = { mcycles = 5, demand = 'int' } }, \
    { sleep = '95ms' }] } }]\n";

/// One fast and three slow PEs; a serial program beside a parallel one.
const ASYMMETRIC: &str = "name = 'amp'\n\
    machine = { name = '1FC-3SC', topology = 'pack:1 l3:1(size=2MB) core:4 pu:1', \
    speeds = [{ pes = '1-3', speed = 0.5 }] }\ndemand.int = { ipc = 1.2 }\n\
    [[application]]\nname = 'serial'\nsteps = [{ each = { mcycles = 6000, demand = 'int' } }]\n\
    [[application]]\nname = 'loops'\nthreads = 3\n\
    steps = [{ repeat = { times = 40, steps = [{ parallel = { mcycles = 300, demand = 'int' } }] } }]\n";

struct Recorded {
    recording: Recording,
    seconds: f64,
}

fn run(text: &str, policy: &str, seed: u64) -> Recorded {
    let scenario = Scenario::parse(text).expect("a scenario");
    let sim = scenario.simulation(&Variant::policy(policy), seed).expect("a simulation");
    let topology = Machine::new(scenario.machine.clone()).expect("a machine").topology;
    let mut world = SimWorld::new(sim, seed);
    let interval = Duration::from_millis(200);
    let config = EngineConfig { interval, min_residence: 3 * interval, ..EngineConfig::default() };
    let policy = policy::by_name(policy).expect("a policy");
    let mut engine = Engine::new(topology.clone(), policy, config);
    let mut observations = Vec::new();
    let Ok(()) = control_loop(&mut world, &mut engine, |observation, _, _| {
        observations.push(observation.clone());
    });
    let header = Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        topology,
        command: vec!["simulated".to_owned()],
        interval_ns: interval.as_nanos() as u64,
        discovery: "simulated".to_owned(),
        counters: "pmu".to_owned(),
    };
    let seconds = world.sim().all_done().expect("all is done").as_secs_f64();
    Recorded { recording: Recording { header, observations, truncated: false }, seconds }
}

fn ask(recording: &Recording, policy: &str, machine: Option<&str>) -> Prediction {
    let policy = || -> Box<dyn Policy> { policy::by_name(policy).expect("a policy") };
    let machine = machine.map(|text| Scenario::parse(text).expect("a scenario").machine);
    let question = Question {
        recording,
        recorded_on: None,
        machine,
        policy: &policy,
        fpu_threshold: EngineConfig::default().fpu_threshold,
        seed: 1,
        runs: 5,
    };
    predict(&question).expect("a prediction")
}

fn mean_seconds(text: &str, policy: &str) -> f64 {
    (1..=5).map(|seed| run(text, policy, seed).seconds).sum::<f64>() / 5.0
}

#[test]
fn look() {
    for (name, text, policy) in
        [("modules", MODULES, "spread"), ("amp", ASYMMETRIC, "pa"), ("amp", ASYMMETRIC, "mintlp")]
    {
        let recorded = run(text, "default", 1);
        let p = ask(&recorded.recording, policy, None);
        println!(
            "{name} {policy}: recorded {} repro {:?} speedup {:?}",
            recorded.seconds, p.reproduction, p.speedup
        );
        println!("real: default {} {policy} {}", mean_seconds(text, "default"), mean_seconds(text, policy));
        for a in &p.assumptions {
            println!("  {a:?}");
        }
        println!("{:?} {:?}", p.unknown, p.notes);
    }
}
