//! The simulated machine: its shape, its speeds, and the parameters of the contention model.
//!
//! A machine is written as TOML: a synthetic topology (as for `corewise topo --machine`), the clock, the
//! PEs that are faster or slower, and the parameters of [`corewise_core::machine_model`]. Parameters that are
//! left out have the defaults given here, which are round numbers and not measurements of any machine.

use crate::bench::loops::{HandOver, Loops};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::machine_model::power::{Plan, Power, PowerError};
use corewise_core::machine_model::{MachineModel, Memory, Units};
use corewise_core::topology::kinds::{self, Vote};
use corewise_core::topology::{CpuKind, Domain, DomainKind, SyntheticError, Topology, TopologyError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod presets;

/// A machine as written in a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Its name for people.
    pub name: String,
    /// Its shape: `pack:1 l3:1(size=8MB) l2:4(size=2MB) module:1 core:2 pu:1`.
    pub topology: String,
    /// Its shape if the text cannot describe it, as for a calibrated machine; `topology` is then only for
    /// people.
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
    pub memory: MemorySpec,
    /// How long values take from PE to PE.
    #[serde(default)]
    pub hand_over_ns: HandOver,
    /// How the loops of a calibration run.
    #[serde(default)]
    pub loops: Loops,
    /// Fixed costs of switching and moving, apart from the caches.
    #[serde(default)]
    pub costs: Costs,
    /// The counters.
    #[serde(default)]
    pub pmu: Pmu,
    /// Clocks, idle states and power. Without them clocks are fixed, and no energy is known.
    #[serde(default, deserialize_with = "presets::power", skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
}

/// Caches and memory as written in a scenario. Latencies are given in nanoseconds or in cycles of
/// [`MachineSpec::ghz`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemorySpec {
    /// [`Memory::l3_latency_ns`].
    pub l3_latency_ns: Option<f64>,
    /// The same in cycles.
    pub l3_latency_cycles: Option<f64>,
    /// [`Memory::memory_latency_ns`].
    pub memory_latency_ns: Option<f64>,
    /// The same in cycles.
    pub memory_latency_cycles: Option<f64>,
    /// [`Memory::overlap`].
    pub overlap: f64,
    /// [`Memory::bandwidth_gb_per_s`].
    pub bandwidth_gb_per_s: f64,
    /// [`Memory::remote_factor`].
    pub remote_factor: f64,
}

/// PEs of one speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedSpec {
    /// The PEs, in any notation of `corewise topo --pes`.
    pub pes: String,
    /// Their clock as a multiple of [`MachineSpec::ghz`].
    pub speed: f64,
    /// The speed that is reported to schedulers, if different: this shows what a policy costs without its
    /// gain (parallelism-aware scheduling §3.4).
    #[serde(default)]
    #[serde(alias = "told")]
    pub reported: Option<f64>,
}

/// Fixed costs, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// The cost of switching a PE to another thread, or from idle to one.
    pub switch_us: f64,
    /// What waking a thread costs the one that wakes it.
    pub wake_us: f64,
    /// The time from the interrupt that an idle PE gets until it has left its idle state.
    pub idle_exit_us: f64,
    /// The cost of moving a thread to another PE, apart from its caches.
    pub migration_us: f64,
}

/// The accuracy of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pmu {
    /// Relative standard deviation of each counter between two readings.
    pub noise: f64,
    /// Share of the time in which the events are counted, 0..1; the rest is extrapolated.
    pub counting: f64,
}

impl MachineSpec {
    /// Returns a machine of this shape (a synthetic topology) with a clock of 3 GHz and defaults for the
    /// rest.
    pub fn plain(topology: &str) -> Self {
        Self {
            name: topology.to_owned(),
            topology: topology.to_owned(),
            shape: None,
            disabled: None,
            ghz: 3.0,
            speeds: Vec::new(),
            units: Units::default(),
            memory: MemorySpec::default(),
            hand_over_ns: HandOver::default(),
            loops: Loops::default(),
            costs: Costs::default(),
            pmu: Pmu::default(),
            power: None,
        }
    }
}

impl Default for MemorySpec {
    fn default() -> Self {
        let Memory { overlap, bandwidth_gb_per_s, remote_factor, .. } = Memory::default();
        Self {
            l3_latency_ns: None,
            l3_latency_cycles: None,
            memory_latency_ns: None,
            memory_latency_cycles: None,
            overlap,
            bandwidth_gb_per_s,
            remote_factor,
        }
    }
}

