//! The activity of each recorded thread, interval by interval.

use super::error::WhatIfError;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::{CounterReading, Input, Observation, Standing, ThreadReading};
use corewise_core::plan::{Change, Outcome, OutcomeKind};
use corewise_core::recording::Recording;
use corewise_core::time::Time;
use corewise_core::view::{Estimate, Usage, wanted_ns};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The confidence from which an estimate counts as known, as for the engine's classes.
const CONFIDENCE_MIN: f64 = 0.5;

/// A thread that had a PE for this share of the time in which it wanted one did not share the PE.
const UNQUEUED_MIN: f64 = 0.9;

/// The location of a thread is known only if it wanted a PE for this share of the interval.
const BUSY_MIN: f64 = 0.5;

/// A thread's demand as shown by counters; unknown values are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Known {
    /// Share of cycles with a busy FPU, 0..1.
    pub fpu: Option<f64>,
    /// Instructions per cycle.
    pub ipc: Option<f64>,
    /// L2 misses per 100 cycles.
    pub l2_misses: Option<f64>,
    /// Branches per instruction, 0..1.
    pub branches: Option<f64>,
    /// Mispredicted branches per branch, 0..1.
    pub branch_misses: Option<f64>,
}

impl Known {
    fn of(usage: &Usage) -> Self {
        let trusted = |estimate: Option<Estimate>| {
            estimate.filter(|estimate| estimate.confidence >= CONFIDENCE_MIN).map(|estimate| estimate.value)
        };
        Self {
            fpu: trusted(usage.fpu),
            ipc: usage.ipc.map(|ipc| ipc.value),
            l2_misses: usage.l2_misses_per_100_cycles.map(|misses| misses.value),
            branches: trusted(usage.branches),
            branch_misses: usage.branch_misses_per_100.map(|per_100| (per_100.value / 100.0).min(1.0)),
        }
    }

    /// Fills unknown values from `other`.
    fn or(self, other: Known) -> Self {
        Self {
            fpu: self.fpu.or(other.fpu),
            ipc: self.ipc.or(other.ipc),
            l2_misses: self.l2_misses.or(other.l2_misses),
            branches: self.branches.or(other.branches),
            branch_misses: self.branch_misses.or(other.branch_misses),
        }
    }
}

/// A wait, in nanoseconds, by its possible reason.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Wait {
    /// Time in which no thread of the application was runnable: input, output, a timer.
    pub idle_ns: f64,
    /// Time in which another thread of the application was runnable: perhaps a wait for that thread.
    pub beside_ns: f64,
}

/// One interval of one thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The index of the interval in the recording, from 0.
    pub interval: usize,
    /// Its length in nanoseconds.
    pub length_ns: u64,
    /// CPU time in it.
    pub cpu_ns: u64,
    /// Time in it for which the thread wanted a PE.
    pub wanted_ns: u64,
    /// Core cycles per nanosecond of CPU time, if they were counted.
    pub cycles_per_ns: Option<f64>,
    /// The PE on which the thread was seen at its end.
    pub pe: Option<PeId>,
    /// The thread's waits.
    pub wait: Wait,
    /// What is known of its demand.
    pub known: Known,
    /// Whether the wait came before the work, as at the end of the recording.
    pub waits_first: bool,
}

/// One recorded thread.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The thread.
    pub thread: ThreadId,
    /// Its application.
    pub app: AppId,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// The PEs to which it or its user had bound it.
    pub pinned: Option<CpuSet>,
    /// Time before its start in the interval of its start, and all earlier time in which no thread of its
    /// application was runnable.
    pub start: Wait,
    /// Its activity after that.
    pub segments: Vec<Segment>,
    /// Its CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Whether the time that it waited for a PE is known.
    pub knows_queueing: bool,
}

/// The PEs on which a thread was held from some time on; `None`: it was free.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// The time.
    pub at: Time,
    /// The thread.
    pub thread: ThreadId,
    /// The PEs.
    pub pes: Option<CpuSet>,
}

/// All histories of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Histories {
    /// The threads that did anything, in order of appearance.
    pub threads: Vec<History>,
    /// Where threads stayed, in order of time: bound by corewise, or seen to run on one PE all the time.
    pub holds: Vec<Hold>,
    /// How long each application was active, in nanoseconds, interval by interval.
    pub active: BTreeMap<AppId, Vec<f64>>,
    /// The end of the recording.
    pub end: Time,
    /// The PEs that could be used.
    pub allowed: CpuSet,
}

/// The activity of one application so far.
#[derive(Debug, Clone, Default)]
struct Clock {
    /// How long it was active in each interval.
    active: Vec<f64>,
    /// Idle time before the latest interval.
    idle_before_ns: f64,
    /// Idle time in the latest interval.
    idle_ns: f64,
    /// Its reading at the end.
    read_ns: u64,
}

