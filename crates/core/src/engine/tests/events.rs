//! Steps that events cause, and windows over time.

use super::*;
use crate::observe::{ApplicationReading, Event, EventBatch, EventKind, RunnableThreads};
use crate::policy::Claims;
use crate::waits::WaitChanges;
use std::cell::RefCell;
use std::rc::Rc;

/// Binds no thread and records the requests.
struct Listener {
    kinds: &'static [EventKind],
    asked: Rc<RefCell<Vec<String>>>,
}

impl Policy for Listener {
    fn name(&self) -> &str {
        "listener"
    }

    fn needs(&self) -> Needs {
        Needs { events: self.kinds, ..Needs::NONE }
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let runnable = scene.threads.iter().filter(|subject| subject.runnable).count();
        let of = scene.threads.len();
        self.asked.borrow_mut().push(match scene.cause {
            Cause::Interval => format!("interval: {runnable} of {of} runnable"),
            Cause::Events(events) => {
                let kinds: Vec<_> = events.iter().map(|event| event.kind().words()).collect();
                format!("{}: {runnable} of {of} runnable", kinds.join(", "))
            }
        });
        Placement::default()
    }
}

fn heard(kinds: &'static [EventKind], threads: Vec<ScriptedThread>, end: Time) -> Vec<String> {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let policy = Listener { kinds, asked: asked.clone() };
    let topology = bulldozer();
    let allowed = vec![(Time(0), topology.allowed.clone())];
    let mut world = ScriptedWorld::new(allowed, threads, end).with_events();
    let mut engine = Engine::new(topology, Box::new(policy), EngineConfig::default());
    control_loop(&mut world, &mut engine, |_, _, _| {}).unwrap();
    asked.take()
}

#[test]
fn a_policy_hears_of_what_it_asks_for_and_at_once() {
    let mut threads = steady(&[0.0, 0.0]);
    threads[1].blocked = vec![Time(1_500_000_000)..Time(1_700_000_000)];
    assert_eq!(
        heard(&[EventKind::TlpChanged], threads.clone(), second(3)),
        [
            "interval: 2 of 2 runnable",
            "changes of TLP: 1 of 2 runnable",
            "changes of TLP: 2 of 2 runnable",
            "interval: 2 of 2 runnable",
            "interval: 2 of 2 runnable",
        ]
    );
    assert_eq!(
        heard(&[], threads, second(3)).len(),
        3,
        "without a subscription there are only the observations at intervals"
    );
}

#[test]
fn threads_that_come_and_go_between_intervals_are_part_of_the_scene() {
    let mut threads = steady(&[0.0, 0.0]);
    threads[1].lives = Time(1_500_000_000)..Time(1_700_000_000);
    assert_eq!(
        heard(&[EventKind::ThreadStarted, EventKind::ThreadEnded], threads, second(3)),
        [
            "interval: 1 of 1 runnable",
            "new threads: 2 of 2 runnable",
            "ended threads: 1 of 1 runnable",
            "interval: 1 of 1 runnable",
            "interval: 1 of 1 runnable",
        ]
    );
}

/// Events may wait while an observation is made, which then already shows the threads that they report.
#[test]
fn a_thread_whose_start_is_reported_after_an_observation_of_it_is_one_thread() {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let policy = Listener { kinds: &[EventKind::ThreadStarted], asked: asked.clone() };
    let mut engine = Engine::new(bulldozer(), Box::new(policy), EngineConfig::default());
    let reading = |tid| ThreadReading::example(tid);
    let (at, allowed) = (second(1), CpuSet::first_n(8));
    engine.step(&Observation { at, allowed, threads: vec![reading(7)], ..Observation::default() });
    let started = |tid| Event::ThreadStarted(Box::new(reading(tid)));
    let events = vec![started(7), started(8), started(8)];
    engine.react(&EventBatch { at: second(1), events, outcomes: Vec::new() });
    assert_eq!(
        asked.take(),
        ["interval: 1 of 1 runnable", "new threads, new threads, new threads: 2 of 2 runnable"]
    );
}

