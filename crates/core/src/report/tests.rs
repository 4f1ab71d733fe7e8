use super::*;
use crate::engine::{Engine, EngineConfig};
use crate::guard::BACK;
use crate::ids::{AppId, ThreadId};
use crate::observe::{
    ApplicationReading, CounterReading, Event, EventBatch, Input, Observation, Program, SampleReading,
    ThreadReading,
};
use crate::plan::{Action, Change, Outcome, OutcomeKind, Setting};
use crate::policy;
use crate::time::Time;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn reading(tid: u32, cpu_ns: u64) -> ThreadReading {
    ThreadReading { cpu_ns, ..ThreadReading::example(tid) }
}

/// A reading of `judged` samples, of which the share `fp` is in floating-point work.
fn sampled(reading: ThreadReading, judged: u64, fp: f64) -> ThreadReading {
    let fp = judged as f64 * fp;
    let counters = CounterReading::Sample(SampleReading { judged, fp, vector: fp, ..Default::default() });
    ThreadReading { counters: Some(counters), ..reading }
}

fn application(app: u32) -> ApplicationReading {
    ApplicationReading {
        app: AppId(app),
        name: format!("app{app}").into(),
        runnable_thread_ns: 0,
        active_ns: 0,
        sequential_ns: 0,
        runnable_max: 1,
        exact: true,
        ..ApplicationReading::default()
    }
}

/// The report of a run with these observations, one second apart.
fn report(config: EngineConfig, looks: impl IntoIterator<Item = Vec<ThreadReading>>) -> Report {
    let topology = Topology::synthetic("pack:1 core:2 pu:2").unwrap();
    let mut engine = Engine::new(topology, policy::build("default").unwrap(), config);
    let mut builder = ReportBuilder::default();
    for (second, threads) in (1..).zip(looks) {
        let observation = Observation {
            at: Time(second * SECOND),
            allowed: CpuSet::first_n(4),
            threads,
            applications: vec![application(0), application(1)],
            ..Observation::default()
        };
        let actions = engine.step(&observation);
        builder.watch(&Input::Observation(observation), &actions, &engine);
    }
    finish(builder, &engine)
}

fn finish(builder: ReportBuilder, engine: &Engine) -> Report {
    builder.finish(engine, circumstances())
}

fn circumstances() -> Circumstances {
    Circumstances {
        command: vec!["test".into()],
        dry_run: true,
        evidence: "replayed",
        host: None,
        sources: Sources { discovery: "scripted".into(), counters: "sample".into() },
        rounds: Vec::new(),
        peak_memory_bytes: None,
        command_cpu: None,
        notes: Vec::new(),
    }
}

#[test]
fn the_pes_of_a_thread_are_reported_with_its_share_of_time() {
    let on = |pe, cpu_ns| vec![ThreadReading { last_pe: Some(PeId(pe)), ..reading(7, cpu_ns) }];
    let report = report(
        EngineConfig::default(),
        [on(0, SECOND / 4), on(0, SECOND / 2), on(0, SECOND / 2), on(1, 3 * SECOND / 2)],
    );
    let spans: Vec<_> = report.threads[0]
        .ran_on
        .iter()
        .map(|r| (r.from_ns / SECOND, r.to_ns / SECOND, r.pe.map(|pe| pe.0), r.share))
        .collect();
    assert_eq!(spans, [(0, 2, Some(0), 0.25), (3, 4, Some(1), 1.0)]);
}

#[test]
fn the_class_is_the_one_by_which_the_engine_decided() {
    let class = |fpu_threshold, ended| {
        let config = EngineConfig { fpu_threshold, ..EngineConfig::default() };
        let thread = ThreadReading { ended, ..sampled(reading(7, SECOND), 400, 0.5) };
        report(config, [vec![thread]]).threads[0].fpu_class
    };
    for ended in [false, true] {
        assert_eq!(class(0.3, ended), FpuClass::Intensive, "ended: {ended}");
        assert_eq!(class(0.7, ended), FpuClass::Light, "ended: {ended}");
    }
}

