//! Seats: on which of several sets of PEs a thread is predicted to cost least.
//!
//! Problem: sets of PEs that look alike in the topology differ by who is there already: a second thread that
//! needs the same cache or channel costs more than one that needs another.
//!
//! Approach: the threads that a policy has seated so far are loads on their PEs. What one more costs on a
//! set is by how much the loss of all seated threads of that memory node rises ([`crate::losses`]), its own
//! loss included. Costs that differ by less than [`SAME`] are the same.
//!
//! Limits: one thread at a time (greedy); threads without a seat are not considered.

use super::interface::{Scene, Subject};
use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::losses::{Knowledge, KnownDemand, Losses};
use crate::machine_model::MachineModel;
use crate::machine_model::contention::{Demand, Load};
use std::collections::BTreeMap;

/// A hundredth of a PE: less than a guard can measure.
pub const SAME: f64 = 0.01;

/// The seated threads.
pub struct Seats<'a> {
    machine: &'a MachineModel,
    knowledge: &'a Knowledge,
    losses: Losses<'a>,
    /// The loads of each memory node, and what they lose, once somebody has asked.
    nodes: BTreeMap<usize, (Vec<Load>, Option<f64>)>,
    demands: BTreeMap<ThreadId, Demand>,
}

impl<'a> Seats<'a> {
    /// Returns empty seats; `None` where too little of the machine was measured to predict a loss.
    pub fn of(scene: &Scene<'a>) -> Option<Seats<'a>> {
        let Scene { machine, knowledge, .. } = *scene;
        let losses = Losses::new(machine)?;
        Some(Seats { machine, knowledge, losses, nodes: BTreeMap::new(), demands: BTreeMap::new() })
    }

    /// Seats a thread on the first free of these PEs.
    pub fn take(&mut self, subject: &Subject, pes: &CpuSet) {
        let Some(load) = self.load(subject, pes) else { return };
        let (loads, lost) = self.nodes.entry(self.machine.pes[load.pe].node).or_default();
        loads.push(load);
        *lost = None;
    }

    /// Returns how much more PE time is lost with a thread on the first free of these PEs, in seconds per
    /// second.
    pub fn cost(&mut self, subject: &Subject, pes: &CpuSet) -> f64 {
        let Some(load) = self.load(subject, pes) else { return 0.0 };
        let Seats { losses, nodes, machine, .. } = self;
        let (loads, lost) = nodes.entry(machine.pes[load.pe].node).or_default();
        let before = *lost.get_or_insert_with(|| losses.of_loads(loads).total());
        loads.push(load);
        let with = losses.of_loads(loads).total();
        loads.pop();
        with - before
    }

    /// Returns the load of a thread on the first free of these PEs, or else on the first.
    fn load(&mut self, subject: &Subject, pes: &CpuSet) -> Option<Load> {
        let (view, knowledge) = (&subject.view, self.knowledge);
        let known = || KnownDemand::of(&view.usage).or(&knowledge.of(&subject.name)).demand();
        let demand = *self.demands.entry(view.thread).or_insert_with(known);
        let is_free = |pe: &usize| {
            let loads = self.nodes.get(&self.machine.pes[*pe].node);
            loads.is_none_or(|(loads, _)| loads.iter().all(|load| load.pe != *pe))
        };
        let indices = || pes.iter().map(|pe| pe.0 as usize);
        let pe = indices().find(is_free).or_else(|| indices().next())?;
        Some(Load::new(pe, demand))
    }
}