#[derive(Default)]
struct Reader {
    threads: Vec<History>,
    index: HashMap<ThreadId, usize>,
    last: HashMap<ThreadId, ThreadReading>,
    clocks: BTreeMap<AppId, Clock>,
    /// The bindings by corewise.
    bound: HashMap<ThreadId, CpuSet>,
    held: HashMap<ThreadId, CpuSet>,
    holds: Vec<Hold>,
    interval: usize,
}

impl Histories {
    /// Extracts the histories of a recording.
    pub fn of(recording: &Recording) -> Result<Self, WhatIfError> {
        let last = recording.observations().next_back().ok_or(WhatIfError::Empty)?;
        let mut reader = Reader::default();
        let mut before = Time(0);
        for input in &recording.inputs {
            reader.take_outcomes(input.outcomes());
            if let Input::Observation(observation) = input {
                reader.interval(observation, before, observation.at == last.at);
                before = observation.at;
            }
        }
        reader.holds.sort_by_key(|hold| hold.at);
        let mut threads = reader.threads;
        for thread in &mut threads {
            // A phase of which too little is known is assumed to be like the whole.
            let counters = reader.last.get(&thread.thread).and_then(|reading| reading.counters.as_ref());
            let whole = counters.map_or_else(Known::default, |c| Known::of(&Usage::between(None, c)));
            thread.segments.iter_mut().for_each(|segment| segment.known = segment.known.or(whole));
        }
        threads.retain(|thread| thread.cpu_ns > 0);
        if threads.is_empty() {
            return Err(WhatIfError::NoWork);
        }
        let known = recording.header.topology.pes.intersection(&last.allowed);
        let allowed = if known.is_empty() { recording.header.topology.allowed.clone() } else { known };
        let active = reader.clocks.into_iter().map(|(app, clock)| (app, clock.active)).collect();
        Ok(Self { threads, holds: reader.holds, active, end: last.at, allowed })
    }
}

impl Reader {
    fn take_outcomes(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.result == OutcomeKind::Done) {
            match &outcome.change {
                Change::Bind(pes) | Change::Move(pes) => self.bound.insert(outcome.thread, pes.clone()),
                Change::Free => self.bound.remove(&outcome.thread),
                // The simulation has no settings.
                Change::Set(_) | Change::Reset(_) => None,
            };
        }
    }

    fn interval(&mut self, observation: &Observation, before: Time, is_last: bool) {
        let length_ns = observation.at.0 - before.0;
        for app in &observation.applications {
            self.clocks.entry(app.app).or_default().tick(app.active_ns, self.interval, length_ns);
        }
        for reading in &observation.threads {
            // An application without readings counts as active.
            let clock = self.clocks.entry(reading.app).or_default();
            clock.tick(clock.read_ns + length_ns, self.interval, length_ns);
        }
        for reading in &observation.threads {
            self.thread(reading, before, length_ns, is_last);
        }
        self.interval += 1;
    }

    fn thread(&mut self, reading: &ThreadReading, before: Time, length_ns: u64, is_last: bool) {
        let clock = &self.clocks[&reading.app];
        let earlier = self.last.remove(&reading.thread);
        let mut segment = segment(earlier.as_ref(), reading, clock, length_ns);
        (segment.interval, segment.waits_first) = (self.interval, is_last);
        let index = *self.index.entry(reading.thread).or_insert_with(|| {
            let start = Wait { idle_ns: clock.idle_before_ns, beside_ns: 0.0 };
            self.threads.push(History::new(reading, start));
            self.threads.len() - 1
        });
        let thread = &mut self.threads[index];
        let mut at = before;
        if earlier.is_none() {
            // It began some time in the interval: assume as late as its work allows.
            thread.start.idle_ns += segment.wait.idle_ns;
            thread.start.beside_ns += segment.wait.beside_ns;
            at = before + Duration::from_nanos((segment.wait.idle_ns + segment.wait.beside_ns) as u64 + 1);
            segment.wait = Wait::default();
        } else if reading.ended && !is_last {
            // It ended some time in the interval: assume as soon as its work was done.
            segment.wait = Wait::default();
        }
        let stayed = stayed(earlier.as_ref(), reading, length_ns);
        thread.cpu_ns += segment.cpu_ns;
        thread.knows_queueing &= reading.runnable_ns.is_some();
        match reading.standing {
            Standing::SelfPinned | Standing::UserPlaced => {
                thread.pinned = Some((*reading.permitted).clone());
            }
            Standing::Free
            | Standing::Bound
            | Standing::Inherited
            | Standing::StartsPrograms
            | Standing::LeftAlone
            | Standing::NeedsAllPes => {}
        }
        thread.segments.push(segment);
        let held = reading.last_pe.filter(|_| stayed).map(CpuSet::single);
        self.hold(reading.thread, at, held.or_else(|| self.bound.get(&reading.thread).cloned()));
        let mut kept = reading.clone();
        kept.counters = kept.counters.or(earlier.and_then(|earlier| earlier.counters));
        self.last.insert(reading.thread, kept);
    }

    fn hold(&mut self, thread: ThreadId, at: Time, pes: Option<CpuSet>) {
        if self.held.get(&thread) == pes.as_ref() {
            return;
        }
        match &pes {
            Some(pes) => self.held.insert(thread, pes.clone()),
            None => self.held.remove(&thread),
        };
        self.holds.push(Hold { at, thread, pes });
    }
}

