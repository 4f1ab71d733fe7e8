//! Contention curves: own slowdown as a function of what a neighbour uses of a resource.

use super::figure::Source;
use crate::profile::ContentionCurve;

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
