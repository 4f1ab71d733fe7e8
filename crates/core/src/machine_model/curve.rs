//! Contention curves: own slowdown as a function of what a neighbour uses of a resource.

use super::contention::{Demand, Load};
use super::{ASSUMED_CONFIDENCE, MachineModel, Source};
use crate::ids::PeId;
use crate::profile::{ContentionCurve, Resource};

/// Own slowdown by a neighbour's demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Pairs of the neighbour's demand, as a share of its full demand (0..1, ascending), and the slowdown
    /// that it causes (1 is none).
    pub points: Vec<(f64, f64)>,
    /// How far it can be trusted, 0..1.
    pub confidence: f64,
    /// Its source.
    pub source: Source,
}

impl Curve {
    /// Returns the slowdown by a neighbour of this demand: linear between points, 1 at no demand, and
    /// constant beyond the last point.
    pub fn slowdown_at(&self, demand: f64) -> f64 {
        let mut before = (0.0, 1.0);
        for &here in &self.points {
            if demand <= here.0 && here.0 > before.0 {
                return before.1 + (here.1 - before.1) * (demand.max(0.0) - before.0) / (here.0 - before.0);
            }
            before = here;
        }
        before.1
    }
}

/// Converts the curve of a profile.
impl From<&ContentionCurve> for Curve {
    fn from(curve: &ContentionCurve) -> Curve {
        let confidences = curve.points.iter().map(|(_, slowdown)| slowdown.confidence());
        Curve {
            points: curve.points.iter().map(|(duty, slowdown)| (*duty, slowdown.value)).collect(),
            confidence: confidences.fold(1.0, f64::min),
            source: Source::Profile,
        }
    }
}

/// The demands at which a predicted curve has its points.
const DEMANDS: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// L2 misses per 100 cycles of a thread whose working set is in a cache, and of one whose working set is in
/// memory.
const CACHE_MISSES: f64 = 1.0;
const MEMORY_MISSES: f64 = 3.0;

/// Returns the predicted curve for two PEs that share the resource; `None` for first-level caches, which the
/// predictor does not model.
pub(super) fn predicted(model: &MachineModel, resource: Resource, a: PeId, b: PeId) -> Option<Curve> {
    let (a, b) = (a.0 as usize, b.0 as usize);
    let load = |pe, demand| Load { pe, demand: full_demand(model, resource, pe, demand), remote: 0.0 };
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
