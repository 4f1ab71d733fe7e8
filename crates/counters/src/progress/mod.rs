//! The progress meter: how fast the threads of a process advance, without a PMU and without their help.
//!
//! [`corewise_core::progress`] describes problem and approach: count how often a thread passes a point of its
//! own code. This module finds and counts the points. First, clock samples of the process and the stacks at
//! them show where points may be ([`points`]). Four at a time are then tried for a few milliseconds, so that
//! one that is passed millions of times costs no more than that; the rest is tried again, for longer
//! ([`trial`]). Another second sorts out what the trials missed. The remaining points are counted for four
//! seconds ([`counter`]), and the pure part chooses among them. A program that works in blocks of a second
//! has no steady rate in so short a time, so its threads are counted for longer. A point that is passed too
//! often for more than a burst, because the program does something else, is no longer counted.
//!
//! Limits. x86-64; code in files only, so no code that a compiler makes at run time; a probe is passed by all
//! threads of the process, though only one is counted. Needs root (CAP_SYS_ADMIN; CAP_PERFMON on older
//! kernels): a uprobe is a breakpoint in the program's memory. If corewise is killed, the kernel removes its
//! probes with its descriptors.

mod counter;
mod points;
mod trial;
mod work;

pub use work::WorkMeter;

use crate::sample::events::{EventKind, Events, SampleError};
use corewise_core::cpuset::CpuSet;
use corewise_core::progress::{Choice, Slice, Unknown, affordable, choose};
use corewise_sys::proc::{Memory, Proc, SchedstatFile};
use counter::{CANNOT_PROBE, Counter, TOO_HIGH, dear};
use points::{Find, Modules, Point};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// How long the process is sampled, how often, and how often samples are drained: stacks must be read before
/// they change.
const LOOK: Duration = Duration::from_secs(1);
const RATE_HZ: u64 = 400;
const DRAIN_EACH: Duration = Duration::from_millis(4);

/// The number of words of a stack that are searched.
const STACK_WORDS: usize = 2048;

/// The maximum number of measured threads of a process, and the number of samples below which one is idle.
const THREADS_MAX: usize = 8;
const FINDS_MIN: usize = 20;

/// The maximum number of tried candidates of a process, and of counted ones.
const TRIED_MAX: usize = 400;
const COUNTED_MAX: usize = 48;

/// The maximum time for the first trials of a process's candidates, and again for the second ones.
const TRYING: Duration = Duration::from_secs(2);

/// The excess that a burst may have, in seconds of that rate; and before the choice.
const BURST_S: f64 = 2.0;
const SHEDDING_BURST_S: f64 = 0.5;

/// The length of a slice, the number of slices before the first that counts, the number of slices for a
/// choice, and how often that number is counted if it is not enough.
pub const SLICE: Duration = Duration::from_millis(100);
const SHEDDING: usize = 10;
const CHOOSING: usize = 40;
const CHOOSING_ROUNDS: usize = 4;

/// Why a process cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// Its code cannot be read.
    #[error("cannot read process {pid}: {source}")]
    Process {
        /// The process.
        pid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// It cannot be sampled.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// No point can be tried.
    #[error("execute breakpoints cannot be set: {0}; a debugger may use all that the processor has")]
    Watch(#[source] io::Error),
    /// No point can be counted.
    #[error(
        "code cannot be probed: {0}; it takes root (CAP_SYS_ADMIN; older kernels accept CAP_PERFMON) and a \
         kernel with uprobes"
    )]
    Probe(#[source] io::Error),
}

/// The meter of one thread.
pub struct Meter {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The counted points: the chosen one, then its companion.
    pub points: Vec<String>,
    /// The counter of each point; `None` once it has become too expensive.
    counters: Vec<Option<Counter>>,
    /// How often per second each point may be passed.
    rates_max: Vec<f64>,
    /// How often each point may still be passed before it is too expensive.
    spare: Vec<f64>,
    schedstat: SchedstatFile,
    last: Option<Last>,
    slices: Vec<Slice>,
    choice: Result<Choice, Unknown>,
    /// The number of slices that the choice is based on.
    judged: usize,
}

/// The values at the end of a slice.
struct Last {
    at: Instant,
    run_ns: u64,
    wait_ns: u64,
    counts: Vec<u64>,
}

/// Returns whether points can be counted here, by trying it on corewise itself.
pub fn try_out() -> Result<(), MeterError> {
    counter::try_uprobe().map_err(MeterError::Probe)
}

