use super::*;
use crate::engine::EngineConfig;
use crate::observe::{Event, EventBatch, Program};
use crate::policy;
use crate::world::control_loop;
use crate::world::scripted::{ScriptedThread, ScriptedWorld};

fn seconds(seconds: u64) -> Time {
    Time(0) + Duration::from_secs(seconds)
}

fn pes(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn engine(shape: &str, policy: &str) -> Engine {
    let machine = Topology::synthetic(shape).unwrap();
    Engine::new(machine, policy::build(policy).unwrap(), EngineConfig::default())
}

/// The last state before the end of `threads` under a policy on a machine.
fn shown(shape: &str, policy: &str, allowed: Vec<(Time, CpuSet)>, threads: Vec<ScriptedThread>) -> Vec<Top> {
    let mut world = ScriptedWorld::new(allowed, threads, seconds(12));
    let (mut top, mut all) = (Top::default(), Vec::new());
    let mut engine = engine(shape, policy);
    let Ok(()) = control_loop(&mut world, &mut engine, |input, actions, engine| {
        top.take(input, actions, engine);
        all.push(top.clone());
    });
    all
}

#[test]
fn it_shows_where_threads_run_what_they_use_and_why_they_are_there() {
    let threads = [0.9, 0.9, 0.0].map(ScriptedThread::steady);
    let all = shown("module:2 core:2 pu:1", "spread", vec![(Time(0), pes("0-3"))], threads.to_vec());
    let top = &all[10];
    assert_eq!((top.threads.len(), top.applications.len(), top.pes.len()), (3, 1, 4));
    let fpu = top.threads.values().filter(|thread| thread.class == FpuClass::Intensive);
    let bound: Vec<_> = fpu.map(|thread| thread.assignment.as_ref().unwrap()).collect();
    assert_eq!(bound.len(), 2);
    assert!(!bound[0].pes.intersects(&bound[1].pes) && !bound[0].reason.is_empty());
    for thread in top.threads.values() {
        assert!((thread.cpu - 1.0).abs() < 0.1 && thread.usage.fpu.is_some(), "{thread:?}");
        assert_eq!(thread.decisions.len(), usize::from(thread.assignment.is_some()));
        assert!(thread.decisions.iter().all(|decided| decided.outcome == Some(OutcomeKind::Done)));
        let pe = &top.pes[&thread.pe.unwrap()];
        assert!(pe.busy > 0.9 && pe.history.max() > 0.9 && !pe.who.is_empty());
    }
    let app = &top.applications[&AppId(0)];
    assert!((app.tlp - 3.0).abs() < 0.1 && (app.cpu - 3.0).abs() < 0.2, "{app:?}");
    assert!((app.fpu.unwrap() - 0.6).abs() < 0.1, "{app:?}");
    assert_eq!(app.class, Some(ParallelismClass::HighlyParallel));
    assert_eq!(top.policy.name, "spread");
}

#[test]
fn pes_that_go_offline_and_come_are_marked() {
    let allowed = vec![(Time(0), pes("0-1")), (seconds(4), pes("0")), (seconds(8), pes("0-2"))];
    let all = shown("core:2 pu:1", "spread", allowed, vec![ScriptedThread::steady(0.9); 2]);
    let state = |top: &Top| -> Vec<(u32, bool, bool)> {
        top.pes.iter().map(|(pe, state)| (pe.0, state.is_usable, state.is_known)).collect()
    };
    assert_eq!(state(&all[1]), [(0, true, true), (1, true, true)]);
    assert_eq!(state(&all[5]), [(0, true, true), (1, false, true)]);
    assert_eq!(state(&all[10]), [(0, true, true), (1, true, true), (2, true, false)]);
}

#[test]
fn what_has_ended_is_gone_and_memory_is_bounded() {
    let mut short = ScriptedThread::steady(0.0);
    (short.lives, short.app) = (Time(0)..seconds(5), AppId(1));
    let all = shown(
        "core:2 pu:1",
        "default",
        vec![(Time(0), pes("0-1"))],
        vec![ScriptedThread::steady(0.0), short],
    );
    assert_eq!((all[2].threads.len(), all[2].applications.len()), (2, 2));
    assert_eq!((all[8].threads.len(), all[8].applications.len()), (1, 1));
    let mut history = History::default();
    (0..1_000).for_each(|value| history.push(f64::from(value)));
    assert_eq!(history.last(HISTORY_MAX + 1).len(), HISTORY_MAX);
    assert_eq!(history.last(2).collect::<Vec<_>>(), [998.0, 999.0]);
}

/// Observations of one thread of process 7, at these seconds with this CPU time in milliseconds.
fn observed(at: u64, cpu_ms: u64) -> Observation {
    let cpu_ns = cpu_ms * 1_000_000;
    Observation {
        at: seconds(at),
        allowed: pes("0-1"),
        threads: vec![ThreadReading { cpu_ns, ..ThreadReading::example(7) }],
        applications: vec![ApplicationReading { name: "app".into(), ..Default::default() }],
        own_cpu_ns: at * 10_000_000,
        answers_cpu_ns: 0,
        ..Observation::default()
    }
}

fn take(top: &mut Top, engine: &mut Engine, observation: Observation) {
    let actions = engine.step(&observation);
    top.take(&Input::Observation(observation), &actions, engine);
}

#[test]
fn shares_are_of_the_time_since_the_last_observation() {
    let (mut top, mut engine) = (Top::default(), engine("core:2 pu:1", "default"));
    take(&mut top, &mut engine, observed(1, 0));
    assert_eq!(top.own_share, None, "it is not known how long that took");
    take(&mut top, &mut engine, observed(3, 500));
    let thread = top.threads.values().next().unwrap();
    assert_eq!((thread.cpu, top.own_share), (0.25, Some(0.01)));
    assert_eq!(thread.usage, Usage::default(), "what no counter tells is not 0");
    assert_eq!((thread.class, top.applications[&AppId(0)].fpu), (FpuClass::Unknown, None));
    // Events in between tell nothing about shares.
    let events = vec![Event::ThreadEnded(ThreadId { tid: 9, generation: 0 })];
    top.take(&Input::Events(EventBatch { at: seconds(3), events, ..Default::default() }), &[], &engine);
    assert_eq!(top.at, seconds(3));
}

#[test]
fn a_thread_is_called_by_the_program_of_its_process_until_that_ends() {
    let (mut top, mut engine) = (Top::default(), engine("core:2 pu:1", "default"));
    let leader = ThreadId { tid: 7, generation: 0 };
    let programs = vec![Program { leader, name: "script.py".into() }];
    take(&mut top, &mut engine, Observation { programs, ..observed(1, 0) });
    let name = |top: &Top| top.program_of(top.threads.values().next().unwrap()).to_owned();
    assert_eq!(name(&top), "script.py");
    let mut ended = observed(2, 0);
    ended.threads[0].ended = true;
    take(&mut top, &mut engine, ended);
    assert!(top.threads.is_empty());
    take(&mut top, &mut engine, observed(3, 0));
    assert_eq!(name(&top), "t", "another process has the number now");
}
