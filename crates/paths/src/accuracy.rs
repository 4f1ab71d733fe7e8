//! How well an estimated profile agrees with the truth.
//!
//! The paper's measure (section 3.2.3, after Wall's weight matching): with F(p) a path's share of all path
//! executions in the full profile, H_actual the paths with F(p) ≥ 0.125 % and H_estimated as many of the
//! hottest paths of the estimate, the accuracy is the flow of H_estimated ∩ H_actual over that of H_actual.
//! It measures whether the hot paths were found, not whether their frequencies are right; the overlap of
//! edges measures that: the sum over all edges of the smaller of the two shares, 1 if the profiles are
//! proportional.

use crate::path::Path;
use crate::profile::{FromTo, PathProfile};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

/// The least flow of a path that the paper calls hot.
pub const HOT_FLOW: f64 = 0.001_25;

/// The agreement of an estimate with the truth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// The paper's accuracy, 0 to 1; 1 if the truth has no hot path.
    pub accuracy: f64,
    /// Overlap of the edges' shares, 0 to 1.
    pub edge_overlap: f64,
    /// Overlap of the paths' shares, 0 to 1.
    pub path_overlap: f64,
    /// The number of hot paths of the truth.
    pub hot_paths: usize,
    /// The number of these that are among the same number of hottest paths of the estimate.
    pub hot_found: usize,
    /// The flow of the truth's hot paths: the share of the execution that the accuracy covers.
    pub hot_flow: f64,
}

/// Compares an estimate with the truth.
pub fn agreement(truth: &PathProfile, estimate: &PathProfile) -> Agreement {
    let hot: Vec<(&Path, f64)> = truth
        .paths
        .keys()
        .map(|path| (path, truth.flow(path)))
        .filter(|&(_, flow)| flow >= HOT_FLOW)
        .collect();
    let chosen: FxHashSet<&Path> =
        estimate.hottest().into_iter().take(hot.len()).map(|(path, _)| path).collect();
    let found = hot.iter().filter(|(path, _)| chosen.contains(path));
    let hot_flow: f64 = hot.iter().map(|(_, flow)| flow).sum();
    let found_flow: f64 = found.clone().map(|(_, flow)| flow).sum();
    Agreement {
        accuracy: if hot.is_empty() { 1.0 } else { found_flow / hot_flow },
        edge_overlap: edge_overlap(&truth.edges, &estimate.edges),
        path_overlap: overlap(&truth.paths, truth.total, &estimate.paths, estimate.total),
        hot_paths: hot.len(),
        hot_found: found.count(),
        hot_flow,
    }
}

fn edge_overlap(a: &FxHashMap<FromTo, f64>, b: &FxHashMap<FromTo, f64>) -> f64 {
    overlap(a, a.values().sum(), b, b.values().sum())
}

/// Returns the sum over all keys of the smaller of the two shares; 0 if one profile is empty.
pub(crate) fn overlap<K: Eq + std::hash::Hash>(
    a: &FxHashMap<K, f64>,
    a_total: f64,
    b: &FxHashMap<K, f64>,
    b_total: f64,
) -> f64 {
    if a_total == 0.0 || b_total == 0.0 {
        return 0.0;
    }
    let smaller =
        |(key, weight): (&K, &f64)| b.get(key).map_or(0.0, |other| (weight / a_total).min(other / b_total));
    a.iter().map(smaller).sum()
}
