//! Threads from the scheduler's tracepoints: every thread, immediately, with exact times.
//!
//! The kernel side and its cost are described in `discovery.bpf.c` of the crate `bpf`. This module processes
//! its notices and reads its list of threads.

use super::applications::ExecutedProgram;
use super::asks::{Ask, Asks};
use super::entries::{Entries, instant_of};
use super::error::{DiscoveryError, FollowError, bpf_error, refused};
use super::facts::{NewThread, News, Parallelism, Start, ThreadFacts};
use super::followed::Followed;
use super::groups::Groups;
use super::heirs::Heirs;
use super::known::{ENDED, GivenUp, Known, RawStart, RawThread};
use super::neighbours::Neighbours;
use super::options::{Options, Root};
use super::others::Others;
use super::ring;
use super::source::Discovery;
use super::unwatched::{Pace, Step};
use corewise_bpf as bpf;
use corewise_bpf::monotonic_ns;
use corewise_core::ids::AppId;
use corewise_core::observe::BesideReading;
use corewise_core::topology::Topology;
use corewise_sys::privileged;
use corewise_sys::proc::Proc;
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object, ProgramMut, RingBuffer};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// `SINCE_START` of `discovery.bpf.c`.
const SINCE_START: u32 = 1 << 31;

/// `WAKE_NS` of `discovery.bpf.c`: notices within this time after another one wake nobody and must be polled.
const WAKE: Duration = Duration::from_millis(20);

/// How long to wait for threads that are gone but have not run for the last time; usually it takes
/// microseconds.
const PATIENCE: Duration = Duration::from_millis(5);

/// How often processes are looked for that were started while others were found: each time by one that was
/// not yet followed, so that few are found in the second round, and hardly any in the third.
const ROUNDS_MAX: usize = 8;

/// A program of `discovery.bpf.c`, and the first version of Linux with its tracepoint.
const AT_PREPARED_EXEC: &str = "on_prepare_exec";
const PREPARES_EXEC_SINCE: (u32, u32) = (6, 10);

/// The programs of `discovery.bpf.c` that run at every switch and wake-up.
const AT_SWITCHES: [&str; 2] = ["on_switch", "on_wakeup"];

/// The BPF source; see the module documentation.
pub struct Bpf {
    links: Vec<Link>,
    /// The links of the programs at switches, while these are watched.
    at_switches: Vec<Link>,
    pace: Pace,
    list: Link,
    ring: RingBuffer<'static>,
    inbox: Receiver<RawThread>,
    /// Wakes when a bound thread starts something.
    starts: RingBuffer<'static>,
    started: Receiver<RawStart>,
    heirs: Heirs,
    /// Once they were wanted: what sees asks, if it is permitted.
    asks: OnceCell<Option<Asks>>,
    /// Sees which processes run beside which, once that was wanted.
    neighbours: Option<Neighbours>,
    /// Wakes on changes of the number of runnable threads.
    changes: RingBuffer<'static>,
    entries: Entries,
    groups: Groups,
    others: Others,
    object: Object,
    clock_filter: OwnedFd,
    /// When to poll for notices that woke nobody.
    look_again: Option<Instant>,
    known: HashMap<u32, Known>,
    /// The result of the next refresh.
    news: News,
    ended: Vec<ThreadFacts>,
    /// Whether changes of the number of runnable threads are reported.
    reports_tlp: bool,
    /// The threads that have ended by the notices which are taken in now.
    ending: HashSet<u32>,
    /// Threads whose end did not arrive in time; a late end is not reported again.
    given_up: GivenUp,
    listings: u64,
    events_lost: u64,
    text: Vec<u8>,
}

/// Returns whether these capabilities let BPF programs be loaded.
pub fn may_load(capabilities: u64) -> bool {
    let both = privileged::PERFMON_AND_BPF;
    capabilities & privileged::SYS_ADMIN != 0 || capabilities & both == both
}

/// Returns whether BPF may be used, as far as this can be known without loading anything.
pub fn seems_permitted() -> bool {
    may_load(privileged::effective(&Proc::own())) && bpf::knows_our_process_ids()
}

