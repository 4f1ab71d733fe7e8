//! Groups of threads that share weights and quotas: control groups, and a group for each session.
//!
//! Problem: a program of many threads is not to take the machine from one of few, and some are to have no
//! more than they pay for. Approach: groups form a tree. A group divides its weight among the threads that
//! want a PE, on whichever PE, so that a thread in it counts as `w · Π s / W`: its own weight by its nice
//! level, times the weight `s` of each group that it is in, divided by the sum `W` of the weights of what is
//! active in that group. Queues thus stay flat. A group with a quota has so much CPU time in each period.
//! Once it is spent, its threads leave their queues until the next period. With `os.autogroup` each copy of
//! an application is a session, and has a group of its own, unless it is in a control group.
//!
//! Source: `calc_group_shares`, `update_cfs_group` and `task_h_load` in `kernel/sched/fair.c`, of which the
//! product is the limit; `sched_prio_to_weight` in `kernel/sched/core.c`; CPU bandwidth control in
//! `Documentation/scheduler/sched-bwc.rst`; `cpu.weight` and `cpu.max` in
//! `Documentation/admin-guide/cgroup-v2.rst`; `kernel/sched/autogroup.c`. Limits: what is active counts as it
//! is at a tick, where Linux takes a decaying mean; a PE of Linux takes a quota in parts of 5 ms, so that a
//! group may have up to that much more on each PE in one period, and less in the next; no `cpu.max.burst`.

pub use super::super::state::groups::{Class, GroupSpec, NICE_LEVELS, Quota, nice_weight};

use super::super::Sim;
use super::super::state::groups::{Groups, changed_weight};
use super::queue::Arrival;
use crate::queue::Event;
use crate::thread::Thread;
use corewise_core::plan::{OutcomeKind, Weight};
use corewise_core::time::Time;
use std::collections::BTreeMap;

impl Sim {
    /// Adds groups, in which applications are by their place, and those of sessions.
    pub fn with_groups(mut self, specs: &BTreeMap<String, GroupSpec>) -> Self {
        self.groups = Groups::new(specs);
        if self.os.autogroup {
            for app in &mut self.apps {
                app.plan.group = app.plan.group.or_else(|| Some(self.groups.add_session()));
            }
        }
        for (group, period) in specs.values().map(|spec| spec.period).enumerate() {
            if self.groups.all[group].budget.is_some() {
                self.queue.push(Time(0) + period, Event::Refill { group: group as u32 });
            }
        }
        self
    }

    /// Changes a thread's own weight, or gives it back that of its application.
    pub(crate) fn weigh(&mut self, thread: usize, change: Option<Weight>) -> OutcomeKind {
        let own = self.apps[self.threads[thread].app].plan.weight;
        let weight = change.map_or(own, |change| changed_weight(own, change));
        if !self.set_weight_of_turn(thread, weight) {
            self.set_weight(thread, weight);
            self.catch_up();
        }
        OutcomeKind::Done
    }

    /// Sets the nice level of the session of a thread, if it is in one.
    pub(in super::super) fn set_session_nice(&mut self, thread: usize, nice: i32) {
        let Some(group) = self.group(thread).filter(|&group| self.groups.all[group].is_session) else {
            return;
        };
        self.groups.all[group].weight = nice_weight(nice);
        (0..self.cpus.len()).for_each(|pe| self.reweigh(pe));
    }

    fn group(&self, thread: usize) -> Option<usize> {
        self.apps[self.threads[thread].app].plan.group
    }

    /// Counts a thread that enters a queue, and returns its weight there.
    pub(super) fn enter_group(&mut self, thread: usize) -> i64 {
        let (group, own) = (self.group(thread), self.threads[thread].entity.own);
        self.groups.count(group, own, true);
        self.groups.weight(group, own)
    }

    /// Counts a thread out that leaves its queue.
    pub(super) fn leave_group(&mut self, thread: usize) {
        self.groups.count(self.group(thread), self.threads[thread].entity.own, false);
    }

    /// Holds a thread back if its group has spent its quota, and returns whether it has.
    pub(super) fn hold_back(&mut self, thread: usize) -> bool {
        let held = self.groups.is_spent(self.group(thread));
        if held {
            self.hold(thread);
        }
        held
    }

    fn hold(&mut self, thread: usize) {
        self.threads[thread].times.hold(self.now);
        self.groups.held.push(thread);
    }

