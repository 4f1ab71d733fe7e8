//! The model of a calibrated machine.
//!
//! Problem: a calibration measures how two threads affect each other, while the predictor needs parameters of
//! units, caches and memory. Approach: each parameter is taken from the measurement that depends on it and on
//! little else.
//!
//! | parameter | from |
//! | --- | --- |
//! | shape | [`MachineProfile::topology`]: as measured, else as reported |
//! | `ghz` | rate of a dependent chain of integer additions: one a cycle |
//! | `speeds` | the same chain on each PE, where the interval excludes 1 |
//! | `issue_width` | independent integer additions per cycle |
//! | `issue_conflict` | slowdown of two threads of independent integer additions on one core: 1 + κ |
//! | `fpu_conflict` | the same for floating-point additions on what shares an FPU |
//! | `l3_latency_ns` | time of a load from a region that fits into the L3 but not into the L2 |
//! | `memory_latency_ns` | time of a load from the largest region, at least twice any cache |
//! | `bandwidth_gb_per_s` | slowdown of two readers of such a region |
//! | latencies | hand-overs, else alternating writes, of single pairs |
//! | curves | the contention curves, each for the pairs that share exactly what its pair shares |
//!
//! The bandwidth is the one for which the predictor reproduces the measured slowdown of the two readers, on
//! the most distant pair of one memory node. It is found by bisection.
//!
//! Measurements of two threads do not determine `overlap`, which depends on programs more than on machines;
//! the bandwidth, if two threads do not slow each other down (the smallest possible value is then used);
//! `remote_factor`, as each thread's memory is local; and `smt_cost`, which is a part of what conflicts show.
//! These keep their round defaults. Latencies of loads in random order include misses of the TLB.
//!
//! A kernel's demand is its traffic when alone; each of its lines comes from memory, and it waits for nothing
//! but memory (`overlap` 0). We assume that a written line is fetched before and stored afterwards
//! ([`Kernel::traffic`]).

use super::contention::{Demand, LINE_BYTES, Load};
use super::{ASSUMED_CONFIDENCE, Figure, MachineModel, Parameter, Pe, Source};
use crate::ids::PeId;
use crate::kernels::Kernel;
use crate::profile::{self, INDIFFERENT, MachineProfile, Measurement, PairResult, Workload};
use crate::topology::DomainKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A region counts as memory if the caches hold at most this share of it.
const CACHED_MAX: f64 = 0.5;

/// Bandwidths from one reader's traffic to this multiple of it are tried.
const BANDWIDTH_SPAN: f64 = 1e3;

impl MachineModel {
    /// Returns the model of a calibrated machine. Parameters that the profile lacks keep their round
    /// defaults.
    pub fn from_profile(profile: &MachineProfile) -> MachineModel {
        Fit::of(profile).model
    }
}

/// Returns the mean slowdown of the two threads of a pair.
pub(super) fn slowdown(pair: &PairResult) -> Option<Measurement> {
    let (first, second) = pair.slowdowns?;
    let mean = |of: fn(&Measurement) -> f64| (of(&first) * of(&second)).sqrt();
    Some(Measurement { value: mean(|e| e.value), low: mean(|e| e.low), high: mean(|e| e.high), ..first })
}

/// A model while its parameters are being fitted.
pub(super) struct Fit<'a> {
    pub profile: &'a MachineProfile,
    pub model: MachineModel,
}

impl<'a> Fit<'a> {
    /// Fits a model to everything in the profile.
    pub fn of(profile: &'a MachineProfile) -> Self {
        let mut fit = Fit { profile, model: profile.topology().into() };
        fit.model.profile = Some(Arc::new(profile.clone()));
        fit.model.parameters.clear();
        fit.speeds();
        fit.clock();
        fit.units();
        fit.load_latencies();
        fit.bandwidth();
        // Measurements of two threads do not determine these.
        fit.note("overlap", fit.model.memory.overlap, None);
        fit.note("remote_factor", fit.model.memory.remote_factor, None);
        fit.note("smt_cost", fit.model.units.smt_cost, None);
        fit.latencies();
        fit.curves();
        fit
    }

