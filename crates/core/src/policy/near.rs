//! Which PEs are near to which: questions that several policies ask of the topology.
//!
//! Problem: a thread that moves far loses what it has in its caches. Approach: the closest PE is the one with
//! which the closest level is shared. Source: the topology-aware migrations of Saez et al., CF'10, §3.4.
//! Limits: what a move costs is not known, only which of two is shorter.

use super::Subject;
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::topology::{Domain, DomainKind};

/// How far a thread moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    Stays,
    /// Within the closest domain that holds both PEs.
    Within(DomainKind),
    /// Across everything, or from nobody knows where.
    Across,
}

/// Of threads and open PEs those two that are closest to each other: the thread's place in the list, and the
/// PE. Of equally close ones the first thread, the lowest PE. A thread takes only a PE that it is permitted.
pub fn nearest<'a>(
    around: &[Vec<&Domain>],
    open: &CpuSet,
    threads: impl Iterator<Item = &'a Subject>,
) -> Option<(usize, PeId)> {
    let of = |(index, subject): (usize, &Subject)| {
        let permitted = &subject.view.permitted;
        let pe = if open.is_subset(permitted) {
            closest(around, open, subject.view.last_pe)?
        } else {
            closest(around, &open.intersection(permitted), subject.view.last_pe)?
        };
        Some((distance(around, subject.view.last_pe, pe), index, pe))
    };
    threads.enumerate().filter_map(of).min().map(|(_, index, pe)| (index, pe))
}

fn distance(around: &[Vec<&Domain>], from: Option<PeId>, to: PeId) -> Distance {
    let Some(from) = from else { return Distance::Across };
    if from == to {
        return Distance::Stays;
    }
    let mut around = around.get(from.0 as usize).into_iter().flatten();
    let shared = around.find(|domain| domain.pes.contains(to));
    shared.map_or(Distance::Across, |domain| Distance::Within(domain.kind))
}

/// The open PE that shares most with where a thread ran; the lowest of equals. `around` holds for each PE the
/// domains that hold it, closest first ([`crate::topology::Topology::domains_by_pe`]).
pub fn closest(around: &[Vec<&Domain>], open: &CpuSet, last: Option<PeId>) -> Option<PeId> {
    let Some(last) = last.filter(|last| !open.contains(*last)) else {
        return last.or_else(|| open.first());
    };
    let mut around = around.get(last.0 as usize).into_iter().flatten();
    let shared = around.find(|domain| domain.pes.intersects(open));
    shared.and_then(|domain| domain.pes.intersection(open).first()).or_else(|| open.first())
}

/// PEs in the order in which threads should fill them: first PEs of all cores, then their siblings.
pub fn by_core(around: &[Vec<&Domain>], pes: &CpuSet) -> Vec<PeId> {
    let siblings_before = |pe: PeId| siblings(around, pes, pe).iter().filter(|&sibling| sibling < pe).count();
    let mut ordered: Vec<(usize, PeId)> = pes.iter().map(|pe| (siblings_before(pe), pe)).collect();
    ordered.sort();
    ordered.into_iter().map(|(_, pe)| pe).collect()
}

/// The others of `pes` on the SMT core of a PE.
pub fn siblings(around: &[Vec<&Domain>], pes: &CpuSet, pe: PeId) -> CpuSet {
    let mut domains = around.get(pe.0 as usize).into_iter().flatten();
    let core = domains.find(|domain| domain.kind == DomainKind::Core);
    core.map_or(CpuSet::new(), |core| core.pes.intersection(pes).difference(&CpuSet::single(pe)))
}
