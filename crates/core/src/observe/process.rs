//! Readings of whole processes: what became of the time of their threads.

#[cfg(test)]
use super::IdleWait;
use super::IdleWaits;
use crate::ids::ThreadId;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the kernel has counted of a process with several threads since it was first watched. Raw, cumulative
/// and monotonic, but for `threads`, `waits` and `other_gangs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessReading {
    /// The process, identified by its first thread.
    pub leader: ThreadId,
    /// The time of the reading.
    #[serde(default)]
    pub at: Time,
    /// How many of its threads ran or waited for a PE since the reading before.
    #[serde(default)]
    pub threads: u32,
    /// How many PEs it may use.
    #[serde(default)]
    pub pes: u32,
    /// Time on a PE, summed over all threads, in nanoseconds.
    pub run_ns: u64,
    /// Time waiting for a PE that others occupied, summed over all threads, in nanoseconds. The time that
    /// corewise itself has taken is left out.
    pub wait_ns: u64,
    /// Time throttled by a control group's quota, summed over all threads, in nanoseconds.
    #[serde(default)]
    pub throttled_ns: u64,
    /// The same of the thread that it stopped longest between two readings, added up, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_ns: Option<u64>,
    /// The PE time that the quotas of its control groups permit, in thousandths of a PE. The group that
    /// permits least counts; other processes may share it. `None` without a quota, or if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_permille: Option<u32>,
    /// How often its threads were given a PE, if the kernel shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeslices: Option<u64>,
    /// Idle time of the PEs that it may use, summed, in nanoseconds. The kernel counts it in ticks, so that
    /// it is read only every 100 ms, while the waits of the process are changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<u64>,
    /// How its idle threads wait.
    #[serde(default)]
    pub waits: IdleWaits,
    /// How many gangs of other processes take turns, or may, on the PEs of this one.
    #[serde(default)]
    pub other_gangs: u32,
}

/// What a process did between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessTimes {
    /// The wall-clock time, in seconds; all others are summed over threads or PEs.
    pub elapsed_s: f64,
    /// The threads that ran or waited for a PE.
    pub threads: u32,
    /// Time on a PE, in seconds.
    pub run_s: f64,
    /// Time waiting for a PE, in seconds.
    pub wait_s: f64,
    /// Time throttled by a quota, in seconds.
    pub throttled_s: f64,
    /// Time for which a quota stopped the thread that it stopped longest, in seconds.
    pub stopped_s: f64,
    /// The PE time that its quota permits, in seconds; `None` without one.
    pub permitted_s: Option<f64>,
    /// How often threads were given a PE.
    pub timeslices: Option<f64>,
    /// Idle time of its PEs, in seconds.
    pub idle_s: Option<f64>,
}

impl ProcessReading {
    /// Returns what happened since an earlier reading of the same process.
    pub fn since(&self, before: &ProcessReading) -> ProcessTimes {
        let seconds = |now: u64, before: u64| Duration::from_nanos(now.saturating_sub(before)).as_secs_f64();
        let both = |now: Option<u64>, before: Option<u64>| Some((now?, before?));
        let elapsed_s = seconds(self.at.0, before.at.0);
        ProcessTimes {
            elapsed_s,
            threads: self.threads,
            run_s: seconds(self.run_ns, before.run_ns),
            wait_s: seconds(self.wait_ns, before.wait_ns),
            throttled_s: seconds(self.throttled_ns, before.throttled_ns),
            stopped_s: seconds(self.stopped_ns.unwrap_or(0), before.stopped_ns.unwrap_or(0)),
            permitted_s: self.quota_permille.map(|permille| f64::from(permille) / 1e3 * elapsed_s),
            timeslices: both(self.timeslices, before.timeslices)
                .map(|(now, before)| now.saturating_sub(before) as f64),
            idle_s: both(self.idle_ns, before.idle_ns).map(|(now, before)| seconds(now, before)),
        }
    }

    /// For tests: a process with two threads on two PEs at its first reading, whose waits can be changed.
    #[cfg(test)]
    pub(crate) fn example(leader: ThreadId) -> ProcessReading {
        ProcessReading {
            leader,
            at: Time(0),
            threads: 2,
            pes: 2,
            run_ns: 0,
            wait_ns: 0,
            throttled_ns: 0,
            stopped_ns: None,
            quota_permille: None,
            timeslices: None,
            idle_ns: None,
            waits: IdleWait::Adaptable.into(),
            other_gangs: 0,
        }
    }
}

impl ProcessTimes {
    /// Returns the share of waiting in the time in which threads wanted a PE and their quota permitted it,
    /// 0..1.
    pub fn waiting_share(&self) -> f64 {
        if self.wait_s == 0.0 { 0.0 } else { self.wait_s / (self.run_s + self.wait_s) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_differences_and_what_one_reading_lacks_is_unknown() {
        let before = ProcessReading::example(ThreadId { tid: 7, generation: 0 });
        let (run_ns, wait_ns) = (1_500_000_000, 500_000_000);
        let after = ProcessReading {
            at: Time(1_000_000_000),
            run_ns,
            wait_ns,
            timeslices: Some(9),
            idle_ns: Some(5),
            ..before
        };
        let times = after.since(&before);
        assert_eq!((times.elapsed_s, times.run_s, times.wait_s), (1.0, 1.5, 0.5));
        assert_eq!((times.timeslices, times.idle_s, times.permitted_s), (None, None, None));
        assert_eq!(times.waiting_share(), 0.25);
        assert_eq!(after.since(&after).waiting_share(), 0.0);
        let limited = ProcessReading { at: Time(2_000_000_000), quota_permille: Some(1_500), ..before };
        assert_eq!(limited.since(&before).permitted_s, Some(3.0));
        let known = ProcessReading { timeslices: Some(4), idle_ns: Some(5), ..before };
        assert_eq!((after.since(&known).timeslices, after.since(&known).idle_s), (Some(5.0), Some(0.0)));
    }
}
