//! Predictions from recordings of the simulator itself, held against what really happens there.

use corewise_core::calibrate::{Settings, calibrate};
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::observe::{Input, Observation};
use corewise_core::policy::{self, Policy};
use corewise_core::profile::Evidence;
use corewise_core::recording::{Header, Recording};
use corewise_core::report::Sources;
use corewise_core::world::control_loop;
use corewise_sim::bench::{Conditions, ModelMachine};
use corewise_sim::machine::Machine;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::what_if::assume::WaitingFor;
use corewise_sim::what_if::{Prediction, Question, REPRODUCTION_ERROR_MAX, Range, predict};
use corewise_sim::world::SimWorld;
use std::time::Duration;

/// Four threads of two kinds on two modules of two PEs, and one that mostly sleeps.
const MODULES: &str = "name = 'modules'\n\
    machine = { name = 'modules', topology = 'pack:1 l3:1(size=8MB) l2:2(size=2MB) module:1 core:2 pu:1' }\n\
    demand.fp = { fpu = 0.7, ipc = 1.2 }\ndemand.int = { ipc = 1.5, l2_misses_per_100_cycles = 0.05 }\n\
    [[application]]\nname = 'fp'\ncopies = 2\nsteps = [{ each = { mcycles = 3000, demand = 'fp' } }]\n\
    [[application]]\nname = 'int'\ncopies = 2\nsteps = [{ each = { mcycles = 3000, demand = 'int' } }]\n\
    [[application]]\nname = 'sleeper'\n\
    steps = [{ repeat = { times = 25, steps = [{ each = { mcycles = 5, demand = 'int' } }, \
    { sleep = '95ms' }] } }]\n";

/// One fast and three slow PEs; a serial program beside a parallel one.
const ASYMMETRIC: &str = "name = 'amp'\n\
    machine = { name = '1FC-3SC', topology = 'pack:1 l3:1(size=2MB) core:4 pu:1', \
    speeds = [{ pes = '1-3', speed = 0.5 }] }\ndemand.int = { ipc = 1.2 }\n\
    [[application]]\nname = 'serial'\nsteps = [{ each = { mcycles = 2400, demand = 'int' } }]\n\
    [[application]]\nname = 'loops'\nthreads = 3\n\
    steps = [{ repeat = { times = 16, steps = [{ parallel = { mcycles = 300, demand = 'int' } }] } }]\n";

struct Recorded {
    recording: Recording,
    seconds: f64,
}

fn observations(recording: &mut Recording) -> impl Iterator<Item = &mut Observation> {
    recording.inputs.iter_mut().filter_map(|input| match input {
        Input::Observation(observation) => Some(observation),
        Input::Events(_) => None,
    })
}

fn run(text: &str, policy: &str, seed: u64) -> Recorded {
    let scenario = Scenario::parse(text).expect("a scenario");
    let sim =
        scenario.simulation(&Variant::policy(policy.parse().expect("a policy")), seed).expect("a simulation");
    let topology = Machine::new(scenario.machine.clone()).expect("a machine").model.topology;
    let mut world = SimWorld::new(sim, seed);
    let interval = Duration::from_millis(100);
    let config = EngineConfig::with_interval(interval);
    let policy = policy::build(policy).expect("a policy");
    let mut engine = Engine::new(topology.clone(), policy, config);
    let mut inputs = Vec::new();
    let Ok(()) = control_loop(&mut world, &mut engine, |input, _, _| {
        inputs.push(input.clone());
    });
    let sources = Sources { discovery: "simulated".to_owned(), counters: "pmu".to_owned() };
    let header = Header::of(&engine, &["simulated".to_owned()], &sources, None);
    let seconds = world.sim().all_done().expect("all is done").as_secs_f64();
    Recorded { recording: Recording { header, inputs, truncated: false }, seconds }
}

fn ask(recording: &Recording, policy: &str, machine: Option<&str>) -> Prediction {
    let policy = || -> Box<dyn Policy> { policy::build(policy).expect("a policy") };
    let machine = machine.map(|text| Scenario::parse(text).expect("a scenario").machine);
    let question = Question {
        recording,
        recorded_on: None,
        machine,
        policy: &policy,
        fpu_threshold: EngineConfig::default().fpu_threshold,
        seed: 1,
        runs: 3,
    };
    predict(&question).expect("a prediction")
}

