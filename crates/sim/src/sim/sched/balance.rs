//! Balancing: by PEs that run out of work, and periodically in each domain.
//!
//! Problem: placement cannot foresee who ends or sleeps when, and a surplus thread (five on four PEs) must
//! not stay the loser. Approach: a PE that becomes idle takes a waiting thread, from the nearest domain that
//! has one. Periodically, in each domain, an idle PE, and one of the others, compares its own group with the
//! busiest one. An idle one takes a waiting thread, or after several attempts a running one, if that leaves
//! the groups no less even. A busy one takes a waiting thread from a group that has more than its PEs can
//! run. Where the groups differ by less than a whole thread the thread still moves after some attempts, the
//! more the less they differ: so the surplus goes round. With [`Kind::Capacity`] an idle fast PE takes a
//! thread from a slow one. Source: `kernel/sched/fair.c`: `sched_balance_newidle`, `sched_balance_domains`
//! (formerly `rebalance_domains`), `should_we_balance`, `calculate_imbalance`, `detach_tasks` (a load is
//! shifted right by `nr_balance_failed`), `need_active_balance`, `adjust_numa_imbalance`,
//! `group_misfit_task`. Limits: one PE of each domain tries at common instants, instead of each at its own;
//! a thread's load is 1 as soon as it is placed, where Linux takes a decaying mean.

use super::super::Sim;
use super::Kind;
use super::domains::Group;
use corewise_core::ids::PeId;

/// Failed attempts after which an idle PE takes a running thread (`cache_nice_tries` + 2).
const ACTIVE_AFTER: u32 = 3;

/// The imbalance between memory nodes, in threads, that is accepted (`NUMA_IMBALANCE_MIN`).
const NODE_IMBALANCE: usize = 2;

/// What a PE finds in comparing its group with the busiest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing is uneven.
    Even,
    /// What is uneven is no concern of this PE's.
    Elsewhere,
    /// It may take a thread after more attempts.
    TooEarly,
    /// It may take this many waiting threads.
    Waiting(usize),
    /// It may take a waiting thread, else a running one.
    Any,
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
                && let Some(thread) = self.surplus(&group.pes, pe)
            {
                self.shift(thread, pe);
                return;
            }
        }
    }

    /// Returns a waiting thread that a PE may take: of the longest queue that has one.
    fn surplus(&self, from: &[usize], to: usize) -> Option<usize> {
        let (mut longest, mut found) = (0, None);
        for &pe in from {
            let queue = &self.cpus[pe].queue;
            // An idle PE that was just given a thread takes that itself.
            let taken = usize::from(queue.running().is_none());
            if queue.waiting().len() > longest + taken {
                let mut others = queue.waiting()[taken..].iter();
                if let Some(entity) = others.find(|entity| self.may_use(entity.thread, to)) {
                    (longest, found) = (queue.waiting().len() - taken, Some(entity.thread));
                }
            }
        }
        found
    }

    /// Runs one round of the periodic balancer.
    pub(in super::super) fn balance(&mut self) {
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
        let (before, first) = domain.pes.split_at(self.os_random.below(domain.pes.len()));
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
        let busiest = others.max_by(|&&a, &&b| below.groups[a].compare(&below.groups[b]));
        let Some(&busiest) = busiest else { return };
        let by_whom = usize::from(self.domains.load(to) == 0);
        let before = domain.failed[by_whom];
        let found = self.compare(level, domain, &below.groups[busiest], &below.groups[local], to);
        let failed = match found {
            Found::Even => 0,
            Found::Elsewhere => before,
            Found::TooEarly => before.saturating_add(1),
            Found::Waiting(count) if self.pull(level - 1, busiest, to, count, false) => 0,
            Found::Any if self.pull(level - 1, busiest, to, 1, true) => 0,
            Found::Waiting(_) | Found::Any => before.saturating_add(1),
        };
        self.domains.group_mut(level, index).failed[by_whom] = failed;
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
                (true, false) => Found::Waiting(1),
                (true, true) => Found::Any,
            };
        }
        if domain.load <= domain.online {
            return Found::Even;
        }
        if busiest.load <= busiest.online {
            return Found::Elsewhere;
        }
        let mean = domain.load as f64 / domain.online as f64;
        let above = busiest.load as f64 - mean * busiest.online as f64;
        let below = mean * local.online as f64 - local.load as f64;
        let threads = above.min(below);
        let is_due = 0.5f64.powi(domain.failed[0].min(60) as i32) <= threads;
        match (threads > 0.0, is_due) {
            (false, _) => Found::Elsewhere,
            (true, false) => Found::TooEarly,
            (true, true) => Found::Waiting((threads as usize).max(1)),
        }
    }

    /// Moves threads from a group to a PE, and returns whether there was one that may move.
    fn pull(&mut self, level: usize, group: usize, to: usize, count: usize, may_run: bool) -> bool {
        let mut moved = false;
        for _ in 0..count {
            let from = &self.domains.levels()[level].groups[group].pes;
            let running = || {
                let running = from.iter().filter_map(|&pe| Some((pe, self.cpus[pe].running()?)));
                let movable = running.filter(|&(_, thread)| may_run && self.may_use(thread, to));
                movable.max_by_key(|&(pe, _)| self.domains.core(pe).load).map(|(_, thread)| thread)
            };
            let Some(thread) = self.surplus(from, to).or_else(running) else { break };
            self.shift(thread, to);
            moved = true;
        }
        moved
    }

    /// Moves running threads to faster PEs that are idle.
    fn move_misfits(&mut self) {
        for to in 0..self.cpus.len() {
            let speed = self.machine.reported[to];
            if self.domains.load(to) > 0 || speed < self.machine.fastest {
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