    /// Records a parameter; `from` is the measurement and its confidence.
    fn note(&mut self, name: &'static str, value: f64, from: Option<(String, f64)>) {
        self.model.parameters.push(match from {
            Some((from, confidence)) => Parameter { name, value, confidence, from: Some(from) },
            None => Parameter::assumed(name, value),
        });
    }

    /// Fits the speeds of the PEs that are known to be slower than the fastest.
    fn speeds(&mut self) {
        for pe in self.model.topology.pes.iter() {
            let Some(speed) = self.profile.speed(pe, Kernel::IntAddChain) else { continue };
            let known = &mut self.model.pes[pe.0 as usize];
            *known = Pe { speed_confidence: speed.confidence(), speed_source: Source::Profile, ..*known };
            if speed.high < 1.0 && speed.value > 0.0 {
                known.speed = speed.value;
            }
        }
    }

    /// Returns the representative pair of a class, as indices of PEs.
    fn pair_of(&self, class: usize) -> Option<(usize, usize)> {
        let &(a, b) = self.profile.classes.get(class)?.measured.first()?;
        Some((a.0 as usize, b.0 as usize))
    }

    /// Returns each thread's rate alone, at speed 1, with its confidence, for a computation on the most
    /// distant pair.
    fn rate_alone(&self, kernel: Kernel) -> Option<(f64, f64)> {
        let workload = Workload::both(kernel, 0);
        let pairs = self.profile.pairs.iter().filter(|pair| pair.workload == workload);
        let pair = pairs.max_by_key(|pair| pair.class)?;
        let (a, b) = self.pair_of(pair.class)?;
        let speed = (self.model.pes[a].speed * self.model.pes[b].speed).sqrt();
        let value = pair.rate.value * slowdown(pair)?.value / speed;
        Some((value, pair.rate.confidence())).filter(|_| value > 0.0 && value.is_finite())
    }

    fn clock(&mut self) {
        let rate = self.rate_alone(Kernel::IntAddChain);
        self.model.ghz = rate.map_or(self.model.ghz, |(rate, _)| rate / 1e9);
        let from = "int-add-chain alone: one addition a cycle";
        self.note("ghz", self.model.ghz, rate.map(|(_, confidence)| (from.to_owned(), confidence)));
    }

    fn units(&mut self) {
        let rate = self.rate_alone(Kernel::IntAdd);
        let mut units = self.model.units;
        units.issue_width = rate.map_or(units.issue_width, |(rate, _)| rate / (self.model.ghz * 1e9));
        let from = rate.map(|(_, confidence)| ("int-add per cycle".to_owned(), confidence));
        self.note("issue_width", units.issue_width, from);
        let issue = self.conflict(Kernel::IntAdd, |a, b| a.core == b.core);
        let fpu = self.conflict(Kernel::FpAdd, |a, b| a.fpu == b.fpu);
        units.issue_conflict = issue.as_ref().map_or(units.issue_conflict, |(value, _)| *value);
        units.fpu_conflict = fpu.as_ref().map_or(units.fpu_conflict, |(value, _)| *value);
        self.note("issue_conflict", units.issue_conflict, issue.map(|(_, from)| from));
        self.note("fpu_conflict", units.fpu_conflict, fpu.map(|(_, from)| from));
        self.model.units = units;
    }

    /// Returns the cycles lost per conflict of two threads that both saturate a unit, on the closest pair
    /// that shares it, with the measurement and its confidence.
    fn conflict(&self, kernel: Kernel, shared: impl Fn(&Pe, &Pe) -> bool) -> Option<(f64, (String, f64))> {
        let workload = Workload::both(kernel, 0);
        let pairs = self.profile.pairs.iter().filter(|pair| pair.workload == workload);
        let pes = &self.model.pes;
        let sharing = pairs
            .filter(|pair| self.pair_of(pair.class).is_some_and(|(a, b)| shared(&pes[a], &pes[b])))
            .min_by_key(|pair| pair.class)?;
        let slower = slowdown(sharing)?;
        let class = &self.profile.classes[sharing.class].name;
        let from = format!("{workload} on {class}: {:.2} times as long", slower.value);
        Some(((slower.value - 1.0).max(0.0), (from, slower.confidence())))
    }

