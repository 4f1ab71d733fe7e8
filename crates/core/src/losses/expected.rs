//! What a placement is expected to lose: the mean over instants.

use super::known::KnownDemand;
use crate::classify::CONFIDENCE_MIN;
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::machine_model::contention::{Demand, Load, Solver};
use crate::machine_model::{Lost, MachineModel};
use crate::random::Random;
use crate::view::ThreadView;

/// The instants at which a placement is looked at.
pub const INSTANTS: usize = 16;

/// The seed of the instants.
const SEED: u64 = 1;

/// A thread that runs, as a placement sees it.
#[derive(Debug, Clone)]
pub struct Running {
    /// What it asks of the machine.
    pub demand: Demand,
    /// The share of the time in which it wants a PE, 0..1.
    pub share: f64,
    /// The PEs on which it may run.
    pub pes: CpuSet,
}

impl Running {
    /// Returns a thread that may run on these PEs: what it does now, and what is known of it from earlier.
    pub fn of(view: &ThreadView, earlier: &KnownDemand, pes: CpuSet) -> Running {
        let known = KnownDemand::of(&view.usage).or(earlier);
        Running { demand: known.demand(), share: view.runnable_share, pes }
    }
}

/// Predicts losses; keeps the memory of the predictor.
pub struct Losses<'a> {
    machine: &'a MachineModel,
    solver: Solver,
    /// 1 for each term whose parameters were measured, else 0.
    measured: Lost,
}

impl<'a> Losses<'a> {
    /// Returns the predictor of a machine; `None` where no term of the losses was measured.
    pub fn new(machine: &'a MachineModel) -> Option<Losses<'a>> {
        let is_measured = |name| machine.parameter(name).is_some_and(|p| p.confidence >= CONFIDENCE_MIN);
        let term =
            |parameters: &[&'static str]| f64::from(u8::from(parameters.iter().copied().any(is_measured)));
        let measured = Lost {
            units: term(&["fpu_conflict", "issue_conflict"]),
            caches: term(&["l3_latency_ns", "memory_latency_ns"]),
            memory: term(&["bandwidth_gb_per_s"]),
            speed: 1.0,
        };
        let any = measured.units + measured.caches + measured.memory > 0.0;
        any.then(|| Losses { machine, solver: Solver::default(), measured })
    }

    /// Returns what loads lose together, each on its PE.
    pub fn of_loads(&mut self, loads: &[Load]) -> Lost {
        let Losses { machine, solver, measured } = self;
        let lost = machine.losses(solver, loads).into_iter().fold(Lost::default(), |sum, lost| sum + lost);
        lost.by_term(measured)
    }

    /// Returns what threads together are expected to lose, in seconds of PE time per second.
    pub fn of(&mut self, threads: &[Running]) -> Lost {
        let mut lost = Lost::default();
        for instant in 0..INSTANTS {
            let loads = self.seated(threads, &mut Random::new(SEED, instant as u64));
            lost += self.of_loads(&loads) * (1.0 / INSTANTS as f64);
        }
        lost
    }

    /// Returns the threads that run at one instant, each on its PE.
    fn seated(&self, threads: &[Running], random: &mut Random) -> Vec<Load> {
        // Both are drawn for every thread, whatever becomes of it, so that placements meet the same chance.
        let drawn = threads.iter().map(|thread| (random.unit() < thread.share, random.unit(), thread));
        let mut wanting: Vec<_> = drawn.filter(|(wants, _, _)| *wants).collect();
        wanting.sort_by(|(_, a, x), (_, b, y)| x.pes.len().cmp(&y.pes.len()).then(a.total_cmp(b)));
        let mut busy = vec![false; self.machine.pes.len()];
        let mut in_core = vec![0_u32; self.machine.pes.len()];
        let mut loads = Vec::with_capacity(wanting.len());
        for (_, chance, thread) in wanting {
            let free: Vec<PeId> = thread.pes.iter().filter(|pe| !busy[pe.0 as usize]).collect();
            let crowd = |pe: &PeId| in_core[self.machine.pes[pe.0 as usize].core];
            let Some(emptiest) = free.iter().map(crowd).min() else { continue };
            let best: Vec<PeId> = free.into_iter().filter(|pe| crowd(pe) == emptiest).collect();
            let pe = best[(chance * best.len() as f64) as usize].0 as usize;
            busy[pe] = true;
            in_core[self.machine.pes[pe].core] += 1;
            loads.push(Load::new(pe, thread.demand));
        }
        loads
    }
}

#[cfg(test)]
mod tests;
