use super::contention::{Demand, Load};
use super::*;
use crate::classify::CONFIDENCE_MIN;
use crate::ids::PeId;
use crate::kernels::Kernel;
use crate::profile::fixture::GOOD;
use crate::profile::{self, Evidence, MachineProfile, Measurement, MemoryPoint, Resource};
use crate::topology::{CpuKind, Topology};
use proptest::prelude::*;

/// Two nodes, each with an L3, two L2s and two modules of two cores with two PEs.
const SHAPE: &str = "numa:2 pack:1 l3:1(size=8MB) l2:2(size=1MB) module:1 core:2 pu:2";
const PES: usize = 16;

fn model() -> MachineModel {
    Topology::synthetic(SHAPE).unwrap().into()
}

fn pe(pe: usize) -> PeId {
    PeId(pe as u32)
}

/// Loads that compete for one kind of resource only: units, or caches and memory. (A thread that waits for a
/// unit demands less of memory, which benefits a third thread, as on real machines.)
fn demands(of_units: bool) -> impl Strategy<Value = Demand> {
    (0.0..1.0, 0.0..4.0, 0.0..5.0, 0.0..1.0, 0.0..20.0).prop_map(move |(fpu, ipc, misses, through, mib)| {
        let none = Demand { ipc: 0.0, ..Demand::default() };
        match of_units {
            true => Demand { fpu, ipc, ..none },
            false => Demand {
                l2_misses_per_100_cycles: misses,
                l3_miss_share: through,
                working_set_mib: mib,
                ..none
            },
        }
    })
}

/// Loads on different PEs.
fn loads() -> impl Strategy<Value = Vec<Load>> {
    any::<bool>().prop_flat_map(|of_units| {
        let pes = Just((0..PES).collect::<Vec<_>>()).prop_shuffle();
        let demands = proptest::collection::vec(demands(of_units), 1..PES);
        (pes, demands).prop_map(|(pes, demands)| {
            let load = |(pe, demand)| Load::new(pe, demand);
            pes.into_iter().zip(demands).map(load).collect()
        })
    })
}

proptest! {
    #[test]
    fn more_load_never_makes_anybody_faster(loads in loads()) {
        let model = model();
        let (with, without) = (model.slowdowns(&loads), model.slowdowns(&loads[..loads.len() - 1]));
        for (index, (with, without)) in with.iter().zip(&without).enumerate() {
            prop_assert!(*without >= 1.0 - 1e-9, "{index} gains by its neighbours: {without}");
            // Cache shares are iterated a few rounds only, which leaves a small error.
            prop_assert!(*with >= without * (1.0 - 1e-3), "{index}: {without}, with one more {with}");
        }
    }

    #[test]
    fn threads_that_share_nothing_are_not_slowed(loads in loads()) {
        let model = model();
        // The nodes share nothing with each other, nor do modules share units.
        for load in &loads {
            let other = Load { pe: (load.pe + PES / 2) % PES, ..*load };
            prop_assert_eq!(model.slowdowns(&[*load, other]), vec![1.0, 1.0]);
            if load.demand.l2_misses_per_100_cycles == 0.0 {
                let other = Load { pe: load.pe ^ 4, ..*load };
                prop_assert_eq!(model.slowdowns(&[*load, other]), vec![1.0, 1.0]);
            }
        }
    }

    #[test]
    fn the_model_is_as_symmetric_as_the_machine(loads in loads(), bit in 0..4) {
        let (model, swap) = (model(), 1usize << bit);
        let swapped: Vec<Load> = loads.iter().map(|load| Load { pe: load.pe ^ swap, ..*load }).collect();
        for (a, b) in model.slowdowns(&loads).iter().zip(model.slowdowns(&swapped)) {
            prop_assert!((a / b - 1.0).abs() < 1e-6, "{a} and {b}");
        }
        for (a, b) in [(0, 1), (0, 2), (0, 4), (0, 8), (3, 12)] {
            let (here, back) = (model.latency_ns(pe(a), pe(b)), model.latency_ns(pe(b), pe(a)));
            prop_assert_eq!(here, back);
            prop_assert_eq!(here, model.latency_ns(pe(a ^ swap), pe(b ^ swap)));
        }
    }
}