    /// Forgets a thread that was held back.
    pub(super) fn let_go(&mut self, thread: usize) {
        self.threads[thread].times.let_go(self.now);
        self.groups.held.retain(|&held| held != thread);
    }

    /// Notes that a thread gets a PE, or no longer has it.
    pub(super) fn spend(&mut self, thread: usize, runs: bool) {
        let mut group = self.group(thread);
        while let Some(index) = group {
            self.change_budget(index, if runs { 1 } else { -1 });
            group = self.groups.all[index].parent;
        }
    }

    fn change_budget(&mut self, group: usize, more: i64) {
        let Some(budget) = &mut self.groups.all[group].budget else { return };
        if let Some(at) = budget.change(self.now, more) {
            self.queue.push(at, Event::Spent { group: group as u32, number: budget.number });
        }
    }

    /// Takes the threads of a group from their queues once its quota is spent.
    pub(in super::super) fn exhaust(&mut self, group: usize, number: u32) {
        let Some(budget) = self.groups.all[group].budget.as_mut() else { return };
        if budget.number != number || budget.is_spent {
            return;
        }
        budget.is_spent = true;
        let is_in = |&thread: &usize| {
            let in_queue = self.threads[thread].ready && !self.groups.held.contains(&thread);
            in_queue && self.groups.path(self.group(thread)).any(|of| of == group)
        };
        let threads: Vec<usize> = self.present.iter().copied().filter(is_in).collect();
        // They leave together: what they owe each other must not depend on who goes first.
        let owed: Vec<Option<i64>> = threads.iter().map(|&thread| self.lag(thread)).collect();
        for (thread, lag) in threads.into_iter().zip(owed) {
            self.withdraw(thread);
            self.threads[thread].entity.lag = lag.unwrap_or(0);
            self.hold(thread);
        }
    }

    /// Returns what a thread in a queue is owed.
    fn lag(&mut self, thread: usize) -> Option<i64> {
        let pe = self.threads[thread].pe?;
        self.settle(pe);
        self.cpus[pe].queue.lag(&*self.rules, thread)
    }

    /// Begins a group's next period.
    pub(in super::super) fn refill(&mut self, group: usize) {
        self.change_budget(group, 0);
        let Some(budget) = &mut self.groups.all[group].budget else { return };
        budget.left_ns = budget.quota_ns + budget.left_ns.min(0);
        budget.is_spent = false;
        let period = budget.period;
        self.change_budget(group, 0);
        let held = std::mem::take(&mut self.groups.held);
        // Another group that they are in may still have none.
        let (held, back) = held.into_iter().partition(|&thread| self.groups.is_spent(self.group(thread)));
        self.groups.held = held;
        self.take_back(back);
        self.queue.push(self.now + period, Event::Refill { group: group as u32 });
    }

    /// Puts threads back into queues together: who comes first must not change what they weigh, or owe each
    /// other.
    fn take_back(&mut self, threads: Vec<usize>) {
        (0..self.cpus.len()).for_each(|pe| self.settle(pe));
        let means: Vec<i64> = self.cpus.iter().map(|cpu| cpu.queue.mean().0).collect();
        for &thread in &threads {
            self.enter_group(thread);
        }
        for thread in threads {
            // It is counted again as it enters its queue.
            self.leave_group(thread);
            self.threads[thread].times.let_go(self.now);
            let last = self.threads[thread].pe.filter(|&pe| self.may_use(thread, pe));
            let pe = last.unwrap_or_else(|| self.choose(thread, None));
            let is_known = self.threads[thread].pe.is_some();
            let arrival = if is_known { Arrival::Refilled(means[pe]) } else { Arrival::New };
            self.enqueue(thread, pe, arrival);
            self.relieve(pe);
        }
    }

    /// Updates the weights of the threads of a PE, as groups have become more or less active elsewhere.
    pub(super) fn reweigh(&mut self, pe: usize) {
        if self.groups.all.is_empty() {
            return;
        }
        self.settle(pe);
        let Self { groups, apps, threads, rules, .. } = self;
        let weight = |thread: usize| {
            let Thread { app, entity, .. } = &threads[thread];
            groups.weight(apps[*app].plan.group, entity.own)
        };
        if let Some(more) = self.cpus[pe].queue.reweigh(&**rules, weight) {
            self.unsettle(pe);
            self.domains.reweigh(pe, more);
            self.moved.push(pe);
        }
    }
}
