//! The cost of one `engine.step`: 4,096 running threads on 512 PEs (256 SMT cores), every fourth
//! FPU-intensive.
//!
//! `cargo bench -p corewise-core`

use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::{CounterReading, Hints, Observation, SampleReading, Standing, ThreadReading};
use corewise_core::policy;
use corewise_core::time::Time;
use corewise_core::topology::{Domain, DomainKind, Topology};
use criterion::{BatchSize, Criterion};
use std::sync::Arc;

const PES: u32 = 512;
const THREADS: u32 = 4096;

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
    let origin = "synthetic".to_owned();
    Topology { origin, pes: pes.clone(), allowed: pes, domains, kinds: Vec::new(), notes: Vec::new() }
}

/// The `second`-th observation. Usages wander a little, so ranks change from step to step.
fn observation(second: u64) -> Observation {
    let permitted = Arc::new(CpuSet::first_n(PES));
    let thread = |index: u32| {
        let usage = if index.is_multiple_of(4) { 0.8 } else { 0.05 };
        let wander = 0.1 * ((u64::from(index) * 7 + second * 13) % 10) as f64 / 10.0;
        let samples = 200.0 * second as f64;
        ThreadReading {
            thread: ThreadId { tid: 1000 + index, generation: 0 },
            pid: 1000,
            app: AppId(0),
            name: "worker".into(),
            cpu_ns: second * 1_000_000_000,
            runnable_ns: None,
            runnable: true,
            last_pe: Some(PeId(index % PES)),
            standing: Standing::Free,
            permitted: permitted.clone(),
            counters: Some(CounterReading::Sample(SampleReading {
                judged: samples as u64,
                fp: samples * (usage + wander),
                vector: samples * (usage + wander),
                ..SampleReading::default()
            })),
            hints: Hints::default(),
            ended: false,
        }
    };
    Observation {
        at: Time(second * 1_000_000_000),
        allowed: CpuSet::first_n(PES),
        threads: (0..THREADS).map(thread).collect(),
        ..Observation::default()
    }
}

fn step(criterion: &mut Criterion) {
    let observations: Vec<Observation> = (1..12).map(observation).collect();
    let warm_engine = || {
        let policy = policy::by_name("spread").expect("spread is a policy");
        let mut engine = Engine::new(topology(), policy, EngineConfig::default());
        for observation in &observations[..10] {
            engine.step(observation);
        }
        engine
    };
    criterion.bench_function("engine.step, 4096 threads on 512 PEs", |bencher| {
        bencher.iter_batched_ref(warm_engine, |engine| engine.step(&observations[10]), BatchSize::LargeInput);
    });
    let cold_engine = || {
        let policy = policy::by_name("spread").expect("spread is a policy");
        Engine::new(topology(), policy, EngineConfig::default())
    };
    criterion.bench_function("first engine.step, all seats empty", |bencher| {
        bencher.iter_batched_ref(cold_engine, |engine| engine.step(&observations[0]), BatchSize::LargeInput);
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    step(&mut criterion);
    criterion.final_summary();
}
