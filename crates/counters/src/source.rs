//! What a source of counter readings does.

use corewise_core::observe::CounterReading;
use corewise_core::policy::Reading;
use corewise_discovery::{NewThread, ThreadFacts};
use std::collections::HashSet;
use std::os::fd::BorrowedFd;

/// A source of counter readings for the threads of one process tree.
pub trait CounterSource: Send {
    /// The name for reports: `pmu amd_fam15h`, `sample`, `none`.
    fn name(&self) -> String;

    /// Whether it measures this of threads on every kind of core.
    fn gives(&self, reading: Reading) -> bool;

    /// A descriptor that becomes readable when buffers should be drained.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Begins to watch a thread. Failure is noted in [`CounterSource::notes`]: the thread then has no
    /// reading.
    fn watch(&mut self, thread: &NewThread);

    /// Empties the kernel's buffers into the tallies. Cheap; called at every wake-up and before readings.
    fn drain(&mut self);

    /// The cumulative reading of a thread, `None` if it is not watched or has nothing yet.
    fn read(&mut self, tid: u32) -> Option<CounterReading>;

    /// The last reading of a thread that has ended, however long ago; it is reported once and then forgotten.
    fn last(&mut self, tid: u32) -> Option<CounterReading>;

    /// The ended threads whose last reading nobody asked for since they ended, less those that `living`
    /// holds: their end is still to be noticed. What the source of threads was too slow to see is counted by
    /// this.
    fn unclaimed(&mut self, _living: &HashSet<u32>) -> Vec<(ThreadFacts, CounterReading)> {
        Vec::new()
    }

    /// Limits what it costs to understand what was read, to this share of a PE.
    fn spend_at_most(&mut self, _share: f64) {}

    /// What went wrong so far, in words with counts: lost samples, refused events.
    fn notes(&self) -> Vec<String>;
}
