//! Threads from the scheduler's own tracepoints: every thread, at once, with exact times.
//!
//! The kernel side and what it costs nobody else stand in `src/bpf/discovery.bpf.c`. Here its notices are
//! taken in and its list of threads is read.

use super::followed::Followed;
use super::{Discovery, DiscoveryError, NewThread, Options, Parallelism, ThreadFacts};
use crate::bpf::{self, Aligned, bytes_of, monotonic_ns};
use corewise_core::ids::PeId;
use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, MapHandle, Object, ProgramMut, RingBuffer, RingBufferBuilder,
};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/discovery.bpf.o")));

/// `struct news` of `discovery.bpf.c`, where its fields are explained.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawThread {
    runnable_clock: i64,
    generation: u64,
    run_ns: u64,
    pub(super) tid: u32,
    tgid: u32,
    creator: u32,
    last_pe: u32,
    pub(super) stage: u32,
    reserved: u32,
    comm: [u8; 16],
}

/// The last of `enum stage` of `discovery.bpf.c`.
pub(super) const ENDED: u32 = 2;

/// `struct app` of `discovery.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct RawApp {
    present: u64,
    start: u64,
    parent_tgid: u32,
    runnable_max: u32,
    runnable_thread_ns: u64,
    active_ns: u64,
    sequential_ns: u64,
    threads_lost: u64,
    events_lost: u64,
    woken: u64,
}

/// `COUNT_BITS` and `TIME_SHIFT` of `discovery.bpf.c`.
const COUNT_BITS: u32 = 18;
const TIME_SHIFT: u32 = 6;

/// `WAKE_NS` of `discovery.bpf.c`: what follows news within this time wakes nobody and is looked for.
const WAKE: Duration = Duration::from_millis(20);

/// How long those are waited for who are gone but have not run for the last time: mostly it takes
/// microseconds.
const PATIENCE: Duration = Duration::from_millis(5);

/// What we remember of a living thread.
#[derive(Debug)]
struct Known {
    comm: [u8; 16],
    facts: ThreadFacts,
    /// The listing that had it last.
    seen_in: u64,
}

/// The BPF source. See the module's text.
pub struct Bpf {
    links: Vec<Link>,
    list: Link,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Vec<RawThread>>>,
    app: MapHandle,
    _object: Object,
    clock_filter: OwnedFd,
    /// When to look for what woke nobody.
    look_again: Option<Instant>,
    known: HashMap<u32, Known>,
    appeared: Vec<NewThread>,
    ended: Vec<ThreadFacts>,
    /// Those whose end did not come in time: it is no news any more.
    given_up: HashSet<(u32, u64)>,
    listings: u64,
    events_lost: u64,
    text: Vec<u8>,
}

impl Bpf {
    /// Loads and attaches the programs. Followed are the processes that `options.parent` starts from now on.
    pub fn open(options: &Options) -> Result<Self, DiscoveryError> {
        let object = bpf::open(OBJECT).map_err(refused)?.load().map_err(bpf_error)?;
        let app = bpf::map(&object, "apps", size_of::<RawApp>()).map_err(refused)?;
        let start = RawApp { parent_tgid: options.parent, start: monotonic_ns(), ..RawApp::default() };
        app.update(&0u32.to_ne_bytes(), bytes_of(&start), MapFlags::ANY).map_err(bpf_error)?;
        let inbox = Rc::new(RefCell::new(Vec::new()));
        let ring = ring(&bpf::map(&object, "events", 0).map_err(refused)?, Rc::clone(&inbox))?;
        let filter = program(&object, "on_clock").as_fd().try_clone_to_owned();
        Ok(Bpf {
            links: bpf::attach(&object).map_err(refused)?,
            list: program(&object, "list").attach().map_err(bpf_error)?,
            ring,
            inbox,
            app,
            clock_filter: filter.map_err(DiscoveryError::bpf)?,
            _object: object,
            look_again: None,
            known: HashMap::new(),
            appeared: Vec::new(),
            ended: Vec::new(),
            given_up: HashSet::new(),
            listings: 0,
            events_lost: 0,
            text: Vec::new(),
        })
    }

    /// Remembers a thread and puts it into the answer of the next refresh, unless it is known.
    fn meet(&mut self, thread: &RawThread) {
        let generation = thread.generation;
        if self.known.get(&thread.tid).is_some_and(|known| known.facts.generation == generation) {
            return;
        }
        self.known.insert(thread.tid, Known::new(thread, self.listings));
        self.appeared.push(NewThread {
            tid: thread.tid,
            pid: thread.tgid,
            creator_tid: (thread.creator != 0).then_some(thread.creator),
            generation,
            created: instant_of(generation),
        });
    }

