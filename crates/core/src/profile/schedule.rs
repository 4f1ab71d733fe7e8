//! The topology to schedule by: the reported one, corrected by measurements.
//!
//! Problem: a hypervisor hides SMT siblings and shared caches or invents them, the kernel may be wrong about
//! fast and slow cores, and hardly any firmware reports which cores share an FPU. Approach: start with what
//! is reported and replace what was measured, kind by kind, with a note for each change.
//!
//! - *Sharing domains* come from the discovery, for the kinds that it looked for and the PEs that it could
//!   measure. A domain of a more distant kind grows to contain the discovered ones whole, as all PEs of a
//!   core share its caches. If a group would cross the border of a NUMA node, which follows from addresses
//!   and is always correct, the discovery of its kind is not used. Neither is a discovery that contradicted
//!   itself.
//! - *Kinds* come from the relative speeds, if they are known for every PE; kernels vote, and measured speed
//!   overrides reported capacity.
//! - *FPU modules* are inferred where two threads slow each other down by floating-point work but not by
//!   integer work, unless the discovery looked for them.
//!
//! Limits: speeds with intervals wider than [`SPEED_INTERVAL_MAX`] have no vote on kinds. Modules are
//! inferred for domains whose pairs are alike, that is, only if the class is one of L1 or L2, or if the
//! domain is a single pair.