/// Returns the first run of the default scheduler that chance made longer than a policy takes.
fn unlucky(text: &str, policy: &str) -> Recorded {
    let best = run(text, policy, 1).seconds;
    let recorded = (2..30).map(|seed| run(text, "default", seed));
    recorded.into_iter().find(|recorded| recorded.seconds > 1.3 * best).expect("chance is unkind at times")
}

/// The recorded time over the mean time that the same programs really take, simulated.
fn real_speedup(recorded: &Recorded, text: &str, policy: &str) -> f64 {
    let seconds = (1..=5).map(|seed| run(text, policy, seed).seconds).sum::<f64>() / 5.0;
    recorded.seconds / seconds
}

/// The gain over the recording, by machine and policy together.
fn gain(prediction: &Prediction) -> Range {
    prediction.over_recorded.expect("the recording is reproduced")
}

fn assert_within(prediction: &Prediction, real: f64) {
    let range = gain(prediction);
    assert!((range.low..=range.high).contains(&real), "{real} is not within {range:?}");
    assert!((range.low..=range.high).contains(&range.value), "{range:?}");
}

#[test]
fn a_placement_by_chance_is_reproduced_and_a_better_one_predicted() {
    let recorded = unlucky(MODULES, "spread");
    let real = real_speedup(&recorded, MODULES, "spread");
    assert!(real > 1.3, "the recording was unlucky: {real}");
    let prediction = ask(&recorded.recording, "spread", None);
    assert_eq!(prediction.evidence, "simulated");
    assert!(prediction.reproduction.error.abs() < 0.02, "{:?}", prediction.reproduction);
    assert!((gain(&prediction).value / real - 1.0).abs() < 0.05, "{real}: {:?}", prediction.over_recorded);
    assert_within(&prediction, real);
}

#[test]
fn waits_for_others_follow_their_speed() {
    // By chance the serial program began on a slow PE.
    let recorded = unlucky(ASYMMETRIC, "pa");
    let real = real_speedup(&recorded, ASYMMETRIC, "pa");
    assert!(real > 1.3, "the recording was unlucky: {real}");
    let prediction = ask(&recorded.recording, "pa", None);
    assert!(prediction.reproduction.error.abs() < 0.02, "{:?}", prediction.reproduction);
    assert_within(&prediction, real);
    let rigid = prediction
        .assumptions
        .iter()
        .find(|a| a.assumption.waiting_for == WaitingFor::SomethingElse)
        .expect("it is tried");
    assert!(rigid.over_recorded.value < gain(&prediction).value, "{prediction:#?}");
}

#[test]
fn another_machine_is_predicted() {
    let recorded = unlucky(MODULES, "spread");
    let faster = MODULES.replace("core:2 pu:1'", "core:2 pu:1', ghz = 2.0, units = { fpu_conflict = 0.0 }");
    let real = real_speedup(&recorded, &faster, "default");
    let prediction = ask(&recorded.recording, "default", Some(&faster));
    assert!(real > 1.5, "{real}");
    assert_within(&prediction, real);
}

#[test]
fn the_speedup_is_over_the_default_there_and_not_over_the_recorded_machine() {
    let recorded = unlucky(MODULES, "spread");
    let faster = MODULES.replace("core:2 pu:1'", "core:2 pu:1', ghz = 2.0");
    let default = ask(&recorded.recording, "default", Some(&faster));
    let same = default.speedup.expect("the recording is reproduced");
    assert_eq!((same.value, same.low, same.high), (1.0, 1.0, 1.0), "the same policy on the same machine");
    assert!(gain(&default).low > 1.4, "{default:#?}");
    let spread = ask(&recorded.recording, "spread", Some(&faster));
    let speedup = spread.speedup.expect("the recording is reproduced");
    let there = spread.assumptions[0].default_seconds / spread.assumptions[0].wished_seconds;
    assert!((speedup.value / there - 1.0).abs() < 1e-9, "{spread:#?}");
    let ratio = gain(&spread).value / gain(&default).value;
    assert!((speedup.value / ratio - 1.0).abs() < 1e-9, "the same default as above: {spread:#?}");
}

#[test]
fn what_was_not_recorded_is_said_and_makes_the_range_wide() {
    let mut recorded = unlucky(MODULES, "spread");
    let full = ask(&recorded.recording, "spread", None);
    for reading in observations(&mut recorded.recording).flat_map(|seen| &mut seen.threads) {
        (reading.counters, reading.runnable_ns) = (None, None);
    }
    let poor = ask(&recorded.recording, "spread", None);
    let width = |prediction: &Prediction| gain(prediction).high / gain(prediction).low - 1.0;
    assert!(width(&poor) > 1.5 * width(&full), "{:?} {:?}", poor.over_recorded, full.over_recorded);
    let words = [poor.unknown.join("; "), poor.notes.join("; ")].join("; ");
    for part in ["FPU usage: not known for 100 %", "no usable counters", "waiting for a PE is not known"] {
        assert!(words.contains(part), "no `{part}` in {words}");
    }
    assert!(!full.unknown.join("; ").contains("FPU"), "{:?}", full.unknown);
}

