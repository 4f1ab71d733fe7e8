//! A world whose sources are replaced while it runs: a scripted sequence. (A process of its own, as the world
//! takes over its signals and children.)

use corewise_binding::actuators::Actuators;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{CounterReading, Event, EventKind, Target};
use corewise_core::policy::Reading;
use corewise_core::topology::Topology;
use corewise_core::world::{Wake, World};
use corewise_counters::CounterSource;
use corewise_counters::none::NoCounters;
use corewise_discovery::{Discovery, DiscoveryError, NewThread, News, Parallelism, ThreadFacts};
use corewise_live::upgrade::{Deferred, Prepare, Upgrade};
use corewise_live::{Application, Ends, LiveWorld, Parts};
use corewise_sys::signals::Signals;
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
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

/// A source of threads with a script: what each refresh shows.
struct Scripted {
    name: &'static str,
    news: VecDeque<News>,
    alive: Vec<ThreadFacts>,
    ended: Vec<ThreadFacts>,
}

impl Scripted {
    fn new(name: &'static str, news: Vec<News>) -> Scripted {
        Scripted { name, news: news.into(), alive: Vec::new(), ended: Vec::new() }
    }

    fn meet(&mut self, thread: &NewThread) {
        self.alive.push(ThreadFacts {
            tid: thread.tid,
            pid: thread.pid,
            app: AppId(0),
            generation: thread.generation,
            name: self.name.into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: false,
            last_pe: None,
            ended: false,
        });
    }
}

impl Discovery for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn refresh_within(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn refresh(&mut self) -> Result<News, DiscoveryError> {
        let news = self.news.pop_front().unwrap_or_default();
        news.appeared.iter().for_each(|thread| self.meet(thread));
        let (ended, alive) = std::mem::take(&mut self.alive)
            .into_iter()
            .partition(|facts| news.ended.iter().any(|ended| *ended == facts.id()));
        self.alive = alive;
        self.ended.extend(ended.into_iter().map(|facts: ThreadFacts| ThreadFacts { ended: true, ..facts }));
        Ok(news)
    }

    fn report_tlp(&mut self) {}

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        Ok(std::mem::take(&mut self.ended).into_iter().chain(self.alive.iter().cloned()).collect())
    }

    fn facts(&self, tid: u32) -> Option<ThreadFacts> {
        self.alive.iter().find(|facts| facts.tid == tid).cloned()
    }

    fn is_idle(&self) -> bool {
        false
    }

    fn parallelism(&mut self, _: AppId) -> Parallelism {
        Parallelism::default()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Counters that note which threads they are to watch.
struct Watched(Arc<Mutex<Vec<ThreadId>>>);

impl CounterSource for Watched {
    fn name(&self) -> String {
        "watched".to_owned()
    }

    fn gives(&self, _: Reading) -> bool {
        false
    }

    fn watch(&mut self, thread: &NewThread) {
        let thread = ThreadId { tid: thread.tid, generation: thread.generation };
        self.0.lock().unwrap().push(thread);
    }

    fn drain(&mut self) {}

    fn read(&mut self, _: u32) -> Option<CounterReading> {
        None
    }

    fn last(&mut self, _: u32) -> Option<CounterReading> {
        None
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
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
                counters: Box::new(Watched(watched)),
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
