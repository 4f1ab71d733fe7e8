//! What every simulation must keep to, checked against arithmetic done by hand.

use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::{PeId, ThreadId};
use corewise_core::observe::{CounterReading, Observation};
use corewise_core::plan::{Action, Change};
use corewise_core::policy;
use corewise_core::time::Time;
use corewise_core::world::{World, control_loop};
use corewise_sim::comparison::compare;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;
use corewise_sim::world::SimWorld;
use proptest::prelude::*;
use std::time::Duration;

/// A machine without costs of its own, so that times are exact.
fn scenario(topology: &str, rest: &str) -> Scenario {
    let text = format!(
        "name = 'test'\n{rest}\n[machine]\nname = 'm'\ntopology = '{topology}'\n\
         costs = {{ switch_us = 0, wake_us = 0, idle_exit_us = 0, migration_us = 0 }}\n\
         hand_over_ns = {{ core = 0, l2 = 0, l3 = 0, node = 0, system = 0 }}\n\
         [demand]\nint = {{}}\nfp = {{ fpu = 1.0 }}\n\
         mem = {{ l2_misses_per_100_cycles = 1.0, working_set_mib = 100.0 }}\n"
    );
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn run(scenario: &Scenario, seed: u64) -> Sim {
    let mut sim = scenario
        .simulation(&Variant::policy("default".parse().expect("a policy")), seed)
        .expect("a simulation");
    sim.run_until(Time(u64::MAX));
    sim
}

/// Each application's first completion, in seconds.
fn times(scenario: &Scenario) -> Vec<f64> {
    run(scenario, 1).applications().map(|(_, completions, _, _)| completions[0]).collect()
}

fn check(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-8 * expected.max(1.0), "{found} is not {expected}");
}

#[test]
fn one_thread_on_one_pe_takes_exactly_its_work() {
    for demand in ["int", "fp", "mem"] {
        let app = format!(
            "application = [{{ name = 'a', steps = [{{ each = {{ mcycles = 1234.5, \
            demand = '{demand}' }} }}] }}]"
        );
        check(times(&scenario("core:1 pu:1", &app))[0], 1.2345);
    }
}

#[test]
fn a_slow_pe_takes_longer_by_its_speed() {
    let app = "application = [{ name = 'a', steps = [{ each = { mcycles = 1000, demand = 'int' } }] }]";
    let mut scenario = scenario("core:1 pu:1", app);
    scenario.machine.speeds = toml::from_str::<std::collections::BTreeMap<String, Vec<_>>>(
        "speeds = [{ pes = '0', \
        speed = 0.4 }]",
    )
    .expect("TOML")
    .remove("speeds")
    .expect("speeds");
    check(times(&scenario)[0], 2.5);
}

#[test]
fn a_woken_thread_runs_on_the_idle_pe_that_it_was_given() {
    // The thread that waits first at a barrier is woken by the other, whose PE is idle at the same moment.
    let app = "application = [{ name = 'a', threads = 2, steps = [{ repeat = { times = 200, steps = [\
        { parallel = { mcycles = 20, demand = 'int', imbalance = 0.5 } }, \
        { serial = { mcycles = 5, demand = 'int' } }] } }] }]";
    assert_eq!(run(&scenario("core:4 pu:1", app), 1).migrations().values().sum::<u64>(), 0);
}

#[test]
fn two_equal_threads_share_fairly() {
    let app = "application = [{ name = 'a', copies = 2, steps = [{ each = { mcycles = 1000, \
        demand = 'int' } }] }]";
    let scenario = scenario("core:1 pu:1", app);
    let mut world = SimWorld::new(scenario.simulation(&scenario.variants[0], 1).expect("a simulation"), 1);
    world.wait_until(Time(1_000_000_000)).expect("no error");
    let observation = world.observe().expect("no error");
    let cpu: Vec<u64> = observation.threads.iter().map(|thread| thread.cpu_ns).collect();
    assert_eq!(cpu.iter().sum::<u64>(), 1_000_000_000, "the PE was never idle");
    assert!(cpu[0].abs_diff(cpu[1]) <= 8_000_000, "{cpu:?} differ by more than two slices");
    let runnable: Vec<Option<u64>> = observation.threads.iter().map(|thread| thread.runnable_ns).collect();
    assert_eq!(runnable, [Some(1_000_000_000); 2]);
    let app = &observation.applications[0];
    assert_eq!(
        (app.runnable_thread_ns, app.active_ns, app.sequential_ns),
        (1_000_000_000, 1_000_000_000, 1_000_000_000)
    );
}