impl From<Memory> for MemorySpec {
    fn from(memory: Memory) -> Self {
        Self {
            l3_latency_ns: Some(memory.l3_latency_ns),
            l3_latency_cycles: None,
            memory_latency_ns: Some(memory.memory_latency_ns),
            memory_latency_cycles: None,
            overlap: memory.overlap,
            bandwidth_gb_per_s: memory.bandwidth_gb_per_s,
            remote_factor: memory.remote_factor,
        }
    }
}

impl MemorySpec {
    /// Returns the parameters on a machine with this clock; the error is a latency that is given twice.
    pub fn at(&self, ghz: f64) -> Result<Memory, &'static str> {
        let latency = |ns: Option<f64>, cycles: Option<f64>, default, twice| match (ns, cycles) {
            (Some(_), Some(_)) => Err(twice),
            (ns, cycles) => Ok(ns.or(cycles.map(|cycles| cycles / ghz)).unwrap_or(default)),
        };
        let default = Memory::default();
        Ok(Memory {
            l3_latency_ns: latency(
                self.l3_latency_ns,
                self.l3_latency_cycles,
                default.l3_latency_ns,
                "give l3_latency_ns or l3_latency_cycles, not both",
            )?,
            memory_latency_ns: latency(
                self.memory_latency_ns,
                self.memory_latency_cycles,
                default.memory_latency_ns,
                "give memory_latency_ns or memory_latency_cycles, not both",
            )?,
            overlap: self.overlap,
            bandwidth_gb_per_s: self.bandwidth_gb_per_s,
            remote_factor: self.remote_factor,
        })
    }
}

impl SpeedSpec {
    /// Returns the speeds of a machine's kinds of PE as its topology reports them; empty if all are of one
    /// kind. Slow PEs of unknown speed are an error: as equals of the fast ones they would decide everything.
    pub fn reported(machine: &str, shape: &Topology) -> Result<Vec<SpeedSpec>, MachineError> {
        let unknown = |problem: String| MachineError::UnknownSpeeds { machine: machine.to_owned(), problem };
        let [fastest, slower @ ..] = shape.kinds.as_slice() else { return Ok(Vec::new()) };
        if slower.is_empty() && fastest.name == "unknown" {
            return Err(unknown(format!(
                "contradictory speeds are reported: {}",
                fastest.evidence.join("; ")
            )));
        }
        let speed = |kind: &CpuKind| match &kind.speed {
            Some(speed) => {
                Ok(SpeedSpec { pes: kind.pes.to_string(), speed: speed.relative(), reported: None })
            }
            None => Err(unknown(format!(
                "it is not known how much slower its PEs {} ({}) are than {} ({})",
                kind.pes, kind.name, fastest.pes, fastest.name
            ))),
        };
        slower.iter().map(speed).collect()
    }
}

impl Default for Costs {
    fn default() -> Self {
        // The idle state is C1, which `intel_idle.c` gives 2 µs to leave, after an interrupt of 1 µs.
        Self { switch_us: 2.0, wake_us: 1.0, idle_exit_us: 3.0, migration_us: 5.0 }
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

/// Why a machine specification is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MachineError {
    /// The topology is invalid.
    #[error("machine `{machine}`: {source}")]
    Topology {
        /// Its name.
        machine: String,
        /// The problem.
        source: SyntheticError,
    },
    /// The shape is inconsistent.
    #[error("machine `{machine}`: {source}")]
    Shape {
        /// Its name.
        machine: String,
        /// The problem.
        source: Box<TopologyError>,
    },
    /// A location of PEs is invalid.
    #[error("machine `{machine}`: {field}: {problem}")]
    Pes {
        /// Its name.
        machine: String,
        /// The parameter.
        field: &'static str,
        /// The problem.
        problem: String,
    },
    /// A latency is given twice.
    #[error("machine `{machine}`: {problem}")]
    Latency {
        /// Its name.
        machine: String,
        /// What to write.
        problem: &'static str,
    },
    /// It has fast and slow PEs of unknown speed.
    #[error("machine `{machine}`: {problem}")]
    UnknownSpeeds {
        /// Its name.
        machine: String,
        /// What is known.
        problem: String,
    },
    /// Its clocks or its power are invalid.
    #[error("machine `{machine}`: {source}")]
    Power {
        /// Its name.
        machine: String,
        /// The problem.
        source: PowerError,
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
        /// The permitted range.
        range: &'static str,
    },
}

/// A machine, ready to run.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The true model, except that its topology is as policies see it.
    pub model: MachineModel,
    /// The specification.
    pub spec: MachineSpec,
    /// The speed that is reported for each PE, by OS index.
    pub reported: Vec<f64>,
    /// The highest reported speed.
    pub fastest: f64,
    /// Its clocks and power, if they are described.
    pub power: Option<Plan>,
}