impl Meter {
    /// Finds the points to count in a process, within some ten seconds; returns the meters of its busiest
    /// threads.
    pub fn start(pid: u32, pes: &CpuSet) -> Result<Vec<Meter>, MeterError> {
        let mut meters = Meter::try_out(pid, pes, CHOOSING)?;
        for _ in 1..CHOOSING_ROUNDS {
            if !meters.iter().any(|meter| choose(&meter.slices) == Err(Unknown::Wanders)) {
                break;
            }
            Meter::count_all(&mut meters, CHOOSING);
        }
        meters.iter_mut().for_each(Meter::decide);
        Ok(meters)
    }

    /// Counts this many slices.
    fn count_all(meters: &mut Vec<Meter>, slices: usize) {
        for _ in 0..slices {
            std::thread::sleep(SLICE);
            meters.retain_mut(Meter::step);
        }
    }

    /// Counts all candidates for this many slices.
    fn try_out(pid: u32, pes: &CpuSet, slices: usize) -> Result<Vec<Meter>, MeterError> {
        let of_process = |source| MeterError::Process { pid, source };
        let finds = look(pid, pes)?;
        let mut modules = Modules::of(pid).map_err(of_process)?;
        let mut busiest: Vec<(u32, Vec<Find>)> =
            finds.into_iter().filter(|(_, finds)| finds.len() >= FINDS_MIN).collect();
        busiest.sort_by_key(|(tid, finds)| (std::cmp::Reverse(finds.len()), *tid));
        busiest.truncate(THREADS_MAX);
        let mut meters = Vec::new();
        let threads = busiest.len().max(1);
        let each = TRYING / threads as u32;
        for (tid, finds) in busiest {
            let mut candidates = modules.candidates(&finds);
            candidates.truncate(TRIED_MAX / threads);
            // It may have ended meanwhile.
            let rare = trial::rare(pid, tid, candidates, each).map_err(MeterError::Watch)?;
            let Some(mut rare) = rare else { continue };
            rare.truncate(COUNTED_MAX / threads);
            if let Some(meter) = Meter::of_thread(pid, tid, rare, &modules)? {
                meters.push(meter);
            }
        }
        Meter::shed(&mut meters);
        Meter::count_all(&mut meters, slices);
        Ok(meters)
    }

    /// Counts for a moment, only to drop the points that are passed too often after all: a trial may have met
    /// another part of the program's work. Otherwise the cost of counting them would look like slowness.
    fn shed(meters: &mut Vec<Meter>) {
        for meter in &mut *meters {
            meter.spare = meter.rates_max.iter().map(|most| SHEDDING_BURST_S * TOO_HIGH * most).collect();
        }
        Meter::count_all(meters, SHEDDING);
        for meter in meters {
            let slices = meter.take_slices();
            let passed_s = SLICE.as_secs_f64() * slices.len() as f64;
            let passes = |point: usize| slices.iter().map(|slice| slice.passes[point]).sum::<u64>() as f64;
            let rate = |point: usize| dear(passes(point) / passed_s, meter.rates_max[point]);
            let rates: Vec<f64> = (0..meter.points.len()).map(rate).collect();
            meter.keep(&affordable(&rates));
        }
    }

