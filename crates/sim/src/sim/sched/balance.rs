//! Balancing: by PEs that run out of work, and periodically in each domain.
//!
//! Problem: placement cannot foresee when threads end or sleep, and a surplus thread (five on four PEs) must
//! not stay the loser. Approach: a PE that becomes idle takes a waiting thread, from the nearest domain that
//! has one. Periodically, in each domain, an idle PE, and one of the others, compares its own group with the
//! busiest one. An idle one takes a waiting thread, or after several attempts a running one, if that leaves
//! the groups no less even. A busy one takes a waiting thread from a group that has more than its PEs can
//! run, so that weights become even. Where the groups differ by less than a whole thread the thread still
//! moves after some attempts, the more the less they differ: so the surplus goes round. With
//! [`Kind::Capacity`] an idle fast PE takes a thread from a slow one. Source: `kernel/sched/fair.c`:
//! `sched_balance_newidle`, `sched_balance_domains` (formerly `rebalance_domains`), `should_we_balance`,
//! `calculate_imbalance`, `detach_tasks` (a load is shifted right by `nr_balance_failed`),
//! `need_active_balance`, `adjust_numa_imbalance`,
//! `group_misfit_task`. Limits: one PE of each domain tries at common instants, instead of each at its own;
//! a thread's load is 1 as soon as it is placed, where Linux takes a decaying mean.

use super::super::Sim;
use super::domains::Group;
use super::os::Kind;
use crate::chance::Purpose;
use corewise_core::ids::PeId;

/// Failed attempts after which an idle PE takes a running thread (`cache_nice_tries` + 2).
const ACTIVE_AFTER: u32 = 3;

/// The imbalance between memory nodes, in threads, that is accepted (`NUMA_IMBALANCE_MIN`).
const NODE_IMBALANCE: usize = 2;

/// What a PE finds in comparing its group with the busiest one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Found {
    /// Nothing is uneven.
    Even,
    /// What is uneven is no concern of this PE's.
    Elsewhere,
    /// It may take a waiting thread.
    Waiting,
    /// It may take a waiting thread, else a running one.
    Any,
    /// It may take waiting threads of this weight together, or one that is heavier by a factor of two to the
    /// power of the failed attempts.
    Weight(f64, u32),
}

impl Sim {
    /// Gives a PE that has nothing to do a waiting thread of another PE, if it may have one.
    pub(super) fn take_surplus(&mut self, pe: usize) {
        if self.queued == 0 {
            return;
        }
        for level in 1..self.domains.levels().len() {
            let group = self.domains.group(level, pe);
            if group.load > 1
                && let Some(thread) = self.surplus(&group.pes, pe, f64::INFINITY)
            {
                self.shift(thread, pe);
                return;
            }
        }
    }

    /// Returns a waiting thread of this weight at most that a PE may take: of the longest queue that has one.
    fn surplus(&self, from: &[usize], to: usize, weight: f64) -> Option<usize> {
        let (mut longest, mut found) = (0, None);
        for &pe in from {
            let queue = &self.cpus[pe].queue;
            // An idle PE that was just given a thread takes that itself.
            let taken = usize::from(queue.running().is_none());
            if queue.waiting().len() > longest + taken {
                let mut others = queue.waiting()[taken..].iter();
                let fits = |weighs: i64| weighs as f64 <= weight;
                if let Some(entity) = others.find(|e| fits(e.weight) && self.may_use(e.thread, to)) {
                    (longest, found) = (queue.waiting().len() - taken, Some(entity.thread));
                }
            }
        }
        found
    }

    /// Runs one round of the periodic balancer.
    pub(in super::super) fn balance(&mut self) {
        for pe in 0..self.cpus.len() {
            self.reweigh(pe);
        }
        for level in 1..self.domains.levels().len() {
            for group in 0..self.domains.levels()[level].groups.len() {
                self.balance_domain(level, group);
            }
        }
        match self.os.scheduler {
            Kind::Fair => {}
            Kind::Capacity => self.move_misfits(),
        }
    }

    /// Lets an idle PE of a domain, and any other one, take threads from its busiest group.
    fn balance_domain(&mut self, level: usize, index: usize) {
        let domain = &self.domains.levels()[level].groups[index];
        if domain.load < 2 {
            return;
        }
        let of = [self.now.0, level as u64, index as u64];
        let (before, first) =
            domain.pes.split_at(self.chance.below(Purpose::Balancer, &of, domain.pes.len()));
        let online = first.iter().chain(before).copied().filter(|&pe| self.online.contains(PeId(pe as u32)));
        let idle = online.clone().find(|&pe| self.domains.load(pe) == 0);
        let busy = online.clone().find(|&pe| self.domains.load(pe) > 0);
        for pe in [idle, busy].into_iter().flatten() {
            self.balance_for(pe, level, index);
        }
    }

