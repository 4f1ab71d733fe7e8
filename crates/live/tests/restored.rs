//! Waits that were changed before the sources of a world are replaced: a real OpenMP program. (A process of
//! its own, as the world takes over its signals and children.)
#![cfg(target_arch = "x86_64")]

use corewise_binding::actuators::Actuators;
use corewise_binding::guardian::Guardian;
use corewise_binding::heartbeat::IfHung;
use corewise_binding::runtimes::libgomp;
use corewise_binding::runtimes::loaded::{Files, Loaded};
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::observe::{Event, EventKind, IdleWait, Target, Treatment};
use corewise_core::plan::{Action, Change, OutcomeKind, Setting, SettingKind};
use corewise_core::topology::Topology;
use corewise_core::waits::WaitChanges;
use corewise_core::world::{Wake, World};
use corewise_counters::none::NoCounters;
use corewise_discovery::poll::Poll;
use corewise_discovery::tree::Tree;
use corewise_discovery::{Choice, Discovery, Extent, Options, Root};
use corewise_live::upgrade::{Arm, Deferred, Prepare, Upgrade};
use corewise_live::{Application, Ends, LiveWorld, MakeTreatments, Parts, Processes};
use corewise_sys::proc::Proc;
use corewise_sys::signals::Signals;
use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program with a team of two.
fn program() -> (tempfile::TempDir, Child) {
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("waiting");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/waiting.c");
    assert!(Command::new("cc").args(["-fopenmp", source, "-o"]).arg(&binary).status().unwrap().success());
    let mut command = Command::new(&binary);
    libgomp::WISHES.iter().for_each(|wish| _ = command.env_remove(wish));
    command.envs(libgomp::PLANTED.map(|planted| (libgomp::VARIABLE, planted.to_string())));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    (directory, child)
}

fn spin_count(pid: u32) -> u64 {
    let mut files = Files::default();
    let loaded = Loaded::in_process(pid, &mut files).unwrap();
    libgomp::find(&loaded, &mut files).remove(0).unwrap().own()
}

fn prepare(pid: u32) -> Prepare {
    Box::new(move |_| {
        let options = Options {
            roots: vec![Root::Process(pid)],
            excluded: Vec::new(),
            proc: Proc::own(),
            extent: Extent::default(),
            choice: Choice::Poll,
        };
        let mut discovery = Poll::open(&options).map_err(|error| error.to_string())?;
        let appeared = discovery.refresh().map_err(|error| error.to_string())?.appeared;
        let machine = Topology::synthetic("pack:1 core:2 pu:1").unwrap().into();
        let (discovery, counters) = (Box::new(discovery), Box::new(NoCounters));
        Ok(Upgrade { discovery, appeared, counters, machine, work: None, board: None, notes: Vec::new() })
    })
}

fn wait(world: &mut LiveWorld, mut until: impl FnMut(&mut LiveWorld) -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !until(world) {
        world.wait_until(world.now() + Duration::from_millis(10)).unwrap();
        assert!(Instant::now() < end);
    }
}

/// Permits changed waits, or not.
struct May(Rc<Cell<bool>>);

impl MakeTreatments for May {
    fn reserved(&mut self) -> CpuSet {
        CpuSet::new()
    }

    fn treatment(&mut self, _: u32) -> Option<Arc<Treatment>> {
        (!self.0.get()).then(|| Arc::new(Treatment::untouched("a test says so")))
    }

    fn forget(&mut self, _: u32) {}
}