    /// Takes in what was told of a thread at `now`. An ended one is forgotten, but for its last values.
    fn take(&mut self, thread: &RawThread, now: u64) {
        if self.given_up.contains(&(thread.tid, thread.generation)) {
            if thread.stage == ENDED {
                self.given_up.remove(&(thread.tid, thread.generation));
            }
            return;
        }
        self.meet(thread);
        let known = self.known.get_mut(&thread.tid).expect("it was met in the line above");
        known.seen_in = self.listings;
        known.update(thread, now);
        if thread.stage == ENDED {
            self.end(thread.tid);
        }
    }

    fn end(&mut self, tid: u32) {
        let known = self.known.remove(&tid);
        self.ended.extend(known.map(|known| ThreadFacts { ended: true, runnable: false, ..known.facts }));
    }

    /// Takes the notices out of the ring buffer.
    fn consume(&mut self) -> Result<(), DiscoveryError> {
        self.ring.consume().map_err(bpf_error)?;
        let events = std::mem::take(&mut *self.inbox.borrow_mut());
        let now = Instant::now();
        if !events.is_empty() {
            self.look_again = Some(now + WAKE);
        } else if self.look_again.is_some_and(|due| due <= now) {
            self.look_again = None;
        }
        for thread in events {
            // The clock of one that was created just now has only begun.
            self.take(&thread, thread.generation);
        }
        Ok(())
    }

    /// Asks the kernel for every followed thread and takes in what it tells.
    fn list(&mut self) -> Result<(), DiscoveryError> {
        self.listings += 1;
        let now = monotonic_ns();
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let mut list = Iter::new(&self.list).map_err(bpf_error)?;
        list.read_to_end(&mut text).map_err(DiscoveryError::bpf)?;
        for chunk in text.chunks_exact(size_of::<RawThread>()) {
            // SAFETY: RawThread is plain data and each chunk has its size; the kernel writes whole ones.
            self.take(&unsafe { chunk.as_ptr().cast::<RawThread>().read_unaligned() }, now);
        }
        self.text = text;
        Ok(())
    }

    /// Whether some thread is gone, and its last values have not come yet.
    fn awaits_ends(&self) -> bool {
        self.known.values().any(|known| known.seen_in < self.listings)
    }

    /// Who is gone without a word (the ring buffer was full) has ended, with the values that he had last.
    fn give_up_missing(&mut self) {
        let listings = self.listings;
        let missing: Vec<(u32, u64)> = self
            .known
            .iter()
            .filter(|(_, known)| known.seen_in < listings)
            .map(|(&tid, known)| (tid, known.facts.generation))
            .collect();
        missing.iter().for_each(|&(tid, _)| self.end(tid));
        self.given_up.extend(missing);
    }

    /// The words are read one after the other, and may be of before and after a change. Twice the same is of
    /// one time; where it never is, changes are frequent, and what one of them makes wrong is short.
    fn read_app(&self) -> RawApp {
        let mut app = self.read_app_once();
        for _ in 0..4 {
            let again = self.read_app_once();
            if again == app {
                break;
            }
            app = again;
        }
        app
    }

    fn read_app_once(&self) -> RawApp {
        match self.app.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) {
            // SAFETY: RawApp is plain data and the map's values have its size (checked at opening).
            Ok(Some(bytes)) => unsafe { bytes.as_ptr().cast::<RawApp>().read_unaligned() },
            other => unreachable!("an array map always has its only element: {other:?}"),
        }
    }
}

