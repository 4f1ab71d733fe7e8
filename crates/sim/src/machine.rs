//! The simulated machine: its shape, its speeds, and the parameters of the contention model.
//!
//! A machine is written as TOML: a synthetic topology (as `corewise topo --synthetic` takes it), the clock,
//! the PEs that are faster or slower, and the numbers of [`crate::contention`]. Whatever is left out has the
//! default given here; a default is a plain round number, not a measurement of any machine.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::topology::kinds::{self, Vote};
use corewise_core::topology::{Domain, DomainKind, SyntheticError, Topology, TopologyError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A machine as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// What people call it.
    pub name: String,
    /// Its shape: `pack:1 l3:1(size=8MB) l2:4(size=2MB) module:1 core:2 pu:1`.
    pub topology: String,
    /// Its shape if no such text can describe it, as of a calibrated machine; `topology` is then for people.
    #[serde(default)]
    pub shape: Option<Topology>,
    /// The clock of a PE of speed 1, in GHz: work is counted in its cycles.
    #[serde(default = "default_ghz")]
    pub ghz: f64,
    /// The PEs whose clock differs.
    #[serde(default)]
    pub speeds: Vec<SpeedSpec>,
    /// The PEs that are switched off, in any notation of `corewise topo --pes`.
    #[serde(default)]
    pub disabled: Option<String>,
    /// Execution units that PEs share.
    #[serde(default)]
    pub units: Units,
    /// Caches and memory.
    #[serde(default)]
    pub memory: Memory,
    /// What switching and moving cost beside the caches.
    #[serde(default)]
    pub costs: Costs,
    /// The counters.
    #[serde(default)]
    pub pmu: Pmu,
}

/// PEs of one speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedSpec {
    /// Which, in any notation of `corewise topo --pes`.
    pub pes: String,
    /// Their clock as a multiple of [`MachineSpec::ghz`].
    pub speed: f64,
    /// The speed that schedulers take them to have, if another: to see what a policy costs without its gain
    /// (parallelism-aware scheduling §3.4).
    #[serde(default)]
    pub told: Option<f64>,
}

/// Sharing of execution units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Units {
    /// Cycles lost when two threads want the shared FPU at once, 0 (it serves both) to 1 (one waits).
    pub fpu_conflict: f64,
    /// The same for the issue slots of an SMT core.
    pub issue_conflict: f64,
    /// Instructions that a core can issue per cycle.
    pub issue_width: f64,
}

/// Caches and memory. Their sizes stand in the topology.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Latency of an L2 miss that the L3 serves, in cycles.
    pub l3_latency_cycles: f64,
    /// Latency of a miss that idle local memory serves, in cycles.
    pub memory_latency_cycles: f64,
    /// Share of a miss's latency that is hidden behind other work, 0 to 0.99.
    pub overlap: f64,
    /// What one memory node can deliver, in GB (10⁹ bytes) per second.
    pub bandwidth_gb_per_s: f64,
    /// Latency of another node's memory as a multiple of the local one.
    pub remote_factor: f64,
}

/// Fixed costs, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// To switch a PE to another thread.
    pub switch_us: f64,
    /// To move a thread to another PE, beside what its caches cost.
    pub migration_us: f64,
}

/// How well the counters count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pmu {
    /// Relative standard deviation of each counter between two readings.
    pub noise: f64,
    /// Share of the time in which the events are counted, 0..1; the rest is extrapolated.
    pub counting: f64,
}

impl MachineSpec {
    /// A machine of this shape (a synthetic topology) with a clock of 3 GHz and the defaults for the rest.
    pub fn plain(topology: &str) -> Self {
        Self {
            name: topology.to_owned(),
            topology: topology.to_owned(),
            shape: None,
            disabled: None,
            ghz: 3.0,
            speeds: Vec::new(),
            units: Units::default(),
            memory: Memory::default(),
            costs: Costs::default(),
            pmu: Pmu::default(),
        }
    }
}

impl Default for Units {
    fn default() -> Self {
        Self { fpu_conflict: 1.0, issue_conflict: 1.0, issue_width: 4.0 }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            l3_latency_cycles: 40.0,
            memory_latency_cycles: 200.0,
            overlap: 0.7,
            bandwidth_gb_per_s: 20.0,
            remote_factor: 1.5,
        }
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self { switch_us: 2.0, migration_us: 5.0 }
    }
}