#[test]
fn nothing_is_predicted_from_a_recording_that_cannot_be_reproduced() {
    // Other load held the threads up: they got less than a third of the time that they wanted.
    let mut recorded = unlucky(MODULES, "spread");
    for reading in observations(&mut recorded.recording).flat_map(|seen| &mut seen.threads) {
        (reading.cpu_ns, reading.counters) = (reading.cpu_ns * 29 / 100, None);
    }
    let prediction = ask(&recorded.recording, "spread", None);
    assert!(prediction.reproduction.error < -REPRODUCTION_ERROR_MAX, "{:?}", prediction.reproduction);
    assert_eq!((prediction.speedup, prediction.seconds), (None, None));
    assert_eq!(prediction.over_recorded, None);
}

#[test]
fn a_recording_of_nothing_is_refused() {
    let Recorded { mut recording, .. } = unlucky(MODULES, "spread");
    let policy = || -> Box<dyn Policy> { policy::build("default").expect("a policy") };
    let failure = |recording: &Recording, recorded_on: Option<&str>| {
        let recorded_on = recorded_on.map(|text| Scenario::parse(text).expect("a scenario").machine);
        let question = Question {
            recording,
            recorded_on,
            machine: None,
            policy: &policy,
            fpu_threshold: 0.5,
            seed: 1,
            runs: 1,
        };
        predict(&question).expect_err("no prediction").to_string()
    };
    let other = failure(&recording, Some(&MODULES.replace("module:1 core:2", "module:1 core:1")));
    assert!(other.contains("PEs 0-3, but --recorded-on has 0-1"), "{other}");
    observations(&mut recording).for_each(|seen| seen.threads.clear());
    assert!(failure(&recording, None).contains("no recorded thread used any CPU time"));
    recording.inputs.clear();
    assert!(failure(&recording, None).contains("no observation"));
}

/// A recording without counters from a machine whose slow PEs are known, but not how slow they are.
#[test]
fn slow_pes_have_their_reported_speed_or_nothing_is_predicted() {
    let mut recording = run(ASYMMETRIC, "default", 1).recording;
    for reading in observations(&mut recording).flat_map(|seen| &mut seen.threads) {
        reading.counters = None;
    }
    let reported = ask(&recording, "default", None);
    assert!(reported.notes.iter().any(|note| note.contains("by its simulated speed")), "{reported:#?}");
    assert!(reported.reproduction.error.abs() < 0.1, "{:?}", reported.reproduction);
    recording.header.topology.kinds.iter_mut().for_each(|kind| kind.speed = None);
    let policy = || -> Box<dyn Policy> { policy::build("default").expect("a policy") };
    let question = Question {
        recording: &recording,
        recorded_on: None,
        machine: None,
        policy: &policy,
        fpu_threshold: 0.5,
        seed: 1,
        runs: 1,
    };
    let refusal = predict(&question).expect_err("no prediction").to_string();
    assert!(refusal.contains("how much slower its PEs 1-3 (slow)"), "{refusal}");
    assert!(refusal.contains("--recorded-on"), "{refusal}");
}

#[test]
fn a_calibrated_machine_is_taken_from_the_recording() {
    let mut recording = run(ASYMMETRIC, "default", 1).recording;
    let assumes_defaults = |recording: &Recording| {
        let prediction = ask(recording, "default", None);
        prediction.notes.iter().any(|note| note.contains("the simulator's defaults"))
    };
    assert!(assumes_defaults(&recording));
    let truth = Machine::new(Scenario::parse(ASYMMETRIC).expect("a scenario").machine).expect("a machine");
    let reported = truth.model.topology.clone();
    let mut model = ModelMachine::new(truth, Conditions { clock_fall: 0.0, ..Conditions::default() }, 1);
    let settings = Settings { evidence: Evidence::Simulated, nas: Vec::new(), ..Settings::quick() };
    let profile = calibrate(&mut model, &reported, &settings, &mut |_| ());
    recording.header.profile = Some(profile.into());
    assert!(!assumes_defaults(&recording));
}
