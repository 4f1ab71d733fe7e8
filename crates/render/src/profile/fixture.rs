//! Made-up machine profiles for tests: plausible, complete, always the same.

use corewise_core::ids::PeId;
use corewise_core::kernels::{Focus, Kernel, Nas, ProblemClass};
use corewise_core::profile::*;
use corewise_core::topology::{DomainKind, Topology};

const REGIONS: usize = 16;

/// Two PEs that share an L3: one class of pairs, so nothing can be closer than anything else.
pub fn two_pes() -> MachineProfile {
    let machine = "pack:1 l3:1(size=32MB) l2:2(size=1MB) l1:1(size=32kB) core:1 pu:1";
    profile(machine, &[("same L3", DomainKind::L3)])
}

/// Two cores of two SMT siblings: the paper's `sandybridge`, about.
pub fn smt() -> MachineProfile {
    let machine = "pack:1 l3:1(size=8MB) l2:2(size=256kB) l1:1(size=32kB) core:1 pu:2";
    profile(machine, &[("same core", DomainKind::Core), ("same L3", DomainKind::L3)])
}

/// 32 PEs with four kinds of pairs.
pub fn large() -> MachineProfile {
    let machine = "pack:2 l3:1(size=32MB) l2:4(size=2MB) l1:2(size=48kB) core:1 pu:2";
    let classes = [
        ("same core", DomainKind::Core),
        ("same L2", DomainKind::L2),
        ("same L3", DomainKind::L3),
        ("across", DomainKind::NumaNode),
    ];
    profile(machine, &classes)
}

/// A figure that is known to two percent.
pub fn about(value: f64) -> Measurement {
    let width = (value.abs() * 0.02).max(0.004);
    Measurement { value, low: value - width, high: value + width, repetitions: 30 }
}

fn profile(machine: &str, classes: &[(&str, DomainKind)]) -> MachineProfile {
    let reported = Topology::synthetic(machine).expect("a machine");
    let pes: Vec<PeId> = reported.pes.iter().collect();
    let pairs: Vec<(PeId, PeId)> =
        pes.iter().flat_map(|&a| pes.iter().map(move |&b| (a, b))).filter(|(a, b)| a < b).collect();
    let class_of = |&(a, b): &(PeId, PeId)| {
        let shared = reported.closest_shared(a, b);
        classes.iter().position(|&(_, kind)| shared.is_some_and(|s| s <= kind)).unwrap_or(classes.len() - 1)
    };
    let classes: Vec<PairClass> = classes
        .iter()
        .enumerate()
        .map(|(index, &(name, kind))| {
            let own: Vec<(PeId, PeId)> = pairs.iter().copied().filter(|p| class_of(p) == index).collect();
            PairClass {
                name: name.to_owned(),
                closest: Some(kind),
                pairs: own.len() as u64,
                measured: own.into_iter().take(3).collect(),
                largest_deviation: (reported.pes.len() > 2).then_some(1.021),
            }
        })
        .collect();
    MachineProfile {
        format: "corewise machine profile".to_owned(),
        version: VERSION,
        evidence: Evidence::Simulated,
        circumstances: circumstances(),
        complete: true,
        discovered: None,
        pairs: pair_results(classes.len()),
        deltas: deltas(classes.len()),
        latencies: pairs.iter().map(|p| latency(*p, class_of(p))).collect(),
        memory: memory(),
        contention: contention(classes.len()),
        speeds: pes.iter().map(|&pe| speed(pe)).collect(),
        nas: nas(classes.len()),
        missing: vec![Missing {
            what: "the NAS benchmarks BT, LU, SP, UA".to_owned(),
            why: "they are not built in: give the directory of your NPB binaries with --npb".to_owned(),
        }],
        reported,
        classes,
    }
}

fn circumstances() -> Circumstances {
    Circumstances {
        corewise: "0.1.0".to_owned(),
        unix_time: Some(1_767_225_600),
        processor: Some("Made-up Processor 4000".to_owned()),
        kernel: Some("6.12.0".to_owned()),
        virtualisation: Some("KVM".to_owned()),
        frequency: None,
        vector_unit: Some("AVX2".to_owned()),
        seconds: 43.2,
        passes: 6,
        repetitions: 4_321,
        discarded: 12,
        lost_share: 0.003,
        notes: vec!["other threads used 2 % of the PEs".to_owned()],
    }
}

fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for kernel in Kernel::ALL {
        let regions = if kernel.needs_region() { REGIONS } else { 1 };
        all.extend((0..regions).map(|doubling| match kernel.needs_region() {
            true => Workload::both(kernel, 4096 << doubling),
            false => Workload::both(kernel, 0),
        }));
    }
    let mix = |first, second| Workload {
        first: Load { kernel: first, region_bytes: 0 },
        second: Load { kernel: second, region_bytes: 0 },
    };
    all.extend([
        mix(Kernel::IntAdd, Kernel::FpAdd),
        mix(Kernel::IntAddChain, Kernel::FpAddChain),
        mix(Kernel::IntDiv, Kernel::FpDiv),
        mix(Kernel::IntDivChain, Kernel::FpDivChain),
        mix(Kernel::WideFma, Kernel::IntAddChain),
    ]);
    all
}

/// How much slower a thread is beside another of its kind: less the farther, more where a cache overflows.
fn slowdown(workload: Workload, class: usize) -> f64 {
    let load = workload.first;
    let overflow = match load.region_bytes {
        0 => 0.0,
        bytes => 0.5 + 0.8 * (-((bytes as f64).log2() - 18.0).powi(2) / 8.0).exp(),
    };
    let place = Kernel::ALL.iter().position(|&kernel| kernel == load.kernel).unwrap_or(0) as f64;
    1.0 + (0.3 + 0.5 * (place * 1.7).sin().abs() + overflow) / (1.0 + 3.0 * class as f64)
}

