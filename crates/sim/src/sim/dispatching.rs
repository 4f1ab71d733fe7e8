//! The simulated system asks a policy ([`corewise_core::policy::dispatch`]) which thread runs next on a
//! free PE.
//!
//! As the co-scheduling paper's kernel does (§4.1), it reads a thread's counters whenever it leaves a PE, and
//! offers the threads of the PE's queue that are owed time: in Linux 2.6.5 those of the active array, which
//! have had no slice since the others had theirs, here those that are not ahead of the mean of their queue.

use super::Sim;
use corewise_core::ids::PeId;
use corewise_core::policy::dispatch::{Candidate, Vacancy};

impl Sim {
    /// Lets the next thread of a free PE run, and returns it.
    pub(super) fn pick(&mut self, pe: usize) -> Option<usize> {
        let Some(mut dispatching) = self.dispatching.take() else {
            return self.cpus[pe].queue.pick(&*self.rules);
        };
        let threads = self.cpus[pe].queue.entitled(&*self.rules);
        let candidate =
            |&thread: &usize| Candidate { thread: self.threads[thread].id, last: dispatching.last(thread) };
        let candidates: Vec<Candidate> = threads.iter().map(candidate).collect();
        let core = self.machine.model.pes[pe].core;
        let is_sibling = |other: &usize| *other != pe && self.machine.model.pes[*other].core == core;
        let cluster = &self.machine.model.clusters[self.machine.model.pes[pe].cluster];
        let beside = cluster.iter().copied().filter(is_sibling).filter_map(|other| self.thread_on(other));
        let beside: Vec<Candidate> = beside.map(|thread| candidate(&thread)).collect();
        let picked = (!candidates.is_empty()).then(|| {
            let vacancy = Vacancy { pe: PeId(pe as u32), candidates: &candidates, beside: &beside };
            threads[dispatching.policy.pick(&vacancy).min(threads.len() - 1)]
        });
        self.dispatching = Some(dispatching);
        self.cpus[pe].queue.pick_thread(&*self.rules, picked?)
    }

    /// Reads the counters of a thread that leaves a PE.
    pub(super) fn note_slice(&mut self, thread: usize) {
        let Some(dispatching) = &mut self.dispatching else { return };
        let count = dispatching.slices.len().max(thread + 1);
        dispatching.slices.resize_with(count, Default::default);
        let (before, last) = &mut dispatching.slices[thread];
        let now = self.threads[thread].counters;
        *last = now.per_cycle_since(before).or(*last);
        *before = now;
    }
}
