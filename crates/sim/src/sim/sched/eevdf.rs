//! Earliest eligible virtual deadline first: Linux since 6.6.
//!
//! Problem: as for [CFS](super::cfs), without its heuristics. Approach: a thread requests slices of CPU time.
//! Its lag is what it is owed relative to the mean virtual time of its queue; it is eligible while that is
//! not negative. Next is the eligible thread with the earliest virtual deadline, the end of its request. A
//! picked thread is protected until that request is done, but only while it is eligible (`RUN_TO_PARITY`): a
//! thread that arrives takes the PE of one that is ahead of its share, or no longer protected, if it comes
//! first. Requests end at ticks. A thread that yields requests a slice more (`yield_task_fair`). One that
//! leaves keeps what it is owed, up to two slices, and gets it in its next queue.
//!
//! A thread that sleeps while it is ahead waits in its queue until a pick finds it eligible, and is then
//! even (`DELAY_DEQUEUE`, `DELAY_ZERO`). If it wakes up before, it keeps its place, or gets the mean if that
//! has passed it: the mean by the last look at the clock, as `requeue_delayed_entity` does not look. So it is
//! owed what has passed since then, which is why a thread of short work hardly ever waits for one of long
//! work.
//!
//! Source: `kernel/sched/fair.c` of Linux 6.18 (`avg_vruntime`, `update_entity_lag`, `place_entity`,
//! `update_deadline`, `pick_eevdf`, `set_protect_slice`, `check_preempt_wakeup_fair`, `dequeue_entity`,
//! `requeue_delayed_entity`), `Documentation/scheduler/sched-eevdf.rst`; Stoica, Abdel-Wahab, "Earliest
//! eligible virtual deadline first", 1995; `studies/scheduler` compares with measured times. Limits: a
//! sleeper that waits in its queue counts for nobody else, and may wake up on another PE; all requests are
//! equally long.

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

    fn owed(&self, last: &RunQueue, entity: &Entity, arrival: Arrival, since_tick_ns: i64) -> i64 {
        if arrival != Arrival::Woken || entity.lag >= 0 {
            return entity.lag;
        }
        let (mean, weights) = last.mean();
        let Some(running) = last.running_entity() else { return 0 };
        let unseen = running.virtual_ns(last.unseen_ns(since_tick_ns));
        let seen_mean = mean - scale(unseen, running.weight, weights);
        // A tick at which a request has ended is a pick, if only because the sleeper is there.
        let ended = running.vtime - unseen >= running.deadline;
        let picked_mean = if ended { seen_mean } else { last.picked_mean() };
        if entity.vtime <= picked_mean {
            return 0;
        }
        scale(mean - entity.vtime.max(seen_mean), weights, weights + entity.weight)
    }

    fn place(&self, queue: &RunQueue, entity: &mut Entity, owed: i64, arrival: Arrival) {
        let (mean, weights) = queue.mean();
        // The lag has the same value once the thread counts in the mean itself. Without others it is lost.
        let lag = if weights > 0 { scale(owed, weights + entity.weight, weights) } else { 0 };
        let slice = entity.virtual_ns(self.slice_ns);
        let (lag, request) = match arrival {
            Arrival::New => (0, slice + owed),
            Arrival::Woken => (lag, slice),
            Arrival::Moved | Arrival::Refilled(_) => (lag, entity.deadline),
        };
        entity.vtime = match arrival {
            // One after the other would change the mean, to the advantage of the last.
            Arrival::Refilled(mean) => mean - owed,
            _ => mean - lag,
        };
        entity.deadline = entity.vtime + request;
    }

    fn next(&self, queue: &RunQueue) -> usize {
        Self::eligible(queue).unwrap_or(0)
    }

    // What it is owed, and its request, stay the same in CPU time (`reweight_entity`).
    fn set_weight(&self, entity: &mut Entity, weight: i64) {
        if weight != entity.weight {
            entity.lag = scale(entity.lag, entity.weight, weight);
            entity.deadline = scale(entity.deadline, entity.weight, weight);
            entity.protected = scale(entity.protected, entity.weight, weight);
            entity.weight = weight;
        }
    }

    fn picked(&self, entity: &mut Entity) {
        self.renew_if_due(entity);
        entity.protected = entity.deadline;
    }

    fn renew(&self, entity: &mut Entity) {
        self.renew_if_due(entity);
    }

    fn left_ns(&self, _queue: &RunQueue, running: &Entity) -> i64 {
        running.cpu_ns(running.deadline.min(running.protected) - running.vtime)
    }

    fn interrupts(&self, queue: &RunQueue, running: &Entity, arrived: &Entity) -> bool {
        let Some(first) = Self::eligible(queue).map(|place| &queue.waiting()[place]) else { return false };
        let is_eligible = running.vtime <= queue.mean().0;
        let is_protected = running.vtime < running.protected;
        // Any look at one that is no longer protected lets the next one run.
        match (is_eligible, is_protected) {
            (true, true) => false,
            (false, true) => first.thread == arrived.thread,
            (true, false) => first.deadline <= running.deadline,
            (false, false) => true,
        }
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
    /// Returns the place of the waiting thread with the earliest deadline of those that are eligible.
    fn eligible(queue: &RunQueue) -> Option<usize> {
        let (mean, _) = queue.mean();
        let waiting = queue.waiting().iter().enumerate();
        let eligible = waiting.take_while(|(_, entity)| entity.vtime <= mean);
        eligible.min_by_key(|(_, entity)| entity.deadline).map(|(place, _)| place)
    }

    fn renew_if_due(&self, entity: &mut Entity) {
        if entity.vtime >= entity.deadline {
            entity.deadline = entity.vtime + entity.virtual_ns(self.slice_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::NICE_0_WEIGHT;
    use super::*;

    #[test]
    fn a_thread_of_changed_weight_has_the_same_request_and_is_owed_the_same() {
        let rules = Eevdf { slice_ns: 3_000_000, tick_ns: 4_000_000 };
        let mut queue = RunQueue::default();
        let entity = |thread| Entity::new(thread, NICE_0_WEIGHT / 64);
        for thread in 0..2 {
            queue.enter(&rules, entity(thread), 0, Arrival::Woken);
        }
        queue.pick(&rules);
        queue.charge(1_000_000);
        let left = queue.left_ns(&rules);
        assert!(left.is_some_and(|left| left.abs_diff(2_000_000) <= 1), "{left:?}");
        assert_eq!(queue.reweigh(&rules, |_| NICE_0_WEIGHT), Some(2 * (NICE_0_WEIGHT - NICE_0_WEIGHT / 64)));
        assert!(queue.left_ns(&rules).is_some_and(|after| after.abs_diff(2_000_000) <= 64));
        assert_eq!(queue.lag(&rules, 0), Some(-500_000));
        assert_eq!(queue.reweigh(&rules, |_| NICE_0_WEIGHT), None);
    }

    #[test]
    fn a_thread_of_a_group_yields_to_none_of_another_weight() {
        let rules = Eevdf { slice_ns: 3_000_000, tick_ns: 4_000_000 };
        let mut queue = RunQueue::default();
        for (thread, weight) in [(0, NICE_0_WEIGHT), (1, NICE_0_WEIGHT / 64), (2, NICE_0_WEIGHT)] {
            queue.enter(&rules, Entity::new(thread, weight), 0, Arrival::Woken);
        }
        assert_eq!(queue.pick_thread(&rules, 0), Some(0));
        queue.charge(1_000_000);
        let group = |thread: usize| (thread < 2).then_some(0);
        assert_eq!(queue.yield_to_next(&rules, group), None);
        assert_eq!(queue.yield_to_next(&rules, |_| Some(0)), Some(0));
        let first = queue.waiting().iter().find(|entity| entity.thread == 0).map(|entity| entity.vtime);
        assert_eq!(first, Some(0), "it waits in the place of thread 2");
    }
}
