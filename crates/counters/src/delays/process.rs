//! The times of one process: the sums over its threads, without what quotas and corewise itself took.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{PeId, ThreadId};
use corewise_core::observe::{IdleWaits, ProcessReading};
use corewise_core::time::Time;
use corewise_core::waits::looks::Look;
use corewise_sys::affinity;
use corewise_sys::clock::process_cpu_time;
use corewise_sys::limits::Throttling;
use corewise_sys::proc::pe_times::TICK;
use corewise_sys::proc::{Proc, Schedstat, SchedstatFile};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two readings of its quotas, which can change. Reading them takes some 50 µs.
const QUOTAS_READ_AFTER: Duration = Duration::from_secs(1);

/// Time between two readings of the masks of its threads, and the number of threads whose masks are read.
const MASKS_READ_AFTER: Duration = Duration::from_secs(1);
const MASKS_MAX: usize = 64;

/// A process that is read.
#[derive(Debug)]
pub(super) struct Process {
    sums: ProcessReading,
    threads: HashMap<u32, Watched>,
    pub waits: IdleWaits,
    are_waits_changed: bool,
    /// Whether its first thread has ended.
    pub is_over: bool,
    /// The last reading.
    pub last: Option<ProcessReading>,
    was_reported: bool,
    /// The PEs that its threads may use, and when that was read.
    pes: Option<(CpuSet, Instant)>,
    /// Its idle time so far; to be reported once if it is new.
    idle_ns: u64,
    is_idle_time_new: bool,
    /// The CPU time of corewise at the last reading.
    by_us: Duration,
    throttling: Throttling,
    /// When its quotas were last read; `None` before it had two threads.
    quotas_read: Option<Instant>,
    /// How long quotas have kept it from its PEs that its threads have not yet been seen to wait.
    unseen_throttled_ns: u64,
}

/// A thread and its last times.
#[derive(Debug)]
struct Watched {
    file: SchedstatFile,
    last: Schedstat,
}

impl Process {
    pub fn new(leader: ThreadId) -> Process {
        Process {
            sums: ProcessReading {
                leader,
                at: Time(0),
                threads: 0,
                pes: 0,
                run_ns: 0,
                wait_ns: 0,
                throttled_ns: 0,
                stopped_ns: None,
                quota_permille: None,
                timeslices: Some(0),
                idle_ns: None,
                waits: IdleWaits::default(),
                other_gangs: 0,
            },
            threads: HashMap::new(),
            waits: IdleWaits::default(),
            are_waits_changed: false,
            is_over: false,
            last: None,
            was_reported: false,
            pes: None,
            idle_ns: 0,
            is_idle_time_new: false,
            by_us: process_cpu_time(),
            throttling: Throttling::default(),
            quotas_read: None,
            unseen_throttled_ns: 0,
        }
    }

    /// Whether this is its first thread.
    pub fn is(&self, leader: ThreadId) -> bool {
        self.sums.leader == leader
    }

    /// Its first thread.
    pub fn leader(&self) -> ThreadId {
        self.sums.leader
    }

    pub fn set_leader(&mut self, leader: ThreadId) {
        self.sums.leader = leader;
    }

    /// Begins to read a thread, unless it has ended; with `keep` its file stays open.
    pub fn watch(&mut self, proc: &Proc, tid: u32, keep: bool) -> bool {
        let Ok(Some(file)) = proc.schedstat(self.sums.leader.tid, tid, keep) else { return false };
        let Ok(Some(last)) = file.read() else { return false };
        self.threads.insert(tid, Watched { file, last });
        true
    }

    /// The number of its threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// How many files of its threads are kept open.
    pub fn kept_open(&self) -> usize {
        self.threads.values().filter(|thread| matches!(thread.file, SchedstatFile::Open(_))).count()
    }

    pub fn is_changed(&self) -> bool {
        self.are_waits_changed
    }

    /// It has its second thread: what the first did alone does not count.
    pub fn begin_team(&mut self) {
        self.throttling = Throttling::default();
        self.read_quotas();
        let so_far = self.sums;
        self.read(Time(0));
        self.sums = so_far;
    }

    /// Takes note of how its idle threads wait, and whether that was changed.
    pub fn set_waits(&mut self, waits: IdleWaits, are_changed: bool) {
        (self.waits, self.are_waits_changed) = (waits, are_changed);
    }