    /// Lets a PE take threads from the busiest group of its domain.
    fn balance_for(&mut self, to: usize, level: usize, index: usize) {
        let domain = &self.domains.levels()[level].groups[index];
        let below = &self.domains.levels()[level - 1];
        let local = below.of[to];
        let others = domain.children.iter().filter(|&&child| child != local);
        let is_idle = self.domains.load(to) == 0;
        let busiest = others.max_by(|&&a, &&b| {
            let (a, b) = (&below.groups[a], &below.groups[b]);
            if is_idle { a.compare_load(b) } else { a.compare_weight(b) }
        });
        let Some(&busiest) = busiest else { return };
        let before = domain.failed[usize::from(is_idle)];
        let found = self.compare(level, domain, &below.groups[busiest], &below.groups[local], to);
        let failed = match found {
            Found::Even => 0,
            Found::Elsewhere => before,
            found if self.pull(level - 1, busiest, to, found) => 0,
            Found::Waiting | Found::Any | Found::Weight(..) => before.saturating_add(1),
        };
        self.domains.group_mut(level, index).failed[usize::from(is_idle)] = failed;
    }

    /// Returns what a PE of the local group may take from the busiest group.
    fn compare(&self, level: usize, domain: &Group, busiest: &Group, local: &Group, to: usize) -> Found {
        if self.domains.load(to) == 0 {
            // What is left must not be less even than before.
            let is_more_even = (busiest.load.max(1) - 1) * local.online >= (local.load + 1) * busiest.online;
            let is_accepted = self.domains.spans_nodes(level)
                && busiest.load.saturating_sub(local.load) / 2 <= NODE_IMBALANCE;
            let is_due = domain.failed[1] >= ACTIVE_AFTER;
            return match (is_more_even && !is_accepted, is_due) {
                (false, _) => Found::Even,
                (true, false) => Found::Waiting,
                (true, true) => Found::Any,
            };
        }
        if !domain.is_overloaded() {
            return Found::Even;
        }
        let mean = domain.weight as f64 / domain.online as f64;
        let above = busiest.weight as f64 - mean * busiest.online as f64;
        let below = mean * local.online as f64 - local.weight as f64;
        let imbalance = above.min(below);
        if !busiest.is_overloaded() || imbalance <= 0.0 {
            return Found::Elsewhere;
        }
        Found::Weight(imbalance, domain.failed[0])
    }

    /// Moves threads from a group to a PE, and returns whether there was one that may move.
    fn pull(&mut self, level: usize, group: usize, to: usize, found: Found) -> bool {
        let (mut left, mut most) = match found {
            Found::Weight(imbalance, failed) => (imbalance, imbalance * 2f64.powi(failed.min(60) as i32)),
            _ => (0.0, f64::INFINITY),
        };
        let mut moved = false;
        loop {
            let from = &self.domains.levels()[level].groups[group].pes;
            let running = || {
                let running = from.iter().filter_map(|&pe| Some((pe, self.cpus[pe].running()?)));
                let movable = running.filter(|&(_, thread)| found == Found::Any && self.may_use(thread, to));
                movable.max_by_key(|&(pe, _)| self.domains.core(pe).load).map(|(_, thread)| thread)
            };
            let Some(thread) = self.surplus(from, to, most).or_else(running) else { return moved };
            self.shift(thread, to);
            moved = true;
            left -= self.threads[thread].entity.weight as f64;
            most = left;
            if left <= 0.0 {
                return moved;
            }
        }
    }

    /// Moves running threads to faster PEs whose core is idle: beside a busy sibling a fast PE is slow, too.
    fn move_misfits(&mut self) {
        for to in 0..self.cpus.len() {
            let speed = self.machine.reported[to];
            if !self.domains.core(to).is_idle() || speed < self.machine.fastest {
                continue;
            }
            let slower = (0..self.cpus.len()).filter(|&from| self.machine.reported[from] < speed);
            let misfit = slower
                .filter_map(|from| Some((from, self.cpus[from].running()?)))
                .filter(|&(_, thread)| self.may_use(thread, to))
                .min_by_key(|&(from, _)| self.machine.model.distance(from, to));
            if let Some((_, thread)) = misfit {
                self.shift(thread, to);
            }
        }
    }
}
