//! What it costs to stop a thread and to run it again.
//!
//! Problem: whether an idle thread should sleep or spin depends on what a block and a wake-up cost, and these
//! are properties of the machine and its kernel. Approach: they are part of the machine model, and what
//! decides about waits ([`crate::waits::losses`]) takes them from there. Limits: no calibration measures
//! them yet; the defaults were measured on virtual machines with x86-64 processors of the last years.

use std::time::Duration;

/// What switches cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switching {
    /// The CPU time of a block and a wake-up. *Measured* with two threads that wake each other, 4 to 6 µs.
    pub block: Duration,
    /// The time for which a PE is idle until a thread that sleeps runs there. *Measured*: 20 to 40 µs in
    /// virtual machines, where the PE leaves an idle state first.
    pub wake_up: Duration,
    /// The time slice of Linux's fair scheduler (`kernel/sched/fair.c`, `sysctl_sched_base_slice`).
    pub slice: Duration,
    /// Iterations of its loop that an idle thread spins for about as long as a block takes; an iteration is
    /// one PAUSE (x86-64: 40 to 140 cycles) or its like.
    pub spins_per_block: u64,
}

impl Default for Switching {
    fn default() -> Self {
        Self {
            block: Duration::from_micros(5),
            wake_up: Duration::from_micros(30),
            slice: Duration::from_millis(3),
            spins_per_block: 100,
        }
    }
}