fn rate(workload: Workload, class: usize) -> f64 {
    match workload.first.kernel.focus() {
        Focus::Synchronisation => 5e7 / (1.0 + 2.5 * class as f64),
        Focus::Memory => alone(workload.first) / slowdown(workload, class),
        Focus::Computation => 3.1e9 / slowdown(workload, class),
    }
}

/// One thread's rate by the size of its region: caches of 32 KiB, 256 KiB and 8 MiB.
fn alone(load: Load) -> f64 {
    let bytes = load.region_bytes;
    let level = [32 << 10, 256 << 10, 8 << 20].iter().filter(|&&size| bytes > size).count();
    match load.kernel {
        Kernel::LoadLatency => 1e9 / [1.6, 4.8, 13.0, 92.0][level],
        Kernel::Copy => [48e9, 30e9, 21e9, 7e9][level],
        Kernel::Write => [60e9, 38e9, 26e9, 9e9][level],
        _ => [95e9, 61e9, 39e9, 14e9][level],
    }
}

fn pair_results(classes: usize) -> Vec<PairResult> {
    let mut results = Vec::new();
    for class in 0..classes {
        for workload in workloads() {
            let alone = !workload.first.kernel.needs_partner();
            let factor = slowdown(workload, class);
            results.push(PairResult {
                class,
                workload,
                rate: about(rate(workload, class)),
                delta_alone: alone.then(|| about(1.0 - factor)),
                slowdowns: alone.then(|| (about(factor), about(factor))),
                discarded: 0,
            });
        }
    }
    results
}

fn deltas(classes: usize) -> Vec<Delta> {
    let mut deltas = Vec::new();
    for close in 0..classes {
        for distant in close + 1..classes {
            for workload in workloads() {
                let ratio = rate(workload, close) / rate(workload, distant);
                deltas.push(delta(close, distant, Subject::Workload(workload), ratio));
            }
            for (index, nas) in Nas::OWN.into_iter().enumerate() {
                let ratio = 0.7 + 0.09 * index as f64;
                deltas.push(delta(close, distant, Subject::Nas(nas, ProblemClass::S), ratio));
                deltas.push(delta(close, distant, Subject::Nas(nas, ProblemClass::A), ratio * 0.9));
            }
        }
    }
    deltas
}

/// Δ from the ratio of the close to the distant rate.
fn delta(close: usize, distant: usize, subject: Subject, ratio: f64) -> Delta {
    let value = if ratio >= 1.0 { ratio - 1.0 } else { 1.0 - 1.0 / ratio };
    let noisy = subject == Subject::Workload(Workload::both(Kernel::Branches, 0));
    let delta = if noisy { Measurement { low: -0.4, high: 0.3, ..about(0.0) } } else { about(value) };
    let preference = match delta {
        d if d.high - d.low > 0.5 => Preference::Unknown,
        d if d.low > 0.0 => Preference::Close,
        d if d.high < 0.0 => Preference::Distant,
        _ => Preference::Indifferent,
    };
    Delta { close, distant, subject, delta, preference }
}

fn latency((a, b): (PeId, PeId), class: usize) -> PairLatency {
    let ns = 20.0 * (1.0 + 2.5 * class as f64) + f64::from(a.0 + b.0) * 0.1;
    PairLatency { a, b, kernel: Kernel::Alternate, ns: about(ns) }
}

fn memory() -> Vec<MemoryPoint> {
    let kernels = [Kernel::Read, Kernel::Write, Kernel::Copy, Kernel::LoadLatency];
    let regions = (0..REGIONS).map(|doubling| 4096 << doubling);
    let loads = regions.flat_map(|region_bytes| kernels.map(|kernel| Load { kernel, region_bytes }));
    loads.map(|load| MemoryPoint { load, rate: about(alone(load)) }).collect()
}

fn contention(classes: usize) -> Vec<ContentionCurve> {
    let loads = [
        (Resource::Fpu, Load { kernel: Kernel::FpAdd, region_bytes: 0 }),
        (Resource::Integer, Load { kernel: Kernel::IntAdd, region_bytes: 0 }),
        (Resource::L2, Load { kernel: Kernel::Read, region_bytes: 128 << 10 }),
        (Resource::MemoryBandwidth, Load { kernel: Kernel::Read, region_bytes: 64 << 20 }),
    ];
    let mut curves = Vec::new();
    for class in 0..classes {
        for (resource, load) in loads {
            let full = slowdown(Workload { first: load, second: load }, class) - 1.0;
            let point =
                |step: u32| (f64::from(step) / 4.0, about(1.0 + full * f64::from(step * step) / 16.0));
            curves.push(ContentionCurve { class, resource, load, points: (0..=4).map(point).collect() });
        }
    }
    curves
}

fn speed(pe: PeId) -> PeSpeed {
    let relative = if pe.0 % 4 == 3 { about(0.79) } else { about(0.995) };
    PeSpeed { pe, kernel: Kernel::IntAddChain, relative }
}

fn nas(classes: usize) -> Vec<NasResult> {
    let mut results = Vec::new();
    for nas in Nas::OWN {
        for pair_class in std::iter::once(None).chain((0..classes).map(Some)) {
            let seconds = about(pair_class.map_or(1.0, |class| 0.7 - 0.05 * class as f64));
            let class = ProblemClass::S;
            results.push(NasResult { nas, class, own: true, pair_class, seconds, verified: true });
        }
    }
    results
}