impl Bpf {
    /// Loads and attaches the programs.
    pub fn open(options: &Options) -> Result<Self, DiscoveryError> {
        let mut object = bpf::open(bpf::DISCOVERY).map_err(refused)?;
        let prepares_exec = bpf::kernel_version().is_some_and(|version| version >= PREPARES_EXEC_SINCE);
        let at_exec = object.progs_mut().find(|program| program.name() == AT_PREPARED_EXEC);
        at_exec.into_iter().for_each(|mut program| program.set_autoload(prepares_exec));
        let object = object.load().map_err(bpf_error)?;
        let entries = Entries::of(&object, options)?;
        let ring_of = |name| bpf::map(&object, name, 0).map_err(refused);
        let (events, inbox) = ring::of(&ring_of("events")?)?;
        let (starts, started) = ring::of(&ring_of("starts")?)?;
        let filter = program(&object, "on_clock").as_fd().try_clone_to_owned();
        let now = Instant::now();
        let mut bpf = Bpf {
            // Attach those at switches first, so that the sleep of a followed thread is not missed.
            at_switches: watch_switches(&object).map_err(refused)?,
            links: bpf::attach_those(&object, |name| {
                !AT_SWITCHES.contains(&name) && (prepares_exec || name != AT_PREPARED_EXEC)
            })
            .map_err(refused)?,
            pace: Pace::new(now),
            list: program(&object, "list").attach().map_err(bpf_error)?,
            ring: events,
            inbox,
            starts,
            started,
            heirs: Heirs::new(
                bpf::map(&object, "bound", Heirs::BOUND_SIZE).map_err(refused)?,
                bpf::map(&object, "heirs", 0).map_err(refused)?,
            ),
            asks: OnceCell::new(),
            neighbours: None,
            changes: ring::unread(&bpf::map(&object, "changes", 0).map_err(refused)?)?,
            entries,
            groups: options.groups(),
            others: options.others(),
            clock_filter: filter.map_err(DiscoveryError::bpf)?,
            object,
            look_again: None,
            known: HashMap::new(),
            news: News::default(),
            ended: Vec::new(),
            reports_tlp: false,
            ending: HashSet::new(),
            given_up: GivenUp::default(),
            listings: 0,
            events_lost: 0,
            text: Vec::new(),
        };
        bpf.adopt(options)?;
        Ok(bpf)
    }

    /// Follows processes that run already, whether roots or children of one.
    fn adopt(&mut self, options: &Options) -> Result<(), DiscoveryError> {
        let child_of = |parent: u32| {
            let is_it = |(_, root): &(AppId, &Root)| **root == Root::ChildrenOf(parent);
            options.roots().find(is_it).map(|(app, _)| app.0 | SINCE_START)
        };
        let mut members = HashMap::new();
        for (app, root) in options.roots() {
            match *root {
                Root::Process(pid) => drop(members.insert(pid, app.0)),
                Root::ChildrenOf(parent) => {
                    let mut children = options.proc.children(parent)?;
                    children.retain(|child| !options.excluded.contains(child));
                    members.extend(children.into_iter().map(|child| (child, app.0 | SINCE_START)));
                }
                Root::Group(_) | Root::Others { .. } => {}
            }
        }
        self.follow_trees(members, child_of)?;
        self.follow_group_members()
    }

    /// Follows processes with their descendants, and those of the processes that `child_of` knows. Anything
    /// they start meanwhile is followed by then, or is found in the next round. What is left after the last
    /// round was started by a chain of processes that each ended at once: the next look finds it.
    fn follow_trees(
        &mut self,
        mut members: HashMap<u32, u32>,
        child_of: impl Fn(u32) -> Option<u32>,
    ) -> Result<(), DiscoveryError> {
        let mut new = members.clone();
        for _ in 0..ROUNDS_MAX {
            if new.is_empty() {
                break;
            }
            self.follow(&new)?;
            let Others { proc, excluded, .. } = &self.others;
            let known = |pid: u32| members.get(&pid).copied().or_else(|| child_of(pid));
            new = proc.descendants(&proc.processes()?, known, excluded)?;
            new.retain(|pid, _| !members.contains_key(pid) && !self.known.contains_key(pid));
            members.extend(&new);
        }
        Ok(())
    }

