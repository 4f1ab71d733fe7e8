//! Which threads a thread wakes, for the choice of PEs.

use corewise_core::time::Time;

/// How often a thread wakes another one than the last time; halved every second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flips {
    pub count: u32,
    last: Option<usize>,
    since: Time,
}

/// The time after which the count of flips is halved.
const FLIPS_HALVED_AFTER_NS: u64 = 1_000_000_000;

impl Flips {
    /// Notes that a thread is woken (`record_wakee`).
    pub fn wakes(&mut self, now: Time, thread: usize) {
        if now.0 - self.since.0 > FLIPS_HALVED_AFTER_NS {
            self.count /= 2;
            self.since = now;
        }
        if self.last != Some(thread) {
            self.last = Some(thread);
            self.count += 1;
        }
    }
}