impl History {
    fn new(reading: &ThreadReading, start: Wait) -> Self {
        Self {
            thread: reading.thread,
            app: reading.app,
            pid: reading.pid,
            name: reading.name.clone(),
            pinned: None,
            start,
            segments: Vec::new(),
            cpu_ns: 0,
            knows_queueing: true,
        }
    }
}

/// Returns a thread's activity between two readings, or since its start.
fn segment(
    earlier: Option<&ThreadReading>,
    reading: &ThreadReading,
    clock: &Clock,
    length_ns: u64,
) -> Segment {
    let cpu_ns = reading.cpu_ns.saturating_sub(earlier.map_or(0, |earlier| earlier.cpu_ns)).min(length_ns);
    let wanted = wanted_between(earlier, reading).max(cpu_ns);
    let off_ns = length_ns.saturating_sub(wanted) as f64;
    let idle_ns = clock.idle_ns.min(off_ns);
    let earlier = earlier.and_then(|earlier| earlier.counters.as_ref());
    let known = reading.counters.as_ref().map(|counters| Known::of(&Usage::between(earlier, counters)));
    Segment {
        interval: 0,
        length_ns,
        cpu_ns,
        wanted_ns: wanted,
        cycles_per_ns: cycles_per_ns(earlier, reading.counters.as_ref()),
        pe: reading.last_pe,
        wait: Wait { idle_ns, beside_ns: off_ns - idle_ns },
        known: known.unwrap_or_default(),
        waits_first: false,
    }
}

/// Returns the time for which it wanted a PE between two readings, in nanoseconds.
fn wanted_between(earlier: Option<&ThreadReading>, reading: &ThreadReading) -> u64 {
    wanted_ns(reading).saturating_sub(earlier.map_or(0, wanted_ns))
}

/// Returns whether it ran on one PE all the time, as far as can be seen.
fn stayed(earlier: Option<&ThreadReading>, reading: &ThreadReading, length_ns: u64) -> bool {
    let wanted = wanted_between(earlier, reading).max(1) as f64;
    let cpu_ns = reading.cpu_ns.saturating_sub(earlier.map_or(0, |earlier| earlier.cpu_ns)) as f64;
    let is_busy = |_: &ThreadReading| wanted >= BUSY_MIN * length_ns as f64;
    cpu_ns >= UNQUEUED_MIN * wanted
        && earlier.is_none_or(|earlier| earlier.last_pe == reading.last_pe && is_busy(earlier))
}

impl Clock {
    /// Records that an interval has passed; only the first call per interval counts.
    fn tick(&mut self, read_ns: u64, interval: usize, length_ns: u64) {
        if self.active.len() > interval {
            return;
        }
        // Before it was first seen an application was idle.
        self.active.resize(interval, 0.0);
        let active_ns = read_ns.saturating_sub(self.read_ns).min(length_ns) as f64;
        self.idle_before_ns += self.idle_ns;
        (self.idle_ns, self.read_ns) = (length_ns as f64 - active_ns, read_ns);
        self.active.push(active_ns);
    }
}

/// Returns the rate of the cycle counter between two readings.
fn cycles_per_ns(earlier: Option<&CounterReading>, later: Option<&CounterReading>) -> Option<f64> {
    let CounterReading::Pmu(later) = later? else { return None };
    let (cycles, enabled_ns) = match earlier {
        Some(CounterReading::Pmu(earlier)) => (earlier.cycles, earlier.enabled_ns),
        Some(CounterReading::Sample(_)) | None => (0, 0),
    };
    let enabled = later.enabled_ns.saturating_sub(enabled_ns);
    (enabled > 0).then(|| later.cycles.saturating_sub(cycles) as f64 / enabled as f64)
}
