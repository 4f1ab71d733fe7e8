//! Which processes take turns.

use crate::thread::Thread;
use corewise_core::cpuset::CpuSet;
use std::collections::BTreeMap;

/// The processes that take turns, by their first threads, with the weights of the threads of those that have
/// none now.
#[derive(Debug, Default)]
pub(crate) struct Gangs {
    pub members: BTreeMap<usize, Vec<(usize, i64)>>,
    /// Whether the next turn is in the queue of events.
    pub is_due: bool,
}

impl Gangs {
    /// Returns whether no process takes turns.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns how many processes take turns.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns how many others take turns with a process, or would.
    pub fn beside(&self, leader: usize, threads: &[Thread]) -> u32 {
        let others = self.circle(leader, threads);
        others.iter().filter(|&&other| other != leader).count() as u32
    }

    /// Returns the gangs that share PEs with a process, or with one that does, in order.
    pub fn circle(&self, leader: usize, threads: &[Thread]) -> Vec<usize> {
        let mut pes = CpuSet::clone(&threads[leader].permitted);
        loop {
            let shares = |gang: &usize| threads[*gang].permitted.intersects(&pes);
            let circle: Vec<usize> = self.members.keys().copied().filter(shares).collect();
            let all = circle.iter().fold(pes.clone(), |all, &gang| all.union(&threads[gang].permitted));
            if all == pes {
                return circle;
            }
            pes = all;
        }
    }
}
