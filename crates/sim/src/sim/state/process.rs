//! A process, how its threads wait, and what their time went to.

use crate::program::Waiting;
use crate::random::Random;
use corewise_core::observe::{ProcessReading, SAMPLES_PER_S, SampleReading};
use corewise_core::time::Time;
use std::time::Duration;

/// The process of an application's current run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    /// Its first thread; the others follow.
    pub leader: usize,
    /// The number of its threads.
    pub team: usize,
    /// The spin count that corewise has set.
    pub spin_count: Option<u64>,
    /// The last reading, what its threads had wanted by then, and whether it was reported.
    pub read: Option<ProcessReading>,
    pub wanted_ns: Vec<u64>,
    /// For how long a quota had held its threads back by then, and the one that it held longest, added up.
    pub held_ns: Vec<u64>,
    pub stopped_ns: u64,
    pub was_reported: bool,
    /// When the idle time of its PEs was last read, while its waits are changed.
    pub idle_read: Option<Time>,
}

impl Process {
    /// Creates the process of threads that are about to start.
    pub fn new(leader: usize, team: usize) -> Self {
        Self { leader, team, ..Self::default() }
    }

    /// Returns its threads.
    pub fn threads(&self) -> std::ops::Range<usize> {
        self.leader..self.leader + self.team
    }

    /// Returns whether its spin count is changed.
    pub fn is_changed(&self) -> bool {
        self.spin_count.is_some()
    }
}

/// How a thread's wait goes on, in nanoseconds of CPU time spent spinning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    /// When it reports that it spins.
    pub notify_ns: f64,
    /// When it blocks.
    pub block_ns: f64,
    /// The time between two yields, and when the next one is due; infinite if it does not yield.
    pub yield_every_ns: f64,
    pub yield_ns: f64,
}

impl Default for Wait {
    /// Spins to the end.
    fn default() -> Self {
        const NEVER: f64 = f64::INFINITY;
        Self { notify_ns: NEVER, block_ns: NEVER, yield_every_ns: NEVER, yield_ns: NEVER }
    }
}

impl Wait {
    /// Begins a wait of a process, whose spin count corewise may have changed.
    pub fn new(waiting: Waiting, process: &Process) -> Self {
        let ns = |time: Duration| time.as_nanos() as f64;
        let spins = Self::default();
        match waiting {
            Waiting::Spin => spins,
            Waiting::Sleep => Self { block_ns: 0.0, ..spins },
            Waiting::Adaptive { block_after } => Self { block_ns: ns(block_after), ..spins },
            Waiting::SpinThenNotify { notify_after, block_after } => {
                Self { notify_ns: ns(notify_after), block_ns: ns(block_after), ..spins }
            }
            Waiting::Library { spin_count, iteration } => {
                let count = process.spin_count.unwrap_or(spin_count);
                Self { block_ns: count as f64 * ns(iteration), ..spins }
            }
            Waiting::Yield { every, block_after } => {
                let (every, block_ns) = (ns(every).max(1.0), ns(block_after));
                Self { block_ns, yield_every_ns: every, yield_ns: every, ..spins }
            }
        }
    }

    /// Returns when something about the wait changes next, if others wait for its PE or not.
    pub fn next_ns(&self, is_counted: bool, is_contended: bool) -> f64 {
        let next = if is_counted { self.notify_ns.min(self.block_ns) } else { self.block_ns };
        if is_contended { next.min(self.yield_ns) } else { next }
    }

    fn yields(&self) -> bool {
        self.yield_every_ns.is_finite()
    }
}

/// What a thread's time went to, as far as it is neither work nor given by its CPU time alone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// CPU time spent spinning, in nanoseconds, and that with yields.
    spin_ns: f64,
    yielding_ns: f64,
    /// CPU time spent in the kernel, to switch and to wake others.
    kernel_ns: f64,
    /// Time for which its PE left an idle state for it, which counts neither as its CPU time nor as waiting.
    waking_ns: f64,
    /// What of its debt is of the last two kinds.
    owed_kernel_ns: f64,
    owed_waking_ns: f64,
    /// Time in queues, and since when it is in one.
    pub wait_ns: u64,
    queued_since: Option<Time>,
    /// Time held back by a quota, and since when it is.
    pub held_ns: u64,
    held_since: Option<Time>,
    /// How often it was given a PE.
    pub timeslices: u64,
    sampled: Sampled,
}

