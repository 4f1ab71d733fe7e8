//! A calibrated machine as the simulator's.
//!
//! Problem: a calibration tells what two threads do to each other, the contention model asks for parameters
//! of units, caches and memory. Approach: each parameter is taken from the measurement that depends on it and
//! on little else.
//!
//! | parameter | from |
//! | --- | --- |
//! | shape | [`MachineProfile::topology`]: as measured, else as told |
//! | `ghz` | rate of a dependent chain of integer additions: one a cycle; without it there is no machine |
//! | `speeds` | the same chain on each PE, where the interval excludes 1 |
//! | `issue_width` | independent integer additions per cycle |
//! | `issue_conflict` | slowdown of two threads of independent integer additions on one core: 1 + κ |
//! | `fpu_conflict` | the same for floating-point additions on what shares an FPU |
//! | `l3_latency_cycles` | time of a load from a region that the L2 does not hold and the L3 does |
//! | `memory_latency_cycles` | time of a load from the largest region, twice any cache or more |
//! | `bandwidth_gb_per_s` | slowdown of two readers of such a region |
//!
//! The bandwidth is the one with which the model gives the two readers the slowdown that was measured, found
//! by bisection, on the most distant pair of one memory node.
//!
//! Two threads cannot tell: `overlap`, which belongs to programs more than to machines; the bandwidth, where
//! two threads do not slow each other down (it is then told as the least that it can be); `remote_factor`, as
//! each thread's memory is local; what moving and switching cost; the noise of counters. These keep the
//! simulator's defaults. Latencies of loads in random order include misses of the TLB.
//!
//! [`check`] holds the model against the pairs of memory that were not used. A kernel's demand is its traffic
//! when alone; each of its lines comes from memory, and nothing but memory makes it wait (`overlap` 0). That
//! a line that is written is fetched before and stored after ([`kernels::traffic`]) is an assumption. A
//! neighbour of duty d alternates between its full demand and none: `1 / (1 - d + d/s)`.

use crate::bench::kernels;
use crate::contention::{Demand, LINE_BYTES, Load, Model};
use crate::machine::{Machine, MachineError, MachineSpec, SpeedSpec};
use crate::scenario::merge;
use corewise_core::calibrate::Kernel;
use corewise_core::ids::PeId;
use corewise_core::profile::{
    self, ContentionCurve, Estimate, Evidence, INDIFFERENT, MachineProfile, PairResult, Resource, Workload,
};
use corewise_core::topology::{DomainKind, Topology};
use serde::Serialize;

/// A region of which the caches hold at most this part counts as memory.
const CACHED_MAX: f64 = 0.5;

/// Bandwidths between one reader's traffic and this multiple of it are tried.
const BANDWIDTH_SPAN: f64 = 1e3;

/// A calibrated machine.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The machine, ready to run.
    pub machine: Machine,
    /// Where its parameters come from.
    pub parameters: Vec<Parameter>,
}

/// A parameter of the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name in a scenario.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The measurement that it comes from; `None`: the simulator's default, as nothing tells it.
    pub from: Option<String>,
}

/// The model held against measured pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What the measured figures are.
    pub evidence: Evidence,
    /// Which machine.
    pub machine: String,
    /// Where the model's parameters come from.
    pub parameters: Vec<Parameter>,
    /// Every pair of memory.
    pub pairs: Vec<Compared>,
}

/// One slowdown, measured and simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The class of the pair.
    pub class: String,
    /// What the two threads did.
    pub what: String,
    /// Whether the model was fitted to it.
    pub fitted: bool,
    /// Own time beside the neighbour over the time alone, as measured.
    pub measured: Estimate,
    /// The same by the model.
    pub simulated: f64,
    /// Simulated over measured, less 1.
    pub error: f64,
}