/// One application of four threads on one fast and three slow PEs: parallel, then with one runnable thread.
#[test]
fn a_sequential_phase_gets_the_fast_pe_when_it_has_lasted() {
    let mut threads = steady(&[0.0; 4]);
    for thread in &mut threads[..3] {
        thread.blocked = vec![Time(2_400_000_000)..Time(2_700_000_000)];
    }
    let topology = machine_of_kinds("core:4 pu:1", &[("fast", "0"), ("slow", "1-3")]);
    let moved = |name: &str| {
        let allowed = vec![(Time(0), topology.allowed.clone())];
        let mut world = ScriptedWorld::new(allowed, threads.clone(), second(4)).with_events();
        let policy = policy::build(name).unwrap();
        let mut engine = Engine::new(topology.clone(), policy, EngineConfig::default());
        let mut moved = Vec::new();
        control_loop(&mut world, &mut engine, |input, actions, _| {
            let onto_fast = Change::Bind(CpuSet::single(PeId(0)));
            let gained = actions.iter().filter(|action| action.change == onto_fast);
            moved.extend(gained.map(|action| (input.at().0 / 1_000_000, action.thread)));
        })
        .unwrap();
        moved
    };
    for name in ["pa", "mintlp"] {
        let moved = moved(name);
        assert!(moved.contains(&(2500, id(3))), "{name}: {moved:?}");
        let during = moved.iter().filter(|(at, _)| (2000..3000).contains(at)).count();
        assert!(during <= 2, "{name}: the phase costs one swap and its end one at most: {moved:?}");
    }
}

/// The sequential phase of an application passes from one of its threads to another one.
#[test]
fn a_claim_passes_to_the_thread_that_works() {
    let ms = |ms: u64| Time(ms * 1_000_000);
    let mut threads = vec![ScriptedThread::steady(0.0); 8];
    threads[..2].iter_mut().for_each(|thread| thread.blocked = vec![ms(2400)..ms(3600)]);
    threads[2].blocked = vec![ms(2400)..ms(3100)];
    threads[3].blocked = vec![ms(3000)..ms(3600)];
    threads[4..].iter_mut().for_each(|thread| thread.app = AppId(1));
    let topology = machine_of_kinds("core:4 pu:1", &[("fast", "0"), ("slow", "1-3")]);
    for name in ["pa", "mintlp"] {
        let allowed = vec![(Time(0), topology.allowed.clone())];
        let world = ScriptedWorld::new(allowed, threads.clone(), second(5));
        let mut world = world.with_events().with_weights();
        let config = EngineConfig { claims: Claims::Weights, ..EngineConfig::default() };
        let mut engine = Engine::new(topology.clone(), policy::build(name).unwrap(), config);
        let mut claims = Vec::new();
        control_loop(&mut world, &mut engine, |input, _, engine| {
            let now: Vec<ThreadId> = engine.present().settings.keys().map(|(thread, _)| *thread).collect();
            if claims.last().is_none_or(|(_, before)| *before != now) {
                claims.push((input.at().0 / 1_000_000, now));
            }
        })
        .unwrap();
        claims.retain(|(at, _)| (2000..5000).contains(at));
        let expected = [(2500, vec![id(3)]), (3100, vec![id(2)]), (3600, vec![])];
        assert_eq!(claims, expected, "{name}");
    }
}