impl Default for Pmu {
    fn default() -> Self {
        Self { noise: 0.005, counting: 1.0 }
    }
}

fn default_ghz() -> f64 {
    1.0
}

/// Why a specification makes no machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MachineError {
    /// The topology's text is at fault.
    #[error("machine `{machine}`: {source}")]
    Topology {
        /// Its name.
        machine: String,
        /// What is wrong.
        source: SyntheticError,
    },
    /// The shape contradicts itself.
    #[error("machine `{machine}`: {source}")]
    Shape {
        /// Its name.
        machine: String,
        /// What is wrong.
        source: Box<TopologyError>,
    },
    /// PEs cannot be found.
    #[error("machine `{machine}`: {field}: {problem}")]
    Pes {
        /// Its name.
        machine: String,
        /// The parameter.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A number is out of its range.
    #[error("machine `{machine}`: {field} is {value}, it must be {range}")]
    Range {
        /// Its name.
        machine: String,
        /// The parameter.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
}

/// A machine, ready to run.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The shape as policies see it.
    pub topology: Topology,
    /// The parameters.
    pub spec: MachineSpec,
    /// Each PE, by OS index.
    pub pes: Vec<Pe>,
    /// The PEs of each memory node: contention never leaves a node.
    pub nodes: Vec<Vec<usize>>,
    /// The PEs of each cluster, node by node: those that share a unit or a cache, directly
    /// or by way of others.
    pub clusters: Vec<Vec<usize>>,
    /// Capacity in bytes of each L2, by [`Pe::l2`]; `None` where nothing is shared or the size is unknown.
    pub l2_bytes: Vec<Option<f64>>,
    /// Capacity in bytes of each L3, by [`Pe::l3`].
    pub l3_bytes: Vec<Option<f64>>,
    /// The speed that the fastest PE is told to have.
    pub fastest: f64,
}

/// One PE and what it shares: indices of units. A unit that the topology does not name is the PE's own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pe {
    /// Its clock as a multiple of the machine's.
    pub speed: f64,
    /// What schedulers take that to be.
    pub told: f64,
    /// The SMT core.
    pub core: usize,
    /// Who shares its FPU: the module, else the core.
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

/// How far a thread moves: the closest thing that both PEs share.
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
    /// Every distance that is a move.
    pub const MOVES: [Distance; 5] =
        [Distance::Core, Distance::L2, Distance::L3, Distance::Node, Distance::System];

    /// Its name in results.
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
}

impl Machine {
    /// Makes the machine of a specification.
    pub fn new(spec: MachineSpec) -> Result<Self, MachineError> {
        let machine = || spec.name.clone();
        let topology = match &spec.shape {
            Some(shape) => (shape.clone().arranged())
                .map_err(|source| MachineError::Shape { machine: machine(), source: Box::new(source) })?,
            None => Topology::synthetic(&spec.topology)
                .map_err(|source| MachineError::Topology { machine: machine(), source })?,
        };
        Self::with_topology(spec, topology)
    }

