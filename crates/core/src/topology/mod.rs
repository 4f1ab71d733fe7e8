//! The model of a machine: its PEs, what they share, how fast they are said to be.
//!
//! A machine is a list of sharing domains: sets of PEs and the resource they share. Everything a scheduler
//! asks ("who is close to this PE", "how many FPUs may I use") is a question about these sets, so a machine
//! of any shape and size is the same few fields.

use crate::cpuset::CpuSet;
use crate::ids::PeId;
use serde::{Deserialize, Serialize};

/// One machine as told by its operating system, an export of hwloc, or a synthetic description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Where the model comes from, in words: `this machine`, `synthetic pack:1 core:2 pu:1`, `xml FILE`.
    pub origin: String,
    /// Every PE of the machine that is online.
    pub pes: CpuSet,
    /// The PEs that the current cpuset allows; a subset of `pes`.
    pub allowed: CpuSet,
    /// What is shared by whom; sorted by kind, then by lowest PE. Domains of one kind do not overlap.
    pub domains: Vec<Domain>,
    /// Groups of PEs of equal kind (fast, slow, …). Empty when nothing is known about kinds.
    pub kinds: Vec<CpuKind>,
    /// What was unclear or contradictory in the sources, for the user to read.
    pub notes: Vec<String>,
}

/// A set of PEs and the resource that they share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// What is shared.
    pub kind: DomainKind,
    /// The logical index among the domains of this kind, in topology order.
    pub logical: u32,
    /// The operating system's index for it, where it has one.
    pub os: Option<u32>,
    /// Who shares it.
    pub pes: CpuSet,
    /// Size in bytes of a cache or of a node's memory, where known.
    pub bytes: Option<u64>,
}

/// The kinds of sharing domain, from the closest to the most distant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainKind {
    /// One SMT core: front end, integer units and (without a module) the FPU.
    Core,
    /// First-level data cache.
    L1,
    /// Cores that share one FPU: AMD family 15h module, Cortex-A510 complex.
    Module,
    /// Second-level cache.
    L2,
    /// Third-level cache.
    L3,
    /// A memory controller.
    NumaNode,
    /// A processor package: power budget, socket.
    Package,
}

/// PEs of one kind, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuKind {
    /// `fast`, `slow`, `mid1`… in order of speed; `unknown` where the evidence contradicts itself.
    pub name: String,
    /// The PEs of this kind.
    pub pes: CpuSet,
    /// The evidence in words: `cpu_capacity 1024`, `max frequency 5.2 GHz`, `hwloc efficiency 1`.
    pub evidence: Vec<String>,
}

impl Topology {
    /// The domains of one kind, in logical order.
    pub fn domains(&self, kind: DomainKind) -> impl Iterator<Item = &Domain> {
        self.domains.iter().filter(move |domain| domain.kind == kind)
    }

    /// The domain of one kind that holds a PE.
    pub fn domain_of(&self, kind: DomainKind, pe: PeId) -> Option<&Domain> {
        self.domains(kind).find(|domain| domain.pes.contains(pe))
    }

    /// For each PE (by OS index) the domains that hold it, closest first: an index for whoever asks often.
    pub fn domains_by_pe(&self) -> Vec<Vec<&Domain>> {
        let count = self.pes.last().map_or(0, |pe| pe.0 as usize + 1);
        let mut by_pe = vec![Vec::new(); count];
        for domain in &self.domains {
            for pe in domain.pes.iter() {
                if let Some(holders) = by_pe.get_mut(pe.0 as usize) {
                    holders.push(domain);
                }
            }
        }
        for holders in &mut by_pe {
            holders.sort_by_key(|domain| domain.kind);
        }
        by_pe
    }

    /// How far apart two PEs are: the closest kind of domain that holds both, `None` across everything.
    pub fn closest_shared(&self, a: PeId, b: PeId) -> Option<DomainKind> {
        let shared = |domain: &&Domain| domain.pes.contains(a) && domain.pes.contains(b);
        self.domains.iter().filter(shared).map(|domain| domain.kind).min()
    }
}