    /// Follows the processes that have joined a control group, unless they are followed already.
    fn follow_group_members(&mut self) -> Result<(), DiscoveryError> {
        let mut new = self.groups.look()?;
        new.retain(|pid, _| app_of_process(&self.known, *pid).is_none());
        self.follow(&new.into_iter().map(|(pid, app)| (pid, app.0)).collect())
    }

    /// Follows processes with all their threads; each is below the root of this ID, possibly with
    /// [`SINCE_START`].
    fn follow(&mut self, processes: &HashMap<u32, u32>) -> Result<(), DiscoveryError> {
        if processes.is_empty() {
            return Ok(());
        }
        let adopted = bpf::map(&self.object, "adopted", size_of::<u32>()).map_err(refused)?;
        let below = processes.iter().map(|(pid, root)| (*pid, AppId(root & !SINCE_START))).collect();
        let entries = self.entries.adopt(&below, |pid| app_of_process(&self.known, pid))?;
        for (pid, entry) in &entries {
            let value = entry | processes[pid] & SINCE_START;
            adopted.update(&pid.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY).map_err(bpf_error)?;
        }
        self.run("adopt")?;
        // A later process with the same ID is another process.
        entries.keys().try_for_each(|pid| adopted.delete(&pid.to_ne_bytes())).map_err(bpf_error)?;
        self.list()
    }

    /// Runs a program over all threads of the machine.
    fn run(&self, name: &str) -> Result<(), DiscoveryError> {
        let link = program(&self.object, name).attach().map_err(bpf_error)?;
        let mut run = Iter::new(&link).map_err(bpf_error)?;
        run.read_to_end(&mut Vec::new()).map(drop).map_err(DiscoveryError::bpf)
    }

    /// Stops watching switches while there are too many, and resumes after a while.
    fn adjust_watching(&mut self) -> Result<(), DiscoveryError> {
        let now = Instant::now();
        // If changes must be reported, watch every switch, whatever it costs.
        if self.reports_tlp && !self.at_switches.is_empty() {
            return Ok(());
        }
        match self.pace.take(now, || self.entries.changes()) {
            None => Ok(()),
            Some(Step::Leave) => {
                let counted = self.entries.all_counted();
                self.entries.leave_unwatched(true);
                self.at_switches.clear();
                self.run("settle")?;
                // Up to now changes were counted; from here on they are estimated.
                self.list()?;
                self.entries.end_window(&counted, &self.living_ns());
                Ok(())
            }
            Some(Step::Watch) => {
                self.entries.leave_unwatched(false);
                self.at_switches = match watch_switches(&self.object) {
                    Ok(links) => links,
                    // It was permitted at the start. Continue with estimates.
                    Err(_) => {
                        self.entries.leave_unwatched(true);
                        self.pace.give_up(now);
                        return Ok(());
                    }
                };
                self.run("settle")?;
                self.list()?;
                self.entries.begin_window(&self.living_ns());
                Ok(())
            }
        }
    }

    /// Returns for each application the time for which its living threads were runnable there, by their own
    /// clocks.
    fn living_ns(&self) -> HashMap<AppId, u64> {
        let mut living_ns = HashMap::new();
        for known in self.known.values() {
            *living_ns.entry(known.facts.app).or_default() += known.runnable_here_ns();
        }
        living_ns
    }

    /// Registers a thread and adds it to the result of the next refresh, unless it is known.
    fn meet(&mut self, thread: &RawThread) {
        let generation = thread.generation;
        if self.known.get(&thread.tid).is_some_and(|known| known.facts.generation == generation) {
            return;
        }
        let app = self.app_of(thread);
        self.entries.enter(thread.app);
        self.neighbours.iter_mut().for_each(|neighbours| neighbours.watch(thread.tgid));
        self.known.insert(thread.tid, Known::new(thread, app, self.listings));
        self.news.appeared.push(NewThread {
            tid: thread.tid,
            pid: thread.tgid,
            creator_tid: (thread.creator != 0).then_some(thread.creator),
            generation,
            created: instant_of(generation),
        });
    }

    fn app_of(&mut self, thread: &RawThread) -> AppId {
        self.entries.app_of(thread, &self.ending, |pid| app_of_process(&self.known, pid))
    }

