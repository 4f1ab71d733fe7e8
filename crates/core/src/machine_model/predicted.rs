//! The contention curve of two PEs: as measured, or else as the predictor gives it.

use super::curve::Curve;
use super::demand::{Demand, Load};
use super::figure::{ASSUMED_CONFIDENCE, Source};
use super::model::MachineModel;
use crate::ids::PeId;
use crate::profile::Resource;

/// The demands at which a predicted curve has its points.
const DEMANDS: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// L2 misses per 100 cycles of a thread whose working set is in a cache, and of one whose working set is in
/// memory.
const CACHE_MISSES: f64 = 1.0;
const MEMORY_MISSES: f64 = 3.0;

impl MachineModel {
    /// Returns the slowdown of threads on `a` that fully use a resource, as a function of what a thread on
    /// `b` uses of it; `None` if the two are not known to share it.
    pub fn contention(&self, resource: Resource, a: PeId, b: PeId) -> Option<Curve> {
        let (x, y) = (self.pes.get(a.0 as usize)?, self.pes.get(b.0 as usize)?);
        if a == b || !x.shares(y, resource) {
            return None;
        }
        let closest = self.topology.closest_shared(a, b);
        let measured = self.curves.iter().find(|(of, kind, _)| (*of, *kind) == (resource, closest));
        match measured {
            Some((_, _, curve)) => Some(curve.clone()),
            None => predicted(self, resource, a, b),
        }
    }
}

/// Returns the predicted curve for two PEs that share the resource; `None` for first-level caches, which the
/// predictor does not model.
fn predicted(model: &MachineModel, resource: Resource, a: PeId, b: PeId) -> Option<Curve> {
    let (a, b) = (a.0 as usize, b.0 as usize);
    let load = |pe, demand| Load::new(pe, full_demand(model, resource, pe, demand));
    let slowdown = |demand| model.slowdowns(&[load(a, 1.0), load(b, demand)])[0];
    let parameter = match resource {
        Resource::L1 => return None,
        Resource::Integer => "issue_conflict",
        Resource::Fpu => "fpu_conflict",
        Resource::L2 => "l3_latency_ns",
        Resource::L3 => "memory_latency_ns",
        Resource::MemoryBandwidth => "bandwidth_gb_per_s",
    };
    let parameter = model.parameter(parameter);
    Some(Curve {
        points: DEMANDS.map(|demand| (demand, slowdown(demand))).into(),
        confidence: parameter.map_or(ASSUMED_CONFIDENCE, |parameter| parameter.confidence),
        source: match parameter {
            Some(parameter) if parameter.from.is_some() => Source::Profile,
            _ => Source::Assumed,
        },
    })
}

/// Returns a share of the demand of a thread that fully uses one resource.
fn full_demand(model: &MachineModel, resource: Resource, pe: usize, share: f64) -> Demand {
    let pe = &model.pes[pe];
    let mib = |bytes: Option<f64>| bytes.unwrap_or(0.0) / f64::from(1 << 20);
    let none = Demand { ipc: 0.0, ..Demand::default() };
    match resource {
        Resource::Integer => Demand { ipc: share * model.units.issue_width, ..none },
        Resource::Fpu => Demand { fpu: share, ..none },
        Resource::L1 => none,
        Resource::L2 => Demand {
            l2_misses_per_100_cycles: share * CACHE_MISSES,
            l3_miss_share: 0.0,
            working_set_mib: mib(model.l2_bytes[pe.l2]),
            ..none
        },
        Resource::L3 => Demand {
            l2_misses_per_100_cycles: share * CACHE_MISSES,
            l3_miss_share: 0.1,
            working_set_mib: mib(model.l3_bytes[pe.l3]),
            ..none
        },
        Resource::MemoryBandwidth => {
            Demand { l2_misses_per_100_cycles: share * MEMORY_MISSES, l3_miss_share: 1.0, ..none }
        }
    }
}