#[test]
fn an_application_is_judged_by_its_own_threads_alone() {
    let of = |app, thread: ThreadReading| ThreadReading { app: AppId(app), ..thread };
    let threads = vec![
        of(0, sampled(reading(1, SECOND), 100, 0.75)),
        of(1, sampled(reading(2, SECOND), 100, 0.25)),
        of(1, reading(3, 2 * SECOND)),
    ];
    let report = report(EngineConfig::default(), [threads]);
    let spans: Vec<_> =
        report.applications.iter().map(|a| (a.fpu_usage, a.vector_usage, a.cpu_seconds)).collect();
    assert_eq!(spans, [(Some(0.75), Some(0.75), 1.0), (Some(0.25), Some(0.25), 3.0)]);
}

#[test]
fn rounding_errors_are_reported_as_0() {
    let report = report(EngineConfig::default(), [vec![sampled(reading(1, SECOND), 100, 6e-17)]]);
    assert_eq!(report.threads[0].fpu_usage, Some(0.0));
    assert_eq!(report.applications[0].fpu_usage, Some(0.0));
}

#[test]
fn any_number_of_ended_threads_is_reported_in_bounded_room() {
    const THREADS: u32 = 20_000;
    let one = |tid: u32| {
        let name = if tid.is_multiple_of(2) { "sh".into() } else { format!("cc{}", tid % 5_000).into() };
        let thread = sampled(reading(tid, u64::from(tid)), 10, 0.5);
        vec![ThreadReading { name, ended: true, ..thread }]
    };
    let report = report(EngineConfig::default(), (1..=THREADS).map(one));
    assert!(report.threads.len() <= 2_000 && report.more_threads.len() <= 202);
    let listed = report.threads.len() as u64;
    let grouped: u64 = report.more_threads.iter().map(|group| group.threads).sum();
    assert_eq!(listed + grouped, u64::from(THREADS));
    assert_eq!(report.threads[0].tid, THREADS, "the busiest are listed");
    let cpu_seconds = u64::from(THREADS) * u64::from(THREADS + 1) / 2;
    assert_eq!((report.applications[0].cpu_seconds * 1e9).round() as u64, cpu_seconds);
    assert_eq!(report.applications[0].fpu_usage, Some(0.5));
    let shells = report.more_threads.iter().find(|group| group.name.as_deref() == Some("sh")).unwrap();
    assert!(shells.threads > 8_000, "{shells:?}");
}

#[test]
fn shared_resources_are_reported_once() {
    let report = report(EngineConfig::default(), [Vec::new()]);
    let shared: Vec<_> = report.shared.iter().map(|s| (s.resource, s.pes.to_string())).collect();
    let expected = [(DomainKind::Core, "0-1"), (DomainKind::Core, "2-3"), (DomainKind::NumaNode, "0-3")];
    assert_eq!(shared, expected.map(|(kind, pes)| (kind, pes.to_owned())));
}

#[test]
fn each_decision_is_reported_with_its_outcome() {
    let topology = Topology::synthetic("pack:1 core:2 pu:2").unwrap();
    let engine = Engine::new(topology, policy::build("default").unwrap(), EngineConfig::default());
    let change = Change::Bind(CpuSet::single(PeId(1)));
    let action = |tid| Action {
        thread: ThreadId { tid, generation: 0 },
        change: change.clone(),
        reason: "test".into(),
    };
    let kinds = [
        (OutcomeKind::Done, "done"),
        (OutcomeKind::Gone, "ended"),
        (OutcomeKind::NotOurs, "left alone"),
        (OutcomeKind::Refused("EPERM".into()), "refused: EPERM"),
        (OutcomeKind::Unsupported, "not supported"),
    ];
    let outcomes = (1..).zip(&kinds).map(|(tid, (result, _))| {
        let (thread, result) = (ThreadId { tid, generation: 0 }, result.clone());
        Outcome { thread, change: change.clone(), result }
    });
    let look = |second, outcomes| {
        let threads = (1..=6).map(|tid| reading(tid, 0)).collect();
        Input::Observation(Observation { at: Time(second * SECOND), threads, outcomes, ..Default::default() })
    };
    let mut builder = ReportBuilder::default();
    builder.watch(&look(1, Vec::new()), &(1..=6).map(action).collect::<Vec<_>>(), &engine);
    builder.watch(&look(2, outcomes.collect()), &[], &engine);
    let report = finish(builder, &engine);
    let said: Vec<Option<&str>> =
        report.decisions.iter().map(|decision| decision.outcome.as_deref()).collect();
    for (said, (_, expected)) in said.iter().zip(&kinds) {
        assert!(said.is_some_and(|said| said.contains(expected)), "{said:?}");
    }
    assert_eq!(said[5..], [None], "nothing was heard of the last one");
    let bound = report.threads.iter().filter(|thread| !thread.bindings.is_empty());
    assert_eq!(bound.map(|thread| thread.tid).collect::<Vec<_>>(), [1]);
}

