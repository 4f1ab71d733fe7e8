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

pub use super::state::memory::{MemoryUse, NumaBalancing, Policy};

use super::Sim;

/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;

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
            let bytes = self.demands[thread.activity.demand()].working_set();
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
