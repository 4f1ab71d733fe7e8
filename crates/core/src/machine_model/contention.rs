//! The predictor: how fast threads run side by side.
//!
//! Problem: a thread's speed depends on what its neighbours leave of each resource, and vice versa.
//! Approach: each running thread has the [`Demand`] that it shows when it runs alone at speed 1. Each
//! resource is a module with its equations, sources and limits: [`units`](super::units),
//! [`cache`](super::cache) and [`channel`]. One work cycle then takes
//!
//! ```text
//! t = ((1 - l0) (1 + σ) + w) / (f s) + e [(m - n) L3 + n (M r + W)]
//! ```
//!
//! - f, s: the clock of a PE of speed 1, and the PE's speed. The core's part of the work scales with it.
//! - σ, w: `smt_cost` of all neighbours on an SMT core; cycles of waiting for units.
//! - m, n: misses of the L2, and those of them that go to memory, with the caches that the thread has left.
//! - L3, M: their latencies. They are times: memory does not run faster for a fast PE.
//! - r: 1 for a thread whose memory is on its own node; up to `remote_factor`, by what other nodes serve.
//! - W: the wait at the channels.
//! - e: the part of a latency that is not hidden behind other work, `1 - overlap`. L3 and M count for the
//!   misses that no prefetcher foresees, W for all.
//! - l0: all that waiting when alone, with m, n and W alone, so that a lone thread on its own node takes
//!   exactly its work (unless it asks for more than the channel can deliver, which then limits it). l0 is at
//!   most 0.95: a thread that would wait for longer hides more, and its e is less.
//!
//! Parameters come from the machine model ([`super`]) and from the phase ([`Demand`]).
//!
//! Limits: those of each resource. Constructive sharing (a neighbour fetches data that the thread needs)
//! and a front end shared by the cores of a module are not modelled. The clock is that of the moment
//! ([`super::power`]).

use super::cache::{CacheSharing, Misses};
use super::channel;
use super::model::MachineModel;
use super::units::{UnitShare, UnitSharing};

pub use super::cache::{CacheShare, CacheUser};
pub use super::channel::{Channels, Homes, LINE_BYTES, Use};
pub use super::demand::{Common, Demand, Load};

/// The largest share of its time that a lone thread is assumed to wait for memory.
const STALL_MAX: f64 = 0.95;

/// The predicted progress of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Work cycles done per nanosecond.
    pub work_per_ns: f64,
    /// Cycles with a busy FPU per work cycle: those of its own operations, and those waiting for others'.
    pub fpu_busy_per_work: f64,
    /// L2 misses per work cycle.
    pub l2_misses_per_work: f64,
    /// Share of the time in which it waits for the L3 or for memory.
    pub stalled: f64,
    /// Bytes per work cycle to and from memory.
    pub memory_bytes_per_work: f64,
}

/// The predictor with its scratch memory.
#[derive(Debug, Default)]
pub struct Solver {
    units: UnitSharing,
    caches: CacheSharing,
    shares: Vec<Share>,
}

/// The share of units and caches that its neighbours leave to a load: everything but the wait at channels.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    /// The time of a work cycle in nanoseconds without waits at channels, and the part of it in which it
    /// waits for the L3 or for memory.
    ns: f64,
    stall_ns: f64,
    /// Lines from memory per work cycle, and the part of their latency that is not hidden.
    lines: f64,
    exposed: f64,
    /// How many times as long as alone its neighbours on an SMT core make its time in the core.
    slowed: f64,
    fpu_busy: f64,
    l2_misses: f64,
}

impl Solver {
    /// Returns the paces of all threads of the machine, in the order of `loads`. What is remote lies evenly
    /// on all other nodes.
    pub fn solve(&mut self, machine: &MachineModel, loads: &[Load], paces: &mut Vec<Pace>) {
        paces.clear();
        self.each(machine, loads, |share, wait_ns| paces.push(share.pace(wait_ns)));
    }

    /// Calls `put` with each load's share of units and caches, in order, and how long its lines wait at the
    /// channels, in nanoseconds.
    pub(super) fn each(&mut self, machine: &MachineModel, loads: &[Load], mut put: impl FnMut(&Share, f64)) {
        let shares = self.share(machine, loads);
        let spread: Vec<Option<Vec<f64>>> = loads.iter().map(|load| spread(machine, load)).collect();
        let homes = |index: usize| match &spread[index] {
            Some(shares) => Homes::Spread(shares),
            None => Homes::One(machine.pes[loads[index].pe].node),
        };
        let mut channels = Channels::new(machine);
        for (index, share) in shares.iter().enumerate() {
            channels.ask(index, share.memory_use(), homes(index));
        }
        channels.solve();
        shares.iter().enumerate().for_each(|(index, share)| put(share, channels.wait_ns(homes(index))));
    }

    /// Returns what the loads leave each other of units and caches, in order. `loads` are those of the
    /// machine or of one of its [clusters](MachineModel::clusters), as clusters share only memory.
    pub fn share(&mut self, machine: &MachineModel, loads: &[Load]) -> &[Share] {
        let Self { units, caches, shares } = self;
        units.fill(machine, loads, shares);
        if loads.iter().any(|load| load.demand.uses_memory()) {
            caches.share(machine, loads, |index, misses| {
                let Load { pe, remote, ref demand, .. } = loads[index];
                shares[index] = shares[index].with_misses(machine, (pe, remote), demand, misses);
            });
        }
        shares
    }

