//! The machine model: what placing threads on a machine costs and gains.
//!
//! *Problem.* A topology tells which PEs share what, but not what sharing costs: two threads on one FPU may
//! halve each other's speed or not notice, and two threads that exchange data gain from the cache that two
//! others compete for. Policies, the simulator and reports must agree on these costs.
//!
//! *Approach.* A [`MachineModel`] is the topology as the machine behaves, with the parameters of a predictor
//! ([`contention`]), the speed of each PE, the latency between PEs, measured contention curves and the
//! memory nodes. It is made from a machine profile ([`MachineModel::from_profile`]: each parameter comes
//! from the measurement that depends on it and on little else), or from a topology alone. In the latter
//! case it contains round numbers whose confidence is [`ASSUMED_CONFIDENCE`], too low for any decision
//! ([`crate::classify::CONFIDENCE_MIN`]). Queries return a [`Figure`] with its confidence and source.
//!
//! *Sources.* What is shared and how it is measured: "Analyzing resource interdependencies", §3 (units,
//! caches, memory, synchronisation). That the FPU is what modules share, and that FPU usage is the criterion
//! for separating threads: BulldOver, §II and §III. The predictor's sources are listed in [`contention`].
//!
//! *Limits.* Those of the predictor. Speeds are those of one kernel, although programs differ in what they
//! gain from a fast PE. The latency of a pair that was not measured is taken from pairs at the same
//! distance. Policies see fixed clocks: the effect of busy neighbours on them ([`power`]) is known to the
//! simulator only.

use crate::classify::CONFIDENCE_MIN;
use crate::ids::PeId;
use crate::profile::{MachineProfile, Resource};
use crate::topology::{CpuKind, Domain, DomainKind, Topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

pub mod cache;
pub mod channel;
mod check;
pub mod contention;
mod curve;
pub mod demand;
mod fit;
pub mod power;
mod shape;
pub mod units;

pub use check::{Absent, Check, Compared, check};
pub use curve::Curve;
pub use shape::{Distance, Pe};

use contention::{Load, Solver};
use shape::Shape;

/// The confidence of a figure that is a round default.
pub const ASSUMED_CONFIDENCE: f64 = 0.1;

/// A model of a machine's behaviour.
#[derive(Debug, Clone)]
pub struct MachineModel {
    /// The measurements that it is made from; `None` if only the topology is known.
    pub profile: Option<Arc<MachineProfile>>,
    /// What the PEs share.
    pub topology: Topology,
    /// The clock of a PE of speed 1, in GHz: work is counted in its cycles.
    pub ghz: f64,
    /// Parameters of shared execution units.
    pub units: Units,
    /// Parameters of caches and memory.
    pub memory: Memory,
    /// The source of each parameter.
    pub parameters: Vec<Parameter>,
    /// The PEs, by OS index.
    pub pes: Vec<Pe>,
    /// The PEs of each memory node. Contention crosses nodes only where memory is remote.
    pub nodes: Vec<Vec<usize>>,
    /// The PEs of each cluster, node by node: those that share a unit or a cache, directly or transitively.
    pub clusters: Vec<Vec<usize>>,
    /// Capacity in bytes of each L2, indexed by [`Pe::l2`]; `None` if nothing is shared or the size is
    /// unknown.
    pub l2_bytes: Vec<Option<f64>>,
    /// Capacity in bytes of each L3, indexed by [`Pe::l3`].
    pub l3_bytes: Vec<Option<f64>>,
    /// The measured latencies; the lower PE comes first.
    latencies: BTreeMap<(PeId, PeId), Figure>,
    /// The latency of each distance at which any pair was measured.
    latency_by_distance: BTreeMap<Distance, Figure>,
    /// The measured curves, for PEs whose closest common domain is of the given kind.
    curves: Vec<(Resource, Option<DomainKind>, Curve)>,
}

/// A figure of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// The best guess.
    pub value: f64,
    /// Its confidence: 0 (a guess) to 1 (exact).
    pub confidence: f64,
    /// Its source.
    pub source: Source,
}

/// The source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A measurement in a machine profile.
    Profile,
    /// The topology.
    Topology,
    /// None: a round default.
    Assumed,
}

/// A parameter of the predictor and its source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name, as in a scenario of the simulator.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Its confidence, 0..1.
    pub confidence: f64,
    /// The measurement that it comes from; `None` for a round default.
    pub from: Option<String>,
}

/// Sharing of execution units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Units {
    /// Cycles lost when two threads want the shared FPU at once: 0 (it serves both), 1 (one waits), or more
    /// where they disturb each other beyond that.
    pub fpu_conflict: f64,
    /// Cycles lost when two threads want the issue slots of an SMT core at once, likewise.
    pub issue_conflict: f64,
    /// Instructions that a core can issue per cycle.
    pub issue_width: f64,
    /// Share of its time in the core that a thread loses by each busy neighbour on its SMT core, whatever
    /// they execute: to buffers, predictors and first-level caches that the hardware divides.
    pub smt_cost: f64,
}

/// Caches and memory. Their sizes are part of the topology.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Latency of an L2 miss that the L3 serves, in nanoseconds.
    pub l3_latency_ns: f64,
    /// Latency of a miss that idle local memory serves, in nanoseconds.
    pub memory_latency_ns: f64,
    /// Share of a miss's latency that is hidden behind other work, 0 to 0.99.
    pub overlap: f64,
    /// Bandwidth of one memory node, in GB (10⁹ bytes) per second.
    pub bandwidth_gb_per_s: f64,
    /// Latency of another node's memory as a multiple of the local one.
    pub remote_factor: f64,
}

