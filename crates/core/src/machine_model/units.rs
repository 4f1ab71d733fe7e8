//! Execution units that threads share: the FPU of a module or core, the issue slots of an SMT core.
//!
//! *Problem.* Threads that want a unit at the same time wait for each other, and no unit serves more than it
//! can, however many threads there are.
//!
//! *Approach.* A thread needs the unit for the share u of its time when alone, its *intensity*, and does
//! other things for 1 - u. Several such threads and one unit that serves one at a time are the textbook's
//! machines and repairman with unequal machines, a closed network with a product form (Baskett, Chandy,
//! Muntz, Palacios 1975; Reiser, Lavenberg 1980). With the sum over all numbers k of threads at the unit
//!
//! ```text
//! G(S) = Σ_k k! [X^k] Π_{j in S} ((1 - u_j) + u_j X)
//! ```
//!
//! a thread's work takes G(S) / G(S - i) times as long as alone: 1 + u v for two threads, 3.0 for four with
//! u = 3/4, and n for n with u = 1. The unit is never busy for more than all of the time. What is lost
//! beyond the time alone is multiplied by the machine's `conflict` κ: below 1 the unit serves several at
//! once in part, above 1 they cost each other more than the unit's time, as integer additions do on
//! Nehalem, by its reorder buffer (interdependencies §3.3).
//!
//! *Occupancy* is what a counter shows: the FPU's own busy cycles, and those in which it waits for the unit.
//! It decides what a policy sees, not what a neighbour suffers. Where a demand gives no intensity, they are
//! the same number.
//!
//! The threads of an SMT core also divide what is no unit: buffers, the predictor, first-level caches. Each
//! busy neighbour on the core costs `smt_cost` of the time in the core, whatever it executes.
//!
//! *Measured.* Two threads of SPEC CPU2000 on a Pentium 4 get 1.20 times as much done as one in the mean of
//! all pairs (Tuck, Tullsen, PACT 2003): issue slots alone would let the programs of `experiments/cosched`
//! have 1.60, and an `smt_cost` of 0.6 gives 1.20. On an in-order Atom they have 1.39 (SPECint_rate2000,
//! Intel at IDF 2008), as two threads do that each fill 0.66 of the units: 2 / (1 + 0.66²).
//!
//! A core's divider and its window of instructions (the reorder buffer) are units likewise: the papers name
//! them as causes of what issue slots do not explain (interdependencies §3.3).
//!
//! *Limits.* Intensities are those of a thread alone: one that waits for memory disturbs its neighbours less
//! than this says, unless its demand already contains that.

use super::demand::Load;
use super::model::MachineModel;

/// What sharing units costs a thread, per work cycle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct UnitShare {
    /// Cycles of waiting for units.
    pub wait: f64,
    /// Share of its time in the core that its neighbours on the core cost beyond that.
    pub smt_cost: f64,
    /// Cycles with a busy FPU.
    pub fpu_busy: f64,
}

/// What is asked of one unit.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    threads: u32,
    intensity: f64,
}

/// Computes the shares of units; keeps its memory.
#[derive(Debug, Default)]
pub(super) struct UnitSharing {
    fpu: Vec<Asked>,
    issue: Vec<Asked>,
    /// Of the unit of a core that is looked at.
    unit: Vec<Asked>,
    waits: Vec<f64>,
    sums: Vec<f64>,
}