    /// Returns the same of units alone, in order. `loads` are those on the units that they use.
    pub fn share_units(&mut self, machine: &MachineModel, loads: &[Load]) -> &[Share] {
        self.units.fill(machine, loads, &mut self.shares);
        &self.shares
    }

    /// Returns what users have of the caches that they share, in order. A number means the same demand each
    /// time, so that a solver which is asked for this is not asked for [`Self::share`].
    pub fn share_caches(
        &mut self,
        machine: &MachineModel,
        users: &[CacheUser],
        demands: &[Demand],
    ) -> &[CacheShare] {
        self.caches.share_known(machine, users, demands)
    }
}

impl UnitSharing {
    /// Sets the shares of units of all loads.
    fn fill(&mut self, machine: &MachineModel, loads: &[Load], shares: &mut Vec<Share>) {
        shares.clear();
        shares.resize(loads.len(), Share::default());
        self.shares(machine, loads, |index, unit: UnitShare| {
            shares[index] = Share {
                ns: (1.0 + unit.smt_cost + unit.wait) / (machine.ghz * machine.pes[loads[index].pe].speed),
                slowed: 1.0 + unit.smt_cost,
                fpu_busy: unit.fpu_busy,
                ..Share::default()
            };
        });
    }
}

impl MachineModel {
    /// Returns the predicted slowdown of each thread: its time over the time alone on its PE; 1 is none.
    pub fn slowdowns(&self, loads: &[Load]) -> Vec<f64> {
        let (mut solver, mut paces) = (Solver::default(), Vec::new());
        solver.solve(self, loads, &mut paces);
        let mut slowdowns: Vec<f64> = paces.iter().map(|pace| 1.0 / pace.work_per_ns).collect();
        for (slowdown, load) in slowdowns.iter_mut().zip(loads) {
            solver.solve(self, std::slice::from_ref(load), &mut paces);
            *slowdown *= paces[0].work_per_ns;
        }
        slowdowns
    }
}

/// Returns the shares of the nodes that serve a load, if they are several.
fn spread(machine: &MachineModel, load: &Load) -> Option<Vec<f64>> {
    let others = machine.nodes.len() - 1;
    if load.remote == 0.0 || others == 0 {
        return None;
    }
    let mut shares = vec![load.remote / others as f64; others + 1];
    shares[machine.pes[load.pe].node] = 1.0 - load.remote;
    Some(shares)
}

impl Share {
    /// Returns the share of units with the time that a thread of this demand waits for caches and memory.
    /// `remote` is the share of its misses that other nodes serve.
    pub fn with_misses(
        self,
        machine: &MachineModel,
        (pe, remote): (usize, f64),
        demand: &Demand,
        misses: CacheShare,
    ) -> Self {
        let (memory, ghz, CacheShare { alone, beside }) = (&machine.memory, machine.ghz, misses);
        let unforeseen = 1.0 - demand.prefetched;
        let waiting_ns = |misses: &Misses, memory_ns: f64| {
            (misses.l2 - misses.memory) * unforeseen * memory.l3_latency_ns + misses.memory * memory_ns
        };
        let queueing_ns = channel::wait_alone_ns(machine, alone.memory * LINE_BYTES * ghz);
        let all_alone = ghz * waiting_ns(&alone, unforeseen * memory.memory_latency_ns + queueing_ns);
        let exposed = (1.0 - memory.overlap).min(STALL_MAX / all_alone);
        let distance = 1.0 + (memory.remote_factor - 1.0) * remote;
        let stall_ns = exposed * waiting_ns(&beside, unforeseen * memory.memory_latency_ns * distance);
        let hidden_ns = exposed * all_alone * self.slowed / (ghz * machine.pes[pe].speed);
        let ns = self.ns - hidden_ns + stall_ns;
        Self { ns, stall_ns, lines: beside.memory, exposed, l2_misses: beside.l2, ..self }
    }

    /// Returns the pace of a thread whose lines wait for so long at the channels.
    pub fn pace(&self, wait_ns: f64) -> Pace {
        let queueing_ns = self.lines * self.exposed * wait_ns;
        let work_per_ns = self.memory_use().pace(wait_ns);
        Pace {
            work_per_ns,
            fpu_busy_per_work: self.fpu_busy,
            l2_misses_per_work: self.l2_misses,
            stalled: (self.stall_ns + queueing_ns) * work_per_ns,
            memory_bytes_per_work: self.lines * LINE_BYTES,
        }
    }

    /// Returns the time of a work cycle in nanoseconds, in parts: in the core, waiting for caches and for the
    /// latency of memory, and waiting for channels, where its lines wait for so long.
    pub(super) fn parts_ns(&self, wait_ns: f64) -> [f64; 3] {
        [self.ns - self.stall_ns, self.stall_ns, self.lines * self.exposed * wait_ns]
    }

    /// Returns whether its lines come from memory.
    pub fn uses_memory(&self) -> bool {
        self.lines > 0.0
    }

    /// Returns its use of the channels.
    pub fn memory_use(&self) -> Use {
        Use { lines: self.lines, ns: self.ns, loss: self.lines * self.exposed }
    }
}

#[cfg(test)]
mod tests;
