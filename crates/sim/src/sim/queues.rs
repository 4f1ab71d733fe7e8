//! Bounded queues: what threads hand to those of other applications, or guard against them.
//!
//! Problem: pipelines and services wait for each other across processes; locks within one do not show that.
//! Approach: a queue holds a number of things, each like the others. Who puts one into a full queue, or takes
//! one from an empty queue, waits as its program waits at locks, in order. Source: Dijkstra's bounded buffer
//! ("Cooperating sequential processes", 1965). Limits: a thread that is killed while it waits leaves; what
//! it took, such as a lock, is lost.

use super::{Release, Sim};
use std::mem;

impl Sim {
    /// Returns whether a thread has put something into a queue, or must wait.
    pub(super) fn put(&mut self, thread: usize, queue: usize) -> bool {
        let shelf = &mut self.queues[queue];
        if let Some(taker) = shelf.taking.pop_front() {
            self.use_queue(thread, queue);
            self.hand_over(taker, thread, queue);
        } else if shelf.filled < shelf.capacity {
            shelf.filled += 1;
            self.use_queue(thread, queue);
        } else {
            shelf.putting.push_back(thread);
            return false;
        }
        true
    }

    /// Returns whether a thread has taken something from a queue, or must wait.
    pub(super) fn take_one(&mut self, thread: usize, queue: usize) -> bool {
        let shelf = &mut self.queues[queue];
        if shelf.filled == 0 {
            shelf.taking.push_back(thread);
            return false;
        }
        match shelf.putting.pop_front() {
            // What it puts takes the place of what is taken.
            Some(putter) => {
                self.use_queue(thread, queue);
                self.hand_over(putter, thread, queue);
            }
            None => {
                shelf.filled -= 1;
                self.use_queue(thread, queue);
            }
        }
        true
    }

    fn hand_over(&mut self, to: usize, by: usize, queue: usize) {
        self.use_queue(to, queue);
        self.released.push_back(Release { thread: to, by: Some(by) });
    }

    fn use_queue(&mut self, thread: usize, queue: usize) {
        let pe = self.threads[thread].pe;
        let last = mem::replace(&mut self.queues[queue].line, pe);
        self.see_from(thread, last);
    }

    /// Lets a thread that is killed wait no longer.
    pub(super) fn leave_queues(&mut self, thread: usize) {
        for shelf in &mut self.queues {
            shelf.putting.retain(|&waiting| waiting != thread);
            shelf.taking.retain(|&waiting| waiting != thread);
        }
    }
}
