//! How many runnable threads of each application work, where programs report which of theirs only spin.
//!
//! The kernel counts a thread that busy-waits as runnable. One whose runtime library says that it spins does
//! no work (Saez et al., CF'10, §2.2.1), and does not count for the parallelism of its application.

use corewise_core::ids::AppId;
use corewise_core::observe::{Hints, RunnableThreads};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The runnable threads of applications, and the threads that say that they spin.
#[derive(Debug, Default)]
pub struct Working {
    /// As last reported by the kernel.
    runnable: BTreeMap<AppId, RunnableThreads>,
    /// By thread, its process.
    spinning: HashMap<u32, u32>,
}

/// What counts of a living thread.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    pub pid: u32,
    pub app: AppId,
    pub runnable: bool,
}

impl Working {
    /// Takes in what has changed: numbers of runnable threads, and hints with their processes and threads.
    /// Returns the numbers of threads that work, of the applications in question.
    pub fn take(
        &mut self,
        runnable: Vec<RunnableThreads>,
        hints: &[(u32, u32, Hints)],
        facts: impl Fn(u32) -> Option<Facts>,
    ) -> Vec<RunnableThreads> {
        let mut changed: BTreeSet<AppId> = runnable.iter().map(|runnable| runnable.app).collect();
        self.runnable.extend(runnable.into_iter().map(|runnable| (runnable.app, runnable)));
        for &(pid, tid, hints) in hints {
            match hints.spinning {
                true => self.spinning.insert(tid, pid),
                false => self.spinning.remove(&tid),
            };
            changed.extend(facts(tid).filter(|facts| facts.pid == pid).map(|facts| facts.app));
        }
        let mut idle: BTreeMap<AppId, u32> = BTreeMap::new();
        self.spinning.retain(|&tid, pid| {
            let facts = facts(tid).filter(|facts| facts.pid == *pid);
            if let Some(facts) = facts.filter(|facts| facts.runnable) {
                *idle.entry(facts.app).or_default() += 1;
            }
            facts.is_some()
        });
        let working = |app: AppId| {
            let all = self.runnable.get(&app)?;
            let count = all.count.saturating_sub(idle.get(&app).copied().unwrap_or(0));
            Some(RunnableThreads { count, only: all.only.filter(|_| count == 1), ..*all })
        };
        changed.into_iter().filter_map(working).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::ids::ThreadId;

    const APP: AppId = AppId(3);
    const SPINS: Hints = Hints { spinning: true, master: false, phase: None };

    fn runnable(count: u32) -> RunnableThreads {
        let only = (count == 1).then_some(ThreadId { tid: 7, generation: 0 });
        RunnableThreads { app: APP, count, only }
    }

    fn of_process(tid: u32) -> Option<Facts> {
        (tid < 10).then_some(Facts { pid: 5, app: APP, runnable: true })
    }

    #[test]
    fn threads_that_say_that_they_spin_do_not_count_until_they_say_otherwise() {
        let mut working = Working::default();
        assert_eq!(working.take(vec![runnable(4)], &[], of_process), [runnable(4)]);
        let spin = [(5, 7, SPINS), (5, 8, SPINS), (5, 9, SPINS)];
        let alone = RunnableThreads { only: None, ..runnable(1) };
        assert_eq!(working.take(Vec::new(), &spin, of_process), [alone]);
        assert_eq!(working.take(Vec::new(), &[(5, 8, Hints::default())], of_process), [runnable(2)]);
    }

    #[test]
    fn a_thread_that_blocks_after_it_span_is_not_taken_off_twice() {
        let mut working = Working::default();
        working.take(vec![runnable(2)], &[(5, 7, SPINS)], of_process);
        let blocked = |tid| of_process(tid).map(|facts| Facts { runnable: tid != 7, ..facts });
        assert_eq!(working.take(vec![runnable(1)], &[], blocked), [runnable(1)]);
    }

    #[test]
    fn what_a_thread_that_has_ended_said_is_forgotten_also_where_its_id_lives_on() {
        let mut working = Working::default();
        working.take(vec![runnable(2)], &[(5, 7, SPINS)], of_process);
        assert_eq!(working.take(vec![runnable(1)], &[], |_| None), [runnable(1)]);
        let other = |tid| of_process(tid).map(|facts| Facts { pid: 6, ..facts });
        working.take(Vec::new(), &[(5, 8, SPINS)], of_process);
        assert_eq!(working.take(vec![runnable(2)], &[], other), [runnable(2)]);
    }
}