/// Why a profile makes no machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MeasuredError {
    /// It lacks what nothing replaces.
    #[error("the machine profile lacks {what}: run `corewise calibrate` for longer")]
    Absent {
        /// What.
        what: &'static str,
    },
    /// The parameters make no machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The scenario describes the machine, too.
    #[error("[machine] has both `profile` and `{field}`: leave out one")]
    Both {
        /// What is in the way.
        field: &'static str,
    },
    /// The profile cannot be written as a scenario's machine.
    #[error("the machine profile cannot be used in a scenario: {0}")]
    Words(String),
}

/// The profile that a scenario's machine names; it is taken out.
pub fn take_name(scenario: &mut toml::Table) -> Option<String> {
    let machine = scenario.get_mut("machine")?.as_table_mut()?;
    machine.get("profile")?.as_str()?;
    machine.remove("profile").and_then(|name| name.as_str().map(str::to_owned))
}

/// Puts a calibrated machine under what the scenario says of its machine, which wins.
pub fn put(scenario: &mut toml::Table, profile: &MachineProfile) -> Result<(), MeasuredError> {
    let words = |error: toml::ser::Error| MeasuredError::Words(error.to_string());
    let mut machine = toml::Table::try_from(machine(profile)?.machine.spec).map_err(words)?;
    if let Some(toml::Value::Table(own)) = scenario.remove("machine") {
        if let Some(field) = ["topology", "shape"].into_iter().find(|field| own.contains_key(*field)) {
            return Err(MeasuredError::Both { field });
        }
        merge(&mut machine, own);
    }
    scenario.insert("machine".to_owned(), toml::Value::Table(machine));
    Ok(())
}

/// The machine of a profile.
pub fn machine(profile: &MachineProfile) -> Result<Measured, MeasuredError> {
    let shape = profile.topology();
    let about = profile.circumstances.processor.as_ref();
    let speeds = speeds(profile, &shape);
    let spec = MachineSpec {
        name: format!("{} ({})", about.unwrap_or(&profile.told.origin), profile.evidence),
        speeds,
        shape: Some(shape.clone()),
        ..MachineSpec::plain(&format!("{} PEs as calibrated", shape.pes.len()))
    };
    let mut fit = Fit { profile, machine: Machine::new(spec)?, parameters: Vec::new() };
    fit.clock()?;
    fit.units();
    fit.latencies(&shape);
    fit.bandwidth();
    fit.rest();
    // The parameters are checked once they are all there.
    Ok(Measured { machine: Machine::new(fit.machine.spec)?, parameters: fit.parameters })
}

/// Holds the model against every pair of memory in the profile.
pub fn check(profile: &MachineProfile) -> Result<Check, MeasuredError> {
    let Measured { machine, parameters } = machine(profile)?;
    let mut fit = Fit { profile, machine, parameters };
    let fitted = fit.readers().map(|(pair, _)| (pair.class, pair.workload));
    fit.machine.spec.memory.overlap = 0.0;
    let pairs = profile.pairs.iter().filter(|pair| fit.is_of_memory(pair.workload));
    let mut compared: Vec<Compared> = pairs
        .filter_map(|pair| {
            let measured = slowdown(pair)?;
            let simulated = fit.simulated(pair.class, pair.workload.first)?;
            let fitted = fitted == Some((pair.class, pair.workload));
            Some(fit.compared(pair.class, pair.workload.to_string(), fitted, measured, simulated))
        })
        .collect();
    let curves = profile.contention.iter().filter(|curve| curve.resource == Resource::MemoryBandwidth);
    compared.extend(curves.flat_map(|curve| fit.compared_curve(curve)));
    if compared.is_empty() {
        return Err(MeasuredError::Absent { what: "pairs on regions much larger than the caches" });
    }
    let machine = fit.machine.spec.name;
    Ok(Check { evidence: profile.evidence, machine, parameters: fit.parameters, pairs: compared })
}

/// The PEs that are known to be slower than the fastest.
fn speeds(profile: &MachineProfile, shape: &Topology) -> Vec<SpeedSpec> {
    let known = |pe: PeId| profile.speed(pe, Kernel::IntAddChain).map(|speed| (pe, speed));
    let slower = shape.pes.iter().filter_map(known).filter(|(_, speed)| speed.high < 1.0);
    slower.map(|(pe, speed)| SpeedSpec { pes: pe.to_string(), speed: speed.value, told: None }).collect()
}

