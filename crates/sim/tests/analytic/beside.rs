//! For how long programs have run beside each other.

use crate::{hogs, scenario};
use corewise_core::observe::BesideReading;
use corewise_core::time::Time;
use corewise_core::topology::DomainKind;
use corewise_core::world::World;
use corewise_sim::scenario::Variant;
use corewise_sim::world::SimWorld;

/// What a world sees at a time, in milliseconds.
fn seen(topology: &str, apps: &str, at_ms: u64) -> Vec<(DomainKind, u64)> {
    let scenario = scenario(topology, apps, "beside = true\nos.tick = '1ms'");
    let default = Variant::policy("default".parse().expect("a policy"));
    let mut world = SimWorld::new(scenario.simulation(&default, 1).expect("a simulation"), 1);
    let Ok(_) = world.wait_until(Time(at_ms * 1_000_000));
    let Ok(observation) = world.observe();
    let ms = |reading: &BesideReading| (reading.shared, (reading.ns + 500_000) / 1_000_000);
    observation.beside.iter().map(ms).collect()
}

#[test]
fn two_run_together_for_as_long_as_the_shorter_one_runs() {
    let apps = format!("{}, {}", hogs("long", 1, 100, "int"), hogs("short", 1, 40, "int"));
    assert_eq!(seen("l3:1 core:2 pu:1", &apps, 30), [(DomainKind::L3, 30)], "both still run");
    assert_eq!(seen("l3:1 core:2 pu:1", &apps, 90), [(DomainKind::L3, 40)]);
    assert_eq!(seen("core:1 pu:2", &apps, 20), [(DomainKind::Core, 20)]);
    assert_eq!(seen("numa:2 core:1 pu:1", &apps, 90), [], "they share nothing");
}

#[test]
fn those_that_take_turns_on_one_pe_never_meet() {
    let apps = format!("{}, {}", hogs("a", 1, 50, "int"), hogs("b", 1, 50, "int"));
    assert_eq!(seen("l3:1 core:1 pu:1", &apps, 90), []);
}
