//! What a reading costs: threads of this process, watched with a group of three software events each.
//! A group of hardware events costs the same calls and, in the kernel, a read of each counter more.

use corewise_core::cpuset::CpuSet;
use corewise_counters::CounterSource;
use corewise_counters::pmu::{EventFile, Kind, PmuSource, Ready};
use corewise_discovery::NewThread;
use criterion::Criterion;
use std::path::Path;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Instant;

const SOFTWARE: &str = r#"
    title = "software events"
    source = "perf_event_open(2)"
    pmu = "perf"
    counters = 3
    cpu = []
    event = [
      { name = "clock", pfm = "PERF_COUNT_SW_TASK_CLOCK" },
      { name = "faults", pfm = "PERF_COUNT_SW_PAGE_FAULTS" },
      { name = "major", pfm = "PERF_COUNT_SW_PAGE_FAULTS_MAJ" },
    ]
    [formula]
    cycles = { is = "clock", confidence = 1, note = "Nanoseconds." }
    instructions = { is = "faults + major", confidence = 1, note = "Not instructions." }
    fpu_busy_cycles = { is = "clock * (1 - pow(1 - min(1, faults / clock), 10))", confidence = 0, note = "-" }
"#;

fn source() -> PmuSource {
    let file = Arc::new(EventFile::parse("software", None, SOFTWARE).expect("the text is right"));
    let kind = Kind { device: "software".into(), perf_type: 1, pes: CpuSet::new(), file };
    let ready = Ready::probe(Path::new("/"), vec![kind]).expect("software events exist everywhere");
    PmuSource::new(ready, usize::MAX)
}

fn reading(criterion: &mut Criterion) {
    for threads in [1usize, 1_000] {
        let release = Barrier::new(threads + 1);
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            for _ in 0..threads {
                let (send, release) = (send.clone(), &release);
                scope.spawn(move || {
                    send.send(nix::unistd::gettid().as_raw() as u32).expect("the receiver waits");
                    release.wait();
                });
            }
            let tids: Vec<u32> = receive.iter().take(threads).collect();
            let mut source = source();
            let watch = |source: &mut PmuSource| {
                for tid in &tids {
                    let created = Instant::now();
                    source.watch(&NewThread { tid: *tid, pid: 0, creator_tid: None, generation: 0, created });
                }
            };
            criterion.bench_function(&format!("watch {threads} threads"), |b| b.iter(|| watch(&mut source)));
            criterion.bench_function(&format!("read {threads} threads"), |b| {
                b.iter(|| tids.iter().filter_map(|tid| source.read(*tid)).count());
            });
            assert_eq!(source.notes(), Vec::<String>::new());
            release.wait();
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    reading(&mut criterion);
    criterion.final_summary();
}