/// A single-threaded application blocks for a moment beside a highly parallel one.
#[test]
fn a_thread_kept_from_the_fast_pe_by_its_mask_gets_it_back_while_the_claimant_blocks() {
    let mut threads = vec![ScriptedThread::steady(0.0); 5];
    threads[0].blocked = vec![Time(2_400_000_000)..Time(2_700_000_000)];
    threads[1..].iter_mut().for_each(|thread| thread.app = AppId(1));
    let topology = machine_of_kinds("core:4 pu:1", &[("fast", "0"), ("slow", "1-3")]);
    for name in ["pa", "mintlp"] {
        let allowed = vec![(Time(0), topology.allowed.clone())];
        let mut world = ScriptedWorld::new(allowed, threads.clone(), second(4)).with_events();
        let policy = policy::build(name).unwrap();
        let mut engine = Engine::new(topology.clone(), policy, EngineConfig::default());
        let mut kept = Vec::new();
        control_loop(&mut world, &mut engine, |input, _, engine| {
            let others = engine.present().bound.iter().filter(|(thread, _)| **thread != id(0));
            let of_now = (input.at().0 / 1_000_000, others.count());
            if kept.last().is_none_or(|(_, before)| *before != of_now.1) {
                kept.push(of_now);
            }
        })
        .unwrap();
        let between = kept.iter().filter(|(at, _)| (2000..3000).contains(at)).copied();
        assert_eq!(between.collect::<Vec<_>>(), [(2400, 0), (2700, 4)], "{name}: {kept:?}");
    }
}

/// The phase begins before the first observation, which finds one thread with an inherited mask.
#[test]
fn a_thread_that_inherited_a_mask_is_bound_as_soon_as_it_is_freed() {
    let mut threads = steady(&[0.0; 2]);
    threads[0].blocked = vec![Time(900_000_000)..second(9)];
    threads[1].standing = Standing::Inherited;
    let topology = machine_of_kinds("core:2 pu:1", &[("fast", "0"), ("slow", "1")]);
    for name in ["pa:hp_threshold=1", "mintlp"] {
        let allowed = vec![(Time(0), topology.allowed.clone())];
        let mut world = ScriptedWorld::new(allowed, threads.clone(), second(2)).with_events();
        let policy = policy::build(name).unwrap();
        let mut engine = Engine::new(topology.clone(), policy, EngineConfig::default());
        let mut changes = Vec::new();
        control_loop(&mut world, &mut engine, |input, actions, _| {
            let of_second = actions.iter().filter(|action| action.thread == id(1));
            changes.extend(of_second.map(|action| match &action.change {
                Change::Bind(pes) => format!("{} ms: {pes}", input.at().0 / 1_000_000),
                change => format!("{} ms: {change:?}", input.at().0 / 1_000_000),
            }));
        })
        .unwrap();
        assert_eq!(changes[..2], ["1000 ms: Free", "1000 ms: 0"], "{name}");
    }
}

/// Of two PEs and 40 threads, only the last thread wants a PE.
#[test]
fn runnable_threads_are_bound_before_resting_ones() {
    let mut threads = steady(&[0.0; 40]);
    threads[..39].iter_mut().for_each(|thread| thread.blocked = vec![Time(0)..second(9)]);
    let topology = machine_of_kinds("core:2 pu:1", &[("fast", "0"), ("slow", "1")]);
    let allowed = vec![(Time(0), topology.allowed.clone())];
    let mut world = ScriptedWorld::new(allowed, threads, second(2)).with_events();
    let mut engine = Engine::new(topology, policy::build("pa").unwrap(), EngineConfig::default());
    let mut bound = Vec::new();
    control_loop(&mut world, &mut engine, |_, actions, _| {
        bound.extend(actions.iter().map(|action| (action.thread, action.change.clone())));
    })
    .unwrap();
    assert_eq!(bound[0], (id(39), Change::Bind(CpuSet::single(PeId(0)))));
}

#[test]
fn a_thread_placed_by_another_is_left_alone_until_the_next_look() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    let first = engine.step(&observe(2, Standing::Free, Vec::new()));
    let mut react = |ms: u64, outcomes| {
        let renamed = Event::ThreadRenamed { thread: id(0), name: "other".into() };
        engine.react(&EventBatch { at: Time(ms * 1_000_000), events: vec![renamed], outcomes })
    };
    assert_eq!(react(2_100, vec![outcome(&first[0], OutcomeKind::NotOurs)]), []);
    assert_eq!(react(2_200, Vec::new()), []);
}

