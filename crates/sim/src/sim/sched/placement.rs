//! Where a new or woken thread goes.
//!
//! Problem: a thread placed beside another one that uses the same core, module or cache is slow for as long
//! as it stays, though another core is free. Approach: a new process or thread goes to an idle PE if there
//! is one, and among several to the idlest node, in it to the idlest cache, module and core, then to the PE
//! with the fewest threads; ties are broken by chance, as it is where the parent ran. A woken one goes where
//! it ran last, or to its waker if that PE has clearly fewer threads and the waker does not wake many
//! others; if the PE is busy, to an idle core that shares its last cache, then to an idle PE, then to one
//! farther away. With [`Kind::Capacity`] the fastest PE of an idle core is taken, then the fastest idle PE.
//! Source: `kernel/sched/fair.c`:
//! `sched_balance_find_dst_cpu` (formerly `find_idlest_cpu`), `wake_affine`, `wake_wide`,
//! `select_idle_sibling`, `select_idle_core`, `select_idle_capacity`. Limits: all PEs of the last cache are
//! searched (`SIS_UTIL` searches fewer on a busy machine), and a thread that waits while a PE beyond that
//! cache is idle goes there at once, where Linux waits for the next tick (`nohz_balancer_kick`).

use super::super::Sim;
use super::os::Kind;
use crate::chance::{Purpose, below};
use crate::thread::Thread;
use corewise_core::cpuset::CpuSet;
use std::cmp::Ordering;

impl Sim {
    /// Returns the PE for a thread that becomes ready.
    pub(super) fn choose(&mut self, thread: usize, waker: Option<usize>) -> usize {
        let last = self.threads[thread].warm_pe.filter(|&pe| self.may_use(thread, pe));
        let fastest = match self.os.scheduler {
            Kind::Capacity => self.fastest_idle(thread, last),
            Kind::Fair => None,
        };
        match (fastest, last) {
            (Some(fastest), _) => fastest,
            (None, None) => self.idlest(thread),
            (None, Some(last)) => {
                let target = self.affine(thread, last, waker);
                self.idle_sibling(thread, target, last)
            }
        }
    }

    /// Returns the PE for a new thread, or one whose last PE is forbidden.
    fn idlest(&mut self, thread: usize) -> usize {
        let count = self.cpus.len();
        let first = self.tie_break(thread);
        let domains = &self.domains;
        let order = |&a: &usize, &b: &usize| {
            let is_busy = |pe| domains.load(pe) > 0;
            let by_chance = |pe: usize| if pe < first { pe + count - first } else { pe - first };
            let paths = domains.path(a).zip(domains.path(b));
            let by_load = paths.map(|((a, of_a), (b, of_b))| (a * of_b).cmp(&(b * of_a)));
            let path = by_load.fold(Ordering::Equal, Ordering::then);
            is_busy(a).cmp(&is_busy(b)).then(path).then(by_chance(a).cmp(&by_chance(b)))
        };
        // Every thread has a PE that it may use: `confine` ensures that.
        pes(&self.threads[thread].usable).min_by(order).unwrap_or(first)
    }

    /// Returns the PE that comes first of those that are alike, so that the starts of several seeds are
    /// spread.
    fn tie_break(&self, thread: usize) -> usize {
        let Thread { key, warm_pe, .. } = self.threads[thread];
        let place = match warm_pe {
            None => self.chance.stratified(Purpose::Placement, &[key]),
            Some(_) => self.chance.unit(Purpose::Placement, &[key, self.now.0]),
        };
        below(place, self.cpus.len())
    }

    /// Returns the PE near which a woken thread shall run: its last one or its waker's.
    fn affine(&mut self, thread: usize, last: usize, waker: Option<usize>) -> usize {
        let Some(waker) = waker else { return last };
        let now = self.now;
        self.threads[waker].flips.wakes(now, thread);
        let Some(this) = self.running_on(waker).filter(|&pe| pe != last && self.may_use(thread, pe)) else {
            return last;
        };
        if self.domains.load(last) == 0 || self.is_wide(waker, thread) {
            return last;
        }
        if self.domains.load(this) < self.domains.load(last) { this } else { last }
    }

    /// Returns whether a waker has more partners than share a cache (`wake_wide`).
    fn is_wide(&self, waker: usize, thread: usize) -> bool {
        let flips = [waker, thread].map(|thread| self.threads[thread].flips.count as usize);
        let (more, less) = (flips[0].max(flips[1]), flips[0].min(flips[1]));
        let size = self.domains.last_cache(self.threads[waker].pe.unwrap_or(0)).online;
        less >= size && more >= less * size
    }

    /// Returns an idle PE near another one, or that one.
    fn idle_sibling(&self, thread: usize, target: usize, last: usize) -> usize {
        let domains = &self.domains;
        let usable = &self.threads[thread].usable;
        if domains.load(target) == 0 {
            return target;
        }
        let near = domains.last_cache(target);
        if domains.load(last) == 0 && std::ptr::eq(domains.last_cache(last), near) {
            return last;
        }
        if domains.idle() == 0 {
            return target;
        }
        let start = near.pes.partition_point(|&pe| pe <= target);
        let in_order = || near.pes[start..].iter().chain(&near.pes[..start]).copied();
        let idle = || in_order().filter(|&pe| domains.load(pe) == 0 && usable.contains(pe_id(pe)));
        let core = idle().find(|&pe| domains.core(pe).is_idle());
        core.or_else(|| idle().next()).or_else(|| self.nearest_idle(thread, target)).unwrap_or(target)
    }

    /// Returns the nearest idle PE that a thread may use.
    pub(super) fn nearest_idle(&self, thread: usize, from: usize) -> Option<usize> {
        if self.domains.idle() == 0 {
            return None;
        }
        let idle = pes(&self.threads[thread].usable).filter(|&pe| self.domains.load(pe) == 0);
        idle.min_by_key(|&pe| (self.machine.model.distance(from, pe), self.domains.core(pe).load))
    }

    /// Returns the fastest idle PE, first of idle cores; of several the nearest.
    fn fastest_idle(&self, thread: usize, last: Option<usize>) -> Option<usize> {
        if self.domains.idle() == 0 {
            return None;
        }
        let count = self.cpus.len();
        let first = self.tie_break(thread);
        let key = |&pe: &usize| {
            let slowness = (1e6 / self.machine.reported[pe]) as u64;
            let distance = last.map(|last| self.machine.model.distance(last, pe));
            let by_chance = if pe < first { pe + count - first } else { pe - first };
            let load = self.domains.core(pe).load;
            (load > 0, slowness, distance, load, by_chance)
        };
        pes(&self.threads[thread].usable).filter(|&pe| self.domains.load(pe) == 0).min_by_key(key)
    }
}

fn pe_id(pe: usize) -> corewise_core::ids::PeId {
    corewise_core::ids::PeId(pe as u32)
}

fn pes(set: &CpuSet) -> impl Iterator<Item = usize> {
    set.iter().map(|pe| pe.0 as usize)
}
