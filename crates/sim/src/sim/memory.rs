//! Memory on several nodes: where a process's pages lie, and what its threads make of the channels.
//!
//! Problem: a thread is slowed by the distance to its memory, and loads the channel of the node that serves
//! it, which need not be the one where it runs. Approach: a process has a *private* region for each thread
//! and a *shared* one for all; the scenario says how a thread's accesses divide between the two. A page
//! lies where it is touched first ([`Policy::FirstTouch`], Linux's default), or the pages go round all
//! nodes ([`Policy::Interleave`], `numactl --interleave`;
//! `Documentation/admin-guide/mm/numa_memory_policy.rst`). A thread touches its private region when it
//! first runs, and then, too, its part of the shared one, as where a parallel loop initialises it. Only the
//! shares of each node are kept, not the pages.
//!
//! With `[os] numa_balancing` pages follow their threads, as Linux's automatic NUMA balancing moves them
//! (`task_numa_work` and `numa_migrate_prep`, `kernel/sched/fair.c` and `mm/memory.c`): once per scan period
//! up to `scan_mib` of what a thread has elsewhere moves to the node where it runs, and the thread pays for
//! each page. Pages of the shared region move only while all running threads of the process are on one node:
//! the system moves a page only if the same node has asked for it twice. Interleaved pages stay.
//!
//! Limits: a region has the size of the working set that its thread has when it is scanned. Threads are not
//! moved to their memory, nor are pages moved by hand (`move_pages`); a node is never full. The pages of a
//! run that restarts are touched anew.

use super::Sim;
use crate::program::duration;
use corewise_core::machine_model::contention::Homes;
use serde::Deserialize;
use std::time::Duration;

/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;

/// A share of pages below which a node counts as having none.
const NONE: f64 = 1e-6;

/// How a process's memory is placed, as written in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryUse {
    /// Share of each thread's accesses that go to its private region.
    pub private: f64,
    /// The rest: what goes to the region that all threads of the process share.
    pub shared: f64,
    /// Which nodes hold the pages.
    pub policy: Policy,
}

/// Which nodes hold the pages of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The node of the thread that touches them first.
    #[default]
    FirstTouch,
    /// All in turn.
    Interleave,
}

/// Automatic NUMA balancing. The defaults of periods and sizes are Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NumaBalancing {
    /// Time between two scans of a thread's memory.
    #[serde(deserialize_with = "duration")]
    pub period: Duration,
    /// MiB that one scan moves at most.
    pub scan_mib: f64,
    /// What moving one page costs its thread, in microseconds: a fault, the copy, the page table.
    pub page_us: f64,
}

impl Default for MemoryUse {
    fn default() -> Self {
        Self { private: 1.0, shared: 0.0, policy: Policy::FirstTouch }
    }
}

impl Default for NumaBalancing {
    fn default() -> Self {
        Self { period: Duration::from_secs(1), scan_mib: 256.0, page_us: 3.0 }
    }
}

impl MemoryUse {
    /// Returns what is wrong with it, if anything is.
    pub fn fault(&self) -> Option<&'static str> {
        let shares = [self.private, self.shared];
        let good = shares.iter().all(|share| (0.0..=1.0).contains(share))
            && (self.private + self.shared - 1.0).abs() < 1e-9;
        (!good).then_some("memory.private and memory.shared must be shares that add up to 1")
    }
}

/// The pages of a region: each node's share, or none that was touched.
#[derive(Debug, Clone, PartialEq, Default)]
struct Pages(Vec<f64>);

impl Pages {
    /// Adds a part of the region on a node, or on all of them.
    fn touch(&mut self, policy: Policy, node: usize, nodes: usize, part: f64) {
        self.0.resize(nodes, 0.0);
        match policy {
            Policy::FirstTouch => self.0[node] += part,
            Policy::Interleave => self.0.iter_mut().for_each(|share| *share += part / nodes as f64),
        }
    }

    /// Moves up to a share of the region to a node; returns the share that moved.
    fn pull(&mut self, to: usize, most: f64) -> f64 {
        let all: f64 = self.0.iter().sum();
        let elsewhere = all - self.0[to];
        if elsewhere < NONE {
            return 0.0;
        }
        let moved = most.min(elsewhere);
        let kept = if elsewhere - moved < NONE { 0.0 } else { 1.0 - moved / elsewhere };
        self.0.iter_mut().enumerate().filter(|(node, _)| *node != to).for_each(|(_, share)| *share *= kept);
        self.0[to] = all - self.0.iter().enumerate().filter(|(n, _)| *n != to).map(|(_, s)| s).sum::<f64>();
        moved
    }
}

/// The pages that all threads of a process share.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory {
    shared: Pages,
}