impl Discovery for Bpf {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to `self.ring`, which the borrow keeps alive.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) };
        self.look_again.is_none().then_some(ring)
    }

    fn refresh_within(&self) -> Option<Duration> {
        self.look_again.map(|due| due.saturating_duration_since(Instant::now()))
    }

    fn clock_filter(&self) -> Option<BorrowedFd<'_>> {
        Some(self.clock_filter.as_fd())
    }

    fn refresh(&mut self) -> Result<Vec<NewThread>, DiscoveryError> {
        self.consume()?;
        let events_lost = self.read_app().events_lost;
        if events_lost != self.events_lost {
            self.events_lost = events_lost;
            self.list()?;
        }
        Ok(std::mem::take(&mut self.appeared))
    }

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        let until = Instant::now() + PATIENCE;
        loop {
            // The notices before the listing, as ids are reused; and after it, as what ends in between is in
            // both.
            self.consume()?;
            self.list()?;
            self.consume()?;
            if !self.awaits_ends() || Instant::now() > until {
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.give_up_missing();
        let mut facts = std::mem::take(&mut self.ended);
        facts.extend(self.known.values().map(|known| known.facts.clone()));
        Ok(facts)
    }

    fn parallelism(&mut self) -> Parallelism {
        let app = self.read_app();
        let runnable = app.present & ((1 << COUNT_BITS) - 1);
        let until = app.start + (app.present >> COUNT_BITS << TIME_SHIFT);
        let open_ns = monotonic_ns().saturating_sub(until);
        let while_runnable = |condition: bool| if condition { open_ns } else { 0 };
        Parallelism {
            runnable_thread_ns: app.runnable_thread_ns + open_ns * runnable,
            active_ns: app.active_ns + while_runnable(runnable > 0),
            sequential_ns: app.sequential_ns + while_runnable(runnable == 1),
            runnable_max: app.runnable_max,
            exact: true,
        }
    }

    fn followed(&self) -> Option<std::io::Result<Followed>> {
        Some(Followed::new(&self.list, &self.links))
    }

    fn losses(&self) -> Vec<String> {
        let app = self.read_app();
        let mut losses = Vec::new();
        if app.threads_lost > 0 {
            losses.push(format!("{} threads were not followed: the kernel had no memory", app.threads_lost));
        }
        if app.events_lost > 0 {
            losses.push(format!("{} notices of new or ended threads came late", app.events_lost));
        }
        losses
    }
}

impl Known {
    fn new(thread: &RawThread, seen_in: u64) -> Self {
        let facts = ThreadFacts {
            tid: thread.tid,
            pid: thread.tgid,
            generation: thread.generation,
            name: name_of(&thread.comm),
            cpu_ns: 0,
            runnable_ns: Some(0),
            runnable: false,
            last_pe: None,
            ended: false,
        };
        Known { comm: thread.comm, facts, seen_in }
    }

    /// The thread's values at `now`. A clock that was started after `now` was read would make them fall
    /// behind earlier ones by the time the reading took, so they never go back.
    fn update(&mut self, thread: &RawThread, now: u64) {
        let facts = &mut self.facts;
        if self.comm != thread.comm {
            self.comm = thread.comm;
            facts.name = name_of(&thread.comm);
        }
        facts.cpu_ns = facts.cpu_ns.max(thread.run_ns);
        facts.runnable_ns = facts.runnable_ns.max(Some(clock_at(thread.runnable_clock, now)));
        facts.runnable = thread.runnable_clock < 0;
        facts.last_pe = (thread.last_pe != u32::MAX).then_some(PeId(thread.last_pe));
    }
}

/// The total of a clock of `discovery.bpf.c`: negative while it runs.
fn clock_at(clock: i64, now: u64) -> u64 {
    let total = if clock < 0 { clock.saturating_add_unsigned(now) } else { clock };
    total.max(0) as u64
}

fn name_of(comm: &[u8; 16]) -> Arc<str> {
    let length = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..length]).into()
}

fn ring(
    events: &MapHandle,
    inbox: Rc<RefCell<Vec<RawThread>>>,
) -> Result<RingBuffer<'static>, DiscoveryError> {
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        assert_eq!(bytes.len(), size_of::<RawThread>(), "discovery.bpf.c and bpf.rs disagree on news");
        // SAFETY: RawThread is plain data and `bytes` has its size.
        inbox.borrow_mut().push(unsafe { bytes.as_ptr().cast::<RawThread>().read_unaligned() });
        0
    };
    builder.add(events, take).map_err(bpf_error)?;
    builder.build().map_err(bpf_error)
}

fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    let program = object.progs_mut().find(|program| program.name() == name);
    program.unwrap_or_else(|| unreachable!("discovery.bpf.c defines the program {name}"))
}

fn instant_of(monotonic: u64) -> Instant {
    let (now, age) = (Instant::now(), Duration::from_nanos(monotonic_ns().saturating_sub(monotonic)));
    now.checked_sub(age).unwrap_or(now)
}

fn bpf_error(error: libbpf_rs::Error) -> DiscoveryError {
    refused(bpf::reason(error))
}

fn refused(reason: String) -> DiscoveryError {
    DiscoveryError::Bpf { reason }
}