    /// Takes in the values of a thread at `now`. An ended thread is forgotten, except for its last values.
    fn take(&mut self, thread: &RawThread, now: u64) {
        if self.given_up.has((thread.tid, thread.generation), thread.stage == ENDED) {
            return;
        }
        self.meet(thread);
        let known = self.known.get_mut(&thread.tid).expect("it was met in the line above");
        known.seen_in = self.listings;
        if known.has_executed(thread) {
            self.news.executed.push(known.facts.id());
        }
        if known.update(thread, now) {
            self.news.renamed.push((known.facts.id(), known.facts.name.clone()));
        }
        if known.entry != thread.app {
            let app = self.app_of(thread);
            let known = self.known.get_mut(&thread.tid).expect("it was met");
            self.entries.enter(thread.app);
            self.entries.leave(known.entry, known.runnable_here_ns());
            known.enter(thread.app, app);
        }
        if thread.stage == ENDED {
            self.end(thread.tid);
        }
    }

    fn end(&mut self, tid: u32) {
        if let Some(known) = self.known.remove(&tid) {
            self.news.ended.push(known.facts.id());
            self.entries.leave(known.entry, known.runnable_here_ns());
            self.ended.push(ThreadFacts { ended: true, runnable: false, ..known.facts });
        }
    }

    /// Takes the notices out of the ring buffer.
    fn consume(&mut self) -> Result<(), DiscoveryError> {
        self.ring.consume().map_err(bpf_error)?;
        let events = self.inbox.try_iter().collect::<Vec<RawThread>>();
        let now = Instant::now();
        if !events.is_empty() {
            self.look_again = Some(now + WAKE);
        } else if self.look_again.is_some_and(|due| due <= now) {
            self.look_again = None;
        }
        let ends = events.iter().filter(|thread| thread.stage == ENDED);
        self.ending.extend(ends.map(|thread| thread.tid));
        for thread in events {
            // The clock of a thread that was just created has only begun.
            self.take(&thread, thread.generation);
        }
        self.ending.clear();
        Ok(())
    }

    /// Lists all followed threads in the kernel and takes in their values.
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

    /// Returns whether the last values of a thread that is gone are still outstanding.
    fn awaits_ends(&self) -> bool {
        self.known.values().any(|known| known.seen_in < self.listings)
    }

    /// Treats threads that are gone without a notice (the ring buffer was full) as ended, with their last
    /// known values.
    fn end_missing(&mut self) {
        let listings = self.listings;
        let missing: Vec<(u32, u64)> = self
            .known
            .iter()
            .filter(|(_, known)| known.seen_in < listings)
            .map(|(&tid, known)| (tid, known.facts.generation))
            .collect();
        missing.iter().for_each(|&(tid, _)| self.end(tid));
        self.given_up.add(missing);
    }
}