#[test]
fn a_thread_moved_to_and_fro_gets_as_much_time_as_one_that_stays() {
    // Eight threads on two PEs; 0 and 1 change places every third slice, the others stay.
    let app = "os = { slice = '100ms', balance = '3600s' }\napplication = [{ name = 'a', copies = 8, \
        steps = [{ each = { mcycles = 100000, demand = 'int' } }] }]";
    let scenario = scenario("core:1 pu:2", app);
    let mut world = SimWorld::new(scenario.simulation(&scenario.variants[0], 1).expect("a simulation"), 1);
    world.wait_until(Time(1)).expect("no error");
    let threads: Vec<_> =
        world.observe().expect("no error").threads.iter().map(|thread| thread.thread).collect();
    assert_eq!(threads.len(), 8, "all are there from the start");
    for round in 0..200u32 {
        let pe = |index: usize| (index as u32 + if index < 2 { round } else { 0 }) % 2;
        let bind = |(index, &thread): (usize, &ThreadId)| Action {
            thread,
            change: Change::Bind(CpuSet::single(PeId(pe(index)))),
            reason: "test".into(),
        };
        let actions: Vec<Action> = threads.iter().enumerate().map(bind).collect();
        world.apply(&actions);
        world.wait_until(Time(u64::from(round + 1) * 300_000_000)).expect("no error");
    }
    let observation = world.observe().expect("no error");
    let seconds: Vec<f64> = observation.threads.iter().map(|thread| thread.cpu_ns as f64 / 1e9).collect();
    // 60 s on two PEs for eight.
    assert!(seconds.iter().all(|seconds| (14.0..=16.0).contains(seconds)), "{seconds:?}");
}

#[test]
fn amdahls_bound_is_met_exactly() {
    for threads in [1, 2, 4, 8] {
        for wait in ["'sleep'", "'spin'", "{ adaptive = { block_after = '1ms' } }"] {
            let app = format!(
                "application = [{{ name = 'a', threads = {threads}, wait = {wait}, steps = [\
                 {{ serial = {{ mcycles = 250, demand = 'int' }} }}, {{ parallel = {{ mcycles = 750, \
                 demand = 'int' }} }}] }}]"
            );
            check(times(&scenario("core:8 pu:1", &app))[0], 0.25 + 0.75 / f64::from(threads));
        }
    }
}

#[test]
fn hill_and_martys_bound_is_met_with_the_serial_part_on_the_fast_core() {
    // One core of speed 2, three of speed 1; shares are equal, so the loop ends with the slow cores.
    let app = "os = { scheduler = 'capacity' }\n\
        application = [{ name = 'a', threads = 4, steps = [{ repeat = { times = 10, steps = [\
        { serial = { mcycles = 100, demand = 'int' } }, { parallel = { mcycles = 400, \
        demand = 'int' } }] } }] }]";
    let mut amp = scenario("core:4 pu:1", app);
    amp.machine.speeds =
        vec![corewise_sim::machine::SpeedSpec { pes: "0".to_owned(), speed: 2.0, reported: None }];
    let found = times(&amp)[0];
    let bound = 1.0 / 2.0 + 4.0 / 5.0;
    assert!(found >= bound, "{found} beats the bound {bound} of a perfectly divided loop");
    let static_loop = 1.0 / 2.0 + 10.0 * 0.1;
    assert!(found <= 1.3 * static_loop, "{found} is far from {static_loop}");
}

