//! What time is measured by.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CPU time that the calling thread has used: where PEs are contended, corewise waits for one, too, and that
/// costs nobody anything.
pub fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has CLOCK_THREAD_CPUTIME_ID").into()
}

/// The CPU time of all threads of this process.
pub fn process_cpu_time() -> Duration {
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
    clock_gettime(clock).expect("every Linux has CLOCK_PROCESS_CPUTIME_ID").into()
}
