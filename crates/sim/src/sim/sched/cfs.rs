//! The Completely Fair Scheduler of Linux 2.6.23 to 6.5, which most papers ran on.
//!
//! Problem: a thread that slept is to run soon, one that computes is to keep its caches. Approach: next is
//! the thread of the least virtual time. Each has the PE for its part of the latency period, and no shorter
//! than the granularity; a tick takes it then, or once the thread is ahead of the least one by as much. A
//! woken thread is placed up to half a period behind the others, and interrupts a running one that is ahead
//! of it by more than the wake-up granularity. A thread that yields is passed over once, for one that is
//! hardly ahead (`yield_task_fair`). A new one starts late, by up to a period. Source: `kernel/sched_fair.c`,
//! from 2.6.39 on `kernel/sched/fair.c` (`sched_slice`, `check_preempt_tick`, `place_entity` with
//! `GENTLE_FAIR_SLEEPERS` and `START_DEBIT`, `wakeup_preempt_entity`), and
//! `Documentation/scheduler/sched-design-CFS.rst`. Limits: no buddies.

use super::queue::{Arrival, Discipline, Entity, RunQueue, scale};

/// The latency period in granularities, and the number of threads that it is divided among at most
/// (`sched_nr_latency`).
const LATENCY: i64 = 8;

/// The discipline.
#[derive(Debug)]
pub(super) struct Cfs {
    /// `sched_min_granularity`, in nanoseconds.
    pub granularity_ns: i64,
}

impl Cfs {
    fn latency_ns(&self) -> i64 {
        LATENCY * self.granularity_ns
    }

    /// `sched_wakeup_granularity`: 1 ms where the other one is .75 ms.
    fn wake_up_ns(&self) -> i64 {
        self.granularity_ns * 4 / 3
    }

    /// Returns a thread's part of the period that it shares with these others (`sched_slice`).
    fn slice_ns(&self, entity: &Entity, threads: usize, weights: i64) -> i64 {
        let period = self.latency_ns().max(threads as i64 * self.granularity_ns);
        scale(period, entity.weight, weights).max(self.granularity_ns)
    }
}

impl Discipline for Cfs {
    fn leave(&self, queue: &RunQueue, entity: &mut Entity) {
        entity.lag = queue.floor() - entity.vtime;
    }

    fn owed(&self, last: &RunQueue, entity: &Entity, arrival: Arrival, _since_tick_ns: i64) -> i64 {
        match arrival {
            Arrival::New | Arrival::Moved | Arrival::Refilled(_) => entity.lag,
            // The others went on while it slept.
            Arrival::Woken => last.floor() - entity.vtime,
        }
    }

    fn place(&self, queue: &RunQueue, entity: &mut Entity, owed: i64, arrival: Arrival) {
        let behind = match arrival {
            Arrival::Woken => owed.min(self.latency_ns() / 2),
            Arrival::New | Arrival::Moved | Arrival::Refilled(_) => owed,
        };
        entity.vtime = queue.floor() - behind;
    }

    fn next(&self, _queue: &RunQueue) -> usize {
        0
    }

    // Its virtual time stays as it is (`reweight_entity` before 6.6).
    fn set_weight(&self, entity: &mut Entity, weight: i64) {
        entity.weight = weight;
    }

    fn picked(&self, _entity: &mut Entity) {}

    fn renew(&self, _entity: &mut Entity) {}

    fn left_ns(&self, queue: &RunQueue, running: &Entity) -> i64 {
        let weights = queue.members().map(|entity| entity.weight).sum();
        let slice = self.slice_ns(running, queue.len(), weights);
        let ahead = queue.waiting().first().map_or(0, |first| running.vtime - first.vtime);
        let until_ahead = running.cpu_ns(slice - ahead).max(self.granularity_ns - running.ran_ns);
        until_ahead.min(slice - running.ran_ns)
    }

    fn interrupts(&self, _queue: &RunQueue, running: &Entity, arrived: &Entity) -> bool {
        running.vtime - arrived.vtime > arrived.virtual_ns(self.wake_up_ns())
    }

    fn next_after(&self, queue: &RunQueue, place: usize) -> usize {
        let waiting = queue.waiting();
        let other = usize::from(place == 0);
        let is_near = waiting
            .get(other)
            .is_some_and(|next| next.vtime - waiting[place].vtime < next.virtual_ns(self.wake_up_ns()));
        if is_near { other } else { 0 }
    }

    fn yields(&self, _entity: &mut Entity) {}

    fn slice_max_ns(&self) -> i64 {
        self.latency_ns()
    }
}
