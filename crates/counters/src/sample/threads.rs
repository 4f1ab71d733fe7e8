//! The readings of threads: of each from its first sample until its last reading is reported.
//!
//! A thread's end is learned twice: here, from the clock's records, and in discovery, which follows the
//! threads. Whichever comes first, the last reading is reported once: that of an ended thread waits here
//! until it is requested, and one that was reported already is not kept for its end. Thread ids are reused,
//! so several ended threads may wait under one.

use super::tally::Tally;
use corewise_core::ids::{AppId, PeId};
use corewise_core::observe::{CounterReading, SampleReading};
use corewise_discovery::ThreadFacts;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub struct Threads {
    living: HashMap<u32, Thread>,
    /// Ended ones that have samples, not reported yet, in the order of their ends.
    ended: HashMap<u32, VecDeque<Thread>>,
    /// Living threads of each process.
    in_process: HashMap<u32, u32>,
}

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    /// When it was created (`CLOCK_MONOTONIC`, nanoseconds), 0 where unknown.
    since: u64,
    name: Arc<str>,
    tally: Tally,
    ran_on: BTreeMap<PeId, u32>,
    /// Its last reading was reported before its end was seen here.
    reported: bool,
}

impl Threads {
    /// Takes in a new thread.
    pub fn begin(&mut self, pid: u32, tid: u32, creator: u32, since: u64) {
        // Without a record of its end (one was lost) a thread ends when its id is used again.
        self.end(pid, tid);
        let name = self.living.get(&creator).map(|creator| creator.name.clone()).unwrap_or_default();
        *self.living_one(pid, tid) = Thread { pid, since, name, ..Thread::default() };
    }

    /// Takes in that a thread executed a program: it is the only one of its process that goes on, under the
    /// leader's id.
    pub fn execute(&mut self, pid: u32, tid: u32) {
        let alone = self.in_process.get(&pid) == Some(&1) && self.living.contains_key(&tid);
        if !alone {
            let others = self.living.iter().filter(|&(&other, thread)| thread.pid == pid && other != tid);
            let others: Vec<u32> = others.map(|(&other, _)| other).collect();
            for other in others {
                self.end(pid, other);
            }
        }
    }

    /// Takes in a thread's new name.
    pub fn rename(&mut self, pid: u32, tid: u32, name: Arc<str>) {
        self.living_one(pid, tid).name = name;
    }

    /// Takes in a sample.
    pub fn sample(&mut self, pid: u32, tid: u32, pe: PeId, add: impl FnOnce(&mut Tally)) {
        let thread = self.living_one(pid, tid);
        *thread.ran_on.entry(pe).or_default() += 1;
        add(&mut thread.tally);
    }

    /// Takes in a thread's end; whether it was the last one of its process.
    pub fn end(&mut self, pid: u32, tid: u32) -> bool {
        let Some(thread) = self.living.remove(&tid) else { return !self.in_process.contains_key(&pid) };
        let pid = thread.pid;
        if !thread.reported && thread.tally.reading != SampleReading::default() {
            self.ended.entry(tid).or_default().push_back(thread);
        }
        let left = self.in_process.get_mut(&pid).map_or(0, |living| {
            *living -= 1;
            *living
        });
        if left == 0 {
            self.in_process.remove(&pid);
        }
        left == 0
    }

    /// Whether a thread of this process lives.
    pub fn has_process(&self, pid: u32) -> bool {
        self.in_process.contains_key(&pid)
    }

    fn living_one(&mut self, pid: u32, tid: u32) -> &mut Thread {
        self.living.entry(tid).or_insert_with(|| {
            *self.in_process.entry(pid).or_default() += 1;
            Thread { pid, ..Thread::default() }
        })
    }

    /// The reading of a thread so far.
    pub fn read(&self, tid: u32) -> Option<SampleReading> {
        let ended = || self.ended.get(&tid)?.front();
        self.living
            .get(&tid)
            .or_else(ended)
            .filter(|thread| !thread.reported)
            .map(|thread| thread.tally.reading)
    }

    /// Reports the last reading of a thread that has ended.
    pub fn last(&mut self, tid: u32) -> Option<SampleReading> {
        if let Some(ended) = self.ended.get_mut(&tid) {
            let thread = ended.pop_front();
            if ended.is_empty() {
                self.ended.remove(&tid);
            }
            return thread.map(|thread| thread.tally.reading);
        }
        let thread = self.living.get_mut(&tid).filter(|thread| !thread.reported)?;
        thread.reported = true;
        Some(thread.tally.reading)
    }

    /// Takes the ended threads that nobody asked for, except those that others still take for living.
    pub fn unclaimed(&mut self, living: &HashSet<u32>, rate_hz: u64) -> Vec<(ThreadFacts, CounterReading)> {
        let waiting = self.ended.extract_if(|tid, _| !living.contains(tid));
        let one_each =
            waiting.flat_map(|(tid, threads)| threads.into_iter().map(move |thread| (tid, thread)));
        let facts = |(tid, thread): (u32, Thread)| {
            (thread.facts(tid, rate_hz), CounterReading::Sample(thread.tally.reading))
        };
        one_each.map(facts).collect()
    }

    /// The PEs that a thread was sampled on since the last call, and how often on each.
    pub fn ran_on(&mut self, tid: u32) -> BTreeMap<PeId, u32> {
        let thread = match self.living.get_mut(&tid) {
            Some(living) => Some(living),
            None => self.ended.get_mut(&tid).and_then(|ended| ended.front_mut()),
        };
        thread.map(|thread| std::mem::take(&mut thread.ran_on)).unwrap_or_default()
    }

    /// The threads that have readings.
    pub fn tids(&self) -> BTreeSet<u32> {
        self.living.keys().chain(self.ended.keys()).copied().collect()
    }
}

impl Thread {
    /// What its samples alone show.
    fn facts(&self, tid: u32, rate_hz: u64) -> ThreadFacts {
        let SampleReading { judged, spinning, kernel, unknown, .. } = self.tally.reading;
        let samples = judged + spinning + kernel + unknown;
        ThreadFacts {
            tid,
            pid: self.pid,
            // Discovery knows to which application its process belongs.
            app: AppId::default(),
            generation: self.since,
            name: self.name.clone(),
            cpu_ns: samples * 1_000_000_000 / rate_hz,
            runnable_ns: None,
            runnable: false,
            last_pe: self.ran_on.keys().next().copied(),
            ended: true,
        }
    }
}