#[test]
fn locks_serialise() {
    for wait in ["'sleep'", "'spin'", "{ adaptive = { block_after = '1ms' } }"] {
        let app = format!(
            "application = [{{ name = 'a', threads = 4, wait = {wait}, steps = [\
             {{ critical = {{ lock = 'l', work = {{ mcycles = 100, demand = 'int' }} }} }}] }}]"
        );
        check(times(&scenario("core:4 pu:1", &app))[0], 0.4);
    }
}

#[test]
fn a_sleeping_thread_uses_no_time() {
    let app = "application = [{ name = 'a', steps = [{ sleep = '300ms' }, { each = { mcycles = 100, \
        demand = 'int' } }] },\
        { name = 'b', start = '1ms', steps = [{ each = { mcycles = 299, demand = 'int' } }] }]";
    let found = times(&scenario("core:1 pu:1", app));
    check(found[0], 0.4);
    check(found[1], 0.299);
}

#[test]
fn spinning_hides_a_serial_part_and_notifying_shows_it() {
    for (wait, tlp) in [
        ("'sleep'", 1.0),
        ("'spin'", 4.0),
        ("{ adaptive = { block_after = '500ms' } }", 2.5),
        ("{ spin_then_notify = { notify_after = '100ms', block_after = '2s' } }", 1.3),
    ] {
        let app = format!(
            "application = [{{ name = 'a', threads = 4, wait = {wait}, steps = \
            [{{ serial = {{ mcycles = 1000, demand = 'int' }} }}] }}]"
        );
        let scenario = scenario("core:4 pu:1", &app);
        let mut world =
            SimWorld::new(scenario.simulation(&scenario.variants[0], 1).expect("a simulation"), 1);
        world.wait_until(Time(u64::MAX)).expect("no error");
        let observation = world.observe().expect("no error");
        check(observation.applications[0].runnable_thread_ns as f64 / 1e9, tlp);
        // To the operating system a thread that spins is runnable, whatever its runtime reports.
        let threads = observation.threads.iter().map(|thread| thread.runnable_ns.expect("it is known"));
        let wanted = match wait {
            "'sleep'" => 1.0,
            "{ adaptive = { block_after = '500ms' } }" => 2.5,
            _ => 4.0,
        };
        check(threads.sum::<u64>() as f64 / 1e9, wanted);
    }
}

#[test]
fn counters_tell_what_happened() {
    let app = "application = [{ name = 'a', steps = [{ each = { mcycles = 1000, demand = 'mem' } }] }]";
    let scenario = scenario("core:1 pu:1", app);
    let mut world = SimWorld::new(scenario.simulation(&scenario.variants[0], 1).expect("a simulation"), 1);
    world.wait_until(Time(u64::MAX)).expect("no error");
    let observation = world.observe().expect("no error");
    let Some(CounterReading::Pmu(pmu)) = &observation.threads[0].counters else { panic!("a PMU") };
    let misses = pmu.l2_misses.expect("misses") as f64;
    assert!((misses / 1e7 - 1.0).abs() < 0.03 && misses != 1e7, "{misses}");
    assert!((pmu.cycles as f64 / 1e9 - 1.0).abs() < 0.03);
}