impl UnitSharing {
    /// Returns what sharing costs each load, in order; the loads are all those on the units that they use.
    pub fn shares(&mut self, machine: &MachineModel, loads: &[Load], mut put: impl FnMut(usize, UnitShare)) {
        let units = &machine.units;
        // FPUs of modules are numbered after the cores.
        let count = 2 * machine.pes.len();
        self.fpu.resize(count, Asked::default());
        self.issue.resize(count, Asked::default());
        self.waits.clear();
        self.waits.resize(loads.len(), 0.0);
        self.wait_for(machine, loads, units.divider_conflict, |load| load.demand.divider);
        self.wait_for(machine, loads, units.window_conflict, |load| load.demand.window);
        for load in loads {
            let pe = &machine.pes[load.pe];
            self.fpu[pe.fpu].add(fpu_intensity(load));
            self.issue[pe.core].add(issue_intensity(load, units.issue_width));
        }
        for (index, load) in loads.iter().enumerate() {
            let pe = &machine.pes[load.pe];
            let (fpu, issue) = (self.fpu[pe.fpu], self.issue[pe.core]);
            let fpu_wait = units.fpu_conflict
                * self.wait(loads, index, fpu, fpu_intensity, |load| machine.pes[load.pe].fpu == pe.fpu);
            let issue_wait = units.issue_conflict
                * self.wait(
                    loads,
                    index,
                    issue,
                    |load| issue_intensity(load, units.issue_width),
                    |load| machine.pes[load.pe].core == pe.core,
                );
            let smt_cost = units.smt_cost * f64::from(issue.threads.saturating_sub(1));
            let fpu_busy = load.demand.fpu + fpu_wait;
            let wait = fpu_wait + issue_wait + self.waits[index];
            put(index, UnitShare { wait, smt_cost, fpu_busy });
        }
        for load in loads {
            let pe = &machine.pes[load.pe];
            (self.fpu[pe.fpu], self.issue[pe.core]) = (Asked::default(), Asked::default());
        }
    }

    /// Adds the waits for a unit of each core.
    fn wait_for(&mut self, machine: &MachineModel, loads: &[Load], conflict: f64, of: impl Fn(&Load) -> f64) {
        if loads.iter().all(|load| of(load) == 0.0) {
            return;
        }
        self.unit.resize(machine.pes.len() * 2, Asked::default());
        for load in loads {
            self.unit[machine.pes[load.pe].core].add(of(load));
        }
        for index in 0..loads.len() {
            let core = machine.pes[loads[index].pe].core;
            let on_core = |load: &Load| machine.pes[load.pe].core == core;
            self.waits[index] += conflict * self.wait(loads, index, self.unit[core], &of, on_core);
        }
        self.unit.fill(Asked::default());
    }

    /// Returns how long a thread waits for a unit per unit of its time alone.
    fn wait(
        &mut self,
        loads: &[Load],
        index: usize,
        asked: Asked,
        intensity: impl Fn(&Load) -> f64,
        on_unit: impl Fn(&Load) -> bool,
    ) -> f64 {
        let own = intensity(&loads[index]);
        // For two threads G is 1 + u v, and 1 for one.
        if asked.threads <= 2 || own == 0.0 {
            return own * (asked.intensity - own).max(0.0);
        }
        let users = || loads.iter().enumerate().filter(|(_, load)| on_unit(load));
        let others = self.sum(users().filter(|&(other, _)| other != index).map(|(_, load)| intensity(load)));
        let all = self.sum(users().map(|(_, load)| intensity(load)));
        all / others - 1.0
    }

    /// Returns G of these intensities.
    fn sum(&mut self, intensities: impl Iterator<Item = f64>) -> f64 {
        // sums[k] is k! [X^k] of the product so far.
        self.sums.clear();
        self.sums.push(1.0);
        for intensity in intensities {
            self.sums.push(0.0);
            for k in (1..self.sums.len()).rev() {
                self.sums[k] = (1.0 - intensity) * self.sums[k] + intensity * k as f64 * self.sums[k - 1];
            }
            self.sums[0] *= 1.0 - intensity;
        }
        self.sums.iter().sum()
    }
}

impl Asked {
    fn add(&mut self, intensity: f64) {
        self.threads += 1;
        self.intensity += intensity;
    }
}

fn fpu_intensity(load: &Load) -> f64 {
    load.demand.fpu_intensity.unwrap_or(load.demand.fpu)
}

/// The share of a core's issue slots that a thread needs.
fn issue_intensity(load: &Load, width: f64) -> f64 {
    (load.demand.ipc / width).min(1.0)
}
