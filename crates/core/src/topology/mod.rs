//! The topology of a machine: its PEs, what they share, and their reported speed.
//!
//! A machine is a list of sharing domains: sets of PEs and the resource they share. Every question of a
//! scheduler ("which PEs are close to this one", "how many FPUs may I use") is a question about these sets,
//! so the same few fields describe a machine of any shape and size.

use crate::cpuset::CpuSet;
use crate::ids::PeId;
use serde::{Deserialize, Serialize};

mod check;
mod draw;
pub mod kinds;
mod locate;
mod stated;
mod summary;
mod synthetic;

pub use check::TopologyError;
pub use draw::size;
pub use locate::LocateError;
pub use stated::StatedKindsError;
pub use summary::{KindSummary, Summary};
pub use synthetic::SyntheticError;

/// One machine as described by its operating system, an export of hwloc, or a synthetic description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The origin of the model, in words: `this machine`, `synthetic pack:1 core:2 pu:1`, `xml FILE`.
    pub origin: String,
    /// Every online PE of the machine.
    pub pes: CpuSet,
    /// The PEs that the current cpuset allows; a subset of `pes`.
    pub allowed: CpuSet,
    /// The sharing domains, sorted by kind, then by logical index. Any two domains are nested or disjoint,
    /// domains of one kind are disjoint, and every PE belongs to a core.
    pub domains: Vec<Domain>,
    /// Groups of PEs of equal kind, fastest first. Empty if nothing is known about kinds; one kind `all` if
    /// the sources do not distinguish PEs.
    pub kinds: Vec<CpuKind>,
    /// Notes for the user about unclear or contradictory sources.
    pub notes: Vec<String>,
}

/// A set of PEs and the resource that they share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// The shared resource.
    pub kind: DomainKind,
    /// The logical index among the domains of this kind, in topology order.
    pub logical: u32,
    /// The operating system's index, if there is one.
    pub os: Option<u32>,
    /// The PEs that share the resource.
    pub pes: CpuSet,
    /// Size in bytes of a cache or of a node's memory, if known.
    pub bytes: Option<u64>,
    /// Whether the cpuset forbids allocating on this memory node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forbidden: bool,
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
    /// Neighbouring cores within an L3 that share more than the L3: its tags, a port to the interconnect.
    /// Linux reports such groups on ARM servers (Kunpeng: four cores each).
    Cluster,
    /// Third-level cache.
    L3,
    /// A piece of silicon within a package.
    Die,
    /// A memory controller.
    NumaNode,
    /// A processor package: power budget, socket.
    Package,
}

/// The PEs of one kind, with the evidence for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuKind {
    /// `fast`, `mid1`…, `slow` in order of speed; `all` if there is one kind only; `unknown` if the evidence
    /// is contradictory.
    pub name: String,
    /// The PEs of this kind.
    pub pes: CpuSet,
    /// The evidence in words: `cpu_capacity 1024`, `max frequency 5.2 GHz`, `hwloc efficiency 1`.
    pub evidence: Vec<String>,
    /// Its speed as reported; `None` if no source says by how much the kinds differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<ReportedSpeed>,
}

/// The speed of a kind of PE, as reported and not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedSpeed {
    /// Thousandths of the speed of the fastest kind.
    pub permille: u32,
    /// The source: `cpu_capacity`, `max frequency`.
    pub source: String,
}

impl ReportedSpeed {
    /// Returns the speed as a multiple of that of the fastest kind.
    pub fn relative(&self) -> f64 {
        f64::from(self.permille) / 1e3
    }
}

impl DomainKind {
    /// Returns the word for this kind in a location or a synthetic description.
    pub fn word(self) -> &'static str {
        match self {
            DomainKind::Core => "core",
            DomainKind::L1 => "l1",
            DomainKind::Module => "module",
            DomainKind::L2 => "l2",
            DomainKind::Cluster => "cluster",
            DomainKind::L3 => "l3",
            DomainKind::Die => "die",
            DomainKind::NumaNode => "numa",
            DomainKind::Package => "package",
        }
    }

    /// Returns the kind that a word names: [`DomainKind::word`] or one of hwloc's spellings, in any case.
    pub fn from_word(word: &str) -> Option<DomainKind> {
        Some(match word.to_ascii_lowercase().as_str() {
            "core" => DomainKind::Core,
            "l1" | "l1d" | "l1cache" | "l1dcache" => DomainKind::L1,
            "module" => DomainKind::Module,
            "l2" | "l2cache" => DomainKind::L2,
            "cluster" => DomainKind::Cluster,
            "l3" | "l3cache" => DomainKind::L3,
            "die" => DomainKind::Die,
            "numa" | "node" | "numanode" => DomainKind::NumaNode,
            "pack" | "package" | "socket" => DomainKind::Package,
            _ => return None,
        })
    }
}

impl Domain {
    /// Returns a domain that is not yet part of a topology: [`Topology::arranged`] numbers it.
    pub fn new(kind: DomainKind, pes: CpuSet) -> Self {
        Self { kind, logical: 0, os: None, pes, bytes: None, forbidden: false }
    }
}

impl Topology {
    /// Normalises the parts of a model: sorts domains by kind (domains of one kind keep their order), numbers
    /// them, adds a core for each PE without one, and checks everything.
    pub fn arranged(mut self) -> Result<Self, TopologyError> {
        let in_cores = self.domains(DomainKind::Core).fold(CpuSet::new(), |all, core| all.union(&core.pes));
        for pe in self.pes.difference(&in_cores).iter() {
            self.domains.push(Domain::new(DomainKind::Core, CpuSet::single(pe)));
        }
        self.domains.sort_by_key(|domain| domain.kind);
        for same_kind in self.domains.chunk_by_mut(|a, b| a.kind == b.kind) {
            for (index, domain) in same_kind.iter_mut().enumerate() {
                domain.logical = index as u32;
            }
        }
        self.check()?;
        Ok(self)
    }

    /// Returns every PE in logical order: the cores one after another, within a core by OS index.
    pub fn pes_in_logical_order(&self) -> Vec<PeId> {
        self.domains(DomainKind::Core).flat_map(|core| core.pes.iter()).collect()
    }

    /// Returns the groups of two or more cores that are known to share an FPU, in logical order.
    pub fn fpu_modules(&self) -> impl Iterator<Item = &Domain> {
        let first_of_each_core: CpuSet =
            self.domains(DomainKind::Core).filter_map(|core| core.pes.first()).collect();
        let cores_within = move |module: &Domain| module.pes.intersection(&first_of_each_core).len();
        self.domains(DomainKind::Module).filter(move |module| cores_within(module) >= 2)
    }

    /// Returns the domains of one kind, in logical order.
    pub fn domains(&self, kind: DomainKind) -> impl Iterator<Item = &Domain> {
        self.domains.iter().filter(move |domain| domain.kind == kind)
    }

    /// Returns the domain of one kind that contains a PE.
    pub fn domain_of(&self, kind: DomainKind, pe: PeId) -> Option<&Domain> {
        self.domains(kind).find(|domain| domain.pes.contains(pe))
    }

    /// Returns for each PE (by OS index) the domains that contain it, closest first: an index for frequent
    /// queries.
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

    /// Returns the closest kind of domain that contains both PEs; `None` if they share only the machine.
    pub fn closest_shared(&self, a: PeId, b: PeId) -> Option<DomainKind> {
        let shared = |domain: &&Domain| domain.pes.contains(a) && domain.pes.contains(b);
        self.domains.iter().filter(shared).map(|domain| domain.kind).min()
    }
}
