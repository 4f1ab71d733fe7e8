//! The processes with several threads: how long they wait for PEs, and how their idle threads wait.
//!
//! The meter knows the times of processes, the actuators their runtime libraries. Each needs something of the
//! other: the libraries of a process are searched while its threads wait for PEs, and processes whose waits
//! were changed are reported differently. Here they meet, together with what the runs share about gangs.

use corewise_binding::actuators::Actuators;
use corewise_binding::shared::gangs::GangsBeside;
use corewise_core::ids::ThreadId;
use corewise_core::observe::ProcessReading;
use corewise_counters::delays::DelayMeter;
use corewise_discovery::NewThread;
use std::time::{Duration, Instant};

/// See the module documentation.
#[derive(Debug)]
pub struct Processes {
    /// Their times.
    pub meter: DelayMeter,
    /// `None` if it cannot be opened: then no gangs of others are known.
    gangs: Option<GangsBeside>,
}

impl Processes {
    /// Creates it without processes. Its readings have the time since `began`.
    pub fn new(began: Instant) -> Processes {
        Processes { meter: DelayMeter::new(began), gangs: None }
    }

    /// Registers a thread.
    pub fn meet(&mut self, thread: &NewThread) {
        self.meter.watch(thread);
    }

    /// Takes note that a thread has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.meter.forget(thread);
    }

    /// Reads a process no more. Returns its first thread if it was known.
    pub fn leave(&mut self, pid: u32) -> Option<ThreadId> {
        self.meter.leave(pid)
    }

    /// Reads the processes, if that is due. Returns those that are to be reported.
    pub fn read(&mut self, actuators: &mut Actuators) -> Vec<ProcessReading> {
        let mut reported = Vec::new();
        for seen in self.meter.read() {
            let leader = seen.reading.leader;
            actuators.look_at_process(leader, seen.threads, seen.waiting_share);
            self.note_waits(leader.tid, actuators);
            if seen.is_reported {
                reported.push(self.complete(seen.reading, actuators));
            }
        }
        reported
    }

    /// Returns all processes as they were last read.
    pub fn last(&mut self, actuators: &Actuators) -> Vec<ProcessReading> {
        let readings: Vec<ProcessReading> = self.meter.last().collect();
        readings.into_iter().map(|reading| self.complete(reading, actuators)).collect()
    }

    /// Adds to a reading what the meter does not know.
    fn complete(&mut self, reading: ProcessReading, actuators: &Actuators) -> ProcessReading {
        let pid = reading.leader.tid;
        let gangs = self.gangs.take().or_else(|| GangsBeside::open().ok());
        self.gangs = gangs;
        let other_gangs = self.gangs.as_mut().map_or(0, |gangs| gangs.count(pid));
        ProcessReading { waits: actuators.waits(pid).0, other_gangs, ..reading }
    }

    /// Registers how the idle threads of a process wait now.
    pub fn note_waits(&mut self, pid: u32, actuators: &Actuators) {
        let (waits, are_changed) = actuators.waits(pid);
        self.meter.set_waits(pid, waits, are_changed);
    }

    /// Returns the time until processes are read next.
    pub fn due_within(&self) -> Option<Duration> {
        self.meter.due_within()
    }
}
