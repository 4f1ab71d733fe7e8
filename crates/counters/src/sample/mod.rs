//! Counter readings without a PMU: the kernel's clock interrupts each thread some hundred times per second
//! of CPU time, and the code at each interrupted instruction tells what the thread was doing.
//!
//! [`events`] takes the samples, [`corewise_code`] reads the code, [`spin`] tells whether a thread only
//! waits, [`window`] judges what occupies the processor, [`beyond`] what lies where the code does not tell
//! the way but the thread's registers and stack do, and [`ahead`] the rest. An instruction once judged
//! costs one look-up. A program that starts runs much code that never runs again: what judging may cost is
//! bounded ([`Budget`]), and beyond it only code is judged that was sampled before.

pub mod ahead;
mod beyond;
mod budget;
pub mod events;
pub mod spin;
mod tally;
mod threads;
mod transfers;
mod visits;
pub mod window;

use super::source::CounterSource;
use budget::{Budget, SHARE};
use corewise_code::trace::Trace;
use corewise_code::{AddressSpace, Code, CodeStore, CodeView, Instruction, Mapping, Place, Role};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::{CounterReading, SAMPLES_PER_S};
use corewise_core::policy::Reading;
use corewise_discovery::{NewThread, ThreadFacts};
use corewise_sys::clock::own_cpu_time;
use corewise_sys::proc::mappings::CODE_MAX;
use events::{Event, EventKind, Events, Filter, SampleError, Snapshot};
use nix::time::{ClockId, clock_gettime};
use rustc_hash::{FxHashMap, FxHashSet};
use spin::WaitLoop;
use spin::evidence::{Point, Shape};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tally::{Activity, Work};
use threads::Threads;
use transfers::Transfers;
use visits::Visits;
use window::{Assumptions, Judgement};

/// Samples per second of a thread's CPU time.
pub const RATE_HZ: u64 = SAMPLES_PER_S as u64;

/// Judged instructions that are kept; beyond, all are forgotten (code made at run time leaves stale ones).
const JUDGED_MAX: usize = 1 << 16;

/// So many samples are traced in any case, then one of [`TRACED_EVERY`].
const TRACED_FIRST: u64 = 512;
const TRACED_EVERY: u64 = 8;

/// From this sample on, each time that the number of samples doubles, all is judged anew.
const REJUDGED_MIN: u64 = 64;

/// The counter source `sample`: see the module.
pub struct SampleSource {
    events: Events,
    state: Sampling,
}

/// All that is known from the records so far.
struct Sampling {
    assumptions: Assumptions,
    code: CodeStore,
    judged_places: FxHashMap<Place, Judged>,
    /// How many wait loops were found, and the instructions of them.
    wait_loops: u32,
    points: FxHashMap<Place, (Point, Shape)>,
    /// Places that are in no wait loop, as far as is known of calls through pointers.
    no_points: FxHashSet<Place>,
    visits: Visits,
    spaces: HashMap<u32, Arc<AddressSpace>>,
    /// How often branches were seen taken, and not taken.
    branches: FxHashMap<Place, (u32, u32)>,
    /// Where transfers through pointers have led, by process.
    transfers: FxHashMap<u32, Transfers>,
    threads: Threads,
    /// Records younger than the last drain's start: another PE's ring may still hold older ones.
    early: Vec<Event>,
    cost: SampleCost,
    /// `None`: whatever it costs.
    budget: Option<Budget>,
    lost: u64,
}

/// What judging samples has cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleCost {
    /// Samples in user code.
    pub user_samples: u64,
    /// Those at an instruction that had not been judged before.
    pub judged_anew: u64,
}

/// What is known of a sampled instruction: the wait loop that it may be in, and the work of a thread that
/// does not wait there; `None` if it is not known.
#[derive(Debug, Clone, PartialEq, Default)]
struct Judged {
    wait: Option<(Point, Shape)>,
    work: Option<Arc<Judgement>>,
}

/// The code of a process, and which ways it was seen to go.
struct Seen<'a> {
    code: CodeView<'a>,
    branches: &'a FxHashMap<Place, (u32, u32)>,
    transfers: Option<&'a Transfers>,
}

impl Code for Seen<'_> {
    fn instruction(&mut self, address: u64) -> Option<Instruction> {
        self.code.instruction(address)
    }

    fn pointer(&mut self, address: u64) -> Option<u64> {
        self.code.pointer(address)
    }

    fn always_leads_to(&mut self, address: u64) -> Option<u64> {
        self.transfers?.always(address)
    }

    fn branched(&mut self, address: u64) -> (u32, u32) {
        self.code.place(address).and_then(|place| self.branches.get(&place)).copied().unwrap_or_default()
    }

    fn role(&mut self, function: u64) -> Role {
        self.code.role(function)
    }

    fn role_of_slot(&mut self, user: u64, slot: u64) -> Role {
        self.code.role_of_slot(user, slot)
    }
}

