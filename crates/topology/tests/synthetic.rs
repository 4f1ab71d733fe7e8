//! Our parser of synthetic machines agrees with hwloc's.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::topology::{DomainKind, Topology};
use hwlocality::object::types::ObjectType;
use hwlocality::topology::Topology as Hwloc;
use proptest::prelude::*;

const KINDS: [(DomainKind, ObjectType); 7] = [
    (DomainKind::Core, ObjectType::Core),
    (DomainKind::L1, ObjectType::L1Cache),
    (DomainKind::L2, ObjectType::L2Cache),
    (DomainKind::L3, ObjectType::L3Cache),
    (DomainKind::Die, ObjectType::Die),
    (DomainKind::NumaNode, ObjectType::NUMANode),
    (DomainKind::Package, ObjectType::Package),
];

/// The sets of PEs of each object of a type, in hwloc's logical order.
fn of_hwloc(hwloc: &Hwloc, object_type: ObjectType) -> Vec<CpuSet> {
    let sets = hwloc.objects_with_type(object_type).filter_map(|object| object.cpuset());
    sets.map(|set| set.iter_set().map(|index| PeId(usize::from(index) as u32)).collect()).collect()
}

/// Some of the levels in their usual order, each with 1 to 3 children; a core level always, so that both
/// sides have cores. NUMA nodes stand anywhere above the L3.
fn description() -> impl Strategy<Value = String> {
    let upper = proptest::sample::subsequence(vec!["numa", "pack", "group", "die"], 0..=4).prop_shuffle();
    let ordered = upper.prop_filter("a die is within a package", |levels| {
        let place = |name| levels.iter().position(|level| *level == name);
        !matches!((place("pack"), place("die")), (Some(pack), Some(die)) if die < pack)
    });
    let lower = proptest::sample::subsequence(vec!["l3", "l2", "l1"], 0..=3);
    let counts = proptest::collection::vec(1u32..=3, 9)
        .prop_filter("our machines have 8192 PEs at most", |counts| counts.iter().product::<u32>() <= 8192);
    (ordered, lower, counts).prop_map(|(upper, lower, counts)| {
        let levels = upper.into_iter().chain(lower).chain(["core", "pu"]);
        levels.zip(counts).map(|(name, count)| format!("{name}:{count}")).collect::<Vec<_>>().join(" ")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn both_make_the_same_machine(text in description()) {
        let ours = Topology::synthetic(&text).expect(&text);
        let hwloc = Hwloc::builder().from_synthetic(&text).expect(&text).build().expect(&text);
        for (kind, object_type) in KINDS {
            let sets: Vec<CpuSet> = ours.domains(kind).map(|domain| domain.pes.clone()).collect();
            prop_assert_eq!(sets, of_hwloc(&hwloc, object_type), "{:?} of {}", kind, text);
        }
        let pus: CpuSet = of_hwloc(&hwloc, ObjectType::PU).into_iter().flat_map(|set| set.first()).collect();
        prop_assert_eq!(ours.pes, pus);
    }
}
