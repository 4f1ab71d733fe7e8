//! The cost of one `engine.step` with each policy: 4,096 running threads of 64 applications on 512 PEs (256
//! SMT cores, half of them fast), every fourth FPU-intensive.
//!
//! `cargo bench -p corewise-core`

use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::{
    ApplicationReading, CounterReading, Hints, Observation, PmuReading, SampleReading, Standing,
    ThreadReading,
};
use corewise_core::policy::{self, Reading};
use corewise_core::time::Time;
use corewise_core::topology::{CpuKind, Domain, DomainKind, Topology};
use criterion::{BatchSize, Criterion};
use std::sync::Arc;

const PES: u32 = 512;
const THREADS: u32 = 4096;
const APPLICATIONS: u32 = 64;

fn topology() -> Topology {
    let domains =
        [(DomainKind::Core, 2), (DomainKind::L2, 2), (DomainKind::L3, 16), (DomainKind::Package, 256)]
            .into_iter()
            .flat_map(|(kind, width)| {
                (0..PES / width).map(move |unit| Domain {
                    kind,
                    logical: unit,
                    os: Some(unit),
                    pes: (unit * width..(unit + 1) * width).map(PeId).collect(),
                    bytes: None,
                    forbidden: false,
                })
            })
            .collect();
    let pes = CpuSet::first_n(PES);
    let fast = CpuSet::first_n(PES / 2);
    let kind = |name: &str, pes| CpuKind { name: name.to_owned(), pes, evidence: Vec::new(), speed: None };
    let kinds = vec![kind("fast", fast.clone()), kind("slow", pes.difference(&fast))];
    let origin = "synthetic".to_owned();
    Topology { origin, pes: pes.clone(), allowed: pes, domains, kinds, notes: Vec::new() }
}

/// The counters of a thread. Usages wander a little, so ranks change from step to step.
fn counters(index: u32, second: u64, pmu: bool) -> CounterReading {
    let usage = if index.is_multiple_of(4) { 0.8 } else { 0.05 };
    let usage = usage + 0.1 * ((u64::from(index) * 7 + second * 13) % 10) as f64 / 10.0;
    let seconds = second as f64;
    if !pmu {
        let samples = 200.0 * seconds;
        let (judged, fp, vector) = (samples as u64, samples * usage, samples * usage);
        return CounterReading::Sample(SampleReading { judged, fp, vector, ..SampleReading::default() });
    }
    let cycles = 1e9 * seconds;
    let of_cycles = |share: f64| Some((cycles * share) as u64);
    CounterReading::Pmu(PmuReading {
        events: "bench".into(),
        cycles: cycles as u64,
        instructions: of_cycles(0.5 + usage),
        fpu_busy_cycles: of_cycles(usage),
        vector_busy_cycles: None,
        formula_confidence: 1.0,
        l2_misses: of_cycles(0.01 * (1.0 - usage)),
        branches: of_cycles(0.1),
        branch_misses: None,
        enabled_ns: second * 1_000_000_000,
        running_ns: second * 1_000_000_000,
    })
}

/// The `second`-th observation.
fn observation(second: u64, pmu: bool) -> Observation {
    let permitted = Arc::new(CpuSet::first_n(PES));
    let thread = |index: u32| ThreadReading {
        thread: ThreadId { tid: 1000 + index, generation: 0 },
        pid: 1000,
        app: AppId(index % APPLICATIONS),
        name: format!("worker {}", index % 8).into(),
        cpu_ns: second * 1_000_000_000,
        runnable_ns: None,
        runnable: true,
        last_pe: Some(PeId(index % PES)),
        standing: Standing::Free,
        permitted: permitted.clone(),
        counters: Some(counters(index, second, pmu)),
        hints: Hints::default(),
        progress: None,
        sizing: corewise_core::observe::Sizing::Fixed,
        ended: false,
    };
    // Of different and changing parallelism: 1 to 8.
    let tlp_so_far = |app: u32| (1..=second).map(|second| 1 + (u64::from(app) + second) % 8).sum::<u64>();
    let application = |app: u32| ApplicationReading {
        app: AppId(app),
        name: "application".into(),
        runnable_thread_ns: 1_000_000_000 * tlp_so_far(app),
        active_ns: second * 1_000_000_000,
        sequential_ns: 0,
        runnable_max: 64,
        exact: true,
        ..ApplicationReading::default()
    };
    Observation {
        at: Time(second * 1_000_000_000),
        allowed: CpuSet::first_n(PES),
        threads: (0..THREADS).map(thread).collect(),
        applications: (0..APPLICATIONS).map(application).collect(),
        ..Observation::default()
    }
}

fn step(criterion: &mut Criterion) {
    for kind in policy::KINDS.iter().filter(|kind| !kind.takes_command()) {
        let required = kind.needs().required;
        let pmu = required.contains(&Reading::Ipc) || required.contains(&Reading::L2Misses);
        let observations: Vec<Observation> = (1..12).map(|second| observation(second, pmu)).collect();
        let ratios: Vec<String> = (0..8).map(|n| format!("ratios.worker {n}=1.{n}")).collect();
        let spec = match kind.name {
            "static-ipc" => format!("static-ipc:{}", ratios.join(",")),
            name => name.to_owned(),
        };
        let cold_engine = || {
            let policy = policy::build(&spec).expect("a policy");
            Engine::new(topology(), policy, EngineConfig::default())
        };
        let warm_engine = || {
            let mut engine = cold_engine();
            for observation in &observations[..10] {
                engine.step(observation);
            }
            let nothing = engine.nothing_to_gain();
            assert!(nothing.is_none(), "{spec} has nothing to do: {nothing:?}");
            engine
        };
        criterion.bench_function(&format!("engine.step {}", kind.name), |bencher| {
            bencher.iter_batched_ref(
                warm_engine,
                |engine| engine.step(&observations[10]),
                BatchSize::LargeInput,
            );
        });
        criterion.bench_function(&format!("first engine.step {}", kind.name), |bencher| {
            bencher.iter_batched_ref(
                cold_engine,
                |engine| engine.step(&observations[0]),
                BatchSize::LargeInput,
            );
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    step(&mut criterion);
    criterion.final_summary();
}