impl Machine {
    /// Returns PEs in any notation, of which at least one can be used.
    pub(crate) fn usable(&self, pes: &str) -> Result<CpuSet, String> {
        let found = self.model.topology.locate(pes).map_err(|error| error.to_string())?;
        let usable = found.intersects(&self.model.topology.allowed);
        if usable { Ok(found) } else { Err(format!("all PEs of `{pes}` are disabled")) }
    }

    /// Creates the machine of a specification.
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

    /// Creates a machine of this shape, which overrides the specification's. PEs may be numbered in any order
    /// and with gaps.
    pub fn with_topology(spec: MachineSpec, mut topology: Topology) -> Result<Self, MachineError> {
        let memory = (spec.memory.at(spec.ghz))
            .map_err(|problem| MachineError::Latency { machine: spec.name.clone(), problem })?;
        check(&spec, &memory)?;
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
        let vote = Vote::from_numbers("simulated speed", &permille, 0, |n| format!("{}", n as f64 / 1e3))
            .in_proportion(&permille);
        (topology.kinds, topology.notes) = kinds::decide(&topology.pes, &[vote]);
        let mut model = MachineModel::from(topology);
        (model.ghz, model.units, model.memory) = (spec.ghz, spec.units, memory);
        model.state("the scenario");
        spec.hand_over_ns.put(&mut model);
        for (pe, (speed, _)) in model.pes.iter_mut().zip(&speeds) {
            pe.speed = *speed;
        }
        let reported: Vec<f64> = speeds.iter().map(|(_, reported)| *reported).collect();
        let fastest = model.topology.allowed.iter().map(|pe| reported[pe.0 as usize]).fold(0.0, f64::max);
        let power = spec.power.clone().map(|power| Plan::new(power, &model)).transpose();
        let power = power.map_err(|source| MachineError::Power { machine: spec.name.clone(), source })?;
        Ok(Self { model, spec, reported, fastest, power })
    }

    /// Returns the model as schedulers see it, with the reported speeds.
    pub fn reported_model(&self) -> MachineModel {
        let mut model = self.model.clone();
        model.pes.iter_mut().zip(&self.reported).for_each(|(pe, reported)| pe.speed = *reported);
        model
    }
}

/// Gives every PE memory: PEs of unknown nodes make all PEs one node.
fn give_memory(topology: &mut Topology) -> Result<(), TopologyError> {
    if !topology.pes.iter().all(|pe| topology.domain_of(DomainKind::NumaNode, pe).is_some()) {
        let mut shape = topology.clone();
        shape.domains.retain(|domain| domain.kind != DomainKind::NumaNode);
        shape.domains.push(Domain::new(DomainKind::NumaNode, shape.pes.clone()));
        *topology = shape.arranged()?;
    }
    Ok(())
}