    /// Makes a machine of this shape, whatever the specification says about it. PEs may be numbered in any
    /// order and with gaps.
    pub fn with_topology(spec: MachineSpec, mut topology: Topology) -> Result<Self, MachineError> {
        check(&spec)?;
        give_memory(&mut topology)
            .map_err(|source| MachineError::Shape { machine: spec.name.clone(), source: Box::new(source) })?;
        let speeds = speeds(&spec, &topology)?;
        if let Some(disabled) = &spec.disabled {
            topology.allowed = topology.pes.difference(&locate(&spec, &topology, "disabled", disabled)?);
            if topology.allowed.is_empty() {
                let problem = "no PE is left".to_owned();
                return Err(MachineError::Pes { machine: spec.name, field: "disabled", problem });
            }
        }
        topology.origin = format!("{} (simulated)", spec.name);
        let permille: BTreeMap<PeId, u64> =
            topology.pes.iter().map(|pe| (pe, (1e3 * speeds[pe.0 as usize].1) as u64)).collect();
        let vote = Vote::from_numbers("simulated speed", &permille, 0, |n| format!("{}", n as f64 / 1e3));
        (topology.kinds, topology.notes) = kinds::decide(&topology.pes, &[vote]);
        let count = speeds.len();
        let unit = |kind, pe: usize| {
            let domain = topology.domain_of(kind, PeId(pe as u32));
            domain.map_or_else(|| topology.domains(kind).count() + pe, |domain| domain.logical as usize)
        };
        let cores = topology.domains(DomainKind::Core).count();
        let mut pes: Vec<Pe> = (0..count)
            .map(|pe| Pe {
                speed: speeds[pe].0,
                told: speeds[pe].1,
                core: unit(DomainKind::Core, pe),
                fpu: topology
                    .domain_of(DomainKind::Module, PeId(pe as u32))
                    .map_or_else(|| unit(DomainKind::Core, pe), |module| cores + module.logical as usize),
                l2: unit(DomainKind::L2, pe),
                l3: unit(DomainKind::L3, pe),
                node: unit(DomainKind::NumaNode, pe),
                cluster: pe,
            })
            .collect();
        let nodes: Vec<Vec<usize>> = topology
            .domains(DomainKind::NumaNode)
            .map(|node| node.pes.iter().map(|pe| pe.0 as usize).collect())
            .collect();
        let clusters = clusters(&mut pes, &nodes);
        let capacities = |kind| {
            let mut bytes: Vec<Option<f64>> =
                topology.domains(kind).map(|cache: &Domain| cache.bytes.map(|bytes| bytes as f64)).collect();
            bytes.resize(bytes.len() + count, None);
            bytes
        };
        let (l2_bytes, l3_bytes) = (capacities(DomainKind::L2), capacities(DomainKind::L3));
        let on = |pe: usize| topology.allowed.contains(PeId(pe as u32));
        let told = speeds.iter().enumerate().filter(|(pe, _)| on(*pe)).map(|(_, (_, told))| *told);
        let fastest = told.fold(0.0, f64::max);
        Ok(Self { topology, spec, pes, nodes, clusters, l2_bytes, l3_bytes, fastest })
    }

    /// How far apart two PEs are.
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        let (x, y) = (&self.pes[a], &self.pes[b]);
        if a == b {
            Distance::None
        } else if x.core == y.core {
            Distance::Core
        } else if x.l2 == y.l2 {
            Distance::L2
        } else if x.l3 == y.l3 {
            Distance::L3
        } else if x.node == y.node {
            Distance::Node
        } else {
            Distance::System
        }
    }
}

/// Every PE has memory: where the nodes of some are not known, all have one in common.
fn give_memory(topology: &mut Topology) -> Result<(), TopologyError> {
    if !topology.pes.iter().all(|pe| topology.domain_of(DomainKind::NumaNode, pe).is_some()) {
        let mut shape = topology.clone();
        shape.domains.retain(|domain| domain.kind != DomainKind::NumaNode);
        shape.domains.push(Domain::new(DomainKind::NumaNode, shape.pes.clone()));
        *topology = shape.arranged()?;
    }
    Ok(())
}

/// Divides the PEs of each node into clusters. At first each PE is one by itself.
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

/// Each PE's speed, and what schedulers take it to be.
fn speeds(spec: &MachineSpec, topology: &Topology) -> Result<Vec<(f64, f64)>, MachineError> {
    let mut speeds = vec![(1.0, 1.0); topology.pes.last().map_or(0, |pe| pe.0 as usize + 1)];
    for SpeedSpec { pes, speed, told } in &spec.speeds {
        for pe in locate(spec, topology, "speeds", pes)?.iter() {
            speeds[pe.0 as usize] = (*speed, told.unwrap_or(*speed));
        }
    }
    Ok(speeds)
}

fn locate(
    spec: &MachineSpec,
    topology: &Topology,
    field: &'static str,
    pes: &str,
) -> Result<CpuSet, MachineError> {
    topology.locate(pes).map_err(|error| MachineError::Pes {
        machine: spec.name.clone(),
        field,
        problem: error.to_string(),
    })
}