impl SampleSource {
    /// Samples a process that has been created but has not executed its program, with all its threads and
    /// descendants, on the PEs that they are allowed. With a filter it is the filter that knows them.
    pub fn new(
        pid: u32,
        pes: &CpuSet,
        rate_hz: u64,
        filter: Option<Filter<'_>>,
    ) -> Result<SampleSource, SampleError> {
        let events = Events::open(pid, pes, rate_hz, filter)?;
        let mut state = Sampling::new();
        state.threads.begin(pid, pid, 0, 0);
        Ok(SampleSource { events, state })
    }

    /// Samples processes that run already, with all their threads and the descendants that they will have.
    /// With a filter it is the filter that knows them.
    pub fn attach(
        pids: &[u32],
        pes: &CpuSet,
        rate_hz: u64,
        filter: Option<Filter<'_>>,
    ) -> Result<SampleSource, SampleError> {
        // First the events: what is mapped after the list was read, they report.
        let events = Events::attach(pids, pes, rate_hz, filter)?;
        let mut state = Sampling::new();
        for &pid in pids {
            match AddressSpace::of_process(pid) {
                Ok(space) => drop(state.spaces.insert(pid, Arc::new(space))),
                // It has ended meanwhile.
                Err(source) if source.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(SampleError::Maps { pid, source }),
            }
            events::tasks(pid)?.into_iter().for_each(|tid| state.threads.begin(pid, tid, 0, 0));
        }
        Ok(SampleSource { events, state })
    }

    /// What judging costs from now on is bounded.
    pub fn within_budget(mut self) -> SampleSource {
        self.state.budget = Some(Budget::new(SHARE));
        self
    }

    /// The PEs that a thread was sampled on since the last call, and how often on each.
    pub fn ran_on(&mut self, tid: u32) -> BTreeMap<PeId, u32> {
        self.state.threads.ran_on(tid)
    }

    /// The threads that have readings.
    pub fn tids(&self) -> BTreeSet<u32> {
        self.state.threads.tids()
    }

    /// What judging has cost so far.
    pub fn cost(&self) -> SampleCost {
        self.state.cost
    }
}

impl CounterSource for SampleSource {
    fn name(&self) -> String {
        "sample".into()
    }

    fn gives(&self, reading: Reading) -> bool {
        matches!(reading, Reading::FpuUsage | Reading::Branches)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }

    /// Threads inherit their sampling from the thread that creates them, and processes their
    /// mappings. For a process that has come from elsewhere its mappings are read.
    fn watch(&mut self, thread: &NewThread) {
        let has_come = self.events.of_all && thread.creator_tid.is_none();
        if has_come
            && !self.state.spaces.contains_key(&thread.pid)
            && let Ok(space) = AddressSpace::of_process(thread.pid)
        {
            self.state.spaces.insert(thread.pid, Arc::new(space));
        }
    }

    fn drain(&mut self) {
        let started = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
        let started_ns = started.tv_sec() as u64 * 1_000_000_000 + started.tv_nsec() as u64;
        let mut events = std::mem::take(&mut self.state.early);
        self.events.drain(|event| events.push(event));
        events.sort_by_key(|event| event.time);
        self.state.early = events.split_off(events.partition_point(|event| event.time <= started_ns));
        self.state.take_all(events, self.events.of_all);
    }

    fn read(&mut self, tid: u32) -> Option<CounterReading> {
        self.state.threads.read(tid).map(CounterReading::Sample)
    }

    fn last(&mut self, tid: u32) -> Option<CounterReading> {
        self.state.threads.last(tid).map(CounterReading::Sample)
    }

    fn unclaimed(&mut self, living: &HashSet<u32>) -> Vec<(ThreadFacts, CounterReading)> {
        self.state.threads.unclaimed(living, self.events.rate_hz)
    }

    fn spend_at_most(&mut self, share: f64) {
        self.state.budget = Some(Budget::new(share));
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.state.lost > 0 {
            notes.push(format!("{} records lost: a ring buffer was full", self.state.lost));
        }
        if !self.events.with_kernel {
            let remedy = "kernel.perf_event_paranoid of 1 or CAP_PERFMON would permit them";
            notes.push(format!("samples in the kernel are not permitted and missing: {remedy}"));
        }
        notes
    }
}

impl Sampling {
    fn new() -> Sampling {
        Sampling {
            assumptions: Assumptions::default(),
            code: CodeStore::default(),
            judged_places: FxHashMap::default(),
            wait_loops: 0,
            points: FxHashMap::default(),
            no_points: FxHashSet::default(),
            visits: Visits::default(),
            spaces: HashMap::new(),
            branches: FxHashMap::default(),
            transfers: FxHashMap::default(),
            threads: Threads::default(),
            early: Vec::new(),
            cost: SampleCost::default(),
            budget: None,
            lost: 0,
        }
    }

