//! Earliest eligible virtual deadline first: Linux since 6.6.
//!
//! Problem: as for [CFS](super::cfs), without its heuristics. Approach: a thread requests slices of CPU time.
//! Its lag is what it is owed relative to the mean virtual time of its queue; it is eligible while that is
//! not negative. Next is the eligible thread with the earliest virtual deadline, the end of its request. A
//! running thread has the PE until its request is done, looked at in ticks, even if an earlier deadline
//! arrives (`RUN_TO_PARITY`); one that runs on beyond it, as no thread waited, is interrupted by the next
//! to come. A thread that yields requests a slice more (`yield_task_fair`). One that leaves keeps its lag, up
//! to two slices, and gets it in its next queue. Source: `kernel/sched/fair.c` (`avg_vruntime`, `entity_lag`,
//! `place_entity`, `update_deadline`, `pick_eevdf`), `Documentation/scheduler/sched-eevdf.rst`; Stoica,
//! Abdel-Wahab, "Earliest eligible virtual deadline first", 1995. Limits: a thread that sleeps with a
//! negative lag keeps it, instead of staying in its queue until it is spent (`DELAY_DEQUEUE`); all requests
//! are equally long.

use super::queue::{Arrival, Discipline, Entity, RunQueue, scale};

/// The discipline.
#[derive(Debug)]
pub(super) struct Eevdf {
    /// `base_slice_ns`.
    pub slice_ns: i64,
    /// Time between two ticks.
    pub tick_ns: i64,
}

impl Discipline for Eevdf {
    fn leave(&self, queue: &RunQueue, entity: &mut Entity) {
        let most = entity.virtual_ns((2 * self.slice_ns).max(self.tick_ns));
        entity.lag = (queue.mean().0 - entity.vtime).clamp(-most, most);
    }

    fn owed(&self, _last: &RunQueue, entity: &Entity, _arrival: Arrival) -> i64 {
        entity.lag
    }

    fn place(&self, queue: &RunQueue, entity: &mut Entity, owed: i64, arrival: Arrival) {
        let (mean, weights) = queue.mean();
        // The lag has the same value once the thread counts in the mean itself. Without others it is lost.
        let lag = if weights > 0 { scale(owed, weights + entity.weight, weights) } else { 0 };
        let slice = entity.virtual_ns(self.slice_ns);
        let (lag, request) = match arrival {
            Arrival::New => (0, slice + owed),
            Arrival::Woken => (lag, slice),
            Arrival::Moved => (lag, entity.deadline),
        };
        entity.vtime = mean - lag;
        entity.deadline = entity.vtime + request;
    }

    fn next(&self, queue: &RunQueue) -> usize {
        let (mean, _) = queue.mean();
        let waiting = queue.waiting().iter().enumerate();
        let eligible = waiting.take_while(|(_, entity)| entity.vtime <= mean);
        eligible.min_by_key(|(_, entity)| entity.deadline).map_or(0, |(place, _)| place)
    }

    fn picked(&self, entity: &mut Entity) {
        self.renew_if_due(entity);
        entity.protected = entity.deadline;
    }

    fn renew(&self, entity: &mut Entity) {
        self.renew_if_due(entity);
    }

    fn left_ns(&self, _queue: &RunQueue, running: &Entity) -> i64 {
        running.cpu_ns(running.deadline - running.vtime)
    }

    fn interrupts(&self, queue: &RunQueue, running: &Entity, arrived: &Entity) -> bool {
        if running.protected == running.deadline {
            return false;
        }
        let (mean, _) = queue.mean();
        let running_is_eligible = running.vtime <= mean;
        let is_next = queue.waiting()[self.next(queue)].thread == arrived.thread;
        is_next && !(running_is_eligible && running.deadline <= arrived.deadline)
    }

    fn next_after(&self, queue: &RunQueue, _place: usize) -> usize {
        self.next(queue)
    }

    fn yields(&self, entity: &mut Entity) {
        // The kernel lets the deadline grow with each yield, without end.
        let slice = entity.virtual_ns(self.slice_ns);
        entity.deadline = (entity.deadline + slice).min(entity.vtime + 2 * slice);
    }

    fn slice_max_ns(&self) -> i64 {
        self.slice_ns
    }
}

impl Eevdf {
    fn renew_if_due(&self, entity: &mut Entity) {
        if entity.vtime >= entity.deadline {
            entity.deadline = entity.vtime + entity.virtual_ns(self.slice_ns);
        }
    }
}
