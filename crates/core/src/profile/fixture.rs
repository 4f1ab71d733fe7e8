//! A made-up machine profile for tests.

use super::*;
use crate::kernels::Kernel;

/// A figure that passes every check.
pub const GOOD: Measurement = Measurement { value: 1.0, low: 0.9, high: 1.2, repetitions: 7 };

/// One of everything, for a machine of two cores with two PEs each.
pub fn full() -> MachineProfile {
    let mut profile = MachineProfile::empty(Topology::synthetic("core:2 pu:2").unwrap(), Evidence::Simulated);
    let class = |name: &str, closest, measured| PairClass {
        name: name.into(),
        closest: Some(closest),
        pairs: 2,
        measured: vec![measured],
        largest_deviation: Some(1.01),
    };
    profile.classes = vec![
        class("same core", DomainKind::Core, (PeId(0), PeId(1))),
        class("same node", DomainKind::NumaNode, (PeId(0), PeId(2))),
    ];
    let (workload, load) =
        (Workload::both(Kernel::Read, 4096), Load { kernel: Kernel::Read, region_bytes: 4096 });
    profile.pairs.push(PairResult {
        class: 1,
        workload,
        rate: GOOD,
        delta_alone: Some(GOOD),
        slowdowns: Some((GOOD, GOOD)),
        discarded: 0,
    });
    let subject = Subject::Workload(workload);
    profile.deltas.push(Delta { close: 0, distant: 1, subject, delta: GOOD, preference: Preference::Close });
    profile.latencies.push(PairLatency { a: PeId(0), b: PeId(3), kernel: Kernel::HandOver, ns: GOOD });
    profile.memory.push(MemoryPoint { load, rate: GOOD });
    let points = vec![(0.5, GOOD), (1.0, GOOD)];
    profile.contention.push(ContentionCurve { class: 0, resource: Resource::L1, load, points });
    profile.speeds.push(PeSpeed { pe: PeId(3), kernel: Kernel::IntAdd, relative: GOOD });
    let groups = vec![(DomainKind::L2, "0-1".parse().unwrap())];
    profile.discovered = Some(Discovery { groups, ..Discovery::default() });
    profile
}