#[test]
fn an_event_that_changes_nothing_for_the_policy_costs_no_decision() {
    // Whether six or seven of eight threads are runnable: the application is highly parallel.
    let mut threads = steady(&[0.0; 8]);
    threads[7].blocked =
        (0..40).map(|n| Time(1_100_000_000 + n * 100_000_000)).map(|at| at..at + SLICE).collect();
    let topology = machine_of_kinds("core:4 pu:1", &[("fast", "0"), ("slow", "1-3")]);
    let allowed = vec![(Time(0), topology.allowed.clone())];
    let mut world = ScriptedWorld::new(allowed, threads, second(5)).with_events();
    let mut engine = Engine::new(topology, policy::build("pa").unwrap(), EngineConfig::default());
    let (mut events, mut actions_by_events) = (0, 0);
    control_loop(&mut world, &mut engine, |input, actions, _| {
        if input.observation().is_none() && input.at() > second(1) {
            events += 1;
            actions_by_events += actions.len();
        }
    })
    .unwrap();
    assert!(events > 50, "{events}");
    assert_eq!(actions_by_events, 0);
}

const SLICE: Duration = Duration::from_millis(50);

/// The same activity, observed every second and every tenth of a second.
#[test]
fn a_more_frequent_look_changes_no_meaning() {
    let judged = |interval: Duration| {
        let mut threads = steady(&[0.9, 0.1]);
        // Runs in the first 400 ms of each second.
        threads[1].blocked = (0..20).map(|n| second(n) + Duration::from_millis(400)..second(n + 1)).collect();
        let topology = bulldozer();
        let mut world = ScriptedWorld::new(vec![(Time(0), topology.allowed.clone())], threads, second(10));
        let config = EngineConfig { interval, ..EngineConfig::default() };
        let mut engine = Engine::new(topology, policy::build("default").unwrap(), config);
        control_loop(&mut world, &mut engine, |_, _, _| {}).unwrap();
        let known = &engine.intake.subjects();
        let tlp = engine.intake.applications.views[&AppId(0)].tlp_mean;
        (known[0].view.runnable_share, known[1].view.runnable_share, known[1].fpu_class, tlp)
    };
    let (busy, resting, class, tlp) = judged(Duration::from_secs(1));
    let (busy_often, resting_often, class_often, tlp_often) = judged(Duration::from_millis(100));
    assert!((busy - 1.0).abs() < 1e-9 && (busy_often - 1.0).abs() < 1e-9);
    assert!((resting - 0.4).abs() < 0.01 && (resting_often - 0.4).abs() < 0.15, "{resting} {resting_often}");
    assert_eq!(class, class_often);
    assert!((tlp - 1.4).abs() < 0.01 && (tlp_often - 1.4).abs() < 0.45, "{tlp} {tlp_often}");
}

#[test]
fn a_resting_thread_keeps_its_pe() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    let mut both = observe(2, Standing::Free, Vec::new());
    let other = ThreadReading { thread: id(1), ..both.threads[0].clone() };
    both.threads.push(other);
    both.applications = vec![ApplicationReading {
        app: AppId(0),
        name: "test".into(),
        runnable_thread_ns: 0,
        active_ns: 0,
        sequential_ns: 0,
        runnable_max: 2,
        exact: true,
        ..ApplicationReading::default()
    }];
    assert_eq!(engine.step(&both).len(), 2);
    let runnable = RunnableThreads { app: AppId(0), count: 1, only: Some(id(1)) };
    let events = vec![Event::TlpChanged(runnable)];
    let actions = engine.react(&EventBatch { at: second(2), events, outcomes: Vec::new() });
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(engine.present().bound.len(), 2);
}

