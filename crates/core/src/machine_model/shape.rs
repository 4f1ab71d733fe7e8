//! The topology as indices: each PE's units, caches, memory node and cluster.

use super::figure::{ASSUMED_CONFIDENCE, Source};
use crate::profile::Resource;
use crate::topology::{Domain, DomainKind, Topology};
use std::collections::BTreeMap;

/// One PE and what it shares, as indices. A unit that the topology does not list is the PE's own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pe {
    /// Its clock as a multiple of the machine's.
    pub speed: f64,
    /// Confidence of the speed, 0..1.
    pub speed_confidence: f64,
    /// Source of the speed.
    pub speed_source: Source,
    /// The SMT core.
    pub core: usize,
    /// The FPU: that of the module, else of the core.
    pub fpu: usize,
    /// The L2.
    pub l2: usize,
    /// The L3.
    pub l3: usize,
    /// The memory node.
    pub node: usize,
    /// The cluster.
    pub cluster: usize,
}

/// The distance between two PEs: the closest thing that both share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The same PE.
    None,
    /// Within an SMT core.
    Core,
    /// Within an L2.
    L2,
    /// Within an L3.
    L3,
    /// Within a memory node.
    Node,
    /// To another memory node.
    System,
}

impl Distance {
    /// Every distance between different PEs.
    pub const MOVES: [Distance; 5] =
        [Distance::Core, Distance::L2, Distance::L3, Distance::Node, Distance::System];

    /// Returns the name used in results.
    pub fn word(self) -> &'static str {
        match self {
            Distance::None => "none",
            Distance::Core => "core",
            Distance::L2 => "l2",
            Distance::L3 => "l3",
            Distance::Node => "numa",
            Distance::System => "system",
        }
    }

    /// Returns the default latency until a written value is visible, in nanoseconds.
    pub(super) fn assumed_latency_ns(self) -> f64 {
        match self {
            Distance::None | Distance::Core => 12.0,
            Distance::L2 => 25.0,
            Distance::L3 => 40.0,
            Distance::Node => 80.0,
            Distance::System => 160.0,
        }
    }
}

impl Pe {
    /// Returns the distance to another PE.
    pub(super) fn distance(&self, other: &Pe) -> Distance {
        if self.core == other.core {
            Distance::Core
        } else if self.l2 == other.l2 {
            Distance::L2
        } else if self.l3 == other.l3 {
            Distance::L3
        } else if self.node == other.node {
            Distance::Node
        } else {
            Distance::System
        }
    }

    /// Returns whether another PE uses the same resource. First-level caches are only known to be shared
    /// within a core.
    pub(super) fn shares(&self, other: &Pe, resource: Resource) -> bool {
        match resource {
            Resource::Integer | Resource::L1 => self.core == other.core,
            Resource::Fpu => self.fpu == other.fpu,
            Resource::L2 => self.l2 == other.l2,
            Resource::L3 => self.l3 == other.l3,
            Resource::MemoryBandwidth => self.node == other.node,
        }
    }
}

/// See the fields of [`super::MachineModel`].
pub(super) struct Shape {
    pub pes: Vec<Pe>,
    pub nodes: Vec<Vec<usize>>,
    pub clusters: Vec<Vec<usize>>,
    pub l2_bytes: Vec<Option<f64>>,
    pub l3_bytes: Vec<Option<f64>>,
}