    /// Fits the latencies of loads that the L3 and memory serve.
    fn load_latencies(&mut self) {
        let size = |kind| self.model.topology.domains(kind).filter_map(|cache| cache.bytes).max();
        let (l2, l3) = (size(DomainKind::L2), size(DomainKind::L3));
        let loads = |point: &&profile::MemoryPoint| point.load.kernel == Kernel::LoadLatency;
        let points = self.profile.memory.iter().filter(loads);
        let in_l3 = l2.zip(l3).and_then(|(l2, l3)| {
            // The best region size is far from both cache sizes.
            let middle = (l2 as f64 * l3 as f64).sqrt();
            let off = |point: &profile::MemoryPoint| (point.load.region_bytes as f64 / middle).ln().abs();
            let between = |bytes: u64| 2 * l2 <= bytes && 2 * bytes <= l3;
            let fitting = points.clone().filter(|point| between(point.load.region_bytes));
            fitting.min_by(|a, b| off(a).total_cmp(&off(b)))
        });
        let beyond =
            points.filter(|point| self.is_of_memory(Workload { first: point.load, second: point.load }));
        let in_memory = beyond.max_by_key(|point| point.load.region_bytes);
        let ns = |point: Option<&profile::MemoryPoint>, default| {
            point.filter(|point| point.rate.value > 0.0).map_or((default, None), |point| {
                let from = (format!("{} alone", point.load), point.rate.confidence());
                (1e9 / point.rate.value, Some(from))
            })
        };
        let mut memory = self.model.memory;
        let (l3_ns, l3_from) = ns(in_l3, memory.l3_latency_ns);
        let (memory_ns, memory_from) = ns(in_memory, memory.memory_latency_ns);
        (memory.l3_latency_ns, memory.memory_latency_ns) = (l3_ns, memory_ns);
        self.model.memory = memory;
        self.note("l3_latency_ns", l3_ns, l3_from);
        self.note("memory_latency_ns", memory_ns, memory_from);
    }

    /// Returns whether both threads run one kernel on regions that mostly exceed the caches.
    pub fn is_of_memory(&self, workload: Workload) -> bool {
        let topology = &self.model.topology;
        let caches = topology.domains.iter().filter(|domain| domain.kind <= DomainKind::L3);
        let largest = caches.filter_map(|cache| cache.bytes).max().unwrap_or(0);
        let load = workload.first;
        load == workload.second
            && load.kernel.needs_region()
            && largest as f64 <= CACHED_MAX * load.region_bytes as f64
    }

    /// Returns the two readers that the bandwidth is fitted to, with their slowdown.
    pub fn readers(&self) -> Option<(&PairResult, Measurement)> {
        let of_one_node = |pair: &&PairResult| {
            let pes = self.pair_of(pair.class);
            pes.is_some_and(|(a, b)| self.model.pes[a].node == self.model.pes[b].node)
        };
        let readers = |pair: &&PairResult| pair.workload.first.kernel == Kernel::Read;
        let pairs = self.profile.pairs.iter().filter(readers).filter(of_one_node);
        let of_memory = pairs.filter(|pair| self.is_of_memory(pair.workload));
        let pair = of_memory.max_by_key(|pair| (pair.class, pair.workload.first.region_bytes))?;
        Some((pair, slowdown(pair)?))
    }