#[test]
fn bound_masks_hold_and_unbound_threads_make_room() {
    let app = "application = [{ name = 'fp', copies = 4, steps = [{ each = { mcycles = 20000, \
        demand = 'fp' } }] },\
        { name = 'int', copies = 4, steps = [{ each = { mcycles = 20000, demand = 'int' } }] }]";
    let scenario = scenario("pack:1 l2:4 module:1 core:2 pu:1", app);
    for seed in 0..10 {
        let sim = scenario
            .simulation(&Variant::policy("spread".parse().expect("a policy")), seed)
            .expect("a simulation");
        let policy = policy::build("spread").expect("spread");
        let mut engine = Engine::new(
            corewise_core::topology::Topology::synthetic(&scenario.machine.topology).expect("a machine"),
            policy,
            EngineConfig::default(),
        );
        let mut world = SimWorld::new(sim, seed);
        let mut last: Option<Observation> = None;
        let Ok(()) = control_loop(&mut world, &mut engine, |input, _, _| {
            if input.at() == Time(10_000_000_000) {
                last = input.observation().cloned();
            }
        });
        let seen = last.expect("it runs for 20 s and more");
        let intensive = seen.threads.iter().filter(|thread| &*thread.name == "fp");
        let mut modules: Vec<u32> = intensive.map(|thread| thread.last_pe.expect("it ran").0 / 2).collect();
        modules.sort_unstable();
        assert_eq!(modules, [0, 1, 2, 3], "seed {seed}: each FPU-intensive thread has a module");
        let finish = world.now().as_secs_f64();
        assert!(finish < 22.0, "seed {seed}: {finish} s, though every thread could have a PE of its own");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let app = "runs = 2\napplication = [{ name = 'a', threads = 3, copies = 3, variation = 0.05, \
        wait = 'spin', steps = [\
        { repeat = { times = 20, steps = [{ parallel = { mcycles = 300, demand = 'fp', \
        imbalance = 0.2 } }] } }] }]";
    let text = |seed| {
        let mut scenario = scenario("pack:1 l2:2 module:1 core:2 pu:1", app);
        scenario.seed = seed;
        format!("{:?}", compare(&scenario, None).expect("a comparison"))
    };
    assert_eq!(text(5), text(5));
    assert_ne!(text(5), text(6));
}

#[test]
fn looking_does_not_change_what_happens() {
    let app = "application = [{ name = 'a', threads = 5, steps = [{ repeat = { times = 30, steps = [\
        { parallel = { mcycles = 50, demand = 'fp', imbalance = 0.3 } }] } }] }]";
    let scenario = scenario("pack:1 l2:2 module:1 core:2 pu:1", app);
    let unseen = run(&scenario, 3).applications().next().map(|app| app.1.to_vec());
    let sim = scenario.simulation(&scenario.variants[0], 3).expect("a simulation");
    let mut world = SimWorld::new(sim, 3);
    let mut deadline = Time(0);
    while world.wait_until(deadline).expect("no error") == corewise_core::world::Wake::Deadline {
        world.observe().expect("no error");
        deadline = deadline + Duration::from_micros(777);
    }
    let seen = world.sim().applications().next().map(|app| app.1.to_vec());
    let (unseen, seen) = (unseen.expect("an application")[0], seen.expect("an application")[0]);
    assert!((unseen / seen - 1.0).abs() < 1e-6, "{unseen} unseen, {seen} seen");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Work is conserved: no PE is idle while a thread waits, so all is done in work / PEs plus the last
    /// turns.
    #[test]
    fn no_pe_idles_while_threads_wait(pes in 1u32..9, copies in 1usize..20, seed in 0u64..1000) {
        let app = format!(
            "seed = {seed}\napplication = [{{ name = 'a', copies = {copies}, steps = \
            [{{ each = {{ mcycles = 500, demand = 'int' }} }}] }}]"
        );
        let scenario = scenario(&format!("core:{pes} pu:1"), &app);
        let sim = run(&scenario, seed);
        let (mut longest, mut cpu_ns) = (0f64, 0);
        for (_, completions, cpu, _) in sim.applications() {
            longest = longest.max(completions[0]);
            cpu_ns += cpu;
        }
        let work = 0.5 * copies as f64;
        prop_assert!((cpu_ns as f64 / 1e9 - work).abs() < 1e-6, "{cpu_ns} ns for {work} s of work");
        let rounds = copies.div_ceil(pes as usize) as f64;
        prop_assert!(longest >= work / f64::from(pes) - 1e-9 && longest >= 0.5 - 1e-9);
        prop_assert!(longest <= 0.5 * rounds + 0.05, "{longest} s in {rounds} rounds");
    }
}