impl Shape {
    pub fn of(topology: &Topology) -> Shape {
        let count = topology.pes.last().map_or(0, |pe| pe.0 as usize + 1);
        let unit = |kind| units(topology, kind, count);
        let (core, l2, l3) = (unit(DomainKind::Core), unit(DomainKind::L2), unit(DomainKind::L3));
        let cores = topology.domains(DomainKind::Core).count();
        let mut fpu = core.clone();
        for module in topology.domains(DomainKind::Module) {
            module.pes.iter().for_each(|pe| fpu[pe.0 as usize] = cores + module.logical as usize);
        }
        let nodes = nodes(topology);
        let mut node = vec![0; count];
        for (index, members) in nodes.iter().enumerate() {
            members.iter().for_each(|&pe| node[pe] = index);
        }
        let (speed_confidence, speed_source) = reported_speeds(topology);
        let pe = |pe: usize| Pe {
            speed: 1.0,
            speed_confidence,
            speed_source,
            core: core[pe],
            fpu: fpu[pe],
            l2: l2[pe],
            l3: l3[pe],
            node: node[pe],
            cluster: pe,
        };
        let mut pes: Vec<Pe> = (0..count).map(pe).collect();
        let clusters = clusters(&mut pes, &nodes);
        let (l2_bytes, l3_bytes) =
            (capacities(topology, DomainKind::L2, count), capacities(topology, DomainKind::L3, count));
        Shape { pes, nodes, clusters, l2_bytes, l3_bytes }
    }
}

/// Confidence that all PEs are equally fast if the topology does not distinguish them.
const ALIKE_CONFIDENCE: f64 = 0.5;

/// Returns the default speed: a topology tells which PEs are faster but not by how much, so all are assumed
/// to be equal.
fn reported_speeds(topology: &Topology) -> (f64, Source) {
    match topology.kinds.len() {
        1 => (ALIKE_CONFIDENCE, Source::Topology),
        _ => (ASSUMED_CONFIDENCE, Source::Assumed),
    }
}

/// Returns for each PE (by OS index) the unit of a kind that it uses.
fn units(topology: &Topology, kind: DomainKind, count: usize) -> Vec<usize> {
    let named = topology.domains(kind).count();
    let mut units: Vec<usize> = (named..named + count).collect();
    for domain in topology.domains(kind) {
        domain.pes.iter().for_each(|pe| units[pe.0 as usize] = domain.logical as usize);
    }
    units
}

fn capacities(topology: &Topology, kind: DomainKind, count: usize) -> Vec<Option<f64>> {
    let size = |cache: &Domain| cache.bytes.map(|bytes| bytes as f64);
    topology.domains(kind).map(size).chain(std::iter::repeat_n(None, count)).collect()
}

/// Returns the PEs of each memory node. PEs of unknown nodes make all PEs one node.
fn nodes(topology: &Topology) -> Vec<Vec<usize>> {
    let members = |node: &Domain| node.pes.iter().map(|pe| pe.0 as usize).collect::<Vec<_>>();
    let known = topology.domains(DomainKind::NumaNode).map(|node| node.pes.len()).sum::<usize>();
    if known == topology.pes.len() {
        return topology.domains(DomainKind::NumaNode).map(members).collect();
    }
    vec![topology.pes.iter().map(|pe| pe.0 as usize).collect()]
}

/// Divides the PEs of each node into clusters, starting with one cluster per PE.
fn clusters(pes: &mut [Pe], nodes: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut clusters = Vec::new();
    for node in nodes {
        for unit in [|pe: &Pe| pe.core, |pe: &Pe| pe.fpu, |pe: &Pe| pe.l2, |pe: &Pe| pe.l3] {
            let mut first_of = BTreeMap::new();
            for &pe in node {
                let first: usize = *first_of.entry(unit(&pes[pe])).or_insert(pe);
                let (old, new) = (pes[pe].cluster, pes[first].cluster);
                if old != new {
                    let of_old = node.iter().filter(|&&pe| pes[pe].cluster == old);
                    of_old.copied().collect::<Vec<_>>().into_iter().for_each(|pe| pes[pe].cluster = new);
                }
            }
        }
        let mut members = BTreeMap::<usize, Vec<usize>>::new();
        node.iter().for_each(|&pe| members.entry(pes[pe].cluster).or_default().push(pe));
        for members in members.into_values() {
            members.iter().for_each(|&pe| pes[pe].cluster = clusters.len());
            clusters.push(members);
        }
    }
    clusters
}
