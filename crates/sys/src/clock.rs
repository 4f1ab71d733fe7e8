//! Clocks of CPU time, and the one that goes on while the machine sleeps.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the CPU time of the calling thread: time in which corewise waits for a contended PE costs others
/// nothing and does not count.
pub fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has CLOCK_THREAD_CPUTIME_ID").into()
}

/// Returns the time since the machine's start, times in which it was suspended included.
pub fn boot_time() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux has CLOCK_BOOTTIME").into()
}

/// Returns the CPU time of all threads of this process.
pub fn process_cpu_time() -> Duration {
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
    clock_gettime(clock).expect("every Linux has CLOCK_PROCESS_CPUTIME_ID").into()
}
