//! Which processes run beside which: exact, as the simulation sees every switch.
//!
//! When a thread leaves its PE, the time that it had in common with each thread that runs on is added to
//! their pair; of two that leave at one instant the first one counts. Those that run on at a look count with
//! what they have had in common by then. Limits: a switch costs time in proportion to the number of PEs, so
//! it is only counted where it is wanted.

use super::Sim;
use super::state::beside::Beside;
use corewise_core::observe::BesideReading;

impl Sim {
    /// A thread leaves its PE.
    pub(super) fn part(&mut self, thread: usize, pe: usize) {
        if let Some(mut beside) = self.beside.take() {
            self.add_common_time(&mut beside, thread, pe, 0);
            self.beside = Some(beside);
        }
    }

    /// Returns for how long processes have run beside each other so far; nothing where that is not wanted.
    pub(crate) fn beside_readings(&self) -> Vec<BesideReading> {
        let Some(mut beside) = self.beside.clone() else { return Vec::new() };
        for (pe, cpu) in self.cpus.iter().enumerate() {
            if let Some(thread) = cpu.running() {
                self.add_common_time(&mut beside, thread, pe, pe + 1);
            }
        }
        beside.readings()
    }

    /// Adds what a thread on a PE has in common by now with those that run on other PEs, from one on.
    fn add_common_time(&self, beside: &mut Beside, thread: usize, pe: usize, from: usize) {
        for other in (from..self.cpus.len()).filter(|&other| other != pe) {
            let Some(neighbour) = self.cpus[other].running() else { continue };
            let since = self.cpus[pe].since.max(self.cpus[other].since);
            let processes = (self.threads[thread].pid, self.threads[neighbour].pid);
            beside.add(processes, self.machine.model.distance(pe, other), self.now.0 - since.0);
        }
    }
}