#[test]
fn a_program_that_is_executed_is_an_application_at_once() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    engine.step(&observe(2, Standing::Free, Vec::new()));
    let thread = engine.intake.subjects()[0].view.thread;
    assert_eq!(engine.intake.subjects()[0].view.app, AppId(0));
    let runnable = |app, count, only| Event::TlpChanged(RunnableThreads { app: AppId(app), count, only });
    let events = vec![runnable(0, 0, None), runnable(7, 1, Some(thread)), runnable(8, 3, None)];
    engine.react(&EventBatch { at: second(2), events, outcomes: Vec::new() });
    assert_eq!(engine.intake.subjects()[0].view.app, AppId(7));
    let runnable = |app| engine.intake.applications.views.get(&AppId(app)).and_then(|view| view.runnable);
    assert_eq!((runnable(7), runnable(8)), (Some(1), Some(3)));
    // The world forgets an application that has ended.
    engine.step(&observe(3, Standing::Free, Vec::new()));
    assert!(!engine.intake.applications.views.contains_key(&AppId(7)));
}

#[test]
fn waits_are_changed_between_observations_also_before_the_first() {
    let config = EngineConfig { waits: WaitChanges { spin: true, turns: true }, ..EngineConfig::default() };
    let mut engine =
        Engine::new(bulldozer(), Box::new(Listener { kinds: &[], asked: Rc::default() }), config);
    let leader = ThreadId { tid: 7, generation: 1 };
    let example = crate::observe::ProcessReading::example(leader);
    let usual = engine.interval();
    let mut react = |ms: u64| {
        let ns = ms * 1_000_000;
        let reading = crate::observe::ProcessReading { at: Time(ns), run_ns: ns, wait_ns: ns, ..example };
        let batch = EventBatch { at: Time(ns), events: vec![Event::Process(reading)], outcomes: Vec::new() };
        (engine.react(&batch), engine.interval())
    };
    assert!([0, 20].into_iter().all(|ms| react(ms).0.is_empty()));
    let (actions, interval) = react(50);
    assert_eq!(actions.len(), 1, "{actions:?}");
    assert_eq!(actions[0].thread, leader);
    assert_eq!(actions[0].change.setting_kind(), Some(crate::plan::SettingKind::SpinCount));
    assert!(interval < usual, "samples may soon show that turns are better");
}

/// The machine of the first PEs of another one.
fn part(of: &Topology, pes: &CpuSet) -> Topology {
    let mut part = of.clone();
    (part.pes, part.allowed) = (pes.clone(), pes.clone());
    part.domains.iter_mut().for_each(|domain| domain.pes = domain.pes.intersection(pes));
    part.domains.retain(|domain| !domain.pes.is_empty());
    part.kinds.iter_mut().for_each(|kind| kind.pes = kind.pes.intersection(pes));
    part.kinds.retain(|kind| !kind.pes.is_empty());
    part
}

#[test]
fn pes_that_came_online_are_used_once_the_machine_has_them() {
    let (whole, before) = (every_policys_machine(), CpuSet::first_n(2));
    let mut engine = Engine::new(part(&whole, &before), Box::new(Wander), EngineConfig::default());
    let mut bound_at = |at_s, machine: Option<&Topology>| {
        machine.into_iter().for_each(|machine| engine.set_machine(machine.clone()));
        engine.step(&observe(at_s, Standing::Free, Vec::new()));
        engine.present().bound.get(&id(0)).map(|assignment| assignment.pes.to_string())
    };
    assert_eq!(bound_at(2, None).as_deref(), Some("1"));
    assert_eq!(bound_at(4, None), None, "PE 2 is not known");
    assert_eq!(bound_at(5, Some(&whole)).as_deref(), Some("2"));
    // No policy holds to the machine that it has seen first.
    for kind in policy::KINDS.iter().filter(|kind| !kind.takes_command()) {
        let policy = policy::build(kind.name).unwrap();
        let mut engine = Engine::new(part(&whole, &before), policy, EngineConfig::default());
        for at_s in 1..9 {
            if at_s == 5 {
                engine.set_machine(whole.clone());
            }
            let one = observe(at_s, Standing::Free, Vec::new());
            let reading = |index| ThreadReading { thread: id(index), ..one.threads[0].clone() };
            engine.step(&Observation { threads: (0..4).map(reading).collect(), ..one });
        }
        assert_eq!(engine.topology().pes, whole.pes, "{}", kind.name);
    }
}
