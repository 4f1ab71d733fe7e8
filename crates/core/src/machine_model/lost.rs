//! What threads lose to each other, by what they wait for.
//!
//! Problem: a slowdown alone explains nothing, and slowdowns of fast and slow threads cannot be added.
//! Approach: the currency of waits ([`crate::waits::losses`]): the PE time that is lost. A thread whose work
//! takes `t` where it would take `t0` alone on the fastest PE loses `1 - t0 / t` of its PE's time. `t` has
//! parts ([`super::contention`]), and what each part has grown by is that part of the loss; the terms add up
//! to it. Limits: those of the predictor.

use super::contention::{Load, Share, Solver};
use super::model::MachineModel;
use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Mul};

/// Lost PE time, in seconds per second, by cause. A term is below 0 where a thread gains.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Lost {
    /// Waiting for execution units, and for what else an SMT core divides.
    pub units: f64,
    /// Misses that the thread would not have alone, and memory that is remote.
    pub caches: f64,
    /// Waiting for memory channels.
    pub memory: f64,
    /// A slower PE than the fastest.
    pub speed: f64,
}

impl Lost {
    /// Returns the sum of all terms.
    pub fn total(&self) -> f64 {
        self.units + self.caches + self.memory + self.speed
    }

    /// Returns each term times that of another.
    pub fn by_term(&self, factors: &Lost) -> Lost {
        Lost {
            units: self.units * factors.units,
            caches: self.caches * factors.caches,
            memory: self.memory * factors.memory,
            speed: self.speed * factors.speed,
        }
    }
}

impl Add for Lost {
    type Output = Lost;

    fn add(self, other: Lost) -> Lost {
        Lost {
            units: self.units + other.units,
            caches: self.caches + other.caches,
            memory: self.memory + other.memory,
            speed: self.speed + other.speed,
        }
    }
}

impl AddAssign for Lost {
    fn add_assign(&mut self, other: Lost) {
        *self = *self + other;
    }
}

impl Mul<f64> for Lost {
    type Output = Lost;

    fn mul(self, factor: f64) -> Lost {
        self.by_term(&Lost { units: factor, caches: factor, memory: factor, speed: factor })
    }
}

impl MachineModel {
    /// Returns what each load loses while all of them run, in order.
    pub fn losses(&self, solver: &mut Solver, loads: &[Load]) -> Vec<Lost> {
        let mut beside = Vec::with_capacity(loads.len());
        solver.each(self, loads, |share, wait_ns| beside.push(share.parts_ns(wait_ns)));
        let lost = |(load, beside): (&Load, [f64; 3])| self.lost(solver, load, beside);
        loads.iter().zip(beside).map(lost).collect()
    }

    /// Returns what a load loses whose work takes as long as this beside others.
    fn lost(&self, solver: &mut Solver, load: &Load, beside: [f64; 3]) -> Lost {
        let mut alone_on = |pe| {
            let mut parts = [0.0; 3];
            let home = Load { pe, remote: 0.0, ..*load };
            solver.each(self, &[home], |share: &Share, wait_ns| parts = share.parts_ns(wait_ns));
            parts
        };
        let alone = alone_on(load.pe);
        let time: f64 = beside.iter().sum();
        let [units, caches, memory] = [0, 1, 2].map(|part| (beside[part] - alone[part]) / time);
        let fastest = self.fastest();
        let is_slow = self.pes[load.pe].speed < self.pes[fastest].speed;
        let mut gained = |alone: [f64; 3]| alone.iter().sum::<f64>() - alone_on(fastest).iter().sum::<f64>();
        let speed = if is_slow { gained(alone) / time } else { 0.0 };
        Lost { units, caches, memory, speed }
    }

    /// Returns the first of the fastest PEs that may be used.
    fn fastest(&self) -> usize {
        let pes = self.topology.allowed.iter().map(|pe| pe.0 as usize);
        pes.reduce(|best, pe| if self.pes[pe].speed > self.pes[best].speed { pe } else { best }).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::*;
    use crate::topology::Topology;

    fn machine() -> MachineModel {
        let mut machine = MachineModel::from(Topology::synthetic("pack:2 l3:1 core:1 pu:2").unwrap());
        machine.pes[2].speed = 0.5;
        machine.pes[3].speed = 0.5;
        machine
    }

    fn load(pe: usize, demand: Demand) -> Load {
        Load::new(pe, demand)
    }

    const FPU: Demand = Demand { fpu: 1.0, ipc: 0.0, ..Demand::DEFAULT };
    const STREAM: Demand = Demand {
        ipc: 0.0,
        l2_misses_per_100_cycles: 5.0,
        l2_accesses_per_100_cycles: 5.0,
        ..Demand::DEFAULT
    };

    #[test]
    fn two_threads_that_always_want_one_fpu_lose_half_of_their_time_to_it() {
        let lost = machine().losses(&mut Solver::default(), &[load(0, FPU), load(1, FPU)]);
        for lost in lost {
            assert!((lost.units - 0.5).abs() < 1e-9 && (lost.total() - 0.5).abs() < 1e-9, "{lost:?}");
        }
    }

    #[test]
    fn a_slow_pe_loses_what_it_is_slower_by() {
        let lost = machine().losses(&mut Solver::default(), &[load(2, FPU)])[0];
        assert!((lost.speed - 0.5).abs() < 1e-9 && (lost.total() - 0.5).abs() < 1e-9, "{lost:?}");
    }

    #[test]
    fn terms_add_up_to_what_is_slower_than_alone_on_the_fastest_pe() {
        let (machine, mut solver) = (machine(), Solver::default());
        let loads = [load(0, STREAM), load(1, FPU), load(2, STREAM), load(3, STREAM)];
        let mut paces = Vec::new();
        solver.solve(&machine, &loads, &mut paces);
        let (beside, mut found) = (paces.clone(), machine.losses(&mut solver, &loads));
        for (index, of) in loads.iter().enumerate() {
            solver.solve(&machine, &[Load { pe: 0, ..*of }], &mut paces);
            let expected = 1.0 - beside[index].work_per_ns / paces[0].work_per_ns;
            let lost = found.remove(0);
            assert!((lost.total() - expected).abs() < 1e-9, "{index}: {lost:?}, expected {expected}");
        }
    }
}