fn check(spec: &MachineSpec) -> Result<(), MachineError> {
    let positive = "above 0";
    let (units, memory) = (&spec.units, &spec.memory);
    let slowest = spec.speeds.iter().flat_map(|s| [s.speed, s.told.unwrap_or(s.speed)]).fold(1.0, f64::min);
    let rules = [
        ("ghz", spec.ghz, spec.ghz > 0.0, positive),
        ("speed", slowest, slowest > 0.0, positive),
        ("fpu_conflict", units.fpu_conflict, (0.0..=1.0).contains(&units.fpu_conflict), "0 to 1"),
        ("issue_conflict", units.issue_conflict, (0.0..=1.0).contains(&units.issue_conflict), "0 to 1"),
        ("issue_width", units.issue_width, units.issue_width > 0.0, positive),
        ("l3_latency_cycles", memory.l3_latency_cycles, memory.l3_latency_cycles > 0.0, positive),
        ("memory_latency_cycles", memory.memory_latency_cycles, memory.memory_latency_cycles > 0.0, positive),
        ("overlap", memory.overlap, (0.0..=0.99).contains(&memory.overlap), "0 to 0.99"),
        ("bandwidth_gb_per_s", memory.bandwidth_gb_per_s, memory.bandwidth_gb_per_s > 0.0, positive),
        ("remote_factor", memory.remote_factor, memory.remote_factor >= 1.0, "1 or more"),
        ("switch_us", spec.costs.switch_us, spec.costs.switch_us >= 0.0, "0 or more"),
        ("migration_us", spec.costs.migration_us, spec.costs.migration_us >= 0.0, "0 or more"),
        ("noise", spec.pmu.noise, (0.0..=0.5).contains(&spec.pmu.noise), "0 to 0.5"),
        ("counting", spec.pmu.counting, spec.pmu.counting > 0.0 && spec.pmu.counting <= 1.0, "above 0 to 1"),
    ];
    match rules.into_iter().find(|(_, value, holds, _)| !holds || !value.is_finite()) {
        Some((field, value, _, range)) => {
            Err(MachineError::Range { machine: spec.name.clone(), field, value, range })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Result<Machine, MachineError> {
        Machine::new(toml::from_str(text).expect("TOML"))
    }

    #[test]
    fn units_are_shared_as_the_topology_says() {
        let machine =
            machine("name='m'\ntopology='pack:1 l3:1 l2:2(size=2MB) module:1 core:2 pu:1'").unwrap();
        let fpus: Vec<usize> = machine.pes.iter().map(|pe| pe.fpu).collect();
        assert_eq!(fpus, [4, 4, 5, 5]);
        assert_eq!(machine.l2_bytes[machine.pes[3].l2], Some(f64::from(2 << 20)));
        assert_eq!(machine.distance(0, 1), Distance::L2);
        assert_eq!(machine.distance(1, 2), Distance::L3);
        assert_eq!(machine.distance(2, 2), Distance::None);
        assert_eq!(machine.topology.kinds[0].name, "all");
    }

    #[test]
    fn speeds_make_kinds() {
        let text = "name='m'\ntopology='core:4 pu:1'\nspeeds=[{pes='1-3', speed=0.5}]";
        let machine = machine(text).unwrap();
        let names: Vec<&str> = machine.topology.kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!((names, machine.fastest), (vec!["fast", "slow"], 1.0));
    }

    #[test]
    fn schedulers_can_be_told_other_speeds_and_pes_can_be_off() {
        let text = "name='m'\ntopology='core:4 pu:1'\ndisabled='1'\n\
                    speeds=[{pes='0', speed=0.5, told=1.0}, {pes='1-3', speed=0.5}]";
        let machine = machine(text).unwrap();
        assert_eq!(machine.topology.kinds[0].pes.to_string(), "0");
        assert_eq!(machine.topology.allowed.to_string(), "0,2-3");
        assert_eq!((machine.pes[0].speed, machine.pes[0].told, machine.fastest), (0.5, 1.0, 1.0));
    }

    #[test]
    fn errors_name_the_machine_and_the_parameter() {
        for (text, words) in [
            ("topology='core:2'", "core:2"),
            ("topology='pu:2'\nspeeds=[{pes='7', speed=1.0}]", "`7`"),
            ("topology='pu:2'\nspeeds=[{pes='1', speed=0.0}]", "speed is 0"),
            ("topology='pu:2'\ndisabled='0-1'", "disabled: no PE is left"),
            ("topology='pu:2'\nmemory={overlap=1.0}", "overlap is 1, it must be 0 to 0.99"),
            ("topology='pu:2'\nghz=inf", "ghz is inf"),
        ] {
            let error = machine(&format!("name='odd'\n{text}")).expect_err(text).to_string();
            assert!(error.contains("machine `odd`") && error.contains(words), "{text}: {error}");
        }
    }
}
