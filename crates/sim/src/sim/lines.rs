//! What it costs that threads hand data to each other: by how far apart their PEs are.
//!
//! Problem: if a barrier, a lock or a pool of work costs nothing but the wait, a policy that spreads threads
//! over a machine always wins. Approach: each of these is a line of memory that the PE which writes it takes
//! from the one that wrote it last, in the time that a calibration measures for the pair
//! ([`corewise_core::machine_model::MachineModel::latency_ns`]); and a thread that is released sees it so
//! much later. The thread pays before it goes on, as for a cold cache. Source: the latencies of
//! resource-interdependencies §4; how lines move: any protocol that invalidates the copies of others. Limits:
//! one line each, whatever a lock protects; waiters do not disturb the line that they read; data that threads
//! share otherwise costs alike wherever they are.

use super::Sim;
use super::state::lines::Of;
use corewise_core::ids::PeId;

impl Sim {
    /// A thread writes a line.
    pub(super) fn write_line(&mut self, thread: usize, of: Of) {
        let Some(pe) = self.threads[thread].pe else { return };
        let app = self.threads[thread].app;
        let last = self.apps[app].lines.write(of, pe);
        self.see_from(thread, last);
    }

    /// A thread sees what was written on another PE.
    pub(super) fn see_from(&mut self, thread: usize, from: Option<usize>) {
        let pe = self.threads[thread].pe;
        if let (Some(from), Some(pe)) = (from, pe)
            && from != pe
        {
            let latency = self.machine.model.latency_ns(PeId(from as u32), PeId(pe as u32));
            // What it did until now does not pay for it.
            self.running_on(thread).into_iter().for_each(|pe| self.settle(pe));
            self.threads[thread].debt_ns += latency.value;
        }
    }
}
