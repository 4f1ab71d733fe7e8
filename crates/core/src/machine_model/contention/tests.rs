use super::*;
use crate::topology::Topology;

fn machine() -> MachineModel {
    let shape = "pack:1 l3:1(size=8MB) l2:4(size=2MB) module:1 core:2 pu:1";
    MachineModel { ghz: 2.0, ..Topology::synthetic(shape).unwrap().into() }
}

fn paces(machine: &MachineModel, demands: &[(usize, Demand)]) -> Vec<f64> {
    let loads: Vec<Load> = demands.iter().map(|&(pe, demand)| Load::new(pe, demand)).collect();
    let mut paces = Vec::new();
    Solver::default().solve(machine, &loads, &mut paces);
    paces.iter().map(|pace| pace.work_per_ns).collect()
}

fn fp(fpu: f64) -> Demand {
    Demand { fpu, ..Demand::default() }
}

fn memory(misses: f64, working_set_mib: f64) -> Demand {
    Demand { l2_misses_per_100_cycles: misses, working_set_mib, ..Demand::default() }
}

fn check(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
}

#[test]
fn alone_every_demand_runs_at_the_clock() {
    let machine = machine();
    for demand in [fp(0.0), fp(1.0), memory(0.1, 1.0), memory(1.6, 300.0), memory(5.0, 1e4)] {
        check(paces(&machine, &[(3, demand)])[0], 2.0);
    }
}

#[test]
fn two_saturating_threads_halve_a_module_and_others_are_not_touched() {
    let machine = machine();
    let paces = paces(&machine, &[(0, fp(1.0)), (1, fp(1.0)), (2, fp(1.0)), (3, fp(0.0))]);
    for (found, expected) in paces.iter().zip([1.0, 1.0, 2.0, 2.0]) {
        check(*found, expected);
    }
}

#[test]
fn no_unit_serves_more_than_it_can() {
    let machine = machine();
    for (u, v) in [(0.2, 0.9), (0.7, 0.7), (1.0, 0.5), (1.0, 1.0)] {
        let paces = paces(&machine, &[(0, fp(u)), (1, fp(v))]);
        let served = (u * paces[0] + v * paces[1]) / 2.0;
        assert!(served <= 1.0 + 1e-9, "{u} and {v}: {served}");
    }
}

#[test]
fn a_memory_stall_does_not_shrink_with_the_clock() {
    let mut machine = machine();
    machine.pes[0].speed = 2.0;
    check(paces(&machine, &[(0, fp(1.0))])[0], 4.0);
    let bound = paces(&machine, &[(0, memory(1.0, 100.0))])[0];
    assert!(bound > 2.0 && bound < 3.0, "stalled 60 % of the time: {bound}");
}

#[test]
fn what_another_node_serves_takes_so_many_times_as_long() {
    let machine = machine();
    let demand = Demand { l3_miss_share: 1.0, ..memory(1.0, 1e4) };
    let per_work = |remote| {
        let mut paces = Vec::new();
        Solver::default().solve(
            &machine,
            &[Load { pe: 0, demand, remote, common: Common::default() }],
            &mut paces,
        );
        1.0 / paces[0].work_per_ns
    };
    let all_local = machine.memory.memory_latency_ns * machine.ghz * 0.01 * (1.0 - machine.memory.overlap);
    let longer = (per_work(1.0) / per_work(0.0) - 1.0) / (machine.memory.remote_factor - 1.0);
    assert!(longer > 0.0 && longer <= all_local.min(1.0) + 1e-9, "{longer} of {all_local}");
}

#[test]
fn memory_never_delivers_more_than_its_bandwidth() {
    let mut machine = machine();
    (machine.memory.bandwidth_gb_per_s, machine.memory.overlap) = (4.0, 0.9);
    let demand = memory(3.0, 1e4);
    let mut last = f64::INFINITY;
    for count in 1..=8 {
        let demands: Vec<(usize, Demand)> = (0..count).map(|pe| (pe, demand)).collect();
        let paces = paces(&machine, &demands);
        let traffic: f64 = paces.iter().sum::<f64>() * 0.03 * LINE_BYTES;
        assert!(traffic <= 4.0, "{count} threads move {traffic} GB/s");
        assert!(paces[0] < last, "a further thread costs the others something");
        last = paces[0];
    }
}