/// What clock samples have shown, and up to which times.
#[derive(Debug, Clone, Copy, Default)]
struct Sampled {
    reading: SampleReading,
    until: [f64; 6],
    /// The time since the last sample, in samples.
    rest: f64,
    /// Whether sampling has begun.
    has_begun: bool,
}

impl Times {
    /// Adds to its debt: time in the kernel, and time until its PE is awake.
    pub fn owe(&mut self, kernel_ns: f64, waking_ns: f64) {
        self.owed_kernel_ns += kernel_ns;
        self.owed_waking_ns += waking_ns;
    }

    /// Pays debt; returns how much of it was waking.
    pub fn pay(&mut self, ns: f64) -> f64 {
        let waking = self.owed_waking_ns.min(ns);
        let kernel = self.owed_kernel_ns.min(ns - waking);
        self.owed_waking_ns -= waking;
        self.owed_kernel_ns -= kernel;
        self.waking_ns += waking;
        self.kernel_ns += kernel;
        waking
    }

    /// Counts spinning.
    pub fn spin(&mut self, ns: f64, wait: &Wait) {
        self.spin_ns += ns;
        self.yielding_ns += if wait.yields() { ns } else { 0.0 };
    }

    /// Notes that it is in a queue, or no longer.
    pub fn queue(&mut self, now: Time) {
        self.dequeue(now);
        self.queued_since = Some(now);
    }

    /// See [`Times::queue`].
    pub fn dequeue(&mut self, now: Time) {
        self.wait_ns += self.queued_since.take().map_or(0, |since| now.0 - since.0);
    }

    /// Notes that a quota holds it back, or no longer.
    pub fn hold(&mut self, now: Time) {
        self.held_since = Some(now);
    }

    /// See [`Times::hold`].
    pub fn let_go(&mut self, now: Time) {
        self.held_ns += self.held_since.take().map_or(0, |since| now.0 - since.0);
    }

    /// Notes that it was given a PE.
    pub fn arrive(&mut self, now: Time) {
        self.dequeue(now);
        self.timeslices += 1;
    }

    /// Returns its CPU time without that in which its PE woke up.
    pub fn run_ns(&self, cpu_ns: u64) -> u64 {
        cpu_ns.saturating_sub(self.waking_ns as u64)
    }

    /// Begins sampling at this CPU time and these cycles, unless it has begun.
    pub fn begin_samples(&mut self, cpu_ns: u64, (cycles, fpu): (f64, f64)) {
        if !std::mem::replace(&mut self.sampled.has_begun, true) {
            let run_ns = self.run_ns(cpu_ns) as f64;
            self.sampled.until = [run_ns, self.kernel_ns, self.spin_ns, self.yielding_ns, cycles, fpu];
        }
    }

    /// Returns what clock samples show of a thread with this CPU time and these cycles, in some of which the
    /// FPU was busy.
    pub fn samples(&mut self, cpu_ns: u64, (cycles, fpu): (f64, f64), random: &mut Random) -> SampleReading {
        let run_ns = self.run_ns(cpu_ns) as f64;
        let now = [run_ns, self.kernel_ns, self.spin_ns, self.yielding_ns, cycles, fpu];
        let Sampled { reading, until, rest, .. } = &mut self.sampled;
        let mut since = [0.0; 6];
        for (since, (now, until)) in since.iter_mut().zip(now.iter().zip(until.iter_mut())) {
            *since = now - std::mem::replace(until, *now);
        }
        let [all, kernel, spinning, yielding, cycles, fpu] = since;
        let working = (all - kernel - spinning).max(0.0) / all.max(1.0);
        let fpu_busy = if working > 0.0 { (fpu / (cycles * working).max(1.0)).min(1.0) } else { 0.0 };
        *rest += all * f64::from(SAMPLES_PER_S) / 1e9;
        let count = rest.trunc().max(0.0);
        *rest -= count;
        for _ in 0..count as u64 {
            let at = random.unit() * all;
            if at < kernel {
                reading.kernel += 1;
            } else if at < kernel + spinning {
                reading.spinning += 1;
                reading.yielding += u64::from(at < kernel + yielding);
            } else {
                reading.judged += 1;
                reading.fp += fpu_busy;
            }
        }
        *reading
    }
}
