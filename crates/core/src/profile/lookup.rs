//! Questions that schedulers and the simulator ask a profile.

use super::{ContentionCurve, Estimate, MachineProfile, Resource, Workload};
use crate::calibrate::Kernel;
use crate::ids::PeId;

impl MachineProfile {
    /// The class of a pair of PEs as an index, `None` if none like it was measured.
    pub fn class_of(&self, a: PeId, b: PeId) -> Option<usize> {
        let closest = self.told.closest_shared(a, b);
        self.classes.iter().position(|class| class.closest == closest && a != b)
    }

    /// How much slower the two threads of a workload are beside each other than alone: 1 is not at all.
    pub fn slowdowns(&self, class: usize, workload: &Workload) -> Option<(Estimate, Estimate)> {
        let turned = Workload { first: workload.second, second: workload.first };
        let of = |workload| self.pairs.iter().find(|pair| (pair.class, pair.workload) == (class, workload));
        match of(*workload) {
            Some(pair) => pair.slowdowns,
            None => of(turned)?.slowdowns.map(|(first, second)| (second, first)),
        }
    }

    /// The contention curve of a class for a resource.
    pub fn contention(&self, class: usize, resource: Resource) -> Option<&ContentionCurve> {
        self.contention.iter().find(|curve| (curve.class, curve.resource) == (class, resource))
    }

    /// The speed of a PE by a kernel, relative to the fastest.
    pub fn speed(&self, pe: PeId, kernel: Kernel) -> Option<Estimate> {
        self.speeds.iter().find(|speed| (speed.pe, speed.kernel) == (pe, kernel)).map(|speed| speed.relative)
    }
}

impl ContentionCurve {
    /// The slowdown by a neighbour of some duty, 0..1: a straight line between points, and 1 at no demand.
    pub fn slowdown_at(&self, duty: f64) -> f64 {
        let mut before = (0.0, 1.0);
        for (at, slowdown) in &self.points {
            let here = (*at, slowdown.value);
            if duty <= here.0 && here.0 > before.0 {
                return before.1 + (here.1 - before.1) * (duty.max(0.0) - before.0) / (here.0 - before.0);
            }
            before = here;
        }
        before.1
    }
}