/// Returns each PE's speed, and its reported speed.
fn speeds(spec: &MachineSpec, topology: &Topology) -> Result<Vec<(f64, f64)>, MachineError> {
    let mut speeds = vec![(1.0, 1.0); topology.pes.last().map_or(0, |pe| pe.0 as usize + 1)];
    for SpeedSpec { pes, speed, reported } in &spec.speeds {
        for pe in locate(spec, topology, "speeds", pes)?.iter() {
            speeds[pe.0 as usize] = (*speed, reported.unwrap_or(*speed));
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

fn check(spec: &MachineSpec, memory: &Memory) -> Result<(), MachineError> {
    let (positive, amount) = ("above 0", "0 or more");
    let units = &spec.units;
    let slowest =
        spec.speeds.iter().flat_map(|s| [s.speed, s.reported.unwrap_or(s.speed)]).fold(1.0, f64::min);
    let rules = [
        ("ghz", spec.ghz, spec.ghz > 0.0, positive),
        ("speed", slowest, slowest > 0.0, positive),
        ("fpu_conflict", units.fpu_conflict, units.fpu_conflict >= 0.0, amount),
        ("issue_conflict", units.issue_conflict, units.issue_conflict >= 0.0, amount),
        ("smt_cost", units.smt_cost, units.smt_cost >= 0.0, amount),
        ("issue_width", units.issue_width, units.issue_width > 0.0, positive),
        ("l3_latency", memory.l3_latency_ns, memory.l3_latency_ns > 0.0, positive),
        ("memory_latency", memory.memory_latency_ns, memory.memory_latency_ns > 0.0, positive),
        ("overlap", memory.overlap, (0.0..=0.99).contains(&memory.overlap), "0 to 0.99"),
        ("bandwidth_gb_per_s", memory.bandwidth_gb_per_s, memory.bandwidth_gb_per_s > 0.0, positive),
        ("remote_factor", memory.remote_factor, memory.remote_factor >= 1.0, "1 or more"),
        ("switch_us", spec.costs.switch_us, spec.costs.switch_us >= 0.0, "0 or more"),
        ("wake_us", spec.costs.wake_us, spec.costs.wake_us >= 0.0, "0 or more"),
        ("idle_exit_us", spec.costs.idle_exit_us, spec.costs.idle_exit_us >= 0.0, "0 or more"),
        ("migration_us", spec.costs.migration_us, spec.costs.migration_us >= 0.0, "0 or more"),
        ("noise", spec.pmu.noise, (0.0..=0.5).contains(&spec.pmu.noise), "0 to 0.5"),
        ("counting", spec.pmu.counting, spec.pmu.counting > 0.0 && spec.pmu.counting <= 1.0, "above 0 to 1"),
    ];
    let loops =
        spec.loops.fault().map(|(field, value)| (field, value, false, "above 0, and a share up to 1"));
    match rules.into_iter().chain(loops).find(|(_, value, holds, _)| !holds || !value.is_finite()) {
        Some((field, value, _, range)) => {
            Err(MachineError::Range { machine: spec.name.clone(), field, value, range })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::machine_model::Distance;

    fn machine(text: &str) -> Result<Machine, MachineError> {
        Machine::new(toml::from_str(text).expect("TOML"))
    }

    #[test]
    fn units_are_shared_as_the_topology_says() {
        let machine =
            machine("name='m'\ntopology='pack:1 l3:1 l2:2(size=2MB) module:1 core:2 pu:1'").unwrap();
        let fpus: Vec<usize> = machine.model.pes.iter().map(|pe| pe.fpu).collect();
        assert_eq!(fpus, [4, 4, 5, 5]);
        assert_eq!(machine.model.l2_bytes[machine.model.pes[3].l2], Some(f64::from(2 << 20)));
        assert_eq!(machine.model.distance(0, 1), Distance::L2);
        assert_eq!(machine.model.distance(1, 2), Distance::L3);
        assert_eq!(machine.model.distance(2, 2), Distance::None);
        assert_eq!(machine.model.topology.kinds[0].name, "all");
    }

    #[test]
    fn speeds_make_kinds() {
        let text = "name='m'\ntopology='core:4 pu:1'\nspeeds=[{pes='1-3', speed=0.5}]";
        let machine = machine(text).unwrap();
        let names: Vec<&str> = machine.model.topology.kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!((names, machine.fastest), (vec!["fast", "slow"], 1.0));
    }

    #[test]
    fn reported_speeds_may_differ_and_pes_can_be_off() {
        let text = "name='m'\ntopology='core:4 pu:1'\ndisabled='1'\n\
                    speeds=[{pes='0', speed=0.5, reported=1.0}, {pes='1-3', speed=0.5}]";
        let machine = machine(text).unwrap();
        assert_eq!(machine.model.topology.kinds[0].pes.to_string(), "0");
        assert_eq!(machine.model.topology.allowed.to_string(), "0,2-3");
        assert_eq!((machine.model.pes[0].speed, machine.reported[0], machine.fastest), (0.5, 1.0, 1.0));
    }

    #[test]
    fn cycles_are_those_of_the_machine() {
        let text = "name='m'\ntopology='pu:2'\nghz=2.0\nmemory={memory_latency_cycles=200}";
        let machine = machine(text).unwrap();
        assert_eq!(
            (machine.model.memory.memory_latency_ns, machine.model.memory.l3_latency_ns),
            (100.0, 15.0)
        );
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
            ("topology='pu:2'\nmemory={memory_latency_ns=9,memory_latency_cycles=9}", "not both"),
        ] {
            let error = machine(&format!("name='odd'\n{text}")).expect_err(text).to_string();
            assert!(error.contains("machine `odd`") && error.contains(words), "{text}: {error}");
        }
    }
}
