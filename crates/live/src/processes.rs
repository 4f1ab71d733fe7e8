//! The processes with several threads: how long they wait for PEs, and how their idle threads wait.
//!
//! The meter knows the times of processes, the actuator their runtime libraries. Each needs something of the
//! other: the libraries of a process are searched while its threads wait for PEs, and processes whose waits can
//! be changed, or were, are read differently. Here they meet, together with what the runs share about gangs.

use corewise_binding::runtimes::Runtimes;
use corewise_binding::shared::gangs::GangsBeside;
use corewise_core::ids::ThreadId;
use corewise_core::observe::{IdleWaits, ProcessDelay, ProcessReading};
use corewise_core::plan::{Action, Outcome};
use corewise_counters::delays::DelayMeter;
use corewise_discovery::NewThread;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// See the module documentation.
#[derive(Debug)]
pub struct Processes {
    /// Their times.
    pub meter: DelayMeter,
    /// Their runtime libraries.
    pub runtimes: Runtimes,
    /// `None` if it cannot be opened: then no gangs of others are known.
    gangs: Option<GangsBeside>,
    /// The last reading of each process, and the last one with idle time.
    last: HashMap<ThreadId, (ProcessReading, ProcessReading)>,
}

impl Processes {
    /// Creates it without processes. Its readings have the time since `began`.
    pub fn new(runtimes: Runtimes, began: Instant) -> Processes {
        let gangs = GangsBeside::open().ok();
        Processes { meter: DelayMeter::new(began), runtimes, gangs, last: HashMap::new() }
    }

    /// Registers a thread.
    pub fn meet(&mut self, thread: &NewThread) {
        self.runtimes.meet(thread);
        self.meter.watch(thread);
    }

    /// Takes note that a thread has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.meter.forget(thread);
        self.runtimes.forget(thread);
        self.last.remove(&thread);
    }

    /// Returns the time until processes are read next.
    pub fn due_within(&self) -> Option<Duration> {
        self.meter.due_within()
    }

    /// Reads the processes, if that is due.
    pub fn read(&mut self) -> Vec<ProcessDelay> {
        let looks = self.meter.read();
        let mut delays = Vec::new();
        for look in looks {
            let leader = look.reading.leader;
            self.runtimes.look(leader, look.threads, look.waiting_share);
            let (waits, spin_count) =
                (self.take_note_of_waits(leader.tid), self.runtimes.spin_count(leader.tid));
            if look.is_over || look.threads == 0 {
                self.last.remove(&leader);
                continue;
            }
            let other_gangs = self.gangs.as_mut().map_or(0, |gangs| gangs.count(leader.tid));
            let reading = ProcessReading { waits, other_gangs, ..look.reading };
            let (before, before_idle) = self.last.entry(leader).or_insert((reading, reading));
            delays.push(delay_between(before, before_idle, &reading, spin_count));
            *before = reading;
            if reading.idle_ns.is_some() {
                *before_idle = reading;
            }
        }
        delays
    }

    /// Carries out a change of how idle threads wait, if it is one.
    pub fn apply(&mut self, action: &Action) -> Option<Outcome> {
        let outcome = self.runtimes.apply(action)?;
        self.take_note_of_waits(action.thread.tid);
        Some(outcome)
    }

    fn take_note_of_waits(&mut self, pid: u32) -> IdleWaits {
        let (waits, are_changed) = self.runtimes.waits(pid);
        self.meter.set_waits(pid, waits, are_changed);
        waits
    }
}

/// The idle share of the PEs from which on it is certain: with two PEs, more than one tick.
const CERTAIN_FROM: f64 = 0.07;

/// What happened between two readings, and since the last one with idle time.
fn delay_between(
    before: &ProcessReading,
    before_idle: &ProcessReading,
    now: &ProcessReading,
    spin_count: Option<u64>,
) -> ProcessDelay {
    let ns = |now: u64, before: u64| now.saturating_sub(before);
    let times = now.since(before_idle);
    let idle_percent = times.idle_s.map(|idle| {
        let is_certain = idle >= CERTAIN_FROM * f64::from(now.pes) * times.elapsed_s;
        if is_certain { (100.0 * idle / (idle + times.run_s)) as u8 } else { 0 }
    });
    ProcessDelay {
        leader: now.leader,
        run_ns: ns(now.run_ns, before.run_ns),
        wait_ns: ns(now.wait_ns, before.wait_ns),
        throttled_ns: ns(now.throttled_ns, before.throttled_ns),
        elapsed_ns: ns(now.at.0, before.at.0),
        timeslices: now.timeslices.zip(before.timeslices).map(|(now, before)| ns(now, before)),
        idle_percent,
        adaptable: now.waits == IdleWaits::Adaptable,
        gives_way: now.waits == IdleWaits::Yield,
        other_gangs: now.other_gangs,
        spin_count,
    }
}
