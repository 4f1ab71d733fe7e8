//! Which processes have run beside which, once that is wanted.

use corewise_core::machine_model::Distance;
use corewise_core::observe::BesideReading;
use corewise_core::topology::DomainKind;
use std::collections::BTreeMap;

/// The common time of pairs of processes, the lower ID first, by what their PEs share, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beside(BTreeMap<((u32, u32), DomainKind), u64>);

impl Beside {
    /// Adds the common time of two processes on PEs at a distance, if these share anything.
    pub fn add(&mut self, (a, b): (u32, u32), distance: Distance, ns: u64) {
        let shared = match distance {
            Distance::None | Distance::System => return,
            Distance::Core => DomainKind::Core,
            Distance::L2 => DomainKind::L2,
            Distance::L3 => DomainKind::L3,
            Distance::Node => DomainKind::NumaNode,
        };
        if ns > 0 {
            *self.0.entry(((a.min(b), a.max(b)), shared)).or_default() += ns;
        }
    }

    /// Returns all pairs.
    pub fn readings(&self) -> Vec<BesideReading> {
        let reading = |(&(processes, shared), &ns): (&((u32, u32), DomainKind), &u64)| BesideReading {
            processes,
            shared,
            ns,
        };
        self.0.iter().map(reading).collect()
    }
}
