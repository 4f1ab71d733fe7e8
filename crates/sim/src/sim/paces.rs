//! How fast the running threads are, brought up to date where something changed.
//!
//! Problem: whenever a thread gets a PE or another demand, the speeds of all that share something with it may
//! change, thousands of times per simulated second. Approach: the model is asked only as far as a change
//! reaches.
//!
//! - *Units*: threads that do not use caches concern those on the same core or module only.
//! - *Caches*: where a thread uses them, all of its cluster are asked about. Few states come back often, and
//!   the model keeps their solutions ([`corewise_core::machine_model::cache`]).
//! - *Channels*: a node's waits follow from what its threads ask for. They are solved only if that changed,
//!   or if threads whose memory is elsewhere connect the nodes: then an event concerns all of them.
//!
//! All threads of a cluster are settled when one changes, whether their own pace does or not: what others
//! read of them, such as their virtual times, is up to date.
//!
//! Limits: with threads that use remote memory each event costs as much as the machine is large.

use super::Sim;
use super::state::paces::Used;
use crate::judge::Judge;
use corewise_core::machine_model::contention::{Common, Demand, Load, Pace, Use};
use std::ops::Range;

impl Sim {
    /// Notes that something about the thread of a PE changed, so that there may be new paces.
    pub(super) fn touch(&mut self, pe: usize) {
        self.cpus[pe].used.is_stale = true;
        let cluster = self.machine.model.pes[pe].cluster;
        if !std::mem::replace(&mut self.paces.is_dirty[cluster], true) {
            self.paces.dirty.push(cluster);
        }
    }

    /// Brings paces and pending events up to date after the events of an instant.
    pub(super) fn update_paces(&mut self) {
        if let Some(judge) = self.judge.take() {
            self.judge_paces(&judge);
            self.judge = Some(judge);
            return;
        }
        let mut dirty = std::mem::take(&mut self.paces.dirty);
        dirty.sort_unstable();
        dirty.iter().for_each(|&cluster| self.share(cluster));
        let is_connected = self.paces.remote > 0;
        if std::mem::replace(&mut self.paces.was_connected, is_connected) || is_connected {
            self.paces.asks_otherwise.fill(false);
            self.solve_channels(0..self.machine.model.nodes.len());
        } else {
            // Clusters are numbered node by node.
            let mut rest = dirty.as_slice();
            while let Some(&first) = rest.first() {
                let node = self.node_of(first);
                let count = rest.partition_point(|&cluster| self.node_of(cluster) == node);
                rest = &rest[count..];
                // With several clusters the events of their PEs are entered in the order of PEs, too.
                if std::mem::take(&mut self.paces.asks_otherwise[node]) || count > 1 {
                    self.solve_channels(node..node + 1);
                } else {
                    self.change_paces(first);
                }
            }
        }
        let mut moved = std::mem::take(&mut self.moved);
        for pe in moved.drain(..) {
            if !self.paces.is_dirty[self.machine.model.pes[pe].cluster] {
                self.schedule(pe);
            }
        }
        dirty.drain(..).for_each(|cluster| self.paces.is_dirty[cluster] = false);
        // Reuse their memory.
        (self.paces.dirty, self.moved) = (dirty, moved);
    }

    /// Does the same by another judge, for all threads.
    fn judge_paces(&mut self, judge: &Judge) {
        let demand = |pe: usize| Some((pe, *self.threads[self.cpus[pe].running()?].activity.demand()));
        let running: Vec<(usize, Demand)> = (0..self.cpus.len()).filter_map(demand).collect();
        let slowdowns = judge.slowdowns(&running);
        let mut slowdowns = running.iter().zip(slowdowns).peekable();
        for pe in 0..self.cpus.len() {
            let mut pace = Pace::default();
            if let Some(((_, demand), slowdown)) = slowdowns.next_if(|((at, _), _)| *at == pe) {
                let alone = Load::new(pe, *demand);
                self.cpus[pe].share = self.solver.share(&self.machine.model, &[alone])[0];
                pace = self.cpus[pe].share.pace(0.0);
                pace.work_per_ns /= slowdown;
            }
            self.cpus[pe].used.is_stale = false;
            if self.paces.is_dirty[self.machine.model.pes[pe].cluster] || pace != self.cpus[pe].pace {
                self.settle(pe);
                self.cpus[pe].pace = pace;
                self.set_power(pe);
                self.schedule(pe);
            }
        }
        let moved: Vec<usize> = self.moved.drain(..).collect();
        moved.into_iter().for_each(|pe| self.schedule(pe));
        self.paces.dirty.clear();
        self.paces.is_dirty.fill(false);
    }

    fn node_of(&self, cluster: usize) -> usize {
        let model = &self.machine.model;
        model.pes[model.clusters[cluster][0]].node
    }