impl Default for Units {
    fn default() -> Self {
        Self { fpu_conflict: 1.0, issue_conflict: 1.0, issue_width: 4.0, smt_cost: 0.0 }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            l3_latency_ns: 15.0,
            memory_latency_ns: 80.0,
            overlap: 0.7,
            bandwidth_gb_per_s: 20.0,
            remote_factor: 1.5,
        }
    }
}

/// The default clock, in GHz.
const GHZ: f64 = 3.0;

impl Figure {
    fn assumed(value: f64) -> Self {
        Self { value, confidence: ASSUMED_CONFIDENCE, source: Source::Assumed }
    }
}

/// Returns the model of a machine of which only the topology is known.
impl From<Topology> for MachineModel {
    fn from(topology: Topology) -> Self {
        let Shape { pes, nodes, clusters, l2_bytes, l3_bytes } = Shape::of(&topology);
        let (units, memory) = (Units::default(), Memory::default());
        let mut model = Self {
            profile: None,
            topology,
            ghz: GHZ,
            units,
            memory,
            parameters: Vec::new(),
            pes,
            nodes,
            clusters,
            l2_bytes,
            l3_bytes,
            latencies: BTreeMap::new(),
            latency_by_distance: BTreeMap::new(),
            curves: Vec::new(),
        };
        model.parameters = model.named().map(|(name, value)| Parameter::assumed(name, value)).into();
        model
    }
}

impl Parameter {
    fn assumed(name: &'static str, value: f64) -> Self {
        Self { name, value, confidence: ASSUMED_CONFIDENCE, from: None }
    }
}

impl MachineModel {
    /// Returns the predictor's parameters with their names.
    fn named(&self) -> [(&'static str, f64); 10] {
        let (units, memory) = (&self.units, &self.memory);
        [
            ("ghz", self.ghz),
            ("issue_width", units.issue_width),
            ("issue_conflict", units.issue_conflict),
            ("fpu_conflict", units.fpu_conflict),
            ("smt_cost", units.smt_cost),
            ("l3_latency_ns", memory.l3_latency_ns),
            ("memory_latency_ns", memory.memory_latency_ns),
            ("bandwidth_gb_per_s", memory.bandwidth_gb_per_s),
            ("overlap", memory.overlap),
            ("remote_factor", memory.remote_factor),
        ]
    }

    /// Returns a parameter by its name.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// Returns the speed of a PE relative to the fastest; `None` if the machine has no such PE.
    pub fn speed(&self, pe: PeId) -> Option<Figure> {
        let known = self.topology.pes.contains(pe);
        let pe = self.pes.get(pe.0 as usize).filter(|_| known)?;
        Some(Figure { value: pe.speed, confidence: pe.speed_confidence, source: pe.speed_source })
    }

    /// Returns the speed of a PE relative to the fastest, as measured or else as the machine reports it;
    /// `None` if it is not known well enough for a decision.
    pub fn known_speed(&self, pe: PeId) -> Option<f64> {
        let measured = self.speed(pe).filter(|speed| speed.confidence >= CONFIDENCE_MIN);
        let kind = || self.topology.kinds.iter().find(|kind| kind.pes.contains(pe));
        measured.map(|speed| speed.value).or_else(|| Some(kind()?.speed.as_ref()?.relative()))
    }

    /// Returns the mean speed of a kind of PE, with the confidence of its least certain PE; `None` if the
    /// kind has no PE.
    pub fn kind_speed(&self, kind: &CpuKind) -> Option<Figure> {
        let speeds: Vec<Figure> = kind.pes.iter().filter_map(|pe| self.speed(pe)).collect();
        let least = speeds.iter().min_by(|a, b| a.confidence.total_cmp(&b.confidence))?;
        let mean = speeds.iter().map(|speed| speed.value).sum::<f64>() / speeds.len() as f64;
        Some(Figure { value: mean, ..*least })
    }

    /// Returns how long it takes until a PE sees what another wrote, in nanoseconds.
    pub fn latency_ns(&self, a: PeId, b: PeId) -> Figure {
        let distance = self.distance(a.0 as usize, b.0 as usize);
        let measured = self.latencies.get(&(a.min(b), a.max(b)));
        let known = measured.or_else(|| self.latency_by_distance.get(&distance));
        known.copied().unwrap_or_else(|| Figure::assumed(distance.assumed_latency_ns()))
    }

    /// Sets the latency of all pairs at a distance that were not measured.
    pub fn assume_latency_ns(&mut self, distance: Distance, ns: f64) {
        self.latency_by_distance.insert(distance, Figure::assumed(ns));
    }

    /// Returns how far apart two PEs are.
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        match (self.pes.get(a), self.pes.get(b)) {
            _ if a == b => Distance::None,
            (Some(x), Some(y)) => x.distance(y),
            _ => Distance::System,
        }
    }

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
            None => curve::predicted(self, resource, a, b),
        }
    }

    /// Returns the predicted slowdown of each thread: its time over the time alone on its PE; 1 is none.
    pub fn slowdowns(&self, loads: &[Load]) -> Vec<f64> {
        let (mut solver, mut paces) = (Solver::default(), Vec::new());
        solver.solve(self, loads, &mut paces);
        let mut slowdowns: Vec<f64> = paces.iter().map(|pace| 1.0 / pace.work_per_ns).collect();
        for (slowdown, load) in slowdowns.iter_mut().zip(loads) {
            solver.solve(self, std::slice::from_ref(load), &mut paces);
            *slowdown *= paces[0].work_per_ns;
        }
        slowdowns
    }

    /// Returns the memory nodes that the topology lists.
    pub fn memory_nodes(&self) -> impl Iterator<Item = &Domain> {
        self.topology.domains(DomainKind::NumaNode)
    }
}

#[cfg(test)]
mod tests;
