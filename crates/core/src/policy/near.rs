//! Which PEs are near to each other: questions that several policies ask of the topology.
//!
//! Problem: a thread that moves far loses the contents of its caches. Approach: the closest PE is the one
//! that shares the closest level. Source: the topology-aware migrations of Saez et al., CF'10, §3.4. Limits:
//! the cost of a move is unknown; moves can only be compared.

use super::interface::Subject;
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::topology::{Domain, DomainKind};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

/// How far a thread moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    Stays,
    /// Within the closest domain that contains both PEs.
    Within(DomainKind),
    /// Across the whole machine, or from an unknown PE.
    Across,
}

/// Returns the closest pair of a thread and an open PE: the thread's index in the list, and the PE. Ties go
/// to the first thread and the lowest PE. A thread is only paired with a PE that it is permitted.
pub fn nearest<'a>(
    around: &[Vec<&Domain>],
    open: &CpuSet,
    threads: impl Iterator<Item = &'a Subject>,
) -> Option<(usize, PeId)> {
    let mut best = None;
    for (index, subject) in threads.enumerate() {
        let permitted = &subject.view.permitted;
        let found = if open.is_subset(permitted) {
            closest(around, open, subject.view.last_pe)
        } else {
            closest(around, &open.intersection(permitted), subject.view.last_pe)
        };
        let found = found.map(|(distance, pe)| (distance, index, pe));
        best = best.into_iter().chain(found).min();
        if best.is_some_and(|(distance, _, _)| distance == Distance::Stays) {
            break;
        }
    }
    best.map(|(_, index, pe)| (index, pe))
}

/// Pairs threads with open PEs, closest first. The result is the same as that of repeated calls of
/// [`nearest`], without a pass over all threads for each: threads that ran on the same PE and are permitted
/// the same PEs form a group and differ only in their order.
pub struct Pairing<'a> {
    around: &'a [Vec<&'a Domain>],
    groups: Vec<Alike<'a>>,
    /// For each group that can use an open PE: the distance, the index of its first thread, the PE, and the
    /// group. PEs that were closed since make entries too near but never too far, so the first entry whose PE
    /// is open is correct.
    queue: BinaryHeap<Reverse<(Distance, usize, PeId, usize)>>,
}

/// Threads that differ only in their order.
struct Alike<'a> {
    last_pe: Option<PeId>,
    permitted: &'a CpuSet,
    /// Their indices in the list.
    waiting: VecDeque<usize>,
}

impl<'a> Pairing<'a> {
    /// Starts with all threads waiting and no open PE.
    pub fn new(around: &'a [Vec<&'a Domain>], threads: impl Iterator<Item = &'a Subject>) -> Self {
        let mut groups: Vec<Alike<'a>> = Vec::new();
        let mut known = HashMap::new();
        for (index, subject) in threads.enumerate() {
            let (last_pe, permitted) = (subject.view.last_pe, &subject.view.permitted);
            let group = *known.entry((last_pe, Arc::as_ptr(permitted))).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Alike { last_pe, permitted, waiting: VecDeque::new() });
            }
            groups[group].waiting.push_back(index);
        }
        Self { around, groups, queue: BinaryHeap::new() }
    }

    /// Opens these PEs and closes all others.
    pub fn open(&mut self, open: &CpuSet) {
        let entry = |(place, group): (usize, &Alike<'a>)| {
            let (distance, pe) = group.closest(self.around, open)?;
            Some(Reverse((distance, *group.waiting.front()?, pe, place)))
        };
        self.queue = self.groups.iter().enumerate().filter_map(entry).collect();
    }

    /// Returns the closest pair and removes its thread. `open` are the PEs that are still open.
    pub fn next(&mut self, open: &CpuSet) -> Option<(usize, PeId)> {
        while let Some(mut first) = self.queue.peek_mut() {
            let Reverse((distance, index, pe, place)) = &mut *first;
            let group = &mut self.groups[*place];
            if !open.contains(*pe) {
                match group.closest(self.around, open) {
                    Some(closest) => (*distance, *pe) = closest,
                    None => drop(PeekMut::pop(first)),
                }
                continue;
            }
            let pair = (*index, *pe);
            group.waiting.pop_front();
            match group.waiting.front() {
                Some(&next) => *index = next,
                None => drop(PeekMut::pop(first)),
            }
            return Some(pair);
        }
        None
    }
}

