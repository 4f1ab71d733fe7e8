//! What is kept does not grow with the length of a run, in which threads come and go. (A day of steps; a
//! month of them, two and a half million, differs in nothing but time.)

use super::*;
use crate::ids::ThreadId;
use crate::observe::{ApplicationReading, CounterReading, Input, SampleReading};
use crate::plan::Setting;
use crate::report::ReportBuilder;
use std::collections::HashSet;

/// Threads that live as long as the run.
const LASTING: u32 = 4;

fn reading(tid: u32, second: u64, born: u64, standing: Standing, ended: bool) -> ThreadReading {
    let lived = second - born;
    let (judged, fp) = (100 * lived, 90.0 * lived as f64);
    let counters = CounterReading::Sample(SampleReading { judged, fp, vector: fp, ..Default::default() });
    ThreadReading {
        thread: ThreadId { tid, generation: born },
        pid: tid,
        cpu_ns: lived * 1_000_000_000,
        last_pe: Some(PeId((second % 8) as u32)),
        counters: Some(counters),
        ended,
        ..observe(second, standing, Vec::new()).threads.remove(0)
    }
}

/// A run in which each second a thread begins that is gone in the next. Calls `look` after each step.
fn run(seconds: u64, mut look: impl FnMut(u64, &Engine, &ReportBuilder)) {
    let mut engine = Engine::new(bulldozer(), policy::build("spread").unwrap(), EngineConfig::default());
    let mut report = ReportBuilder::default();
    let mut outcomes = Vec::new();
    let mut bound = HashSet::new();
    for second in 1..=seconds {
        // Numbers come round, as the kernel's do.
        let short = |born: u64| (LASTING + (born % 30_000) as u32, born);
        let of = |(tid, born), ended| {
            let standing = if bound.contains(&tid) { Standing::Bound } else { Standing::Free };
            reading(tid, second, born, standing, ended)
        };
        let mut threads: Vec<ThreadReading> = (0..LASTING).map(|tid| of((tid, 0), false)).collect();
        threads.push(of(short(second), false));
        threads.extend((second > 1).then(|| of(short(second - 1), true)));
        let application = ApplicationReading { app: AppId(0), name: "month".into(), ..Default::default() };
        let outcomes_now = std::mem::take(&mut outcomes);
        let observation = Observation {
            threads,
            applications: vec![application],
            outcomes: outcomes_now,
            ..observe(second, Standing::Free, Vec::new())
        };
        let actions = engine.step(&observation);
        bound.remove(&short(second - 1).0);
        for action in &actions {
            match action.change {
                Change::Bind(_) => bound.insert(action.thread.tid),
                _ => bound.remove(&action.thread.tid),
            };
            outcomes.push(outcome(action, OutcomeKind::Done));
        }
        // Every process is made to spin less.
        let thread = ThreadId { tid: short(second).0, generation: second };
        let change = Change::Set(Setting::SpinCount(0));
        outcomes.push(Outcome { thread, change, result: OutcomeKind::Done });
        report.watch(&Input::Observation(observation), &actions, &engine);
        look(second, &engine, &report);
    }
}

#[test]
fn a_hundred_thousand_steps_keep_no_more_than_ten_thousand() {
    let (mut early, mut late) = ((0, 0), (0, 0));
    run(100_000, |second, engine, report| {
        if second % 97 == 0 {
            let most = if second < 10_000 { &mut early } else { &mut late };
            *most = (most.0.max(engine.items_kept()), most.1.max(report.items_kept()));
        }
    });
    assert!(early.0 > 0 && late.0 <= early.0, "engine: {early:?} items, then {late:?}");
    assert!(early.1 > 1_000 && late.1 <= early.1 + early.1 / 20, "report: {early:?} items, then {late:?}");
}
