//! Clocks of CPU time.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the CPU time of the calling thread: time in which corewise waits for a contended PE costs others
/// nothing and does not count.
pub fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has CLOCK_THREAD_CPUTIME_ID").into()
}

/// Returns the CPU time of all threads of this process.
pub fn process_cpu_time() -> Duration {
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
    clock_gettime(clock).expect("every Linux has CLOCK_PROCESS_CPUTIME_ID").into()
}