/// The pages of a thread, and the nodes that serve it.
#[derive(Debug, Default)]
pub(crate) struct ThreadMemory {
    private: Pages,
    /// The only node that serves it, if it is one; else each node's share is in `shares`.
    only: Option<usize>,
    shares: Vec<f64>,
}

impl ThreadMemory {
    /// Returns the nodes that serve it.
    pub fn homes(&self) -> Homes<'_> {
        match self.only {
            Some(node) => Homes::One(node),
            None => Homes::Spread(&self.shares),
        }
    }

    fn is_touched(&self) -> bool {
        self.only.is_some() || !self.shares.is_empty()
    }

    fn update(&mut self, spec: &MemoryUse, shared: &Pages) {
        let mut shares = std::mem::take(&mut self.shares);
        shares.clear();
        shares.extend(self.private.0.iter().map(|share| spec.private * share));
        // The shared region counts by what is touched of it.
        let touched: f64 = shared.0.iter().sum();
        if spec.shared > 0.0 && touched > 0.0 {
            shares.iter_mut().zip(&shared.0).for_each(|(all, share)| *all += spec.shared * share / touched);
        }
        self.only = shares.iter().position(|share| *share > 1.0 - NONE);
        self.shares = shares;
    }
}

impl Sim {
    /// Lets a thread that runs for the first time touch its memory.
    pub(super) fn touch_memory(&mut self, index: usize, pe: usize) {
        let thread = &mut self.threads[index];
        if thread.memory.is_touched() {
            return;
        }
        let nodes = self.machine.model.nodes.len();
        let node = self.machine.model.pes[pe].node;
        let app = &mut self.apps[thread.app];
        let spec = app.plan.memory;
        thread.memory.private.touch(spec.policy, node, nodes, 1.0);
        if nodes == 1 {
            thread.memory.only = Some(node);
            return;
        }
        if spec.shared == 0.0 {
            thread.memory.update(&spec, &app.memory.shared);
            return;
        }
        app.memory.shared.touch(spec.policy, node, nodes, 1.0 / app.plan.threads as f64);
        self.update_homes(index);
    }

    /// Works out anew which nodes serve the threads of a thread's process.
    fn update_homes(&mut self, index: usize) {
        let (app, pid) = (self.threads[index].app, self.threads[index].pid);
        for position in 0..self.present.len() {
            let other = self.present[position];
            let thread = &mut self.threads[other];
            if thread.pid == pid && (other == index || thread.memory.is_touched()) {
                thread.memory.update(&self.apps[app].plan.memory, &self.apps[app].memory.shared);
                if let Some(pe) = self.running_on(other) {
                    self.touch(pe);
                }
            }
        }
    }

    /// Moves pages to the threads that use them.
    pub(super) fn scan_memory(&mut self, rules: NumaBalancing) {
        for pe in 0..self.cpus.len() {
            let Some(index) = self.cpus[pe].running() else { continue };
            let node = self.machine.model.pes[pe].node;
            let thread = &self.threads[index];
            let spec = self.apps[thread.app].plan.memory;
            let is_home = thread.memory.only == Some(node) || !thread.memory.is_touched();
            if is_home || spec.policy == Policy::Interleave {
                continue;
            }
            let bytes = thread.activity.demand().working_set();
            let most = rules.scan_mib * f64::from(1 << 20) / bytes.max(PAGE_BYTES);
            let is_together = spec.shared > 0.0 && self.is_together(index, node);
            self.settle(pe);
            let thread = &mut self.threads[index];
            let mut moved = if spec.private > 0.0 { thread.memory.private.pull(node, most) } else { 0.0 };
            if is_together {
                moved += self.apps[thread.app].memory.shared.pull(node, most);
            }
            if moved > 0.0 {
                thread.debt_ns += 1e3 * rules.page_us * moved * bytes / PAGE_BYTES;
                self.moved.push(pe);
                self.update_homes(index);
            }
        }
    }

    /// Returns whether all running threads of a thread's process are on a node.
    fn is_together(&self, index: usize, node: usize) -> bool {
        let pid = self.threads[index].pid;
        let running = self.cpus.iter().enumerate().filter_map(|(pe, cpu)| Some((pe, cpu.running()?)));
        running
            .filter(|&(_, other)| self.threads[other].pid == pid)
            .all(|(pe, _)| self.machine.model.pes[pe].node == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_moved_and_never_lost() {
        let mut pages = Pages::default();
        pages.touch(Policy::Interleave, 0, 4, 1.0);
        assert_eq!(pages.pull(2, 0.5), 0.5);
        let near = |expected: [f64; 4]| pages.0.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near([0.25 / 3.0, 0.25 / 3.0, 0.75, 0.25 / 3.0]), "{pages:?}");
        assert!((pages.pull(2, 0.5) - 0.25).abs() < 1e-12);
        assert_eq!(pages.0, [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(pages.pull(2, 1.0), 0.0);
    }
}