    fn of_thread(
        pid: u32,
        tid: u32,
        rare: Vec<Point>,
        modules: &Modules,
    ) -> Result<Option<Meter>, MeterError> {
        let proc = Proc::own();
        let (Ok(Some(stat)), Ok(Some(schedstat))) = (proc.stat(pid, tid), proc.schedstat(pid, tid, true))
        else {
            return Ok(None);
        };
        let (mut points, mut counters, mut rates_max) = (Vec::new(), Vec::new(), Vec::new());
        for point in rare {
            match Counter::open(tid, modules.file(&point), point.offset) {
                Ok(counter) => {
                    points.push(point.name);
                    counters.push(Some(counter));
                    rates_max.push(point.rate_max);
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                Err(error) if is_of_instruction(&error) => {}
                Err(error) => return Err(MeterError::Probe(error)),
            }
        }
        Ok(Some(Meter {
            tid,
            name: stat.name,
            points,
            counters,
            rates_max,
            spare: Vec::new(),
            schedstat,
            last: None,
            slices: Vec::new(),
            choice: Err(Unknown::Idle),
            judged: 0,
        }))
    }

    /// Reads the counts since the last call; returns `false` once the thread has ended.
    pub fn step(&mut self) -> bool {
        let read = |counter: &Option<Counter>| counter.as_ref().map_or(Ok(0), Counter::read);
        let counts: Result<Vec<u64>, _> = self.counters.iter().map(read).collect();
        let (Ok(Some(times)), Ok(counts)) = (self.schedstat.read(), counts) else { return false };
        let now = Last { at: Instant::now(), run_ns: times.run_ns, wait_ns: times.wait_ns, counts };
        if let Some(last) = self.last.replace(now)
            && let Some(now) = &self.last
        {
            let run_s = now.run_ns.saturating_sub(last.run_ns) as f64 / 1e9;
            let wait_s = now.wait_ns.saturating_sub(last.wait_ns) as f64 / 1e9;
            let passes = now.counts.iter().zip(&last.counts).map(|(now, last)| now.saturating_sub(*last));
            let slice = Slice { cpu_s: run_s, wanted_s: run_s + wait_s, passes: passes.collect() };
            self.slices.push(slice);
            self.keep_cheap(last.at.elapsed());
        }
        true
    }

    /// Stops counting a point that is passed too often, as if it had never been passed.
    fn keep_cheap(&mut self, passed: Duration) {
        let most = |point: usize| BURST_S * TOO_HIGH * self.rates_max[point];
        if self.spare.len() != self.counters.len() {
            self.spare = (0..self.counters.len()).map(most).collect();
        }
        let Some(now) = self.slices.last().map(|slice| slice.passes.clone()) else { return };
        for (point, passes) in now.into_iter().enumerate() {
            let spare = &mut self.spare[point];
            let more = TOO_HIGH * self.rates_max[point] * passed.as_secs_f64();
            *spare = (*spare + more - passes as f64).min(most(point));
            if *spare < 0.0 {
                self.counters[point].take().into_iter().for_each(Counter::close);
                self.slices.iter_mut().for_each(|slice| slice.passes[point] = 0);
            }
        }
    }

    /// Returns the slices since the last call.
    pub fn take_slices(&mut self) -> Vec<Slice> {
        std::mem::take(&mut self.slices)
    }

    /// Returns the choice, as indices in the slices' passes; or why there is none.
    pub fn choice(&self) -> Result<Choice, Unknown> {
        self.choice
    }

    /// Returns whether the first point is still counted: it may have become too expensive.
    fn counts(&self) -> bool {
        self.counters.first().is_some_and(Option::is_some)
    }

    /// Returns the number of slices that the choice took. A shorter baseline would be less reliable than the
    /// choice.
    pub fn judged(&self) -> usize {
        self.judged
    }

    /// Chooses, and counts only the chosen points from then on.
    fn decide(&mut self) {
        (self.choice, self.judged) = (choose(&self.slices), self.slices.len());
        let kept: Vec<usize> =
            self.choice.iter().flat_map(|choice| [Some(choice.point), choice.companion]).flatten().collect();
        self.keep(&kept);
        self.choice = self.choice.map(|choice| Choice { point: 0, companion: choice.companion.map(|_| 1) });
    }

    /// Counts only these points from now on, in this order.
    fn keep(&mut self, kept: &[usize]) {
        self.rates_max = kept.iter().map(|&index| self.rates_max[index]).collect();
        let mut all: Vec<Option<(String, Option<Counter>)>> = std::mem::take(&mut self.points)
            .into_iter()
            .zip(std::mem::take(&mut self.counters))
            .map(Some)
            .collect();
        let counted: Vec<(String, Option<Counter>)> =
            kept.iter().filter_map(|&index| all[index].take()).collect();
        all.into_iter().flatten().filter_map(|(_, counter)| counter).for_each(Counter::close);
        (self.points, self.counters) = counted.into_iter().unzip();
        // Earlier slices include the cost of the points that are now dropped.
        self.slices.clear();
        self.spare.clear();
        self.last = None;
    }
}

/// Returns whether a probe was refused because of its instruction: some cannot be probed.
fn is_of_instruction(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | CANNOT_PROBE))
}

/// Samples where the threads of a process are.
fn look(pid: u32, pes: &CpuSet) -> Result<BTreeMap<u32, Vec<Find>>, MeterError> {
    let mut events = Events::attach_with_snapshots(&[pid], pes, RATE_HZ)?;
    let memory = Proc::own().memory(pid, false).ok();
    let mut finds: BTreeMap<u32, Vec<Find>> = BTreeMap::new();
    let begin = Instant::now();
    while begin.elapsed() < LOOK {
        std::thread::sleep(DRAIN_EACH);
        events.drain(|event| {
            if let EventKind::Sample { ip, kernel, snapshot, .. } = event.kind
                && event.pid == pid
            {
                let stack = snapshot
                    .zip(memory.as_ref())
                    .map(|(snapshot, memory)| read_stack(memory, snapshot.stack_pointer()))
                    .unwrap_or_default();
                // An address in the kernel is not one of the program.
                let ip = if kernel { 0 } else { ip };
                finds.entry(event.tid).or_default().push(Find { ip, stack });
            }
        });
    }
    Ok(finds)
}

/// Returns the words of a stack from an address on; zeros where it cannot be read.
fn read_stack(memory: &Memory, from: u64) -> Vec<u64> {
    let mut bytes = vec![0; STACK_WORDS * 8];
    // The stack may end before.
    memory.read_what_is_there(from, &mut bytes);
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}
