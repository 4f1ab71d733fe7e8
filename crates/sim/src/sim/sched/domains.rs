//! Scheduling domains: the groups of PEs that share a core, a module, caches or a memory node, and their
//! loads.
//!
//! Problem: a thread is to go where least is shared, and queues are to be levelled near before far.
//! Approach: from each single PE upwards, each [`Level`] joins the groups of the one below that share the
//! next resource; levels that join nothing are left out. A group's load is the number of threads that run or
//! wait on its PEs; a thread counts from the moment at which it is placed, so that two that are placed at
//! one instant see each other. Source: `kernel/sched/topology.c` and
//! `Documentation/scheduler/sched-domains.rst`. Modules and SMT cores are both the lowest level, as on AMD's
//! family 15h, whose `topology_sibling_cpumask` holds a module. Limits: all PEs count alike, however fast
//! they are.

use corewise_core::machine_model::{MachineModel, Pe};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A group of PEs.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its PEs, in order.
    pub pes: Vec<usize>,
    /// The groups of the level below that it consists of.
    pub children: Vec<usize>,
    /// The PEs that are online.
    pub online: usize,
    /// Threads on its PEs, and the sum of their weights.
    pub load: usize,
    pub weight: i64,
    /// Attempts of busy PEs, and of idle ones, since the last that moved something or found nothing to do.
    pub failed: [u32; 2],
}

/// The groups of one kind, and the group of each PE.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub groups: Vec<Group>,
    pub of: Vec<usize>,
}

/// All levels, from the single PEs up to the whole machine.
#[derive(Debug)]
pub(crate) struct Domains {
    levels: Vec<Level>,
    /// The level of SMT cores or modules, and of the PEs that share the last cache. Either may be 0.
    core: usize,
    last_cache: usize,
    /// The level of memory nodes.
    node: usize,
    /// PEs without a thread.
    idle: usize,
}

/// What the PEs of a group share, level by level.
const SHARED: [fn(&Pe) -> usize; 6] =
    [|pe| pe.core, |pe| pe.fpu, |pe| pe.l2, |pe| pe.l3, |pe| pe.node, |_| 0];

impl Domains {
    /// Creates the domains of a machine whose allowed PEs are online, without threads.
    pub fn new(model: &MachineModel) -> Self {
        let count = model.pes.len();
        let mut domains = Self { levels: Vec::new(), core: 0, last_cache: 0, node: 0, idle: 0 };
        domains
            .levels
            .push(Level { of: (0..count).collect(), groups: (0..count).map(Group::single).collect() });
        for (number, shared) in SHARED.into_iter().enumerate() {
            domains.join(model, shared);
            let top = domains.levels.len() - 1;
            match number {
                1 => domains.core = top,
                3 => domains.last_cache = top,
                4 => domains.node = top,
                _ => {}
            }
        }
        for pe in model.topology.allowed.iter() {
            domains.plug(pe.0 as usize, true);
        }
        domains
    }

    /// Adds a level whose groups share something, unless it would be the same as the last one.
    fn join(&mut self, model: &MachineModel, shared: fn(&Pe) -> usize) {
        let below = &self.levels[self.levels.len() - 1];
        // Groups that share it, directly or through a PE of another group.
        let mut label: Vec<usize> = (0..below.groups.len()).collect();
        let mut first_of = BTreeMap::new();
        for pe in model.topology.pes.iter().map(|pe| pe.0 as usize) {
            let (old, new) =
                (label[below.of[pe]], label[*first_of.entry(shared(&model.pes[pe])).or_insert(below.of[pe])]);
            if old != new {
                label.iter_mut().filter(|label| **label == old).for_each(|label| *label = new);
            }
        }
        let mut children = BTreeMap::<usize, Vec<usize>>::new();
        label.iter().enumerate().for_each(|(group, label)| children.entry(*label).or_default().push(group));
        if children.len() == below.groups.len() {
            return;
        }
        let group = |children: Vec<usize>| {
            let mut pes: Vec<usize> =
                children.iter().flat_map(|&child| below.groups[child].pes.iter().copied()).collect();
            pes.sort_unstable();
            Group { pes, children, online: 0, load: 0, weight: 0, failed: [0; 2] }
        };
        let groups: Vec<Group> = children.into_values().map(group).collect();
        let mut of = vec![0; below.of.len()];
        for (index, group) in groups.iter().enumerate() {
            group.pes.iter().for_each(|&pe| of[pe] = index);
        }
        self.levels.push(Level { groups, of });
    }

    /// Takes a PE online or offline.
    pub fn plug(&mut self, pe: usize, online: bool) {
        for level in &mut self.levels {
            let group = &mut level.groups[level.of[pe]];
            group.online = if online { group.online + 1 } else { group.online - 1 };
        }
        if self.load(pe) == 0 {
            self.idle = if online { self.idle + 1 } else { self.idle - 1 };
        }
    }