    /// Updates what the threads of one cluster leave each other of units and caches.
    fn share(&mut self, cluster: usize) {
        let pes = std::mem::take(&mut self.machine.model.clusters[cluster]);
        let mates = std::mem::take(&mut self.paces.mates);
        let stale = |sim: &Self, pe: usize| sim.cpus[pe].used.is_stale;
        let mut reaches_caches = false;
        for &pe in &pes {
            if stale(self, pe) {
                reaches_caches |= self.cpus[pe].used.caches;
                self.look_at(pe);
            }
        }
        // A thread that uses caches also fetches more slowly if its units are less free.
        let is_beside_caches = |pe: usize| mates[pe].iter().any(|&mate| self.cpus[mate].used.caches);
        reaches_caches |= pes.iter().any(|&pe| stale(self, pe) && is_beside_caches(pe));
        if reaches_caches {
            self.share_among(&pes);
        }
        for &pe in &pes {
            if std::mem::take(&mut self.cpus[pe].used.is_stale) && !reaches_caches {
                self.share_among(&mates[pe]);
            }
        }
        self.paces.mates = mates;
        self.machine.model.clusters[cluster] = pes;
    }

    /// Looks at what the thread of a PE uses.
    fn look_at(&mut self, pe: usize) {
        let cpu = &self.cpus[pe];
        let mut used = Used { caches: false, is_remote: false, ..cpu.used };
        if let Some(thread) = cpu.running().map(|thread| &self.threads[thread]) {
            used.caches = thread.activity.demand().uses_memory();
            let node = self.machine.model.pes[pe].node;
            used.is_remote = used.caches && 1.0 - thread.memory.homes().share(node) > 0.0;
        }
        self.paces.remote += usize::from(used.is_remote);
        self.paces.remote -= usize::from(cpu.used.is_remote);
        self.cpus[pe].used = used;
    }

    /// Updates what the threads of some PEs, which others do not disturb, leave each other.
    fn share_among(&mut self, pes: &[usize]) {
        let Self { paces, cpus, threads, apps, machine, solver, .. } = self;
        paces.sharers.clear();
        paces.sharers.extend(pes.iter().filter_map(|&pe| {
            let thread = &threads[cpus[pe].running()?];
            let demand = *thread.activity.demand();
            let node = machine.model.pes[pe].node;
            let remote = if cpus[pe].used.is_remote { 1.0 - thread.memory.homes().share(node) } else { 0.0 };
            let common = Common { process: thread.app, share: apps[thread.app].plan.memory.shared };
            Some(Load { pe, demand, remote, common })
        }));
        let shares = solver.share(&machine.model, &paces.sharers);
        paces.sharers.iter().zip(shares).for_each(|(load, share)| cpus[load.pe].share = *share);
        for &pe in pes {
            let cpu = &mut cpus[pe];
            let has_lines = cpu.running().is_some() && cpu.share.uses_memory();
            let channel = if has_lines { cpu.share.memory_use() } else { Use::default() };
            if std::mem::replace(&mut cpu.used.channel, channel) != channel {
                paces.asks_otherwise[machine.model.pes[pe].node] = true;
            }
        }
    }

    /// Solves the channels of some nodes, and updates the paces of the threads there.
    fn solve_channels(&mut self, nodes: Range<usize>) {
        let all = std::mem::take(&mut self.machine.model.nodes);
        let members = || all[nodes.clone()].iter().flatten().copied();
        let Self { channels, cpus, threads, machine, .. } = self;
        let users = members().filter_map(|pe| {
            let thread = cpus[pe].running().filter(|_| cpus[pe].used.channel.lines > 0.0)?;
            Some((cpus[pe].used.channel, threads[thread].memory.homes()))
        });
        let has_changed = channels.solve(&machine.model, nodes.clone(), users);
        members().for_each(|pe| self.change_pace(pe, has_changed));
        self.machine.model.nodes = all;
    }

    /// Updates the paces of the threads of a cluster whose waits have not changed.
    fn change_paces(&mut self, cluster: usize) {
        let pes = std::mem::take(&mut self.machine.model.clusters[cluster]);
        pes.iter().for_each(|&pe| self.change_pace(pe, false));
        self.machine.model.clusters[cluster] = pes;
    }

    /// Lets the thread of a PE go on at the pace that its share and the waits at channels leave it now.
    fn change_pace(&mut self, pe: usize, waits_changed: bool) {
        let is_dirty = self.paces.is_dirty[self.machine.model.pes[pe].cluster];
        if !(is_dirty || waits_changed) {
            return;
        }
        let cpu = &self.cpus[pe];
        let wait_ns = match cpu.running() {
            Some(thread) if cpu.share.uses_memory() => {
                self.channels.wait_ns(self.threads[thread].memory.homes())
            }
            _ => 0.0,
        };
        let pace = cpu.share.pace(wait_ns);
        if is_dirty || pace != cpu.pace {
            self.settle(pe);
            self.cpus[pe].pace = pace;
            self.set_power(pe);
            self.schedule(pe);
        }
    }
}