    /// Reads it, and compares that with the last reading; `None` at the first one.
    pub fn look(&mut self, now: Time) -> (ProcessReading, Option<Look>) {
        let reading = self.read(now);
        let look = self.last.replace(reading).map(|before| Look {
            times: reading.since(&before),
            waits: self.waits,
            is_changed: self.are_waits_changed,
            was_reported: self.was_reported,
        });
        self.was_reported = look.is_some_and(|look| look.waits_or_is_throttled());
        (reading, look)
    }

    /// Returns its times so far.
    fn read(&mut self, now: Time) -> ProcessReading {
        let (mut run_ns, mut wait_ns, mut longest_ns, mut timeslices, mut active) = (0, 0, 0, 0, 0);
        self.threads.retain(|_, watched| {
            let Ok(Some(now)) = watched.file.read() else { return false };
            run_ns += now.run_ns.saturating_sub(watched.last.run_ns);
            let waited_ns = now.wait_ns.saturating_sub(watched.last.wait_ns);
            wait_ns += waited_ns;
            longest_ns = waited_ns.max(longest_ns);
            timeslices += now.timeslices.saturating_sub(watched.last.timeslices);
            active += u32::from(now != watched.last);
            watched.last = now;
            true
        });
        let throttled_ns = self.throttled(wait_ns);
        if self.quotas_read.is_some_and(|at| at.elapsed() >= QUOTAS_READ_AFTER) {
            self.read_quotas();
        }
        let by_us = process_cpu_time();
        let taken_by_us = by_us.saturating_sub(self.by_us).as_nanos() as u64;
        self.by_us = by_us;
        wait_ns = (wait_ns - throttled_ns).saturating_sub(taken_by_us);
        let sums = &mut self.sums;
        (sums.run_ns, sums.wait_ns) = (sums.run_ns + run_ns, sums.wait_ns + wait_ns);
        sums.throttled_ns += throttled_ns;
        if throttled_ns > 0 {
            sums.stopped_ns = Some(sums.stopped_ns.unwrap_or(0) + longest_ns.min(throttled_ns));
        }
        sums.timeslices = sums.timeslices.map(|so_far| so_far + timeslices);
        let is_idle_time_new = std::mem::take(&mut self.is_idle_time_new);
        ProcessReading {
            at: now,
            threads: active,
            pes: self.pes().len() as u32,
            quota_permille: self.throttling.pes_permitted().map(|pes| (1e3 * pes).round() as u32),
            idle_ns: is_idle_time_new.then_some(self.idle_ns),
            waits: self.waits,
            ..self.sums
        }
    }

    /// Adds what `idle_of` has of its PEs, in ticks.
    pub fn add_idle_time(&mut self, idle_of: impl Fn(&PeId) -> Option<u64>) {
        if self.are_waits_changed {
            let ticks: u64 = self.pes().iter().filter_map(|pe| idle_of(&pe)).sum();
            self.idle_ns += ticks * TICK.as_nanos() as u64;
            self.is_idle_time_new = true;
        }
    }

    /// The PEs that its threads may use.
    fn pes(&mut self) -> &CpuSet {
        if self.pes.as_ref().is_none_or(|(_, at)| at.elapsed() >= MASKS_READ_AFTER) {
            // A thread that has ended has no mask.
            let masks = self.threads.keys().take(MASKS_MAX).filter_map(|tid| affinity::get(*tid).ok());
            let pes = masks.fold(CpuSet::new(), |pes, mask| pes.union(&mask));
            self.pes = Some((pes, Instant::now()));
        }
        &self.pes.as_ref().expect("it was just read").0
    }

    fn read_quotas(&mut self) {
        self.throttling.refresh(Path::new("/"), self.sums.leader.tid);
        self.quotas_read = Some(Instant::now());
    }

    /// How much of what its threads waited was caused by their quota: as if one of them had waited for each
    /// PE that a quota closed. The waiting time of a thread is known when it runs again, at the latest by the
    /// next reading.
    fn throttled(&mut self, wait_ns: u64) -> u64 {
        let new = self.throttling.since_last().as_nanos() as u64;
        let all = self.unseen_throttled_ns + new;
        let waited = wait_ns.min(all);
        self.unseen_throttled_ns = new.min(all - waited);
        waited
    }
}
