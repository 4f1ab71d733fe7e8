//! Counter readings without a PMU: the kernel's clock interrupts each thread some hundred times per second
//! of CPU time, and the code at each interrupted instruction tells what the thread was doing.
//!
//! [`events`] takes the samples, [`crate::code`] reads the code, [`spin`] tells whether a thread only waits,
//! [`window`] judges what occupies the processor, and [`ahead`] what lies where the code does not tell. An
//! instruction once judged costs one look-up.

pub mod ahead;
pub mod events;
pub mod spin;
pub mod window;

use super::CounterSource;
use crate::code::{AddressSpace, CodeStore, Place};
use crate::discovery::NewThread;
use ahead::Usual;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::{CounterReading, SampleReading};
use events::{Event, EventKind, Events, SampleError};
use nix::time::{ClockId, clock_gettime};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use window::{Judgement, Window};

/// Samples per second of a thread's CPU time. No divisor of usual timer rates, so that it never beats with
/// them.
pub const RATE_HZ: u64 = 199;

/// Judged instructions that are kept; beyond, all are forgotten (code made at run time leaves stale ones).
const VERDICTS_MAX: usize = 1 << 16;

/// Drains after which an ended thread that nobody asked for is forgotten.
const ENDED_KEPT_DRAINS: u32 = 64;

/// The counter source `sample`: see the module.
pub struct SampleSource {
    events: Events,
    state: Sampling,
}

/// All that is known from the records so far.
struct Sampling {
    window: Window,
    code: CodeStore,
    verdicts: FxHashMap<Place, Verdict>,
    spaces: HashMap<u32, Arc<AddressSpace>>,
    threads: HashMap<u32, Thread>,
    /// Records younger than the last drain's start: another PE's ring may still hold older ones.
    early: Vec<Event>,
    cost: SampleCost,
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

/// What is known of a sampled instruction.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Waiting,
    Working(Judgement),
    Unknown,
}

#[derive(Default)]
struct Thread {
    pid: u32,
    reading: SampleReading,
    usual_fp: Usual,
    usual_vector: Usual,
    ran_on: BTreeMap<PeId, u32>,
    /// Drains since it ended.
    ended_for: Option<u32>,
}

impl SampleSource {
    /// Samples a process that has been created but has not executed its program, with all its threads and
    /// descendants, on the PEs that they are allowed.
    pub fn new(pid: u32, pes: &CpuSet, rate_hz: u64) -> Result<SampleSource, SampleError> {
        Ok(SampleSource { events: Events::open(pid, pes, rate_hz)?, state: Sampling::new() })
    }

    /// Samples a process that runs already, with all its threads and the descendants that it will have.
    pub fn attach(pid: u32, pes: &CpuSet, rate_hz: u64) -> Result<SampleSource, SampleError> {
        // First the events: what is mapped after the list was read, they report.
        let events = Events::attach(pid, pes, rate_hz)?;
        let path = format!("/proc/{pid}/maps");
        let maps = std::fs::read_to_string(&path).map_err(|source| SampleError::Proc { path, source })?;
        let mut state = Sampling::new();
        state.spaces.insert(pid, Arc::new(AddressSpace::from_maps(&maps)));
        Ok(SampleSource { events, state })
    }

    /// The PEs that a thread was sampled on since the last call, and how often on each.
    pub fn ran_on(&mut self, tid: u32) -> BTreeMap<PeId, u32> {
        self.state.threads.get_mut(&tid).map(|thread| std::mem::take(&mut thread.ran_on)).unwrap_or_default()
    }

    /// The threads that have readings.
    pub fn tids(&self) -> Vec<u32> {
        self.state.threads.keys().copied().collect()
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

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.events.fds()
    }

    /// Nothing to do: threads inherit their sampling from the thread that creates them.
    fn watch(&mut self, _thread: &NewThread) {}

    fn drain(&mut self) {
        let started = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
        let started_ns = started.tv_sec() as u64 * 1_000_000_000 + started.tv_nsec() as u64;
        let mut events = std::mem::take(&mut self.state.early);
        self.events.drain(|event| events.push(event));
        events.sort_by_key(|event| event.time);
        self.state.early = events.split_off(events.partition_point(|event| event.time <= started_ns));
        self.state.take_all(events);
    }

    fn read(&mut self, tid: u32) -> Option<CounterReading> {
        self.state.threads.get(&tid).map(|thread| CounterReading::Sample(thread.reading))
    }