#[test]
fn equal_threads_suffer_equally() {
    let fp = Demand { fpu: 1.0, ..Demand::default() };
    let loads = [0, 2].map(|pe| Load::new(pe, fp));
    assert_eq!(model().slowdowns(&loads), [2.0, 2.0], "two cores of one module");
}

#[test]
fn of_a_topology_alone_nothing_is_known_well_enough_to_decide() {
    let model = model();
    assert_eq!(model.parameters.len(), model.named().len());
    for parameter in &model.parameters {
        assert!(parameter.confidence < CONFIDENCE_MIN && parameter.from.is_none(), "{parameter:?}");
    }
    let latency = model.latency_ns(pe(0), pe(8));
    assert!(latency.confidence < CONFIDENCE_MIN && latency.source == Source::Assumed, "{latency:?}");
    let curve = model.contention(Resource::Fpu, pe(0), pe(2)).unwrap();
    assert_eq!((curve.slowdown_at(1.0), curve.source), (2.0, Source::Assumed));
    assert!(curve.confidence < CONFIDENCE_MIN);
    assert_eq!(model.contention(Resource::Fpu, pe(0), pe(4)), None, "another module");
    assert_eq!(model.contention(Resource::L1, pe(0), pe(1)), None, "nothing is known of it");
    assert_eq!(model.memory_nodes().count(), 2);
}

#[test]
fn a_topology_shows_which_pes_are_faster_and_not_by_how_much() {
    let mut topology = Topology::synthetic("core:4 pu:1").unwrap();
    let alike = MachineModel::from(topology.clone());
    let kind = |name: &str, pes: &str| CpuKind {
        name: name.to_owned(),
        pes: pes.parse().unwrap(),
        evidence: Vec::new(),
        speed: None,
    };
    topology.kinds = vec![kind("fast", "0"), kind("slow", "1-3")];
    let model = MachineModel::from(topology.clone());
    let slow = model.kind_speed(&topology.kinds[1]).unwrap();
    assert_eq!((slow.value, slow.source), (1.0, Source::Assumed));
    assert!(slow.confidence < CONFIDENCE_MIN && slow.confidence <= alike.speed(pe(0)).unwrap().confidence);
    assert_eq!((model.speed(pe(4)), model.kind_speed(&kind("none", ""))), (None, None));
}

#[test]
fn every_resource_that_is_shared_has_a_curve_that_rises() {
    let model = model();
    for resource in [Resource::Integer, Resource::Fpu, Resource::L2, Resource::L3, Resource::MemoryBandwidth]
    {
        let curve = model.contention(resource, pe(0), pe(1)).unwrap();
        let slowdowns: Vec<f64> = [0.0, 0.1, 0.25, 0.6, 1.0].map(|at| curve.slowdown_at(at)).into();
        assert!(
            slowdowns.is_sorted() && slowdowns[0] == 1.0 && slowdowns[4] > 1.0,
            "{resource}: {slowdowns:?}"
        );
    }
}

#[test]
fn the_latency_of_the_l3_is_of_the_region_farthest_from_both_sizes() {
    let mut profile = MachineProfile::empty(Topology::synthetic(SHAPE).unwrap(), Evidence::Simulated);
    let mib = |mib: u64| profile::Load { kernel: Kernel::LoadLatency, region_bytes: mib << 20 };
    let rate = |value| Measurement { value, ..GOOD };
    let mut model_of = |points: &[(u64, f64)]| {
        let point = |&(size, value): &_| MemoryPoint { load: mib(size), rate: rate(value) };
        profile.memory = points.iter().map(point).collect();
        MachineModel::from_profile(&profile)
    };
    let model = model_of(&[(1, 1e9), (2, 5e8), (3, 2e8), (4, 1e8), (64, 1e7)]);
    let ns = |name| model.parameter(name).unwrap().value;
    assert_eq!(ns("l3_latency_ns").round(), 5.0);
    assert_eq!(ns("memory_latency_ns").round(), 100.0);
    // The L2 holds half of the one, the L3 little more than the other.
    let model = model_of(&[(1, 1e9), (6, 1e8)]);
    assert_eq!(model.parameter("l3_latency_ns").unwrap().from, None);
}
