//! PEs for the threads of programs that spin.
//!
//! Problem: during a program's turn each of its threads should have a PE of its own; otherwise one thread
//! spins on the PE that another needs. The system's load balancer sees too little within a turn of 100 ms: we
//! have observed it leave two threads on one PE for whole turns. The same holds for threads that yield while
//! they spin: two of a program's on one PE, and two of another's on the other, yield to each other in vain,
//! and were observed to stay there for seconds. Approach: spread the threads that want a PE over the allowed
//! PEs as evenly as their number permits, and keep existing assignments where possible. Assignments by the
//! policy take precedence. Threads that yield run beside other programs all the time; so that these programs
//! do not crowd on the same PEs, only teams that fill all PEs are spread. Limit: what the PEs share is
//! ignored.

use super::intake::Intake;
use crate::cpuset::CpuSet;
use crate::ids::{PeId, ThreadId};
use crate::plan::{Assignment, Placement};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The threads of each process that is spread, and why, keyed by its first thread.
#[derive(Debug, Default)]
pub struct Gangs(BTreeMap<ThreadId, (Why, Vec<ThreadId>)>);

/// Why the threads of a process are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It takes turns.
    Turns,
    /// It is delayed, and its idle threads yield while they spin.
    Yields,
}

impl Gangs {
    /// Replaces the processes that are spread.
    pub fn set_members(&mut self, gangs: BTreeMap<ThreadId, (Why, Vec<ThreadId>)>) {
        self.0 = gangs;
    }

    /// Returns whether no process is spread.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an assignment for each thread of these processes that wants a PE.
    pub fn add_assignments(&self, wanted: &mut Placement, present: &Placement, known: &Intake) {
        let wants = |thread: &&ThreadId| known.subject(**thread).is_some_and(|subject| subject.runnable);
        for (why, gang) in self.0.values() {
            let threads: Vec<ThreadId> = gang.iter().filter(wants).copied().collect();
            let fill_all = threads.len() >= known.allowed().len();
            if threads.len() > 1 && !known.allowed().is_empty() && (*why == Why::Turns || fill_all) {
                assign_gang(&threads, *why, wanted, present, known);
            }
        }
    }
}

fn assign_gang(threads: &[ThreadId], why: Why, wanted: &mut Placement, present: &Placement, known: &Intake) {
    let most = threads.len().div_ceil(known.allowed().len());
    let mut load: BTreeMap<PeId, usize> = known.allowed().iter().map(|pe| (pe, 0)).collect();
    let (mut assignments, mut unassigned) = (Vec::new(), Vec::new());
    for &thread in threads {
        let of_policy = wanted.bound.get(&thread);
        let assignment =
            of_policy.or_else(|| present.bound.get(&thread)).filter(|assignment| assignment.pes.len() == 1);
        let count = assignment
            .and_then(|assignment| assignment.pes.first())
            .and_then(|pe| Some((pe, load.get_mut(&pe)?)));
        match count {
            Some((pe, count)) if of_policy.is_some() || *count < most => {
                *count += 1;
                assignments.push((thread, pe));
            }
            _ => unassigned.push(thread),
        }
    }
    for thread in unassigned {
        let (&pe, count) = load.iter_mut().min_by_key(|(_, count)| **count).expect("there are PEs");
        *count += 1;
        assignments.push((thread, pe));
    }
    let because = match why {
        Why::Turns => "its program takes turns",
        Why::Yields => "its program is delayed, and yields while it spins",
    };
    let of = threads.len();
    let reason: Arc<str> =
        format!("{because}: its {of} threads that want a PE are spread over {}", known.allowed()).into();
    for (thread, pe) in assignments {
        let anew = || Assignment { pes: CpuSet::single(pe), reason: reason.clone() };
        wanted.bound.entry(thread).or_insert_with(anew);
    }
}