#[test]
fn neighbours_on_an_l2_compete_by_insertion_rate() {
    let machine = machine();
    let quiet = memory(0.1, 1.5);
    let apart = paces(&machine, &[(0, quiet), (2, memory(2.0, 1.5))])[0];
    let beside_quiet = paces(&machine, &[(0, quiet), (1, quiet)])[0];
    let beside_greedy = paces(&machine, &[(0, quiet), (1, memory(2.0, 1.5))])[0];
    assert!(apart > beside_quiet && beside_quiet > beside_greedy, "{apart} {beside_quiet} {beside_greedy}");
    let fitting = paces(&machine, &[(0, memory(0.1, 1.0)), (1, memory(0.1, 1.0))])[0];
    assert!(fitting > beside_quiet, "two that fit take nothing from each other");
}

fn solved(machine: &MachineModel, loads: &[Load]) -> Vec<f64> {
    let mut paces = Vec::new();
    Solver::default().solve(machine, loads, &mut paces);
    paces.iter().map(|pace| 1.0 / pace.work_per_ns).collect()
}

#[test]
fn the_divider_and_the_window_of_a_core_are_units() {
    let shape = "pack:1 l3:1(size=8MB) core:2 pu:2";
    let mut machine = MachineModel { ghz: 1.0, ..Topology::synthetic(shape).unwrap().into() };
    machine.units.window_conflict = 0.5;
    let divides = Demand { ipc: 0.0, divider: 0.5, ..Demand::default() };
    let fills = Demand { ipc: 0.0, window: 0.8, ..Demand::default() };
    let load = |pe, demand| Load::new(pe, demand);
    let times = |a, b, to| solved(&machine, &[load(0, a), load(to, b)])[0];
    check(times(divides, divides, 1), 1.0 + 0.5 * 0.5);
    check(times(fills, fills, 1), 1.0 + 0.5 * 0.8 * 0.8);
    check(times(divides, fills, 1), 1.0);
    check(times(divides, divides, 2), 1.0);
}

#[test]
fn what_a_prefetcher_foresees_costs_no_latency() {
    let mut machine = MachineModel {
        ghz: 1.0,
        ..Topology::synthetic("numa:2 pack:1 l3:1(size=1MB) core:1 pu:1").unwrap().into()
    };
    machine.memory.bandwidth_gb_per_s = 1e9;
    let longer = |prefetched| {
        let demand = Demand { prefetched, ..memory(1.0, 1e4) };
        let load = Load { pe: 0, demand, remote: 1.0, common: Common::default() };
        solved(&machine, &[load])[0] - 1.0
    };
    // 1 miss in 100 cycles takes longer by (1.5 - 1) 80 ns, of which 30 % are exposed.
    check(longer(0.0), 0.01 * 40.0 * 0.3);
    check(longer(0.75), 0.25 * 0.01 * 40.0 * 0.3);
    assert!(longer(1.0).abs() < 1e-9);
}

#[test]
fn shared_data_is_once_in_a_cache_that_both_use_and_twice_in_two() {
    let shape = "pack:1 l3:2(size=8MB) l2:2(size=256kB) core:1 pu:1";
    let mut machine = MachineModel { ghz: 1.0, ..Topology::synthetic(shape).unwrap().into() };
    machine.memory.bandwidth_gb_per_s = 1e9;
    let demand = Demand { l3_miss_share: 0.0, ..memory(2.0, 6.0) };
    let slower = |share, process, pe, mib: f64| {
        let demand = Demand { working_set_mib: mib, ..demand };
        let load = |pe, process| Load { pe, demand, remote: 0.0, common: Common { process, share } };
        solved(&machine, &[load(0, 7), load(pe, process)])[0] - 1.0
    };
    // 12 MiB do not fit, (2 - 2/3) 6 MiB do.
    assert!(slower(0.0, 7, 1, 6.0) > 0.01);
    check(1.0 + slower(2.0 / 3.0, 7, 1, 6.0), 1.0);
    assert!(slower(0.6, 7, 1, 6.0) > 0.0);
    // Data of another process is other data; in two caches each thread has its own copy.
    check(slower(0.9, 8, 1, 6.0), slower(0.0, 7, 1, 6.0));
    check(1.0 + slower(1.0, 7, 2, 8.0), 1.0);
    // Of two that share all, each misses as if it were alone with the whole cache.
    check(1.0 + slower(1.0, 7, 1, 8.0), 1.0);
    // With half in common 12 MiB take 9, of which there are 8: a ninth of what the L3 served goes to memory.
    check(slower(0.5, 7, 1, 6.0), 0.02 / 9.0 * (80.0 - 15.0) * 0.3);
}