use super::{Discovery, Evidence, MachineProfile, Measurement, Workload};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::kernels::Kernel;
use crate::topology::kinds::{self, TOLERANCE_PERCENT, Vote};
use crate::topology::{CpuKind, Domain, DomainKind, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// Speeds with intervals wider than this do not distinguish fast from slow.
const SPEED_INTERVAL_MAX: f64 = 0.1;

/// Two threads that share an FPU slow each other down by at least this factor in floating-point work…
const FPU_SHARED_MIN: f64 = 1.25;

/// …and by at most this one in integer work.
const INTEGER_APART_MAX: f64 = 1.1;

impl MachineProfile {
    /// Returns the machine as it behaves where that was measured, else as it is reported.
    pub fn topology(&self) -> Topology {
        let mut topology = self.reported.clone();
        if self.evidence == Evidence::Simulated {
            topology
                .notes
                .push("the machine profile is simulated: it was not measured on a machine".to_owned());
        }
        self.apply_discovery(&mut topology);
        self.apply_modules(&mut topology);
        self.apply_speeds(&mut topology);
        topology
    }

    /// Applies the discovered groups, closest kind first.
    fn apply_discovery(&self, topology: &mut Topology) {
        let Some(discovery) = &self.discovered else { return };
        if discovery.contradictions > 0 {
            let count = discovery.contradictions;
            topology.notes.push(format!("what was discovered is not used: {count} checks contradicted it"));
            return;
        }
        let mut kinds = discovery.looked_for.clone();
        kinds.sort();
        for kind in kinds {
            let groups = discovery.groups.iter().filter(|(other, _)| *other == kind);
            let groups: Vec<CpuSet> = groups.map(|(_, pes)| pes.clone()).collect();
            match regrouped(topology, kind, &groups) {
                Ok(better) if shapes(&better) == shapes(topology) => {}
                Ok(better) => {
                    *topology = better;
                    let by = if groups.is_empty() { "no two PEs".to_owned() } else { list(&groups) };
                    topology.notes.push(format!("measured, unlike reported: {} shared by {by}", kind.word()));
                }
                Err(why) => {
                    topology.notes.push(format!("the discovered {} groups are not used: {why}", kind.word()));
                }
            }
        }
    }

    /// Adds the FPU modules that the slowdowns of pairs show.
    fn apply_modules(&self, topology: &mut Topology) {
        let looked_for = |discovery: &Discovery| discovery.looked_for.contains(&DomainKind::Module);
        let is_known = topology.domains(DomainKind::Module).next().is_some();
        if is_known || self.discovered.as_ref().is_some_and(looked_for) {
            return;
        }
        for (index, class) in self.classes.iter().enumerate() {
            let Some(kind) = class.closest.filter(|_| self.shares_only_fpu(index)) else { continue };
            let is_alike =
                |domain: &&Domain| domain.pes.len() == 2 || (domain.pes.len() > 2 && kind <= DomainKind::L2);
            let groups: Vec<CpuSet> =
                topology.domains(kind).filter(is_alike).map(|domain| domain.pes.clone()).collect();
            let mut better = topology.clone();
            better.domains.extend(groups.iter().map(|pes| Domain::new(DomainKind::Module, pes.clone())));
            let Ok(better) = better.arranged() else { continue };
            if better.fpu_modules().next().is_some() {
                *topology = better;
                topology.notes.push(format!("measured: an FPU is shared by {}", list(&groups)));
                return;
            }
        }
    }

    /// Returns whether two threads of a class slow each other down in floating-point but not in integer work.
    fn shares_only_fpu(&self, class: usize) -> bool {
        let slowdown = |kernel| self.slowdowns(class, &Workload::both(kernel, 0));
        let is_shared = |kernel| {
            slowdown(kernel).is_some_and(|(a, b)| a.low >= FPU_SHARED_MIN && b.low >= FPU_SHARED_MIN)
        };
        let is_apart = |kernel| {
            slowdown(kernel).is_some_and(|(a, b)| a.high <= INTEGER_APART_MAX && b.high <= INTEGER_APART_MAX)
        };
        is_apart(Kernel::IntAdd) && [Kernel::FpAdd, Kernel::FpDiv, Kernel::WideFma].into_iter().any(is_shared)
    }

    /// Derives the kinds of PE from measured speeds.
    fn apply_speeds(&self, topology: &mut Topology) {
        let votes = self.speed_votes(&topology.allowed);
        let (mut kinds, contradictions) = kinds::decide(&topology.allowed, &votes);
        if kinds.is_empty() || !contradictions.is_empty() {
            topology.notes.extend(contradictions);
            return;
        }
        let rest = topology.pes.difference(&topology.allowed);
        if !rest.is_empty() {
            let evidence = vec!["not measured: it is not allowed".to_owned()];
            kinds.push(CpuKind { name: "unknown".to_owned(), pes: rest, evidence, speed: None });
        }
        let groups = |kinds: &[CpuKind]| kinds.iter().map(|kind| kind.pes.clone()).collect::<Vec<_>>();
        let (reported, measured) = (groups(&topology.kinds), groups(&kinds));
        if reported == measured {
            for (kind, measured) in topology.kinds.iter_mut().zip(kinds) {
                kind.evidence.extend(measured.evidence);
            }
            return;
        }
        if !reported.is_empty() || measured.len() > 1 {
            let reported = if reported.is_empty() { "nothing".to_owned() } else { list(&reported) };
            let note = format!("measured kinds, fastest first: {}; reported: {reported}", list(&measured));
            topology.notes.push(note);
        }
        topology.kinds = kinds;
    }

    /// Returns each kernel's vote on the speeds of these PEs, if it knows all of them precisely enough.
    fn speed_votes(&self, pes: &CpuSet) -> Vec<Vote> {
        let mut by_kernel: BTreeMap<Kernel, BTreeMap<PeId, u64>> = BTreeMap::new();
        for speed in &self.speeds {
            let Measurement { value, low, high, .. } = speed.relative;
            if high - low <= SPEED_INTERVAL_MAX * value {
                by_kernel.entry(speed.kernel).or_default().insert(speed.pe, (value * 1000.0).round() as u64);
            }
        }
        by_kernel.retain(|_, speeds| pes.iter().all(|pe| speeds.contains_key(&pe)));
        let words = |thousandths: u64| format!("{:.2}", thousandths as f64 / 1000.0);
        let vote = |(kernel, speeds): (&Kernel, &BTreeMap<PeId, u64>)| {
            let source = format!("measured speed by {}", kernel.name());
            Vote::from_numbers(&source, speeds, TOLERANCE_PERCENT, words)
        };
        by_kernel.iter().map(vote).collect()
    }
}

/// Returns text such as `{0-1} {2-3}`.
fn list(sets: &[CpuSet]) -> String {
    sets.iter().map(|pes| format!("{{{pes}}}")).collect::<Vec<_>>().join(" ")
}

/// Returns the part of the domains that does not depend on their numbering.
fn shapes(topology: &Topology) -> BTreeSet<(DomainKind, CpuSet)> {
    topology.domains.iter().map(|domain| (domain.kind, domain.pes.clone())).collect()
}

/// Returns the topology with these groups as its allowed domains of one kind; the other allowed PEs share
/// nothing of this kind. More distant domains grow to contain the groups.
fn regrouped(topology: &Topology, kind: DomainKind, groups: &[CpuSet]) -> Result<Topology, String> {
    let crossed = |node: &&Domain| {
        groups.iter().any(|group| group.intersects(&node.pes) && !group.is_subset(&node.pes))
    };
    if let Some(node) = topology.domains(DomainKind::NumaNode).find(crossed) {
        return Err(format!("one crosses the border of the node {{{}}}", node.pes));
    }
    let mut better = topology.clone();
    let (reported, others): (Vec<Domain>, Vec<Domain>) =
        better.domains.drain(..).partition(|domain| domain.kind == kind);
    let allowed = &topology.allowed;
    let mut measured: Vec<CpuSet> = groups.to_vec();
    let grouped = groups.iter().fold(CpuSet::new(), |all, group| all.union(group));
    let alone = reported.iter().flat_map(|domain| domain.pes.iter()).filter(|pe| allowed.contains(*pe));
    measured.extend(alone.filter(|pe| !grouped.contains(*pe)).map(CpuSet::single));
    let mut domains: Vec<Domain> = Vec::new();
    for domain in &reported {
        let (inside, outside) = (domain.pes.intersection(allowed), domain.pes.difference(allowed));
        if let Some(at) = measured.iter().position(|pes| *pes == inside) {
            measured.swap_remove(at);
            domains.push(domain.clone());
        } else if !outside.is_empty() {
            domains.push(Domain { pes: outside, os: None, ..domain.clone() });
        }
    }
    domains.extend(measured.into_iter().map(|pes| merged(kind, &reported, pes)));
    domains.sort_by_key(|domain| domain.pes.first());
    let may_grow = |other: DomainKind| other > kind && other != DomainKind::NumaNode;
    for same_kind in others.chunk_by(|a, b| a.kind == b.kind) {
        let grow = may_grow(same_kind[0].kind);
        domains.extend(if grow { grown(same_kind, groups) } else { same_kind.to_vec() });
    }
    better.domains = domains;
    better.arranged().map_err(|error| error.to_string())
}

/// Returns the domains of one kind, where those that touch a group are merged into one that contains the
/// group.
fn grown(domains: &[Domain], groups: &[CpuSet]) -> Vec<Domain> {
    let mut grown = domains.to_vec();
    for group in groups {
        let (touched, rest): (Vec<Domain>, Vec<Domain>) =
            grown.iter().cloned().partition(|domain| domain.pes.intersects(group));
        let union = touched.iter().fold(group.clone(), |all, domain| all.union(&domain.pes));
        if touched.is_empty() || touched.iter().any(|domain| domain.pes == union) {
            continue;
        }
        grown = rest;
        grown.push(merged(touched[0].kind, &touched, union));
    }
    grown.sort_by_key(|domain| domain.pes.first());
    grown
}

/// Returns the domain that replaces the reported ones it touches. It keeps their size if that is the same for
/// all: sizes are reported per cache and correct even if the sharing is not.
fn merged(kind: DomainKind, reported: &[Domain], pes: CpuSet) -> Domain {
    let mut sizes = reported.iter().filter(|domain| domain.pes.intersects(&pes)).map(|domain| domain.bytes);
    let first = sizes.next().flatten();
    let bytes = first.filter(|_| sizes.all(|size| size == first));
    Domain { bytes, ..Domain::new(kind, pes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{PairClass, PairResult, PeSpeed};

    fn profile(machine: &str) -> MachineProfile {
        MachineProfile::empty(Topology::synthetic(machine).unwrap(), Evidence::Measured)
    }

    fn discovered(machine: &str, groups: &[(DomainKind, &str)], looked_for: &[DomainKind]) -> MachineProfile {
        let groups = groups.iter().map(|&(kind, pes)| (kind, pes.parse().unwrap())).collect();
        let looked_for = looked_for.to_vec();
        let discovered = Some(Discovery { groups, looked_for, ..Discovery::default() });
        MachineProfile { discovered, ..profile(machine) }
    }

    /// The domains of two PEs or more, then the notes.
    fn check(profile: &MachineProfile, expected: &str) {
        let topology = profile.topology();
        assert_eq!(topology.check(), Ok(()));
        let shared = topology.domains.iter().filter(|domain| domain.pes.len() > 1);
        let shared = shared.map(|domain| format!("{}:{}", domain.kind.word(), domain.pes));
        let found = shared.chain(topology.notes).collect::<Vec<_>>().join("; ");
        assert_eq!(found, expected);
    }

    #[test]
    fn unmeasured_sharing_stays_as_reported() {
        check(&profile("l3:1 core:2 pu:2"), "core:0-1; core:2-3; l3:0-3; numa:0-3");
    }

    #[test]
    fn hidden_siblings_make_cores_whose_caches_are_one() {
        use DomainKind::{Core, L2, L3};
        let reported = "pack:4 l3:1(size=16MB) l2:1(size=1MB) core:1 pu:1";
        let groups = [(Core, "0-1"), (Core, "2-3"), (L3, "0-3")];
        let profile = discovered(reported, &groups, &[Core, L3]);
        check(
            &profile,
            "core:0-1; core:2-3; l2:0-1; l2:2-3; l3:0-3; numa:0-3; package:0-3; \
             measured, unlike reported: core shared by {0-1} {2-3}; \
             measured, unlike reported: l3 shared by {0-3}",
        );
        let bytes = |kind| profile.topology().domains(kind).next().unwrap().bytes;
        assert_eq!((bytes(L2), bytes(L3)), (Some(1 << 20), Some(16 << 20)));
    }

    #[test]
    fn invented_siblings_become_cores_of_their_own() {
        use DomainKind::{Core, L2};
        let profile = discovered("l3:1 l2:2 core:1 pu:2", &[], &[Core, L2]);
        check(
            &profile,
            "l3:0-3; numa:0-3; measured, unlike reported: core shared by no two PEs; \
             measured, unlike reported: l2 shared by no two PEs",
        );
    }

    #[test]
    fn a_correct_report_makes_no_note() {
        use DomainKind::{Core, L2, L3};
        let groups = [(Core, "0-1"), (Core, "2-3"), (L2, "0-1"), (L2, "2-3"), (L3, "0-3")];
        let profile = discovered("l3:1 l2:2 core:1 pu:2", &groups, &[L3, Core, L2]);
        check(&profile, "core:0-1; core:2-3; l2:0-1; l2:2-3; l3:0-3; numa:0-3");
        assert_eq!(profile.topology(), profile.reported);
    }

    #[test]
    fn pes_that_may_not_be_used_stay_as_reported() {
        let mut profile = discovered("l3:1 core:8 pu:1", &[(DomainKind::L3, "0-1")], &[DomainKind::L3]);
        profile.reported.allowed = "0-3".parse().unwrap();
        check(&profile, "l3:0-1; l3:4-7; numa:0-7; measured, unlike reported: l3 shared by {0-1}");
    }

    #[test]
    fn a_discovery_that_cannot_be_is_not_used() {
        let across = discovered("numa:2 core:2 pu:1", &[(DomainKind::L3, "1-2")], &[DomainKind::L3]);
        check(
            &across,
            "numa:0-1; numa:2-3; the discovered l3 groups are not used: \
             one crosses the border of the node {0-1}",
        );
        let mut doubtful = discovered("core:4 pu:1", &[(DomainKind::Core, "0-1")], &[DomainKind::Core]);
        doubtful.discovered.as_mut().unwrap().contradictions = 2;
        check(&doubtful, "numa:0-3; what was discovered is not used: 2 checks contradicted it");
    }

    /// A profile with one class and both threads' slowdown by a kernel.
    fn slowdowns(machine: &str, closest: DomainKind, of: &[(Kernel, f64)]) -> MachineProfile {
        let mut profile = profile(machine);
        let exact = |value| Measurement { value, low: value, high: value, repetitions: 9 };
        profile.classes.push(PairClass {
            name: "same something".into(),
            closest: Some(closest),
            pairs: 1,
            measured: Vec::new(),
            largest_deviation: None,
        });
        profile.pairs.extend(of.iter().map(|&(kernel, slowdown)| PairResult {
            class: 0,
            workload: Workload::both(kernel, 0),
            rate: exact(1.0),
            delta_alone: None,
            slowdowns: Some((exact(slowdown), exact(slowdown))),
            discarded: 0,
        }));
        profile
    }

    #[test]
    fn an_fpu_is_shared_where_only_floating_point_work_suffers() {
        let bulldozer = [(Kernel::IntAdd, 1.02), (Kernel::FpAdd, 1.05), (Kernel::FpDiv, 1.9)];
        check(
            &slowdowns("l3:1 l2:2 core:2 pu:1", DomainKind::L2, &bulldozer),
            "module:0-1; module:2-3; l2:0-1; l2:2-3; l3:0-3; numa:0-3; \
             measured: an FPU is shared by {0-1} {2-3}",
        );
        let smt = [(Kernel::IntAdd, 1.8), (Kernel::FpAdd, 1.9)];
        check(&slowdowns("l2:2 core:2 pu:1", DomainKind::L2, &smt), "l2:0-1; l2:2-3; numa:0-3");
        // One pair does not show which of the four share.
        check(&slowdowns("l3:1 core:4 pu:1", DomainKind::L3, &bulldozer), "l3:0-3; numa:0-3");
        let siblings = slowdowns("core:2 pu:2", DomainKind::Core, &bulldozer);
        check(&siblings, "core:0-1; core:2-3; numa:0-3");
    }

    fn with_speeds(mut profile: MachineProfile, kernel: Kernel, speeds: &[(u32, f64)]) -> MachineProfile {
        profile.speeds.extend(speeds.iter().map(|&(pe, value)| {
            let relative = Measurement { value, low: value * 0.99, high: value * 1.01, repetitions: 9 };
            PeSpeed { pe: PeId(pe), kernel, relative }
        }));
        profile
    }

    fn kinds(profile: &MachineProfile) -> String {
        let kinds = profile.topology().kinds;
        kinds.iter().map(|kind| format!("{}={}", kind.name, kind.pes)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn measured_speeds_override_reported_kinds() {
        let reported = |pes: &str| CpuKind {
            name: "all".into(),
            pes: pes.parse().unwrap(),
            evidence: Vec::new(),
            speed: None,
        };
        let mut base = profile("core:4 pu:1");
        base.reported.kinds = vec![reported("0-3")];
        let equal = with_speeds(base.clone(), Kernel::IntAdd, &[(0, 1.0), (1, 0.97), (2, 0.98), (3, 0.99)]);
        assert_eq!((kinds(&equal), equal.topology().notes.len()), ("all=0-3".to_owned(), 0));
        let unequal = [(0, 1.0), (1, 0.97), (2, 0.5), (3, 0.51)];
        let unequal = with_speeds(base.clone(), Kernel::IntAdd, &unequal);
        assert_eq!(kinds(&unequal), "fast=0-1 slow=2-3");
        let note = "measured kinds, fastest first: {0-1} {2-3}; reported: {0-3}";
        assert_eq!(unequal.topology().notes, [note]);
        let opposite = with_speeds(unequal, Kernel::FpAdd, &[(0, 0.5), (1, 0.5), (2, 1.0), (3, 1.0)]);
        assert_eq!(kinds(&opposite), "all=0-3", "speeds that contradict each other change nothing");
        let partial = with_speeds(base.clone(), Kernel::IntAdd, &[(0, 1.0), (1, 0.5)]);
        assert_eq!(kinds(&partial), "all=0-3");
        let mut narrowed = partial;
        narrowed.reported.allowed = "0-1".parse().unwrap();
        assert_eq!(kinds(&narrowed), "fast=0 slow=1 unknown=2-3");
    }
}
