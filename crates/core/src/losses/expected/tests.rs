//! Drawn cases: threads on PEs, and what they lose.

use super::*;
use crate::machine_model::Parameter;
use crate::topology::Topology;

/// Two cores with two PEs each, of which everything is known.
fn machine() -> MachineModel {
    let mut machine = MachineModel::from(Topology::synthetic("l3:1 core:2 pu:2").unwrap());
    for Parameter { confidence, .. } in &mut machine.parameters {
        *confidence = 1.0;
    }
    machine
}

const FPU: Demand = Demand { fpu: 1.0, ipc: 0.0, ..Demand::DEFAULT };
const INTEGER: Demand = Demand { ipc: 0.0, ..Demand::DEFAULT };

fn running(demand: Demand, pes: &str) -> Running {
    Running { demand, share: 1.0, pes: pes.parse().unwrap() }
}

#[test]
fn nothing_is_predicted_of_a_machine_that_was_not_measured() {
    assert!(Losses::new(&MachineModel::from(Topology::synthetic("core:2 pu:2").unwrap())).is_none());
    assert!(Losses::new(&machine()).is_some());
}

#[test]
fn two_on_one_core_lose_half_of_two_pes_and_apart_they_lose_nothing() {
    let machine = machine();
    let mut losses = Losses::new(&machine).unwrap();
    let together = losses.of(&[running(FPU, "0"), running(FPU, "1")]);
    let apart = losses.of(&[running(FPU, "0"), running(FPU, "2")]);
    assert!((together.units - 1.0).abs() < 1e-9, "{together:?}");
    assert_eq!(apart.total(), 0.0);
}

#[test]
fn rivals_on_one_pe_never_meet() {
    // Four threads on two PEs of one core: both FPU threads on PE 0, both others on PE 1.
    let machine = machine();
    let mut losses = Losses::new(&machine).unwrap();
    let rivals =
        losses.of(&[running(FPU, "0"), running(FPU, "0"), running(INTEGER, "1"), running(INTEGER, "1")]);
    assert_eq!(rivals.total(), 0.0);
    let free = losses.of(&[
        running(FPU, "0-1"),
        running(FPU, "0-1"),
        running(INTEGER, "0-1"),
        running(INTEGER, "0-1"),
    ]);
    // Of the six pairs that may run, one is of two FPU threads: it loses a second each second.
    assert!((0.02..0.5).contains(&free.total()), "{free:?}");
}

#[test]
fn free_threads_have_a_core_each_while_there_are_cores() {
    let machine = machine();
    let mut losses = Losses::new(&machine).unwrap();
    assert_eq!(losses.of(&[running(FPU, "0-3"), running(FPU, "0-3")]).total(), 0.0);
}

#[test]
fn a_thread_that_hardly_runs_hardly_costs() {
    let machine = machine();
    let mut losses = Losses::new(&machine).unwrap();
    let rare = Running { share: 0.1, ..running(FPU, "1") };
    let lost = losses.of(&[running(FPU, "0"), rare]).total();
    assert!(lost < 0.5, "{lost}");
}