    fn bandwidth(&mut self) {
        let own = self.model.memory;
        let wanted = self.readers().and_then(|(pair, measured)| {
            let traffic = self.lines_per_ns(pair.workload.first)? * LINE_BYTES;
            Some((pair.class, pair.workload, measured, traffic)).filter(|_| traffic > 0.0)
        });
        let Some((class, workload, measured, traffic)) = wanted else {
            return self.note("bandwidth_gb_per_s", own.bandwidth_gb_per_s, None);
        };
        let confidence = measured.confidence();
        let measured = measured.value;
        self.model.memory.overlap = 0.0;
        let (mut low, mut high) = (traffic, BANDWIDTH_SPAN * traffic);
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            self.model.memory.bandwidth_gb_per_s = middle;
            // More bandwidth means less slowdown. The bisection stops where differences no longer matter.
            match self.predicted(class, workload.first) {
                Some(slower) if slower > measured.max(1.0 + INDIFFERENT) => low = middle,
                _ => high = middle,
            }
        }
        let reached = self.predicted(class, workload.first).unwrap_or(1.0);
        self.model.memory.overlap = own.overlap;
        let doubt = match measured {
            none if none < 1.0 + INDIFFERENT => ", so it is at least this",
            much if much > reached + INDIFFERENT => ", which is more than the model can show",
            _ => "",
        };
        let name = &self.profile.classes[class].name;
        let from = format!("{workload} on {name}: {measured:.2} times as long{doubt}");
        let confidence = if doubt.is_empty() { confidence } else { ASSUMED_CONFIDENCE };
        self.note("bandwidth_gb_per_s", self.model.memory.bandwidth_gb_per_s, Some((from, confidence)));
    }

    /// Returns the lines per nanosecond that a kernel alone moves from and to memory. A region that was not
    /// measured alone is assumed to be as fast as the largest one that was.
    fn lines_per_ns(&self, load: profile::Load) -> Option<f64> {
        let points = self.profile.memory.iter().filter(|point| point.load.kernel == load.kernel);
        let of_memory = |load| self.is_of_memory(Workload { first: load, second: load });
        let points = points.filter(|point| of_memory(point.load));
        let point = points.max_by_key(|point| (point.load == load, point.load.region_bytes))?;
        let lines = match load.kernel {
            Kernel::LoadLatency => 1.0,
            kernel => kernel.traffic() / LINE_BYTES,
        };
        Some(lines * point.rate.value / 1e9)
    }

    /// Returns the predicted mean slowdown of two threads of a memory kernel on the pair of a class.
    pub fn predicted(&self, class: usize, load: profile::Load) -> Option<f64> {
        let (model, (a, b)) = (&self.model, self.pair_of(class)?);
        if model.pes[a].node != model.pes[b].node {
            return Some(1.0);
        }
        let demand = Demand {
            ipc: load.kernel.usage().issue * model.units.issue_width,
            l2_misses_per_100_cycles: 100.0 * self.lines_per_ns(load)? / model.ghz,
            ..Demand::default()
        };
        let loads = [a, b].map(|pe| Load::new(pe, demand));
        let slowdowns = model.slowdowns(&loads);
        Some((slowdowns[0] * slowdowns[1]).sqrt())
    }

    /// Fits the latencies between PEs.
    fn latencies(&mut self) {
        // A hand-over is half a round trip; so is an alternating write.
        for kernel in [Kernel::Alternate, Kernel::HandOver] {
            for latency in self.profile.latencies.iter().filter(|latency| latency.kernel == kernel) {
                let (value, confidence) = (latency.ns.value, latency.ns.confidence());
                let figure = Figure { value, confidence, source: Source::Profile };
                let pair = (latency.a.min(latency.b), latency.a.max(latency.b));
                self.model.latencies.insert(pair, figure);
            }
        }
        let mut by_distance: BTreeMap<_, Vec<Figure>> = BTreeMap::new();
        for (&(a, b), &figure) in &self.model.latencies {
            let distance = self.model.distance(a.0 as usize, b.0 as usize);
            by_distance.entry(distance).or_default().push(figure);
        }
        let middle = |mut figures: Vec<Figure>| {
            figures.sort_by(|a, b| a.value.total_cmp(&b.value));
            figures[figures.len() / 2]
        };
        self.model.latency_by_distance =
            by_distance.into_iter().map(|(distance, figures)| (distance, middle(figures))).collect();
    }

    /// Adds the contention curves, each for the pairs that share exactly what its pair shares.
    fn curves(&mut self) {
        for curve in &self.profile.contention {
            let Some((a, b)) = self.pair_of(curve.class) else { continue };
            let closest = self.model.topology.closest_shared(PeId(a as u32), PeId(b as u32));
            self.model.curves.push((curve.resource, closest, curve.into()));
        }
    }
}