/// The world around it, whose sources are replaced when that is urgent.
fn world(pid: u32, is_urgent: &Rc<Cell<bool>>) -> LiveWorld {
    let arm: Arm = Box::new(|actuators| {
        let guardian = Guardian::start(IfHung::LetBe).map_err(|error| error.to_string())?;
        actuators.begin(guardian).map_err(|error| error.to_string())
    });
    let deferred = Deferred::new(pid, Some(arm), Box::new(move || prepare(pid)), Rc::clone(is_urgent));
    let waits = WaitChanges { spin: true, turns: false };
    let config = EngineConfig { waits, ..EngineConfig::default() };
    let began = Instant::now();
    let parts = Parts {
        applications: vec![Application::new(Target::Command, "waiting", pid)],
        ends: Ends::WithTargets { at: None },
        discovery: Box::new(Tree::below(pid)),
        counters: Box::new(NoCounters),
        actuators: Actuators::new(&config),
        processes: Some(Processes::new(began)),
        work: None,
        board: Rc::default(),
        signals: Signals::open().unwrap(),
        deferred: Some(deferred),
    };
    LiveWorld::new(parts, began).unwrap()
}

#[test]
fn what_was_changed_before_the_sources_are_replaced_is_known_and_restored_after_it() {
    let (_directory, mut child) = program();
    let (pid, own) = (child.id(), spin_count(child.id()));
    let is_urgent = Rc::new(Cell::new(false));
    let mut world = world(pid, &is_urgent);
    world.subscribe(&[EventKind::Process, EventKind::Treated]);
    let may = Rc::new(Cell::new(false));
    world.set_treatments(Box::new(May(Rc::clone(&may))));
    wait(&mut world, |world| world.trees().follows(pid));
    world.wait_until(world.now() + Duration::from_millis(10)).unwrap();
    assert!(world.observe().unwrap().processes.is_empty(), "its waits may not be changed");
    may.set(true);
    world.trees().reconsider(&[pid]);
    let leader = |world: &mut LiveWorld| {
        let processes = world.observe().unwrap().processes;
        let known = processes.iter().find(|process| process.waits.contains(IdleWait::Adaptable));
        known.map(|process| process.leader)
    };
    wait(&mut world, |world| leader(world).is_some());
    let first = leader(&mut world).unwrap();
    let apply = |world: &mut LiveWorld, change: Change| {
        let thread: ThreadId = first;
        world.apply(&[Action { thread, change, reason: "".into() }]);
        let outcomes = world.observe().unwrap().outcomes;
        assert!(
            outcomes.iter().all(|outcome| outcome.result == OutcomeKind::Done),
            "{outcomes:?}, {:?}",
            world.notes()
        );
    };
    apply(&mut world, Change::Set(Setting::SpinCount(123)));
    assert_eq!(spin_count(pid), 123);

    is_urgent.set(true);
    wait(&mut world, |world| world.is_complete());
    assert!(world.better_machine().is_some());
    assert_eq!(leader(&mut world), Some(first));
    assert_eq!(spin_count(pid), 123, "it goes on without a break");
    apply(&mut world, Change::Reset(SettingKind::SpinCount));
    assert_eq!(spin_count(pid), own);
    apply(&mut world, Change::Set(Setting::SpinCount(45)));
    may.set(false);
    world.trees().reconsider(&[pid]);
    let Wake::Events(batch) = world.wait_until(world.now() + Duration::from_secs(60)).unwrap() else {
        panic!("that it is treated in another way is an event")
    };
    let is_off = |treatment: &Option<Arc<Treatment>>| treatment.as_ref().is_some_and(|of| !of.waits.any());
    let is_it = |event: &Event| match event {
        Event::Treated { pid: of, treatment } => *of == pid && is_off(treatment),
        _ => false,
    };
    assert!(batch.events.iter().any(is_it), "{batch:?}");
    // It is read no more, and what was changed can be given back.
    assert_eq!(leader(&mut world), None);
    apply(&mut world, Change::Reset(SettingKind::SpinCount));
    assert_eq!(spin_count(pid), own);
    may.set(true);
    // Without a word of anybody, at the next look.
    wait(&mut world, |world| leader(world).is_some());
    apply(&mut world, Change::Set(Setting::SpinCount(45)));
    drop(world);
    assert_eq!(spin_count(pid), own, "whatever ends it");
    drop(child.stdin.take());
    let _ = child.wait();
}