impl Alike<'_> {
    /// Returns the closest PE that the group can use.
    fn closest(&self, around: &[Vec<&Domain>], open: &CpuSet) -> Option<(Distance, PeId)> {
        if open.is_subset(self.permitted) {
            closest(around, open, self.last_pe)
        } else {
            closest(around, &open.intersection(self.permitted), self.last_pe)
        }
    }
}

/// Returns the open PE that shares most with the PE where a thread ran, and its distance; ties go to the
/// lowest PE. `around` holds for each PE the domains that contain it, closest first
/// ([`crate::topology::Topology::domains_by_pe`]).
fn closest(around: &[Vec<&Domain>], open: &CpuSet, last: Option<PeId>) -> Option<(Distance, PeId)> {
    let across = || Some((Distance::Across, open.first()?));
    let Some(last) = last else { return across() };
    if open.contains(last) {
        return Some((Distance::Stays, last));
    }
    let within = |domain: &&Domain| {
        let pe = domain.pes.first_common(open)?;
        Some((Distance::Within(domain.kind), pe))
    };
    around.get(last.0 as usize).into_iter().flatten().find_map(within).or_else(across)
}

/// Returns the PEs in the order in which threads should fill them: one PE of each core first, then their
/// siblings.
pub fn by_core(around: &[Vec<&Domain>], pes: &CpuSet) -> Vec<PeId> {
    let siblings_before = |pe: PeId| siblings(around, pes, pe).iter().filter(|&sibling| sibling < pe).count();
    let mut ordered: Vec<(usize, PeId)> = pes.iter().map(|pe| (siblings_before(pe), pe)).collect();
    ordered.sort();
    ordered.into_iter().map(|(_, pe)| pe).collect()
}

/// Returns the other PEs of `pes` on the SMT core of a PE.
pub fn siblings(around: &[Vec<&Domain>], pes: &CpuSet, pe: PeId) -> CpuSet {
    let mut domains = around.get(pe.0 as usize).into_iter().flatten();
    let core = domains.find(|domain| domain.kind == DomainKind::Core);
    core.map_or(CpuSet::new(), |core| core.pes.intersection(pes).difference(&CpuSet::single(pe)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AppId, ThreadId};
    use crate::observe::Standing;
    use crate::topology::Topology;
    use crate::view::{ThreadView, Usage};
    use proptest::prelude::*;

    fn subject(index: usize, last_pe: Option<u32>, permitted: Arc<CpuSet>) -> Subject {
        let view = ThreadView {
            thread: ThreadId { tid: index as u32, generation: 0 },
            app: AppId(0),
            runnable_share: 1.0,
            last_pe: last_pe.map(PeId),
            standing: Standing::Free,
            permitted,
            usage: Usage::default(),
        };
        Subject::example(view)
    }

    proptest! {
        #[test]
        fn pairs_are_those_that_the_nearest_gives_again_and_again(
            threads in prop::collection::vec((prop::option::of(0_u32..8), 0_usize..4), 0..20),
            first in 1_u64..256,
        ) {
            let topology = Topology::synthetic("pack:2 l3:1 core:2 pu:2").unwrap();
            let around = topology.domains_by_pe();
            let sets = ["0-7", "0-3", "1,3,5", "6"].map(|set| Arc::new(set.parse::<CpuSet>().unwrap()));
            let subject = |(index, (pe, set)): (usize, &(_, usize))| subject(index, *pe, sets[*set].clone());
            let subjects: Vec<Subject> = threads.iter().enumerate().map(subject).collect();
            let mut standing: Vec<(usize, &Subject)> = subjects.iter().enumerate().collect();
            let mut pairing = Pairing::new(&around, subjects.iter());
            for mut open in [CpuSet::from_words(&[first]), CpuSet::first_n(8)] {
                pairing.open(&open);
                loop {
                    let expected = nearest(&around, &open, standing.iter().map(|(_, subject)| *subject));
                    let expected = expected.map(|(place, pe)| (standing.remove(place).0, pe));
                    prop_assert_eq!(pairing.next(&open), expected);
                    let Some((_, pe)) = expected else { break };
                    let core = CpuSet::single(pe).union(&siblings(&around, &topology.pes, pe));
                    open = open.difference(&core);
                }
            }
        }
    }
}
