//! Questions that schedulers and the simulator ask a profile.

use super::{ContentionCurve, MachineProfile, Measurement, Resource, Workload};
use crate::ids::PeId;
use crate::kernels::Kernel;

impl MachineProfile {
    /// Returns the class of a pair of PEs as an index; `None` if no pair of that class was measured.
    pub fn class_of(&self, a: PeId, b: PeId) -> Option<usize> {
        let closest = self.reported.closest_shared(a, b);
        self.classes.iter().position(|class| class.closest == closest && a != b)
    }

    /// Returns the slowdowns of the two threads of a workload: time beside each other over time alone; 1 is
    /// none.
    pub fn slowdowns(&self, class: usize, workload: &Workload) -> Option<(Measurement, Measurement)> {
        let turned = Workload { first: workload.second, second: workload.first };
        let of = |workload| self.pairs.iter().find(|pair| (pair.class, pair.workload) == (class, workload));
        match of(*workload) {
            Some(pair) => pair.slowdowns,
            None => of(turned)?.slowdowns.map(|(first, second)| (second, first)),
        }
    }

    /// Returns the contention curve of a class for a resource.
    pub fn contention(&self, class: usize, resource: Resource) -> Option<&ContentionCurve> {
        self.contention.iter().find(|curve| (curve.class, curve.resource) == (class, resource))
    }

    /// Returns the speed of a PE by a kernel, relative to the fastest.
    pub fn speed(&self, pe: PeId, kernel: Kernel) -> Option<Measurement> {
        self.speeds.iter().find(|speed| (speed.pe, speed.kernel) == (pe, kernel)).map(|speed| speed.relative)
    }
}

impl Measurement {
    /// Returns the confidence, 0..1: 1 less half the interval relative to the value.
    pub fn confidence(&self) -> f64 {
        let doubt = (self.high - self.low) / 2.0 / self.value.abs();
        if doubt.is_finite() { (1.0 - doubt).clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::full;
    use super::*;

    #[test]
    fn a_pair_is_of_the_class_of_the_closest_level_that_both_share() {
        let class = |a, b| full().class_of(PeId(a), PeId(b));
        assert_eq!((class(0, 1), class(3, 2)), (Some(0), Some(0)));
        assert_eq!((class(0, 2), class(3, 1)), (Some(1), Some(1)));
        assert_eq!(class(1, 1), None, "one PE is no pair");
    }
}