impl Discovery for Bpf {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        // SAFETY: the descriptors belong to rings of `self`, which the borrow keeps alive.
        let descriptor = |ring: &RingBuffer<'_>| unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
        let ring = self.look_again.is_none().then(|| descriptor(&self.ring));
        std::iter::once(descriptor(&self.starts))
            .chain(ring)
            .chain(self.reports_tlp.then(|| descriptor(&self.changes)))
            .collect()
    }

    fn refresh_within(&self) -> Option<Duration> {
        let pace = self.pace.due().filter(|_| !self.reports_tlp || self.at_switches.is_empty());
        let next = self.look_again.into_iter().chain(pace).min();
        let next = next.map(|due| due.saturating_duration_since(Instant::now()));
        let reportable = self.entries.reportable_within().filter(|_| self.reports_tlp);
        let looks = self.groups.due_within().into_iter().chain(self.others.due_within());
        next.into_iter().chain(reportable).chain(looks).min()
    }

    fn clock_filter(&self) -> Option<BorrowedFd<'_>> {
        Some(self.clock_filter.as_fd())
    }

    fn starts(&mut self) -> Vec<Start> {
        // An error shows again when the other notices are taken out.
        let _ = self.starts.consume();
        let start = |raw: RawStart| Start {
            tid: raw.tid,
            pid: raw.tgid,
            generation: raw.generation,
            by_tid: raw.by_tid,
            by_pid: raw.by_tgid,
        };
        self.started.try_iter().map(start).collect()
    }

    fn asks(&mut self) -> Option<Vec<Ask>> {
        let open = || Asks::open(Some(self.heirs.bound())).ok();
        self.asks.get_or_init(open).as_ref().map(Asks::take)
    }

    fn refresh(&mut self) -> Result<News, DiscoveryError> {
        self.consume()?;
        self.adjust_watching()?;
        if self.groups.due_within().is_some_and(|within| within.is_zero()) {
            self.follow_group_members()?;
        }
        let from_elsewhere = self.others.look(|pid| app_of_process(&self.known, pid).is_some())?;
        self.follow(&from_elsewhere.into_iter().map(|(pid, app)| (pid, app.0)).collect())?;
        let events_lost = self.entries.events_lost();
        if events_lost != self.events_lost {
            self.events_lost = events_lost;
            self.list()?;
            self.consume()?;
            self.entries.find_lost();
        }
        self.entries.tidy();
        if self.reports_tlp {
            self.changes.consume().map_err(bpf_error)?;
            let thread_of = |tid| self.known.get(&tid).map(|known| (known.facts.id(), known.facts.app));
            self.news.runnable.extend(self.entries.report_changes(thread_of));
        }
        Ok(std::mem::take(&mut self.news))
    }

    fn attach(&mut self, pid: u32) -> Result<(), FollowError> {
        let app = self.others.check(pid)?.ok_or(FollowError::Fixed)?;
        Ok(self.follow_trees(HashMap::from([(pid, app.0)]), |_| None)?)
    }

    fn report_tlp(&mut self) {
        self.reports_tlp = true;
        self.entries.ask();
    }

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        let until = Instant::now() + PATIENCE;
        loop {
            // Take notices before the listing, as IDs are reused, and after it, as threads that end in
            // between are in both.
            self.consume()?;
            self.list()?;
            self.consume()?;
            if !self.awaits_ends() || Instant::now() > until {
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.end_missing();
        let mut facts = std::mem::take(&mut self.ended);
        facts.extend(self.known.values().map(|known| known.facts.clone()));
        Ok(facts)
    }

    fn facts(&self, tid: u32) -> Option<ThreadFacts> {
        self.known.get(&tid).map(|known| known.facts.clone())
    }

    fn is_idle(&self) -> bool {
        self.known.is_empty()
    }

    fn parallelism(&mut self, app: AppId) -> Parallelism {
        self.entries.parallelism(app, || {
            let known = self.known.values().filter(|known| known.facts.app == app);
            known.map(Known::runnable_here_ns).sum()
        })
    }

    fn programs(&mut self) -> Vec<ExecutedProgram> {
        self.entries.programs()
    }

    fn followed(&self) -> Option<std::io::Result<Followed>> {
        Some(Followed::new(&self.list, &self.links, &self.heirs))
    }

    fn see_neighbours(&mut self, topology: &Topology) -> Result<(), DiscoveryError> {
        let mut neighbours = Neighbours::open(topology)?;
        self.known.values().for_each(|known| neighbours.watch(known.facts.pid));
        self.neighbours = Some(neighbours);
        Ok(())
    }

    fn beside(&mut self) -> Vec<BesideReading> {
        let Some(neighbours) = &mut self.neighbours else { return Vec::new() };
        neighbours.read(&self.known.values().map(|known| known.facts.pid).collect())
    }

    fn notes(&self) -> Vec<String> {
        let unseen = self.neighbours.as_ref().and_then(Neighbours::note);
        self.entries.notes().into_iter().chain(unseen).collect()
    }
}

/// Returns the application of a process, by its first thread, or if that has ended by another one.
fn app_of_process(known: &HashMap<u32, Known>, pid: u32) -> Option<AppId> {
    let of_it = |known: &&Known| known.facts.pid == pid;
    let first = known.get(&pid).filter(of_it);
    first.or_else(|| known.values().find(of_it)).map(|known| known.facts.app)
}

fn watch_switches(object: &Object) -> Result<Vec<Link>, String> {
    bpf::attach_those(object, |name| AT_SWITCHES.contains(&name))
}

fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    let program = object.progs_mut().find(|program| program.name() == name);
    program.unwrap_or_else(|| unreachable!("discovery.bpf.c defines the program {name}"))
}
