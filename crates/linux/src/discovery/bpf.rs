//! Threads from the scheduler's own tracepoints: every thread, at once, with exact times.
//!
//! The kernel side and what it costs nobody else stand in `src/bpf/discovery.bpf.c`. Here its map is read and
//! its notices are taken in.

use super::procfs::Proc;
use super::{Discovery, DiscoveryError, NewThread, Options, Parallelism, ThreadFacts};
use crate::bpf::{self, Aligned, bytes_of, monotonic_ns};
use corewise_core::ids::PeId;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder, libbpf_sys};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/discovery.bpf.o")));

/// `struct thread` of `discovery.bpf.c`, where its fields are explained.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawThread {
    run_clock: i64,
    runnable_clock: i64,
    generation: u64,
    tgid: u32,
    creator: u32,
    last_pe: u32,
    ended: u32,
    comm: [u8; 16],
}

/// `struct event` of `discovery.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawEvent {
    thread: RawThread,
    tid: u32,
}

/// `struct app` of `discovery.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawApp {
    lock: u32,
    parent_tgid: u32,
    runnable: u32,
    runnable_max: u32,
    since: u64,
    runnable_thread_ns: u64,
    active_ns: u64,
    sequential_ns: u64,
    threads_lost: u64,
    events_lost: u64,
}

/// What we remember of a living thread.
#[derive(Debug)]
struct Known {
    generation: u64,
    comm: [u8; 16],
    name: Arc<str>,
    cpu_ns: u64,
    runnable_ns: u64,
    /// The reading of the map that had it last.
    seen_in: u64,
}

/// The BPF source. See the module's text.
pub struct Bpf {
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Vec<RawEvent>>>,
    threads: MapHandle,
    app: MapHandle,
    _object: Object,
    known: HashMap<u32, Known>,
    appeared: Vec<NewThread>,
    ended: Vec<ThreadFacts>,
    readings: u64,
    events_lost: u64,
    tids: Vec<u32>,
    values: Vec<RawThread>,
}

impl Bpf {
    /// Loads and attaches the programs and takes in what descends from `options.parent` already.
    pub fn open(options: &Options) -> Result<Self, DiscoveryError> {
        let object = bpf::open(OBJECT).map_err(refused)?.load().map_err(bpf_error)?;
        let threads = bpf::map(&object, "threads", size_of::<RawThread>()).map_err(refused)?;
        let app = bpf::map(&object, "apps", size_of::<RawApp>()).map_err(refused)?;
        let start = RawApp { parent_tgid: options.parent, since: monotonic_ns(), ..RawApp::default() };
        app.update(&0u32.to_ne_bytes(), bytes_of(&start), MapFlags::ANY).map_err(bpf_error)?;

        let inbox = Rc::new(RefCell::new(Vec::new()));
        let ring = ring(&bpf::map(&object, "events", 0).map_err(refused)?, Rc::clone(&inbox))?;
        let links = bpf::attach(&object).map_err(refused)?;
        let capacity = threads.max_entries() as usize;
        let mut bpf = Bpf {
            _links: links,
            ring,
            inbox,
            threads,
            app,
            _object: object,
            known: HashMap::new(),
            appeared: Vec::new(),
            ended: Vec::new(),
            readings: 0,
            events_lost: 0,
            tids: Vec::with_capacity(capacity),
            values: Vec::with_capacity(capacity),
        };
        bpf.take_in_present(options)?;
        Ok(bpf)
    }

    /// Enters the threads that were there before the programs. A thread that is entered hands membership on,
    /// so once a pass finds nothing new, none can have been missed.
    fn take_in_present(&mut self, options: &Options) -> Result<(), DiscoveryError> {
        loop {
            let all = options.proc.processes()?;
            let members =
                options.proc.descendants(&all, options.parent, &HashSet::new(), &options.excluded)?;
            let mut found = false;
            for pid in members {
                for tid in options.proc.threads(pid)?.unwrap_or_default() {
                    found |= self.enter(&options.proc, pid, tid)?;
                }
            }
            if !found {
                return Ok(());
            }
        }
    }

