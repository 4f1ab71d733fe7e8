//! Discovery on model machines: the truth is found, and what cannot be found is said.

use corewise_core::calibrate::discover::{Found, discover};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::topology::{DomainKind, Topology};
use corewise_sim::bench::trials::{SHAPES, trial};
use corewise_sim::bench::{Conditions, ModelMachine, renumbered};
use corewise_sim::machine::{Machine, MachineSpec};

const SMT: &str = "pack:1 l3:1(size=8MB) l2:4(size=512kB) core:1 pu:2";

fn machine(topology: Topology, conditions: Conditions) -> ModelMachine {
    let machine = Machine::with_topology(MachineSpec::plain("m"), topology).expect("plain parameters");
    ModelMachine::new(machine, conditions, 1)
}

fn synthetic(text: &str) -> Topology {
    Topology::synthetic(text).expect("a machine")
}

/// What is found on a machine that reports the truth.
fn found(topology: &Topology, conditions: Conditions) -> Found {
    discover(&mut machine(topology.clone(), conditions), topology)
}

fn groups(found: &Found, kind: DomainKind) -> Vec<String> {
    let of_kind = found.discovery.groups.iter().filter(|(of, _)| *of == kind);
    of_kind.map(|(_, pes)| pes.to_string()).collect()
}

/// Whether a reason given for a missing kind holds these words.
fn misses(found: &Found, what: &str, why: &str) -> bool {
    found.missing.iter().any(|missing| missing.what.contains(what) && missing.why.contains(why))
}

#[test]
fn planted_sharing_is_found_on_every_shape() {
    for (index, shape) in SHAPES.iter().enumerate() {
        let trial = trial(shape, Conditions::default(), 9000 + index as u64);
        assert!(trial.exact, "{shape}, {}: {:#?}", trial.variant, trial.found);
        let discovery = trial.found.discovery;
        // Four levels, each asked, confirmed, and looked at once more at the end.
        let bound = trial.pes as f64 * (trial.pes as f64).log2();
        assert!(discovery.pair_equivalents as f64 <= 7.0 * bound + 16.0, "{shape}: {discovery:?}");
        assert!(discovery.pair_measurements as f64 <= 4.0 * bound + 16.0, "{shape}: {discovery:?}");
    }
}

#[test]
fn wrongly_reported_siblings_are_pointed_out_to_the_user() {
    let reported = synthetic(SMT);
    let numbers: Vec<u32> = (0..8).map(|pe| pe / 2 + pe % 2 * 4).collect();
    let truth = renumbered(&reported, &numbers).expect("a permutation");
    let found = discover(&mut machine(truth, Conditions::default()), &reported);
    assert_eq!(groups(&found, DomainKind::Core), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(groups(&found, DomainKind::L3), ["0-7"]);
    let disagreements = found.discovery.disagreements;
    assert!(disagreements.iter().any(|text| text.starts_with("PEs 0,4 share a core by measurement")));
    assert!(
        disagreements.iter().any(|text| text.starts_with("PEs 0-1 share an L2 cache as reported, but not"))
    );
    assert!(!disagreements.iter().any(|text| text.contains("L3")));
}

#[test]
fn a_wrongly_reported_cache_size_is_not_believed() {
    let truth = synthetic(SMT);
    let mut reported = truth.clone();
    let caches = reported.domains.iter_mut().filter(|domain| domain.bytes.is_some());
    caches.for_each(|cache| cache.bytes = cache.bytes.map(|bytes| bytes / 4));
    let found = discover(&mut machine(truth, Conditions::default()), &reported);
    assert_eq!(groups(&found, DomainKind::L2), ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!(groups(&found, DomainKind::L3), ["0-7"]);
    assert!(found.missing.is_empty() && found.discovery.disagreements.is_empty());
}

#[test]
fn a_level_that_does_not_show_is_missing_with_a_reason() {
    let found = found(&synthetic("pack:1 l2:2(size=1MB) core:2 pu:1"), Conditions::default());
    assert_eq!(found.discovery.looked_for, [DomainKind::Core, DomainKind::Module, DomainKind::L2]);
    assert!(
        misses(&found, "L3", "no size is reported, and the latency shows no such level"),
        "{:?}",
        found.missing
    );
}

#[test]
fn fast_and_slow_pes_are_no_contradiction() {
    let mut spec = MachineSpec::plain(SMT);
    spec.speeds = toml::from_str::<std::collections::BTreeMap<String, Vec<_>>>(
        "speeds = [{ pes = '2-3', speed = 0.5 }, { pes = '6-7', speed = 0.7 }]",
    )
    .expect("TOML")
    .remove("speeds")
    .expect("speeds");
    let machine = Machine::new(spec).expect("a machine");
    let reported = machine.model.topology.clone();
    let found = discover(&mut ModelMachine::new(machine, Conditions::default(), 3), &reported);
    assert_eq!(groups(&found, DomainKind::Core), ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!((found.discovery.disagreements.len(), found.missing.len()), (0, 0));
}

#[test]
fn virtual_cpus_that_move_show_as_contradictions() {
    let moving = Conditions { moves_after: Some(40), ..Conditions::default() };
    let found = found(&synthetic(SMT), moving);
    assert!(found.discovery.contradictions > 0, "{found:#?}");
    assert!(misses(&found, "core", "the answers contradict each other"), "{found:#?}");
}

#[test]
fn noise_that_hides_the_effect_leads_to_no_answer() {
    let found = found(&synthetic(SMT), Conditions { noise: 1.0, ..Conditions::default() });
    assert!(groups(&found, DomainKind::Core).is_empty() && groups(&found, DomainKind::Module).is_empty());
    assert!(misses(&found, "core", "too small for the noise"), "{:?}", found.missing);
}

#[test]
fn one_pe_shares_nothing() {
    let found = found(&synthetic("l3:1(size=8MB) core:1 pu:1"), Conditions::default());
    assert!(found.discovery.looked_for.is_empty());
    assert!(misses(&found, "core", "one PE"));
}

#[test]
fn an_interruption_leaves_what_is_known() {
    let interrupted = Conditions { interrupted_after: Some(150), ..Conditions::default() };
    let found = found(&synthetic(SMT), interrupted);
    assert_eq!(groups(&found, DomainKind::Core), ["0-1", "2-3", "4-5", "6-7"]);
    assert!(!found.discovery.looked_for.contains(&DomainKind::L3));
    assert!(misses(&found, "L3", "interrupted"));
}

#[test]
fn a_pe_that_goes_away_is_left_out() {
    let gone = Conditions { gone: Some((PeId(2), 60)), ..Conditions::default() };
    let found = found(&synthetic(SMT), gone);
    assert_eq!(groups(&found, DomainKind::Core), ["0-1", "4-5", "6-7"]);
    assert_eq!(groups(&found, DomainKind::L3), ["0-1,3-7"]);
    assert!(misses(&found, "PE 2", "not online"), "{:?}", found.missing);
}

#[test]
fn only_allowed_pes_are_used() {
    let truth = synthetic(SMT);
    let reported = Topology { allowed: "0,2-3".parse::<CpuSet>().expect("a set"), ..truth.clone() };
    let found = discover(&mut machine(truth, Conditions::default()), &reported);
    assert_eq!(groups(&found, DomainKind::Core), ["2-3"]);
    assert_eq!(groups(&found, DomainKind::L3), ["0,2-3"]);
    assert!(found.discovery.disagreements.is_empty(), "{:?}", found.discovery.disagreements);
}