    /// Takes in records in the order of time; where they are those `of_all` processes, strangers' are
    /// dropped.
    fn take_all(&mut self, events: Vec<Event>, of_all: bool) {
        self.code.begin_epoch();
        if self.judged_places.len() > JUDGED_MAX {
            self.judged_places.clear();
            self.points.clear();
            self.no_points.clear();
        }
        for event in events {
            if !of_all || self.is_followed(&event) {
                self.take(event);
            }
        }
    }

    /// Samples have passed the filter; the children of a followed process are followed.
    fn is_followed(&self, event: &Event) -> bool {
        match event.kind {
            EventKind::Sample { .. } | EventKind::Lost(_) => true,
            EventKind::Fork { parent, .. } => self.threads.has_process(parent),
            EventKind::Map(_) | EventKind::Name { .. } | EventKind::Exit => {
                self.threads.has_process(event.pid)
            }
        }
    }

    fn take(&mut self, event: Event) {
        let Event { pid, tid, time, kind } = event;
        match kind {
            EventKind::Sample { kernel: true, pe, snapshot, .. } => {
                let yields = snapshot.is_some_and(|snapshot| self.yields(pid, &snapshot));
                self.threads.sample(pid, tid, PeId(pe), |tally| tally.add_in_kernel(yields));
            }
            // As if the clock were slower.
            EventKind::Sample { .. } if self.budget.as_mut().is_some_and(Budget::is_overdrawn) => {}
            EventKind::Sample { ip, pe, snapshot, .. } => {
                let activity = self.charged_activity(pid, ip, snapshot.as_deref());
                let yields = activity.wait.is_some() && self.is_in_yielding_runtime(pid, ip);
                self.threads.sample(pid, tid, PeId(pe), |tally| tally.add(activity, yields));
            }
            EventKind::Map(mapping) => self.map(pid, mapping),
            EventKind::Name { name, by_exec } => {
                if by_exec {
                    self.forget(pid);
                    self.threads.execute(pid, tid);
                }
                self.threads.rename(pid, tid, name);
            }
            EventKind::Fork { parent, creator } => {
                self.threads.begin(pid, tid, creator, time);
                if parent != pid
                    && let Some(space) = self.spaces.get(&parent).cloned()
                {
                    self.spaces.insert(pid, space);
                }
            }
            EventKind::Exit => {
                if self.threads.end(pid, tid) {
                    self.forget(pid);
                }
            }
            EventKind::Lost(records) => self.lost += records,
        }
    }

    /// Takes in a mapping. The kernel does not report what is unmapped: where too many have come together,
    /// those are listed that there are now, or, if there may be too many of them as well, forgotten.
    fn map(&mut self, pid: u32, mapping: Mapping) {
        let space = Arc::make_mut(self.spaces.entry(pid).or_default());
        space.map(mapping);
        if space.mappings().len() > CODE_MAX {
            let now = AddressSpace::of_process(pid).ok();
            *space = now.filter(|now| now.mappings().len() < CODE_MAX / 2).unwrap_or_default();
        }
    }

    /// Forgets the memory of a process that ended or executed another program.
    fn forget(&mut self, pid: u32) {
        self.spaces.remove(&pid);
        self.transfers.remove(&pid);
        self.code.forget_process(pid);
    }

    /// Whether a thread that is in the kernel yields (`sched_yield`).
    fn yields(&mut self, pid: u32, snapshot: &Snapshot) -> bool {
        let returns_to = snapshot.in_system_call();
        let code = self.spaces.get(&pid).map(|space| self.code.view(pid, space));
        returns_to.zip(code).is_some_and(|(address, mut code)| code.follows_yield(address))
    }

    /// Whether code is of a runtime whose idle threads yield from time to time.
    fn is_in_yielding_runtime(&mut self, pid: u32, ip: u64) -> bool {
        self.spaces.get(&pid).is_some_and(|space| self.code.view(pid, space).yields(ip))
    }

    /// What the thread did at a sample; the budget pays for finding out.
    fn charged_activity(&mut self, pid: u32, ip: u64, snapshot: Option<&Snapshot>) -> Activity {
        let before = own_cpu_time();
        let activity = self.activity(pid, ip, snapshot);
        if let Some(budget) = &mut self.budget {
            budget.spend(own_cpu_time() - before);
        }
        activity
    }

