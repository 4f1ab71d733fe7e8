//! What holds on machines of any size, however corewise decides about waits.

use corewise_core::plan::SettingKind;
use corewise_sim::grid::{Cell, Condition, Outcome, SHAPES, Shape, Way, run};
use corewise_sim::scenario::Scenario;
use std::collections::BTreeMap;
use std::time::Duration;

const REGIONS: &str = include_str!("../../../studies/waits/simulated/regions.toml");
const SERIAL: &str = include_str!("../../../studies/waits/simulated/serial.toml");
const STENCIL: &str = include_str!("../../../studies/waits/simulated/stencil.toml");

fn program(text: &str) -> Scenario {
    Scenario::parse(text).expect("a scenario")
}

fn shape(name: &str) -> Shape {
    *SHAPES.iter().find(|shape| shape.name == name).expect("a machine")
}

fn cell(programs: &[&Scenario], machine: &str, condition: Condition, part: f64, limit: Duration) -> Cell {
    Cell::new(programs, shape(machine), condition, part).expect("programs").at_most(limit)
}

fn outcome(cell: &Cell, way: Way, seed: u64) -> Outcome {
    run(cell, way, seed, |_, _| {}).expect("a run")
}

fn median(cell: &Cell, way: Way) -> f64 {
    let mut seconds = [1, 2, 3].map(|seed| outcome(cell, way, seed).seconds);
    seconds.sort_by(f64::total_cmp);
    seconds[1]
}

#[test]
fn two_programs_that_spin_gain_a_factor_of_two_on_any_machine() {
    let (regions, stencil) = (program(REGIONS), program(STENCIL));
    for (program, machine, part, limit_ms) in
        [(&regions, "2", 0.5, 2500), (&regions, "4", 0.3, 2500), (&stencil, "16", 0.2, 3000)]
    {
        let cell = cell(&[program], machine, Condition::Copies(2), part, Duration::from_millis(limit_ms));
        let (unchanged, corewise) = (median(&cell, Way::Unchanged), median(&cell, Way::Corewise));
        assert!(corewise <= unchanged / 2.0, "{cell}: {corewise:.2} s, unchanged {unchanged:.2} s");
    }
}

#[test]
fn a_program_alone_loses_no_more_than_a_twentieth_on_any_machine() {
    for (machine, part) in [("2", 0.5), ("4", 0.5), ("16", 0.2)] {
        for text in [REGIONS, STENCIL] {
            let cell = cell(&[&program(text)], machine, Condition::Copies(1), part, Duration::from_secs(4));
            let (unchanged, corewise) =
                (outcome(&cell, Way::Unchanged, 1).seconds, outcome(&cell, Way::Corewise, 1).seconds);
            assert!(corewise <= 1.05 * unchanged, "{cell}: {corewise:.2} s, unchanged {unchanged:.2} s");
        }
    }
}

#[test]
fn a_quota_is_not_spent_on_spinning_on_any_machine() {
    let serial = program(SERIAL);
    for (machine, condition, part) in [
        ("2", Condition::HalfAPe, 0.5),
        ("2", Condition::HalfThePes, 1.0),
        ("16", Condition::FourPes, 0.5),
        ("64", Condition::FourPes, 0.3),
    ] {
        let cell = cell(&[&serial], machine, condition, part, Duration::from_secs(20));
        let [unchanged, passive, corewise] =
            [Way::Unchanged, Way::Passive, Way::Corewise].map(|way| median(&cell, way));
        println!("{cell}: {unchanged:.2} {passive:.2} {corewise:.2}");
        let lost = (corewise - passive) / (unchanged - passive);
        assert!(lost < 0.25, "{cell}: {corewise:.2} s, unchanged {unchanged:.2} s, passive {passive:.2} s");
    }
}

#[test]
fn programs_that_wait_all_the_time_lose_little_by_trials_in_a_quota() {
    for (text, machine, condition, part) in [
        (REGIONS, "2", Condition::HalfAPe, 1.0),
        (STENCIL, "2", Condition::HalfThePes, 1.0),
        (STENCIL, "16", Condition::FourPes, 0.6),
    ] {
        let cell = cell(&[&program(text)], machine, condition, part, Duration::from_secs(20));
        let (unchanged, corewise) = (median(&cell, Way::Unchanged), median(&cell, Way::Corewise));
        println!("{cell}: {unchanged:.2} {corewise:.2}");
        assert!(corewise <= 1.15 * unchanged, "{cell}: {corewise:.2} s, unchanged {unchanged:.2} s");
    }
}

#[test]
fn own_waits_come_back_when_the_others_have_ended() {
    let long = program(&STENCIL.replace("times = 30000", "times = 70000"));
    let short = program(&REGIONS.replace("times = 50000", "times = 8000"));
    for (machine, part) in [("2", 1.0), ("4", 1.0), ("16", 0.8)] {
        let cell = cell(&[&long, &short], machine, Condition::Copies(1), part, Duration::from_secs(9));
        let outcome = outcome(&cell, Way::Corewise, 1);
        assert!(!outcome.is_cut_off, "{cell} takes too long");
        let mut changed: BTreeMap<SettingKind, f64> = BTreeMap::new();
        let long_program = outcome.changes.iter().filter(|change| change.program == "stencil 1");
        for change in long_program {
            let kind = change.kind().expect("only settings");
            if change.change.gives_back() {
                changed.remove(&kind);
            } else {
                changed.insert(kind, change.at.as_secs_f64());
            }
        }
        assert!(!outcome.changes.is_empty(), "{cell}: nothing was changed");
        assert!(changed.is_empty(), "{cell}: still changed after {:.2} s: {changed:?}", outcome.seconds);
    }
}
