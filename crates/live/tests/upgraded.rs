//! A world whose sources are replaced while it runs: a scripted sequence. (A process of its own, as the world
//! takes over its signals and children.)

mod scripted;

use corewise_binding::actuators::Actuators;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{Event, EventKind, Target};
use corewise_core::topology::Topology;
use corewise_core::world::{Wake, World};
use corewise_counters::none::NoCounters;
use corewise_discovery::{Discovery, NewThread, News};
use corewise_live::upgrade::{Deferred, Prepare, Upgrade};
use corewise_live::{Application, Ends, LiveWorld, Parts};
use corewise_sys::signals::Signals;
use scripted::{Scripted, Watched};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// More than any thread has.
const TID: u32 = 0x3fff_ff00;

fn thread(number: u32, generation: u64) -> NewThread {
    let tid = TID + number;
    NewThread { tid, pid: TID, creator_tid: None, generation, created: Instant::now() }
}

fn id(number: u32, generation: u64) -> ThreadId {
    ThreadId { tid: TID + number, generation }
}

fn machine() -> MachineModel {
    Topology::synthetic("pack:1 core:4 pu:1").unwrap().into()
}

fn world(light: Scripted, deferred: Deferred) -> LiveWorld {
    let parts = Parts {
        applications: vec![Application::new(Target::Command, "scripted", TID)],
        ends: Ends::WithTargets { at: None },
        discovery: Box::new(light),
        counters: Box::new(NoCounters),
        actuators: Actuators::new(&EngineConfig::default()),
        processes: None,
        work: None,
        board: Rc::default(),
        signals: Signals::open().unwrap(),
        deferred: Some(deferred),
    };
    LiveWorld::new(parts, Instant::now()).unwrap()
}

/// Waits for events, or for something else.
fn events(world: &mut LiveWorld, within: Duration) -> Vec<Event> {
    match world.wait_until(world.now() + within).unwrap() {
        Wake::Events(batch) => batch.events,
        Wake::Deadline | Wake::Finished => Vec::new(),
    }
}

/// The threads of the next observation, and which of them have ended.
fn observed(world: &mut LiveWorld) -> Vec<(ThreadId, bool)> {
    let mut threads: Vec<_> =
        world.observe().unwrap().threads.iter().map(|reading| (reading.thread, reading.ended)).collect();
    threads.sort();
    threads
}

/// The first source knows threads 1 and 2. While the second one is prepared, 2 ends, 3 begins, and 4 begins
/// and ends. Thread 1 ends later.
#[test]
fn threads_keep_their_identity_when_sources_are_replaced() {
    let appeared = |threads: &[NewThread]| News { appeared: threads.to_vec(), ..News::default() };
    let light = Scripted::new("light", vec![appeared(&[thread(1, 10), thread(2, 20)])]);
    let watched = Arc::new(Mutex::new(Vec::new()));
    let prepare: Prepare = {
        let watched = Arc::clone(&watched);
        Box::new(move |_| {
            let first = appeared(&[thread(1, 1000), thread(4, 4000)]);
            let at_swap =
                News { appeared: vec![thread(3, 3000)], ended: vec![id(4, 4000)], ..News::default() };
            let later = News { ended: vec![id(1, 1000)], ..News::default() };
            let nothing = || vec![News::default(); 3];
            let script = [vec![first, at_swap], nothing(), vec![later]].concat();
            let mut heavy = Scripted::new("heavy", script);
            let appeared = heavy.refresh().unwrap().appeared;
            Ok(Upgrade {
                discovery: Box::new(heavy),
                appeared,
                counters: Box::new(Watched { threads: watched, ..Watched::default() }),
                machine: machine(),
                work: None,
                board: None,
                notes: vec!["prepared".to_owned()],
            })
        })
    };
    let is_urgent = Rc::new(Cell::new(false));
    let deferred = Deferred::new(std::process::id(), None, Box::new(|| prepare), Rc::clone(&is_urgent));
    let mut world = world(light, deferred);
    world.subscribe(&[EventKind::ThreadEnded]);
    assert!(events(&mut world, Duration::from_millis(20)).is_empty());
    assert_eq!(observed(&mut world), [(id(1, 10), false), (id(2, 20), false)]);
    assert!(!world.is_complete() && world.better_machine().is_none());

    // The engine needs samples: nothing else makes it begin before 300 ms have passed.
    is_urgent.set(true);
    let mut ended = Vec::new();
    while !world.is_complete() {
        ended.extend(events(&mut world, Duration::from_secs(60)));
    }
    assert_eq!(world.better_machine().map(|machine| machine.topology), Some(machine().topology));
    assert!(world.better_machine().is_none(), "once");
    assert_eq!((world.sources().discovery, world.sources().counters), ("heavy".into(), "watched".into()));
    assert!(world.notes().contains(&"prepared".to_owned()));
    assert_eq!(*watched.lock().unwrap(), [id(1, 10), id(4, 4000), id(3, 3000)]);
    let expected = [(id(1, 10), false), (id(2, 20), true), (id(3, 3000), false), (id(4, 4000), true)];
    assert_eq!(observed(&mut world), expected);

    let mut readings = Vec::new();
    let end = Instant::now() + Duration::from_secs(60);
    while readings != [(id(1, 10), true), (id(3, 3000), false)] {
        ended.extend(events(&mut world, Duration::from_millis(10)));
        readings = observed(&mut world);
        assert!(Instant::now() < end, "{readings:?}");
    }
    assert_eq!(observed(&mut world), [(id(3, 3000), false)]);
    ended.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(ended, [id(1, 10), id(2, 20), id(4, 4000)].map(Event::ThreadEnded), "each once");
    world.stop_watching();
}
