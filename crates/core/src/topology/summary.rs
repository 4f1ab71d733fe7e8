//! The most requested counts of a machine.

use super::{DomainKind, Topology};
use crate::cpuset::CpuSet;
use serde::Serialize;
use std::fmt;

/// Counts of one machine. The field names are the names in `corewise topo --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of online PEs.
    pub pes: usize,
    /// Number of SMT cores.
    pub cores: usize,
    /// Number of groups of two or more cores that are known to share an FPU; 0 if none is known.
    pub fpu_modules: usize,
    /// Number of second-level caches.
    pub l2_caches: usize,
    /// Number of clusters of cores between the second and the third level.
    pub clusters: usize,
    /// Number of third-level caches.
    pub l3_caches: usize,
    /// Number of NUMA nodes that have PEs.
    pub numa_nodes: usize,
    /// Number of PEs that the current cpuset allows.
    pub allowed_pes: usize,
    /// The kinds of PE, fastest first; empty if nothing is known about kinds.
    pub kinds: Vec<KindSummary>,
}

/// One kind of PE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindSummary {
    /// `fast`, `slow`, …; see [`super::CpuKind::name`].
    pub name: String,
    /// The PEs as a kernel list.
    pub pes: CpuSet,
    /// The evidence for the kind.
    pub evidence: Vec<String>,
}

impl Topology {
    /// Returns the counts.
    pub fn summary(&self) -> Summary {
        let count = |kind| self.domains(kind).count();
        Summary {
            pes: self.pes.len(),
            cores: count(DomainKind::Core),
            fpu_modules: self.fpu_modules().count(),
            l2_caches: count(DomainKind::L2),
            clusters: count(DomainKind::Cluster),
            l3_caches: count(DomainKind::L3),
            numa_nodes: count(DomainKind::NumaNode),
            allowed_pes: self.allowed.len(),
            kinds: self
                .kinds
                .iter()
                .map(|kind| KindSummary {
                    name: kind.name.clone(),
                    pes: kind.pes.clone(),
                    evidence: kind.evidence.clone(),
                })
                .collect(),
        }
    }
}

/// One line of counts, then one line per kind.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { pes, allowed_pes, cores, fpu_modules, l2_caches, clusters, .. } = self;
        write!(f, "PEs {pes} (allowed {allowed_pes}), cores {cores}, FPU modules {fpu_modules}, ")?;
        write!(f, "L2 caches {l2_caches}, ")?;
        if *clusters > 0 {
            write!(f, "clusters {clusters}, ")?;
        }
        let Summary { l3_caches, numa_nodes, kinds, .. } = self;
        writeln!(f, "L3 caches {l3_caches}, NUMA nodes {numa_nodes}")?;
        for kind in kinds {
            writeln!(f, "kind {}: PEs {} ({})", kind.name, kind.pes, kind.evidence.join("; "))?;
        }
        Ok(())
    }
}