    fn enter(&mut self, proc: &Proc, pid: u32, tid: u32) -> Result<bool, DiscoveryError> {
        let Some(stat) = proc.stat(pid, tid)? else { return Ok(false) };
        let times = match proc.schedstat(pid, tid, false)? {
            Some(file) => file.read()?,
            None => None,
        };
        if matches!(stat.state, 'Z' | 'X') {
            return Ok(false);
        }
        let mut comm = [0; 16];
        let length = stat.name.len().min(comm.len() - 1);
        comm[..length].copy_from_slice(&stat.name.as_bytes()[..length]);
        let thread = RawThread {
            run_clock: times.map_or(0, |times| times.run_ns as i64),
            runnable_clock: times.map_or(0, |times| (times.run_ns + times.wait_ns) as i64),
            generation: monotonic_ns(),
            tgid: pid,
            creator: 0,
            last_pe: stat.last_pe,
            ended: 0,
            comm,
        };
        match self.threads.update(&tid.to_ne_bytes(), bytes_of(&thread), MapFlags::NO_EXIST) {
            Ok(()) => {
                self.meet(tid, &thread);
                Ok(true)
            }
            Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(bpf_error(error)),
        }
    }

    /// Remembers a thread and puts it into the answer of the next refresh, unless it is known.
    fn meet(&mut self, tid: u32, thread: &RawThread) {
        if self.known.get(&tid).is_some_and(|known| known.generation == thread.generation) {
            return;
        }
        self.known.insert(tid, Known::new(thread, self.readings));
        self.appeared.push(NewThread {
            tid,
            pid: thread.tgid,
            creator_tid: (thread.creator != 0).then_some(thread.creator),
            generation: thread.generation,
            created: instant_of(thread.generation),
        });
    }

    /// A thread's values at `now`. An ended one is forgotten.
    fn facts(&mut self, tid: u32, thread: &RawThread, now: u64) -> ThreadFacts {
        self.meet(tid, thread);
        let known = self.known.get_mut(&tid).expect("it was met in the line above");
        known.seen_in = self.readings;
        let facts = known.facts(tid, thread, now);
        if facts.ended {
            self.known.remove(&tid);
        }
        facts
    }

    /// Takes the notices out of the ring buffer.
    fn consume(&mut self) -> Result<(), DiscoveryError> {
        self.ring.consume().map_err(bpf_error)?;
        let events = std::mem::take(&mut *self.inbox.borrow_mut());
        for event in events {
            self.meet(event.tid, &event.thread);
            if event.thread.ended != 0 {
                // Its clocks stand still, so the time does not matter.
                let facts = self.facts(event.tid, &event.thread, 0);
                self.ended.push(facts);
            }
        }
        Ok(())
    }

