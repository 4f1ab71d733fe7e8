//! The model of a machine, and what it knows without predicting anything.

use super::curve::Curve;
use super::figure::Figure;
use super::parameter::{Memory, Parameter, Units};
use super::shape::{Distance, Pe, Shape};
use super::switching::Switching;
use crate::classify::CONFIDENCE_MIN;
use crate::ids::PeId;
use crate::profile::{MachineProfile, Resource};
use crate::topology::{CpuKind, Domain, DomainKind, Topology};
use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// What it costs to stop threads and to run them again.
    pub switching: Switching,
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
    pub(super) latencies: BTreeMap<(PeId, PeId), Figure>,
    /// The latency of each distance at which any pair was measured.
    pub(super) latency_by_distance: BTreeMap<Distance, Figure>,
    /// The measured curves, for PEs whose closest common domain is of the given kind.
    pub(super) curves: Vec<(Resource, Option<DomainKind>, Curve)>,
}

/// The default clock, in GHz.
const GHZ: f64 = 3.0;

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
            switching: Switching::default(),
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

impl MachineModel {
    /// Returns the predictor's parameters with their names.
    pub(super) fn named(&self) -> [(&'static str, f64); 10] {
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

    /// Notes that the parameters are as they are stated by someone who knows the machine.
    pub fn state(&mut self, from: &str) {
        let stated = |(name, value)| Parameter { name, value, confidence: 1.0, from: Some(from.to_owned()) };
        self.parameters = self.named().map(stated).into();
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

    /// Returns the memory nodes that the topology lists.
    pub fn memory_nodes(&self) -> impl Iterator<Item = &Domain> {
        self.topology.domains(DomainKind::NumaNode)
    }
}
