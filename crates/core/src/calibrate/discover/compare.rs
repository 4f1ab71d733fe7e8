//! Differences between the measured groups and the reported topology.

use crate::cpuset::CpuSet;
use crate::topology::{DomainKind, Topology};

/// The maximum number of differences of one kind that are listed individually.
const LISTED_MAX: usize = 4;

/// Returns the groups of two or more PEs that a machine reports for a kind, restricted to `pes`. A domain
/// with a single core is reported as the core, so a module of one core does not count.
pub fn groups(topology: &Topology, kind: DomainKind, pes: &CpuSet) -> Vec<CpuSet> {
    let within = |set: &CpuSet| set.intersection(pes);
    let mut groups: Vec<CpuSet> = match kind {
        DomainKind::Module => topology.fpu_modules().map(|module| within(&module.pes)).collect(),
        _ => topology.domains(kind).map(|domain| within(&domain.pes)).collect(),
    };
    groups.retain(|group| group.len() > 1);
    groups.sort_by_key(CpuSet::first);
    groups
}

/// Returns the differences in words, the measured groups first.
pub fn disagreements(kind: DomainKind, found: &[CpuSet], reported: &[CpuSet]) -> Vec<String> {
    let what = name(kind);
    let mut texts = Vec::new();
    for (groups, others, words) in [
        (found, reported, "by measurement, though not as reported"),
        (reported, found, "as reported, but not by measurement"),
    ] {
        let differing: Vec<&CpuSet> = groups.iter().filter(|group| !others.contains(group)).collect();
        let sentences =
            differing.iter().take(LISTED_MAX).map(|group| format!("PEs {group} share {what} {words}"));
        texts.extend(sentences);
        if differing.len() > LISTED_MAX {
            let more = differing.len() - LISTED_MAX;
            texts.push(format!("{more} more groups of PEs share {what} {words}"));
        }
    }
    texts
}

/// Returns the name of the shared resource.
pub fn name(kind: DomainKind) -> &'static str {
    match kind {
        DomainKind::Core => "a core",
        DomainKind::L1 => "an L1 cache",
        DomainKind::Module => "a floating-point unit",
        DomainKind::L2 => "an L2 cache",
        DomainKind::L3 => "an L3 cache",
        DomainKind::Die => "a die",
        DomainKind::NumaNode => "a memory node",
        DomainKind::Package => "a package",
        DomainKind::Cluster => "a cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_reported_from_both_sides() {
        let sets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<CpuSet>>();
        let reported = sets(&["0-1", "2-3", "4-5"]);
        assert!(disagreements(DomainKind::Core, &reported, &reported).is_empty());
        let texts = disagreements(DomainKind::Core, &sets(&["0,2", "1,3", "4-5"]), &reported);
        assert_eq!(texts.len(), 4);
        assert_eq!(texts[0], "PEs 0,2 share a core by measurement, though not as reported");
        assert_eq!(texts[3], "PEs 2-3 share a core as reported, but not by measurement");
        let many: Vec<CpuSet> =
            (0..20).map(|i| [2 * i, 2 * i + 1].map(crate::ids::PeId).into_iter().collect()).collect();
        let texts = disagreements(DomainKind::L2, &many, &[]);
        assert_eq!((texts.len(), texts[4].split(' ').next()), (5, Some("16")));
    }

    #[test]
    fn only_what_several_pes_share_is_a_group() {
        let machine = Topology::synthetic("l2:2(size=1MB) module:1 core:2 pu:1").unwrap();
        let pes: CpuSet = "0-2".parse().unwrap();
        let words = |kind| groups(&machine, kind, &pes).iter().map(CpuSet::to_string).collect::<Vec<_>>();
        assert_eq!(words(DomainKind::Module), ["0-1"]);
        assert_eq!(words(DomainKind::L2), ["0-1"]);
        assert!(words(DomainKind::Core).is_empty());
    }
}