    /// Adds a thread of a weight to a PE.
    pub fn add(&mut self, pe: usize, weight: i64) {
        self.idle -= usize::from(self.load(pe) == 0 && self.is_online(pe));
        for level in &mut self.levels {
            let group = &mut level.groups[level.of[pe]];
            group.load += 1;
            group.weight += weight;
        }
    }

    /// Removes a thread of a weight from a PE.
    pub fn subtract(&mut self, pe: usize, weight: i64) {
        for level in &mut self.levels {
            let group = &mut level.groups[level.of[pe]];
            group.load -= 1;
            group.weight -= weight;
        }
        self.idle += usize::from(self.load(pe) == 0 && self.is_online(pe));
    }

    /// Adds to the weights of a PE's threads.
    pub fn reweigh(&mut self, pe: usize, more: i64) {
        for level in &mut self.levels {
            level.groups[level.of[pe]].weight += more;
        }
    }

    /// Returns the threads on a PE.
    pub fn load(&self, pe: usize) -> usize {
        self.levels[0].groups[pe].load
    }

    fn is_online(&self, pe: usize) -> bool {
        self.levels[0].groups[pe].online > 0
    }

    /// Returns the number of online PEs without a thread.
    pub fn idle(&self) -> usize {
        self.idle
    }

    /// Returns the levels.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Returns a group for changes of its state.
    pub fn group_mut(&mut self, level: usize, group: usize) -> &mut Group {
        &mut self.levels[level].groups[group]
    }

    /// Returns the group of a PE on a level.
    pub fn group(&self, level: usize, pe: usize) -> &Group {
        let level = &self.levels[level];
        &level.groups[level.of[pe]]
    }

    /// Returns the PEs of the same SMT core or module.
    pub fn core(&self, pe: usize) -> &Group {
        self.group(self.core, pe)
    }

    /// Returns the PEs with the same last cache.
    pub fn last_cache(&self, pe: usize) -> &Group {
        self.group(self.last_cache, pe)
    }

    /// Returns whether groups of this level span several memory nodes.
    pub fn spans_nodes(&self, level: usize) -> bool {
        level > self.node
    }

    /// Returns the loads of a PE's groups relative to their sizes, the largest group first: comparing them
    /// descends from the idlest node to the idlest core.
    pub fn path(&self, pe: usize) -> impl Iterator<Item = (usize, usize)> {
        self.levels.iter().rev().map(move |level| {
            let group = &level.groups[level.of[pe]];
            (group.load, group.online)
        })
    }
}

impl Group {
    fn single(pe: usize) -> Self {
        Self { pes: vec![pe], children: Vec::new(), online: 0, load: 0, weight: 0, failed: [0; 2] }
    }

    /// Returns whether no thread is here.
    pub fn is_idle(&self) -> bool {
        self.load == 0
    }

    /// Compares the threads relative to the PEs.
    pub fn compare_load(&self, other: &Self) -> Ordering {
        (self.load * other.online.max(1)).cmp(&(other.load * self.online.max(1)))
    }

    /// Compares the weights relative to the PEs; groups with a thread for each PE at most are less.
    pub fn compare_weight(&self, other: &Self) -> Ordering {
        let by_weight =
            (self.weight * other.online.max(1) as i64).cmp(&(other.weight * self.online.max(1) as i64));
        self.is_overloaded().cmp(&other.is_overloaded()).then(by_weight)
    }

    /// Returns whether there are more threads than PEs.
    pub fn is_overloaded(&self) -> bool {
        self.load > self.online
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::topology::Topology;

    fn domains(topology: &str) -> Domains {
        Domains::new(&MachineModel::from(Topology::synthetic(topology).expect("a topology")))
    }

    #[test]
    fn levels_that_join_nothing_are_left_out() {
        let sizes = |topology: &str| -> Vec<usize> {
            domains(topology).levels.iter().map(|level| level.groups[0].pes.len()).collect()
        };
        assert_eq!(sizes("core:4 pu:1"), [1, 4]);
        assert_eq!(sizes("pack:1 l3:1 l2:4 module:1 core:2 pu:1"), [1, 2, 8]);
        assert_eq!(sizes("numa:2 pack:1 l3:2 core:2 pu:2"), [1, 2, 4, 8, 16]);
        assert_eq!(sizes("pu:1"), [1]);
    }

    #[test]
    fn placed_threads_count_in_every_group() {
        let mut domains = domains("numa:2 pack:1 l3:2 core:2 pu:2");
        for pe in [0, 0, 1, 9] {
            domains.add(pe, 1);
        }
        let path: Vec<_> = domains.path(0).collect();
        assert_eq!(path, [(4, 16), (3, 8), (3, 4), (3, 2), (2, 1)]);
        assert_eq!((domains.idle(), domains.core(9).load, domains.last_cache(13).is_idle()), (13, 1, true));
        domains.subtract(9, 1);
        domains.plug(9, false);
        assert_eq!((domains.idle(), domains.core(9).online), (13, 1));
    }
}
