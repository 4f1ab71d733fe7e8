//! How often each path and each edge was taken.

use crate::path::Path;
use crate::window::{Location, ModuleId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// An edge: the instruction that ended a block, and the one that was executed next.
pub type FromTo = (Location, Location);

/// A path profile. Weights are executions: counted, if from a whole trace; in an unknown but common unit, if
/// estimated from windows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathProfile {
    /// The weight of each path.
    #[serde(with = "as_list")]
    pub paths: FxHashMap<Path, f64>,
    /// The weight of each edge, including conditional branches that fell through.
    #[serde(with = "as_list")]
    pub edges: FxHashMap<FromTo, f64>,
    /// The weight of all paths; more than that of `paths` if rare ones were left out.
    pub total: f64,
}

impl PathProfile {
    /// Returns a path's flow: its share of the weight of all paths.
    pub fn flow(&self, path: &Path) -> f64 {
        self.paths.get(path).map_or(0.0, |weight| weight / self.total)
    }

    /// Adds another profile of the same modules in the same unit.
    pub fn merge(&mut self, other: &Self) {
        for (path, weight) in &other.paths {
            *self.paths.entry(path.clone()).or_default() += weight;
        }
        for (&edge, weight) in &other.edges {
            *self.edges.entry(edge).or_default() += weight;
        }
        self.total += other.total;
    }

    /// Returns the part in some modules: paths that start there, edges from there. Rare paths that were left
    /// out are assumed to be distributed over the modules like the others.
    pub fn in_modules(&self, wanted: impl Fn(ModuleId) -> bool) -> Self {
        let paths: FxHashMap<_, _> =
            self.paths.iter().filter(|(path, _)| wanted(path.start.module)).map(owned).collect();
        let edges = self.edges.iter().filter(|((from, _), _)| wanted(from.module)).map(owned).collect();
        let listed: f64 = self.paths.values().sum();
        let kept: f64 = paths.values().sum();
        let total = if listed > 0.0 { self.total * kept / listed } else { 0.0 };
        Self { paths, edges, total }
    }

    /// Returns the paths by falling weight; those of equal weight in the order of their identity.
    pub fn hottest(&self) -> Vec<(&Path, f64)> {
        let mut paths: Vec<_> = self.paths.iter().map(|(path, &weight)| (path, weight)).collect();
        paths.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        paths
    }
}

fn owned<K: Clone>((key, &weight): (&K, &f64)) -> (K, f64) {
    (key.clone(), weight)
}

/// Maps as lists of pairs in a fixed order, because keys of JSON objects are strings.
mod as_list {
    use super::*;
    use serde::{Deserializer, Serializer};
    use std::hash::Hash;

    pub fn serialize<K: Serialize + Ord, S: Serializer>(
        map: &FxHashMap<K, f64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut pairs: Vec<_> = map.iter().collect();
        pairs.sort_unstable_by(|a, b| a.0.cmp(b.0));
        to.collect_seq(pairs)
    }

    pub fn deserialize<'de, K, D>(from: D) -> Result<FxHashMap<K, f64>, D::Error>
    where
        K: Deserialize<'de> + Eq + Hash,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, f64)>::deserialize(from)?.into_iter().collect())
    }
}