#[test]
fn bindings_between_two_observations_have_their_times_also_of_a_new_thread() {
    let engine = default_engine();
    let thread = ThreadId { tid: 7, generation: 0 };
    let changes = [
        (200, Change::Bind(CpuSet::single(PeId(1))), "entered a sequential phase"),
        (300, Change::Bind(CpuSet::single(PeId(2))), "left it"),
        (450, Change::Bind(CpuSet::single(PeId(3))), BACK),
        (500, Change::Bind(CpuSet::single(PeId(1))), "again"),
        (600, Change::Free, "no longer wanted"),
    ];
    let batch =
        |ms, events, outcomes| Input::Events(EventBatch { at: Time(ms * SECOND / 1_000), events, outcomes });
    let mut builder = ReportBuilder::default();
    let started = Event::ThreadStarted(Box::new(reading(7, 0)));
    builder.watch(&batch(100, vec![started], Vec::new()), &[], &engine);
    let mut outcomes = Vec::new();
    for (ms, change, reason) in changes {
        let action = Action { thread, change: change.clone(), reason: reason.into() };
        builder.watch(&batch(ms, Vec::new(), std::mem::take(&mut outcomes)), &[action], &engine);
        outcomes = vec![Outcome { thread, change, result: OutcomeKind::Done }];
    }
    let threads = vec![reading(7, SECOND)];
    let last = Observation { at: Time(SECOND), threads, outcomes, ..Observation::default() };
    builder.watch(&Input::Observation(last), &[], &engine);
    let report = finish(builder, &engine);
    let bindings = report.threads[0].bindings.iter();
    let bindings: Vec<_> =
        bindings.map(|b| (b.from_ns / 1_000_000, b.to_ns / 1_000_000, b.pes.to_string())).collect();
    let expected = [(200, 300, "1"), (300, 450, "2"), (500, 600, "1")];
    assert_eq!(bindings, expected.map(|(from, to, pes)| (from, to, pes.to_owned())));
    let bound: f64 = report.timeline.pes.iter().flat_map(|row| &row.bound).sum();
    assert!((bound * report.timeline.column_ns as f64 / 350e6 - 1.0).abs() < 0.01, "{bound}");
}

/// One observation at this second.
fn look(builder: &mut ReportBuilder, engine: &mut Engine, second: u64, observation: Observation) {
    let observation = Observation { at: Time(second * SECOND), ..observation };
    let actions = engine.step(&observation);
    builder.watch(&Input::Observation(observation), &actions, engine);
}

fn default_engine() -> Engine {
    let topology = Topology::synthetic("pack:1 core:2 pu:2").unwrap();
    Engine::new(topology, policy::build("default").unwrap(), EngineConfig::default())
}

#[test]
fn a_command_has_the_cpu_time_from_its_start_and_the_parallelism_of_what_was_watched() {
    let watched_late =
        ApplicationReading { began: Time(4 * SECOND), runnable_thread_ns: 3 * SECOND / 2, ..application(0) };
    let (mut engine, mut builder) = (default_engine(), ReportBuilder::default());
    let observation = Observation {
        threads: vec![reading(1, SECOND / 10)],
        applications: vec![watched_late],
        ..Default::default()
    };
    look(&mut builder, &mut engine, 5, observation);
    let circumstances = Circumstances { command_cpu: Some(Duration::from_secs(2)), ..circumstances() };
    let application = &builder.finish(&engine, circumstances).applications[0];
    assert_eq!((application.cpu_seconds, application.busy_pes_mean), (2.0, Some(0.4)), "over 5 s");
    assert_eq!((application.from_seconds, application.tlp_mean), (4.0, 1.5), "over the last second");
}

