//! Each fault alone: what it does, and that it does no more.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::Standing;
use corewise_core::plan::{Action, Change, OutcomeKind};
use corewise_core::time::Time;
use corewise_core::world::{Wake, World};
use corewise_sim::scenario::Scenario;
use corewise_sim::world::SimWorld;
use std::time::Duration;

/// Four threads that work, wait for each other and share a lock; and one that is pinned to PE 0.
fn world(faults: &str) -> SimWorld {
    let text = format!(
        "name = 'faults'\nfaults = {{ {faults} }}\nstop = {{ completions = 5, time = '30s' }}\n\
         machine = {{ name = 'm', topology = 'core:4 pu:1' }}\ndemand.int = {{}}\n\
         variant = [{{ name = 'v', policy = 'default', pin = {{ pinned = ['0'] }} }}]\n\
         application = [\n\
         {{ name = 'pinned', steps = [{{ each = {{ mcycles = 900, demand = 'int' }} }}] }},\n\
         {{ name = 'loops', threads = 4, steps = [{{ repeat = {{ times = 9, steps = [\
         {{ parallel = {{ mcycles = 40, demand = 'int', imbalance = 0.5 }} }}, \
         {{ critical = {{ lock = 'l', work = {{ mcycles = 2, demand = 'int' }} }} }}] }} }}] }}]\n"
    );
    let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    SimWorld::new(scenario.simulation(&scenario.variants[0], 1).expect("a simulation"), 1)
}

/// Lets so much time pass, then looks.
fn after(world: &mut SimWorld, ms: u64) -> corewise_core::observe::Observation {
    let Ok(_) = world.wait_until(world.now() + Duration::from_millis(ms));
    let Ok(observation) = world.observe();
    observation
}

/// What becomes of binding the first free thread to PE 1.
fn bind(world: &mut SimWorld) -> OutcomeKind {
    let seen = after(world, 10);
    let thread = seen.threads.iter().find(|thread| thread.standing == Standing::Free).expect("a thread");
    let change = Change::Bind(CpuSet::single(PeId(1)));
    world.apply(&[Action { thread: thread.thread, change, reason: "".into() }]);
    let seen_after = after(world, 10);
    let ended = seen_after.threads.iter().any(|other| other.thread == thread.thread && other.ended);
    let result = seen_after.outcomes[0].result.clone();
    assert_eq!(ended, result == OutcomeKind::Gone);
    result
}

#[test]
fn readings_are_lost_and_binds_fail_as_often_as_is_said() {
    let has_counters =
        |faults| after(&mut world(faults), 50).threads.iter().all(|thread| thread.counters.is_some());
    assert!(has_counters("") && !has_counters("lost_readings = 1.0"));
    assert_eq!(bind(&mut world("")), OutcomeKind::Done);
    assert!(matches!(bind(&mut world("refused_binds = 1.0")), OutcomeKind::Refused(_)));
    assert_eq!(bind(&mut world("late_binds = 1.0")), OutcomeKind::Gone);
}

#[test]
fn no_thread_waits_for_a_killed_one() {
    let mut world = world("kills_per_s = 3.0");
    assert_eq!(world.wait_until(Time(u64::MAX)), Ok(Wake::Finished));
    let end = world.now();
    assert!(world.sim().all_done().is_some() && end < Time(30_000_000_000), "all complete at {end:?}");
}

#[test]
fn the_clock_jumps_and_looks_are_late_without_more_work_being_done() {
    let cpu_ns = |faults| {
        let mut world = world(faults);
        let seen = after(&mut world, 100);
        (seen.at, seen.threads.iter().map(|thread| thread.cpu_ns).sum::<u64>())
    };
    let (at, cpu) = cpu_ns("");
    let (at_jumped, cpu_jumped) = cpu_ns("clock_jumps = 1.0, clock_jump = '3s'");
    let (at_late, cpu_late) = cpu_ns("late_looks = 1.0, late = '3s'");
    assert!(at_jumped > at && cpu_jumped == cpu);
    assert!(at_late > at && cpu_late > cpu);
}

#[test]
fn a_mask_without_a_pe_is_widened_and_pes_come_back() {
    let mut world = world("unplugs_per_s = 20.0, unplugged = '30ms'");
    let (mut fewest, mut most, mut freed) = (4, 0, false);
    for _ in 0..100 {
        let seen = after(&mut world, 5);
        fewest = fewest.min(seen.allowed.len());
        most = most.max(seen.allowed.len());
        let pinned = &seen.threads[0];
        assert!(pinned.permitted.is_subset(&seen.allowed));
        freed |= pinned.standing == Standing::Free;
        assert_eq!(freed, pinned.standing == Standing::Free, "a widened mask stays so");
    }
    assert!(fewest < 4 && most == 4 && freed, "{fewest} to {most} PEs, widened: {freed}");
}