    /// Reads the whole map into `tids` and `values`; returns the time the readings belong to.
    fn read_map(&mut self) -> Result<u64, DiscoveryError> {
        let options = libbpf_sys::bpf_map_batch_opts {
            sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as _,
            ..Default::default()
        };
        let mut position = 0u64;
        let mut count = self.tids.capacity() as u32;
        let now = monotonic_ns();
        // SAFETY: both vectors have room for `count` elements, the number of entries that the map can hold;
        // their element types have the map's key and value sizes (checked at opening).
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                self.threads.as_fd().as_raw_fd(),
                std::ptr::null_mut(),
                (&raw mut position).cast(),
                self.tids.as_mut_ptr().cast(),
                self.values.as_mut_ptr().cast(),
                &mut count,
                &options,
            )
        };
        // ENOENT says that the end of the map was reached.
        if result != 0 && result != -libc::ENOENT {
            return Err(bpf_error(libbpf_rs::Error::from_raw_os_error(-result)));
        }
        // SAFETY: the kernel has filled in `count` elements of each, and any bit pattern is valid for them.
        unsafe {
            self.tids.set_len(count as usize);
            self.values.set_len(count as usize);
        }
        self.readings += 1;
        Ok(now)
    }

    fn read_app(&self) -> RawApp {
        match self.app.lookup(&0u32.to_ne_bytes(), MapFlags::LOCK) {
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
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) })
    }

    fn refresh_within(&self) -> Option<Duration> {
        None
    }

    fn refresh(&mut self) -> Result<Vec<NewThread>, DiscoveryError> {
        self.consume()?;
        let events_lost = self.read_app().events_lost;
        if events_lost != self.events_lost {
            self.events_lost = events_lost;
            self.read_map()?;
            for index in 0..self.tids.len() {
                let (tid, thread) = (self.tids[index], self.values[index]);
                self.meet(tid, &thread);
            }
        }
        Ok(std::mem::take(&mut self.appeared))
    }

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        // First the map, then the notices: what ends in between is in both and is taken as ended.
        let now = self.read_map()?;
        self.consume()?;
        let mut facts = std::mem::take(&mut self.ended);
        let gone: HashSet<(u32, u64)> = facts.iter().map(|thread| (thread.tid, thread.generation)).collect();
        for index in 0..self.tids.len() {
            let (tid, thread) = (self.tids[index], self.values[index]);
            if gone.contains(&(tid, thread.generation)) {
                continue;
            }
            facts.push(self.facts(tid, &thread, now));
            if thread.ended != 0 {
                self.threads.delete(&tid.to_ne_bytes()).map_err(bpf_error)?;
            }
        }
        // Notices taken in just now may tell of threads that the map did not have yet.
        self.known.retain(|_, known| known.seen_in >= self.readings);
        Ok(facts)
    }

    fn parallelism(&mut self) -> Parallelism {
        let app = self.read_app();
        let open_ns = monotonic_ns().saturating_sub(app.since);
        let while_runnable = |condition: bool| if condition { open_ns } else { 0 };
        Parallelism {
            runnable_thread_ns: app.runnable_thread_ns + open_ns * u64::from(app.runnable),
            active_ns: app.active_ns + while_runnable(app.runnable > 0),
            sequential_ns: app.sequential_ns + while_runnable(app.runnable == 1),
            runnable_max: app.runnable_max,
            exact: true,
        }
    }

    fn losses(&self) -> Vec<String> {
        let app = self.read_app();
        let mut losses = Vec::new();
        if app.threads_lost > 0 {
            let most = self.threads.max_entries();
            losses.push(format!("{} threads were not followed: more than {most} at once", app.threads_lost));
        }
        if app.events_lost > 0 {
            losses.push(format!("{} notices of new or ended threads came late", app.events_lost));
        }
        losses
    }
}

impl Known {
    fn new(thread: &RawThread, seen_in: u64) -> Self {
        Known {
            generation: thread.generation,
            comm: thread.comm,
            name: name_of(&thread.comm),
            cpu_ns: 0,
            runnable_ns: 0,
            seen_in,
        }
    }

    /// The thread's values at `now`. A clock that was started after `now` was read would make them fall
    /// behind earlier ones by the time the reading took, so they never go back.
    fn facts(&mut self, tid: u32, thread: &RawThread, now: u64) -> ThreadFacts {
        if self.comm != thread.comm {
            self.comm = thread.comm;
            self.name = name_of(&thread.comm);
        }
        self.cpu_ns = self.cpu_ns.max(clock_at(thread.run_clock, now));
        self.runnable_ns = self.runnable_ns.max(clock_at(thread.runnable_clock, now));
        ThreadFacts {
            tid,
            pid: thread.tgid,
            generation: thread.generation,
            name: Arc::clone(&self.name),
            cpu_ns: self.cpu_ns,
            runnable_ns: Some(self.runnable_ns),
            runnable: thread.runnable_clock < 0,
            last_pe: (thread.last_pe != u32::MAX).then_some(PeId(thread.last_pe)),
            ended: thread.ended != 0,
        }
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
    inbox: Rc<RefCell<Vec<RawEvent>>>,
) -> Result<RingBuffer<'static>, DiscoveryError> {
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        assert_eq!(bytes.len(), size_of::<RawEvent>(), "discovery.bpf.c and bpf.rs disagree on events");
        // SAFETY: RawEvent is plain data and `bytes` has its size.
        inbox.borrow_mut().push(unsafe { bytes.as_ptr().cast::<RawEvent>().read_unaligned() });
        0
    };
    builder.add(events, take).map_err(bpf_error)?;
    builder.build().map_err(bpf_error)
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
