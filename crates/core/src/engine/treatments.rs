//! What follows from the [treatments](Treatment) of processes for their threads and waits.
//!
//! The world says what may be done with a process. Here follows from it which PEs a thread may use, whether
//! it is guarded, and what may be changed about waits.

use crate::cpuset::CpuSet;
use crate::observe::{Treatment, Treatments};
use crate::waits::WaitChanges;
use std::sync::Arc;

/// The treatments in force.
#[derive(Debug, Default)]
pub struct InForce {
    all: Arc<Treatments>,
    /// The last set of PEs that was narrowed, by which, and the result: most threads have equal ones, and
    /// nothing is to be allocated for each.
    narrowed: Option<(Arc<CpuSet>, CpuSet, Arc<CpuSet>)>,
}

impl InForce {
    /// Replaces all of them.
    pub fn replace(&mut self, all: &Arc<Treatments>) {
        self.all = Arc::clone(all);
    }

    /// Replaces that of one process.
    pub fn set(&mut self, pid: u32, treatment: Option<&Arc<Treatment>>) {
        let all = Arc::make_mut(&mut self.all);
        match treatment {
            Some(treatment) => drop(all.insert(pid, Arc::clone(treatment))),
            None => drop(all.remove(&pid)),
        }
    }

    /// Returns that of a process, if there is one.
    pub fn of(&self, pid: u32) -> Option<&Arc<Treatment>> {
        self.all.get(&pid)
    }

    /// Returns what may be changed about the waits of a process.
    pub fn waits(&self, pid: u32) -> WaitChanges {
        self.of(pid).map_or(WaitChanges::ALL, |treatment| treatment.waits)
    }

    /// Returns whether the guard measures what the placement of a process gains.
    pub fn is_guarded(&self, pid: u32) -> bool {
        self.of(pid).is_none_or(|treatment| treatment.guard)
    }

    /// Returns those of the permitted PEs that a treatment names.
    pub fn narrow(&mut self, permitted: &Arc<CpuSet>, pes: &CpuSet) -> Arc<CpuSet> {
        let is_last = |of: &&(Arc<CpuSet>, CpuSet, _)| Arc::ptr_eq(&of.0, permitted) && of.1 == *pes;
        if let Some((.., narrowed)) = self.narrowed.as_ref().filter(is_last) {
            return Arc::clone(narrowed);
        }
        let narrowed = Arc::new(permitted.intersection(pes));
        self.narrowed = Some((Arc::clone(permitted), pes.clone(), Arc::clone(&narrowed)));
        narrowed
    }
}