    fn forget(&mut self, tid: u32) {
        self.state.threads.remove(&tid);
    }

    fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        if self.state.lost > 0 {
            troubles.push(format!("{} records lost: a ring buffer was full", self.state.lost));
        }
        if !self.events.with_kernel {
            troubles.push("samples in the kernel are not permitted and missing".into());
        }
        troubles
    }
}

impl Thread {
    fn work(&mut self, judgement: &Judgement) {
        let (fp, vector) = (self.usual_fp.take(&judgement.fp), self.usual_vector.take(&judgement.vector));
        let reading = &mut self.reading;
        let (Some(fp), Some(vector)) = (fp, vector) else {
            reading.unknown += 1;
            return;
        };
        reading.judged += 1;
        reading.unseen += judgement.fp.unseen();
        reading.fp += fp;
        reading.vector += vector;
        reading.memory += judgement.memory;
        reading.branches += judgement.branches;
    }
}

impl Sampling {
    fn new() -> Sampling {
        Sampling {
            window: Window::default(),
            code: CodeStore::default(),
            verdicts: FxHashMap::default(),
            spaces: HashMap::new(),
            threads: HashMap::new(),
            early: Vec::new(),
            cost: SampleCost::default(),
            lost: 0,
        }
    }

    /// Takes in records in the order of time.
    fn take_all(&mut self, events: Vec<Event>) {
        self.code.begin_epoch();
        if self.verdicts.len() > VERDICTS_MAX {
            self.verdicts.clear();
        }
        for event in events {
            self.take(event);
        }
        for thread in self.threads.values_mut() {
            thread.ended_for = thread.ended_for.map(|drains| drains + 1);
        }
        self.threads.retain(|_, thread| thread.ended_for.is_none_or(|drains| drains < ENDED_KEPT_DRAINS));
    }

    fn take(&mut self, event: Event) {
        let Event { pid, tid, kind, .. } = event;
        match kind {
            EventKind::Sample { ip, kernel, pe } => self.sample(pid, tid, ip, kernel, PeId(pe)),
            EventKind::Map(mapping) => Arc::make_mut(self.spaces.entry(pid).or_default()).map(mapping),
            EventKind::Exec => {
                self.spaces.remove(&pid);
                self.code.forget_process(pid);
            }
            EventKind::Fork { parent } => {
                self.threads.insert(tid, Thread { pid, ..Thread::default() });
                if parent != pid
                    && let Some(space) = self.spaces.get(&parent).cloned()
                {
                    self.spaces.insert(pid, space);
                }
            }
            EventKind::Exit => {
                self.thread(pid, tid).ended_for = Some(0);
                if !self.threads.values().any(|thread| thread.pid == pid && thread.ended_for.is_none()) {
                    self.spaces.remove(&pid);
                    self.code.forget_process(pid);
                }
            }
            EventKind::Lost(records) => self.lost += records,
        }
    }

    fn thread(&mut self, pid: u32, tid: u32) -> &mut Thread {
        self.threads.entry(tid).or_insert_with(|| Thread { pid, ..Thread::default() })
    }

    fn sample(&mut self, pid: u32, tid: u32, ip: u64, kernel: bool, pe: PeId) {
        let verdict = (!kernel).then(|| self.verdict(pid, ip));
        let thread = self.thread(pid, tid);
        *thread.ran_on.entry(pe).or_default() += 1;
        match verdict {
            None => thread.reading.kernel += 1,
            Some(Verdict::Unknown) => thread.reading.unknown += 1,
            Some(Verdict::Waiting) => thread.reading.spinning += 1,
            Some(Verdict::Working(judgement)) => thread.work(&judgement),
        }
    }

    fn verdict(&mut self, pid: u32, ip: u64) -> Verdict {
        self.cost.user_samples += 1;
        let Some(space) = self.spaces.get(&pid) else { return Verdict::Unknown };
        let mut code = self.code.view(pid, space);
        let Some(place) = code.place(ip) else { return Verdict::Unknown };
        if let Some(&verdict) = self.verdicts.get(&place) {
            return verdict;
        }
        self.cost.judged_anew += 1;
        let verdict = if spin::is_waiting(&mut code, ip) {
            Verdict::Waiting
        } else {
            self.window.judge(&mut code, ip).map_or(Verdict::Unknown, Verdict::Working)
        };
        self.verdicts.insert(place, verdict);
        verdict
    }
}

#[cfg(test)]
mod tests;