    /// What the thread did at a sample.
    fn activity(&mut self, pid: u32, ip: u64, snapshot: Option<&Snapshot>) -> Activity {
        self.cost.user_samples += 1;
        // What is known of branches has doubled: it may change what was judged by it.
        if self.cost.user_samples >= REJUDGED_MIN && self.cost.user_samples.is_power_of_two() {
            self.judged_places.clear();
        }
        let place = self.spaces.get(&pid).and_then(|space| self.code.view(pid, space).place(ip));
        let Some(place) = place else { return Activity::default() };
        self.visits.add(place);
        let visits = self.visits.at(place);
        if !self.judged_places.contains_key(&place)
            && self.budget.as_mut().is_some_and(|budget| !budget.allows(visits))
        {
            return Activity::default();
        }
        let Some(judged) = self.judged(pid, ip) else { return Activity::default() };
        let Some(window) = judged.work else { return Activity { wait: judged.wait, work: None } };
        let samples = self.cost.user_samples;
        let is_traced = samples < TRACED_FIRST || samples.is_multiple_of(TRACED_EVERY);
        let trace = snapshot
            .filter(|_| is_traced)
            .and_then(|snapshot| self.traced(pid, ip, snapshot, judged.wait.is_some()));
        let wait = match (judged.wait, &trace) {
            (None, _) => snapshot.and_then(|snapshot| self.callers_wait(pid, &window, snapshot, is_traced)),
            (Some((point, shape)), Some(trace)) if self.goes_around(pid, point, trace) => {
                Some((Point { proof: true, ..point }, shape))
            }
            (wait, _) => wait,
        };
        let work_ahead = match (snapshot, trace) {
            (Some(snapshot), Some(trace)) => self.work_ahead_of_trace(pid, snapshot, &trace),
            _ => self.work_ahead(pid, ip, &window, snapshot),
        };
        Activity { wait, work: Some(Work { work_ahead, memory: window.memory, branches: window.branches }) }
    }

    /// Whether a thread that begins in a wait loop comes back without having left it.
    fn goes_around(&mut self, pid: u32, point: Point, trace: &Trace) -> bool {
        let Some(space) = self.spaces.get(&pid) else { return false };
        let mut code = self.code.view(pid, space);
        let Some((first, rest)) = trace.path.split_first() else { return false };
        let Some(round) = rest.iter().position(|address| address == first) else { return false };
        rest[..round].iter().all(|&address| {
            let known = code.place(address).and_then(|place| self.points.get(&place));
            known.is_some_and(|(other, _)| other.of == point.of)
        })
    }

    /// The wait loop that has called the function of a sample, directly or not; `judging`: also if its code
    /// was not looked at before.
    fn callers_wait(
        &mut self,
        pid: u32,
        window: &Arc<Judgement>,
        snapshot: &Snapshot,
        judging: bool,
    ) -> Option<(Point, Shape)> {
        if self.points.is_empty() && !judging {
            return None;
        }
        let callers = self.callers(pid, window, snapshot);
        let mut code = self.code.view(pid, self.spaces.get(&pid)?);
        let mut points = callers.into_iter().filter_map(|caller| self.points.get(&code.place(caller)?));
        // What a function of a runtime calls may be work.
        let (point, shape) = *points.find(|(point, _)| !point.by_name)?;
        // A loop in the code may be passed through, a progress engine is not.
        Some((Point { proof: shape == Shape::NAMED, ..point }, shape))
    }

    /// What is known of the code at an address; `None` if nothing is mapped there.
    fn judged(&mut self, pid: u32, ip: u64) -> Option<Judged> {
        let code = self.code.view(pid, self.spaces.get(&pid)?);
        let mut code = Seen { code, branches: &self.branches, transfers: self.transfers.get(&pid) };
        let place = code.code.place(ip)?;
        if let Some(judged) = self.judged_places.get(&place) {
            // A function that was judged by itself may be found to be part of a loop later.
            return Some(Judged { wait: self.points.get(&place).copied(), work: judged.work.clone() });
        }
        self.cost.judged_anew += 1;
        if !self.points.contains_key(&place) && self.no_points.insert(place) {
            let role = code.role(ip);
            let by_name = role == Role::Waits;
            let found = match role {
                Role::Waits | Role::Polls => Some(WaitLoop { shape: Shape::NAMED, points: vec![(ip, true)] }),
                Role::Looks | Role::Unknown => spin::wait_loop(&mut code, ip),
            };
            if let Some(WaitLoop { shape, points }) = found {
                for (address, proof) in points {
                    if let Some(place) = code.code.place(address) {
                        let point = Point { of: self.wait_loops, proof, by_name };
                        self.points.entry(place).or_insert((point, shape));
                    }
                }
                self.wait_loops += 1;
            }
        }
        let visits = &mut |code: &mut Seen<'_>, range| self.visits.within(&mut code.code, range);
        let work = self.assumptions.judge(&mut code, visits, ip).map(Arc::new);
        let judged = Judged { wait: self.points.get(&place).copied(), work };
        self.judged_places.insert(place, judged.clone());
        Some(judged)
    }
}

#[cfg(test)]
mod tests;
