//! For how long the threads of a process run at a time.
//!
//! Problem: a program that waits every few microseconds spends much of its time in the kernel, but so does
//! one that asks for memory, whose page faults look the same in samples. Approach: who waits gives its PE
//! away, so that its threads run for a few microseconds at a time; the kernel counts these timeslices along
//! with their time. Limits: a thread that others often preempt runs for short times, too, though for
//! milliseconds.

use crate::observe::ProcessDelay;
use std::time::Duration;

/// For how long threads that waste time by blocking run at a time, at most. *Measured*: where turns are
/// better, 5 to 12 µs; where threads work for long and are in the kernel for other reasons, milliseconds.
const BLOCKING_WITHIN: Duration = Duration::from_micros(200);

/// The timeslices of a process's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeslices {
    run_ns: u64,
    /// Their number, if it is known.
    count: Option<u64>,
}

impl Timeslices {
    /// Takes in a look.
    pub fn take(&mut self, delay: &ProcessDelay) {
        self.run_ns += delay.run_ns;
        if let Some(more) = delay.timeslices {
            *self.count.get_or_insert_default() += more;
        }
    }

    /// For how long threads have run so far, all together.
    pub fn run(&self) -> Duration {
        Duration::from_nanos(self.run_ns)
    }

    /// Whether its threads may be in the kernel because they block: not if they run for long at a time.
    pub(super) fn may_tell_of_blocks(&self) -> bool {
        self.mean().is_none_or(|mean| mean <= BLOCKING_WITHIN)
    }

    /// For how long they ran at a time, in the mean; `None` if that is not known.
    pub fn mean(&self) -> Option<Duration> {
        self.count.map(|count| Duration::from_nanos(self.run_ns / count.max(1)))
    }
}