/// The mean slowdown of a pair's two threads.
fn slowdown(pair: &PairResult) -> Option<Estimate> {
    let (first, second) = pair.slowdowns?;
    let mean = |of: fn(&Estimate) -> f64| (of(&first) * of(&second)).sqrt();
    Some(Estimate { value: mean(|e| e.value), low: mean(|e| e.low), high: mean(|e| e.high), ..first })
}

/// A machine while its parameters are looked for.
struct Fit<'a> {
    profile: &'a MachineProfile,
    machine: Machine,
    parameters: Vec<Parameter>,
}

impl Fit<'_> {
    fn note(&mut self, name: &'static str, value: f64, from: Option<String>) {
        self.parameters.push(Parameter { name, value, from });
    }

    /// The pair that stands for a class, as indices of PEs.
    fn pair_of(&self, class: usize) -> Option<(usize, usize)> {
        let &(a, b) = self.profile.classes.get(class)?.measured.first()?;
        Some((a.0 as usize, b.0 as usize))
    }

    /// Each thread's rate alone, at speed 1, of two that compute on the most distant pair.
    fn rate_alone(&self, kernel: Kernel) -> Option<f64> {
        let workload = Workload::both(kernel, 0);
        let pairs = self.profile.pairs.iter().filter(|pair| pair.workload == workload);
        let pair = pairs.max_by_key(|pair| pair.class)?;
        let (a, b) = self.pair_of(pair.class)?;
        let speed = (self.machine.pes[a].speed * self.machine.pes[b].speed).sqrt();
        Some(pair.rate.value * slowdown(pair)?.value / speed)
    }

    fn clock(&mut self) -> Result<(), MeasuredError> {
        let what = "the pair of int-add-chain, which tells the clock";
        let rate = self.rate_alone(Kernel::IntAddChain).ok_or(MeasuredError::Absent { what })?;
        self.machine.spec.ghz = rate / 1e9;
        self.note("ghz", rate / 1e9, Some("int-add-chain alone: one addition a cycle".to_owned()));
        Ok(())
    }

    fn units(&mut self) {
        let per_cycle = self.rate_alone(Kernel::IntAdd).map(|rate| rate / (self.machine.spec.ghz * 1e9));
        let mut units = self.machine.spec.units;
        units.issue_width = per_cycle.unwrap_or(units.issue_width);
        self.note("issue_width", units.issue_width, per_cycle.map(|_| "int-add per cycle".to_owned()));
        let issue = self.conflict(Kernel::IntAdd, |machine, a, b| machine.pes[a].core == machine.pes[b].core);
        let fpu = self.conflict(Kernel::FpAdd, |machine, a, b| machine.pes[a].fpu == machine.pes[b].fpu);
        let value = |found: &Option<(f64, String)>, default| found.as_ref().map_or(default, |found| found.0);
        units.issue_conflict = value(&issue, units.issue_conflict);
        units.fpu_conflict = value(&fpu, units.fpu_conflict);
        self.note("issue_conflict", units.issue_conflict, issue.map(|found| found.1));
        self.note("fpu_conflict", units.fpu_conflict, fpu.map(|found| found.1));
        self.machine.spec.units = units;
    }

    /// Cycles lost per conflict of two threads that both fill a unit, on the closest pair that shares it.
    fn conflict(
        &self,
        kernel: Kernel,
        shared: impl Fn(&Machine, usize, usize) -> bool,
    ) -> Option<(f64, String)> {
        let workload = Workload::both(kernel, 0);
        let pairs = self.profile.pairs.iter().filter(|pair| pair.workload == workload);
        let sharing = pairs
            .filter(|pair| self.pair_of(pair.class).is_some_and(|(a, b)| shared(&self.machine, a, b)))
            .min_by_key(|pair| pair.class)?;
        let slower = slowdown(sharing)?.value;
        let class = &self.profile.classes[sharing.class].name;
        Some(((slower - 1.0).clamp(0.0, 1.0), format!("{workload} on {class}: {slower:.2} times as long")))
    }

    fn latencies(&mut self, shape: &Topology) {
        let size = |kind| shape.domains(kind).filter_map(|cache| cache.bytes).max();
        let (l2, l3) = (size(DomainKind::L2), size(DomainKind::L3));
        let loads = |point: &&profile::MemoryPoint| point.load.kernel == Kernel::LoadLatency;
        let points = self.profile.memory.iter().filter(loads);
        let in_l3 = l2.zip(l3).and_then(|(l2, l3)| {
            // The farther from both sizes the better.
            let middle = (l2 as f64 * l3 as f64).sqrt();
            let off = |point: &profile::MemoryPoint| (point.load.region_bytes as f64 / middle).ln().abs();
            let between = |bytes: u64| 2 * l2 <= bytes && 2 * bytes <= l3;
            let fitting = points.clone().filter(|point| between(point.load.region_bytes));
            fitting.min_by(|a, b| off(a).total_cmp(&off(b)))
        });
        let beyond =
            points.filter(|point| self.is_of_memory(Workload { first: point.load, second: point.load }));
        let in_memory = beyond.max_by_key(|point| point.load.region_bytes);
        let ghz = self.machine.spec.ghz;
        let cycles = |point: Option<&profile::MemoryPoint>, default| {
            point.map_or((default, None), |point| {
                (ghz * 1e9 / point.rate.value, Some(format!("{} alone", point.load)))
            })
        };
        let mut memory = self.machine.spec.memory;
        let (l3_cycles, l3_from) = cycles(in_l3, memory.l3_latency_cycles);
        let (memory_cycles, memory_from) = cycles(in_memory, memory.memory_latency_cycles);
        (memory.l3_latency_cycles, memory.memory_latency_cycles) = (l3_cycles, memory_cycles);
        self.machine.spec.memory = memory;
        self.note("l3_latency_cycles", l3_cycles, l3_from);
        self.note("memory_latency_cycles", memory_cycles, memory_from);
    }

    /// Whether two threads of one kernel go through regions that the caches hold little of.
    fn is_of_memory(&self, workload: Workload) -> bool {
        let topology = &self.machine.topology;
        let caches = topology.domains.iter().filter(|domain| domain.kind <= DomainKind::L3);
        let largest = caches.filter_map(|cache| cache.bytes).max().unwrap_or(0);
        let load = workload.first;
        load == workload.second
            && load.kernel.needs_region()
            && largest as f64 <= CACHED_MAX * load.region_bytes as f64
    }

    /// The two readers that the bandwidth is fitted to, with their slowdown.
    fn readers(&self) -> Option<(&PairResult, Estimate)> {
        let of_one_node = |pair: &&PairResult| {
            let pes = self.pair_of(pair.class);
            pes.is_some_and(|(a, b)| self.machine.pes[a].node == self.machine.pes[b].node)
        };
        let readers = |pair: &&PairResult| pair.workload.first.kernel == Kernel::Read;
        let pairs = self.profile.pairs.iter().filter(readers).filter(of_one_node);
        let of_memory = pairs.filter(|pair| self.is_of_memory(pair.workload));
        let pair = of_memory.max_by_key(|pair| (pair.class, pair.workload.first.region_bytes))?;
        Some((pair, slowdown(pair)?))
    }

    fn bandwidth(&mut self) {
        let own = self.machine.spec.memory;
        let wanted = self.readers().and_then(|(pair, measured)| {
            let traffic = self.lines_per_ns(pair.workload.first)? * LINE_BYTES;
            Some((pair.class, pair.workload, measured.value, traffic))
        });
        let Some((class, workload, measured, traffic)) = wanted else {
            return self.note("bandwidth_gb_per_s", own.bandwidth_gb_per_s, None);
        };
        self.machine.spec.memory.overlap = 0.0;
        let (mut low, mut high) = (traffic, BANDWIDTH_SPAN * traffic);
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            self.machine.spec.memory.bandwidth_gb_per_s = middle;
            // More bandwidth, less slowdown. Less than what counts is not looked for.
            match self.simulated(class, workload.first) {
                Some(slower) if slower > measured.max(1.0 + INDIFFERENT) => low = middle,
                _ => high = middle,
            }
        }
        let reached = self.simulated(class, workload.first).unwrap_or(1.0);
        self.machine.spec.memory.overlap = own.overlap;
        let doubt = match measured {
            none if none < 1.0 + INDIFFERENT => ", so it is at least this",
            much if much > reached + INDIFFERENT => ", which is more than the model can show",
            _ => "",
        };
        let name = &self.profile.classes[class].name;
        let from = format!("{workload} on {name}: {measured:.2} times as long{doubt}");
        self.note("bandwidth_gb_per_s", self.machine.spec.memory.bandwidth_gb_per_s, Some(from));
    }

    /// What two threads cannot tell.
    fn rest(&mut self) {
        let (memory, costs) = (self.machine.spec.memory, self.machine.spec.costs);
        self.note("overlap", memory.overlap, None);
        self.note("remote_factor", memory.remote_factor, None);
        self.note("switch_us", costs.switch_us, None);
        self.note("migration_us", costs.migration_us, None);
    }

    /// Lines per nanosecond that a kernel alone moves from and to memory. A region that nobody had alone is
    /// taken to be as fast as the largest that somebody had.
    fn lines_per_ns(&self, load: profile::Load) -> Option<f64> {
        let points = self.profile.memory.iter().filter(|point| point.load.kernel == load.kernel);
        let of_memory = |load| self.is_of_memory(Workload { first: load, second: load });
        let points = points.filter(|point| of_memory(point.load));
        let point = points.max_by_key(|point| (point.load == load, point.load.region_bytes))?;
        let lines = match load.kernel {
            Kernel::LoadLatency => 1.0,
            kernel => kernels::traffic(kernel) / LINE_BYTES,
        };
        Some(lines * point.rate.value / 1e9)
    }

    /// The mean slowdown of two threads of a kernel of memory on the pair of a class, by the model.
    fn simulated(&self, class: usize, load: profile::Load) -> Option<f64> {
        let (machine, (a, b)) = (&self.machine, self.pair_of(class)?);
        if machine.pes[a].node != machine.pes[b].node {
            return Some(1.0);
        }
        let demand = Demand {
            ipc: kernels::Profile::of(load.kernel).issue * machine.spec.units.issue_width,
            l2_misses_per_100_cycles: 100.0 * self.lines_per_ns(load)? / machine.spec.ghz,
            ..Demand::default()
        };
        let mut paces = Vec::new();
        let mut pace = |pes: &[usize], of: usize| {
            let loads: Vec<Load> = pes.iter().map(|&pe| Load { pe, demand, remote: false }).collect();
            Model::default().solve(machine, &loads, &mut paces);
            paces[of].work_per_ns
        };
        let (first, second) = (pace(&[a], 0) / pace(&[a, b], 0), pace(&[b], 0) / pace(&[a, b], 1));
        Some((first * second).sqrt())
    }

    fn compared(
        &self,
        class: usize,
        what: String,
        fitted: bool,
        measured: Estimate,
        simulated: f64,
    ) -> Compared {
        let class = self.profile.classes[class].name.clone();
        Compared { class, what, fitted, measured, simulated, error: simulated / measured.value - 1.0 }
    }

    fn compared_curve(&self, curve: &ContentionCurve) -> Vec<Compared> {
        let both = Workload { first: curve.load, second: curve.load };
        let full = if self.is_of_memory(both) { self.simulated(curve.class, curve.load) } else { None };
        let point = |full: f64, (duty, measured): &(f64, Estimate)| {
            let what = format!("{}, neighbour at {:.0} %", curve.load, 100.0 * duty);
            self.compared(curve.class, what, false, *measured, 1.0 / (1.0 - duty + duty / full))
        };
        full.map_or_else(Vec::new, |full| curve.points.iter().map(|at| point(full, at)).collect())
    }
}

#[cfg(test)]
mod tests;