#[test]
fn what_outlives_a_command_is_in_the_readings_alone() {
    let report = report(EngineConfig::default(), [vec![reading(1, SECOND / 2)]]);
    assert_eq!(report.applications[0].cpu_seconds, 0.5);
    assert_eq!(report.applications[0].busy_pes_mean, Some(0.5));
}

#[test]
fn processes_are_known_by_their_programs() {
    let (mut engine, mut builder) = (default_engine(), ReportBuilder::default());
    let of = |tid, pid, name: &str| ThreadReading { pid, name: name.into(), ..reading(tid, SECOND) };
    let program = |tid, name: &str| Program { leader: ThreadId { tid, generation: 0 }, name: name.into() };
    let programs = vec![program(1, "train.py"), program(3, "eval.py")];
    let threads = vec![of(1, 1, "python3"), of(2, 1, "worker"), of(3, 3, "python3"), of(4, 4, "cat")];
    look(&mut builder, &mut engine, 1, Observation { threads, programs, ..Default::default() });
    // The process 3 ends, and another one has its ID.
    let ended = ThreadReading { ended: true, ..of(3, 3, "python3") };
    let thread = ThreadId { tid: 3, generation: 1 };
    let later = ThreadReading { thread, ..of(3, 3, "sh") };
    let programs = vec![Program { leader: thread, name: "job.sh".into() }];
    let threads = vec![ended, later];
    look(&mut builder, &mut engine, 2, Observation { threads, programs, ..Default::default() });
    let report = finish(builder, &engine);
    let mut known: Vec<_> =
        report.threads.iter().map(|t| (t.tid, &*t.name, t.program.as_deref().unwrap_or("-"))).collect();
    known.sort_unstable();
    let expected = [
        (1, "python3", "train.py"),
        (2, "worker", "train.py"),
        (3, "python3", "eval.py"),
        (3, "sh", "job.sh"),
        (4, "cat", "-"),
    ];
    assert_eq!(known, expected);
}

#[test]
fn the_programs_whose_waits_were_changed_are_counted_also_when_they_have_ended() {
    let (mut engine, mut builder) = (default_engine(), ReportBuilder::default());
    let leader = |tid| ThreadId { tid, generation: 0 };
    let programs = (1..=3).map(|tid| Program { leader: leader(tid), name: "train.py".into() }).collect();
    let threads: Vec<_> = (1..=3).map(|tid| reading(tid, SECOND)).collect();
    look(&mut builder, &mut engine, 1, Observation { threads, programs, ..Default::default() });
    let change = Change::Set(Setting::SpinCount(1));
    let done = |tid| Outcome { thread: leader(tid), change: change.clone(), result: OutcomeKind::Done };
    let events = EventBatch { at: Time(SECOND), outcomes: vec![done(1), done(2)], ..EventBatch::default() };
    builder.watch(&Input::Events(events), &[], &engine);
    let ended = ThreadReading { ended: true, ..reading(1, SECOND) };
    look(&mut builder, &mut engine, 2, Observation { threads: vec![ended], ..Default::default() });
    let report = finish(builder, &engine);
    assert_eq!(report.waits.programs, [ChangedProgram { name: "train.py".into(), processes: 2 }]);
    assert!(
        report.headline.contains("let idle threads of train.py (2 processes) sleep"),
        "{}",
        report.headline
    );
}

#[test]
fn reports_of_the_version_before_are_read_by_the_keys_of_that_time() {
    let mut now = report(EngineConfig::default(), [vec![reading(1, 0)], vec![reading(1, SECOND / 2)]]);
    (now.nothing_to_gain, now.waits.processes_with_short_waits) = (Some("one PE".into()), 3);
    let written = serde_json::to_string(&now).unwrap();
    let pairs = [("nothing_to_gain", "verdict"), ("processes_with_short_waits", "shortened_processes")];
    let before = pairs.iter().fold(written, |text, (key, before)| {
        assert!(text.contains(key) && !text.contains(before), "{text}");
        text.replace(key, before)
    });
    let read: Report = serde_json::from_str(&before).unwrap();
    assert_eq!((read.nothing_to_gain, read.waits), (now.nothing_to_gain, now.waits));
}
