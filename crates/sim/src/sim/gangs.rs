//! Programs that take turns, each with all its threads.
//!
//! Problem: a thread that spins for another one holds the PE that the other needs. Approach: as
//! `corewise_binding::turns` does on a real machine: of the processes that take turns and share PEs, one
//! after the other has normal threads for [`TURN`]; those of the others get only PE time that no normal
//! thread wants (`SCHED_IDLE`, a weight of 3, and interrupted by any thread that wakes up), and their session
//! has [`NICE_OUTSIDE_TURN`]. Whose turn it is follows from the clock. Where the threads of a turn run is
//! decided by [`corewise_core::engine`], which binds them. Source: Ousterhout, "Scheduling techniques for
//! concurrent systems", 1982; `kernel/sched/fair.c` (`check_preempt_wakeup_fair`). Limits: turns change hands
//! at once on all PEs; the placement of woken threads counts a thread without a turn like any other.

use super::Sim;
use super::sched::queue::IDLE_WEIGHT;
use crate::queue::Event;
use crate::thread::{App, Thread};
use corewise_core::ids::ThreadId;
use corewise_core::plan::{NICE_OUTSIDE_TURN, TURN};
use corewise_core::time::Time;

impl Sim {
    /// Lets a process take turns from the next turn on.
    pub(super) fn join_gang(&mut self, leader: usize) {
        self.gangs.members.entry(leader).or_default();
        if !std::mem::replace(&mut self.gangs.is_due, true) {
            self.enter_turn();
        }
    }

    /// Lets a process run as others do; returns whether it took turns.
    pub(super) fn leave_gang(&mut self, leader: usize) -> bool {
        let Some(idle) = self.gangs.members.remove(&leader) else { return false };
        self.restore_weights(leader, idle);
        true
    }

    /// Begins a turn: those that have it get their PEs before the others lose theirs.
    pub(super) fn begin_turn(&mut self) {
        let turn = self.now.0 / TURN.as_nanos() as u64;
        let leaders: Vec<usize> = self.gangs.members.keys().copied().collect();
        let has_turn = |&leader: &usize| {
            let circle = self.gangs.circle(leader, &self.threads);
            circle[turn as usize % circle.len()] == leader
        };
        let (now, later): (Vec<usize>, Vec<usize>) = leaders.into_iter().partition(has_turn);
        for leader in now {
            let idle = self.gangs.members.get_mut(&leader).map(std::mem::take).unwrap_or_default();
            self.restore_weights(leader, idle);
        }
        for leader in later {
            self.end_turn_of(leader);
        }
        self.gangs.is_due = !self.gangs.is_empty();
        if self.gangs.is_due {
            self.enter_turn();
        }
    }

    fn end_turn_of(&mut self, leader: usize) {
        let members = self.apps[self.threads[leader].app].process.threads();
        let normal: Vec<(usize, i64)> = members
            .map(|thread| (thread, self.threads[thread].entity.own))
            .filter(|&(thread, weight)| weight != IDLE_WEIGHT && !self.threads[thread].ended)
            .collect();
        for &(thread, _) in &normal {
            self.set_weight(thread, IDLE_WEIGHT);
        }
        if !normal.is_empty() {
            self.set_session_nice(leader, NICE_OUTSIDE_TURN);
        }
        if let Some(idle) = self.gangs.members.get_mut(&leader) {
            idle.extend(normal);
        }
    }

    fn restore_weights(&mut self, leader: usize, idle: Vec<(usize, i64)>) {
        if !idle.is_empty() {
            self.set_session_nice(leader, 0);
        }
        for (thread, weight) in idle {
            if !self.threads[thread].ended {
                self.set_weight(thread, weight);
            }
        }
    }

    /// Sets the weight that a thread will have in its next turn; returns whether it waits for one.
    pub(super) fn set_weight_of_turn(&mut self, thread: usize, weight: i64) -> bool {
        let idle = self.gangs.members.values_mut().flatten().find(|(idle, _)| *idle == thread);
        idle.map(|(_, normal)| *normal = weight).is_some()
    }

    /// Returns how many processes take turns.
    pub(crate) fn gangs(&self) -> usize {
        self.gangs.len()
    }

    /// Returns a living thread with another weight, or of a process with other waits, than without corewise.
    pub(crate) fn changed_thread(&self) -> Option<ThreadId> {
        let is_changed = |thread: &&Thread| {
            let App { plan, process, .. } = &self.apps[thread.app];
            let leads = self.threads[process.leader].id == thread.id;
            thread.entity.own != plan.weight || leads && process.is_changed()
        };
        self.threads.iter().filter(|thread| !thread.ended).find(is_changed).map(|thread| thread.id)
    }

    fn enter_turn(&mut self) {
        let turn = TURN.as_nanos() as u64;
        self.queue.push(Time((self.now.0 / turn + 1) * turn), Event::Turn);
    }
}
