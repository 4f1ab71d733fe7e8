//! Faults of a machine while it is being scheduled, and their rates.
//!
//! Problem: on a real machine readings are lost, binds fail, PEs come and go, threads are killed, and
//! corewise itself is suspended or late. How a policy and the engine react must be known in advance.
//! Approach: each kind of fault has a rate. Faults of threads and PEs are events of the simulation, faults of
//! observing and acting happen at the interface ([`crate::world`]). All random numbers are seeded, in
//! separate streams, so switching one fault off does not change the rest. Source: the faults that
//! `docs/faults.md` tests on a real machine. Limits: faults are independent of each other and of what runs;
//! memory, disk and the observer's own crash are not covered (see `docs/faults.md`).
//!
//! The machine reacts like Linux: a thread on a PE that goes offline is moved within its mask. If the mask
//! has no other PE it is widened to all PEs and stays so, no matter who had set it (`select_fallback_rq`). A
//! killed thread leaves its locks to the next in line, no thread waits for it at a barrier, and the
//! application's run no longer counts as a completion.

use crate::program::duration;
use serde::Deserialize;
use std::time::Duration;

/// The rates of faults; by default there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Share of the counter readings that are missing, 0..1.
    pub lost_readings: f64,
    /// Share of the binds that the system refuses, 0..1.
    pub refused_binds: f64,
    /// Share of the binds that come too late, 0..1: the thread was killed since it was observed.
    pub late_binds: f64,
    /// Threads killed per second.
    pub kills_per_s: f64,
    /// PEs unplugged per second; the last one stays.
    pub unplugs_per_s: f64,
    /// Mean time until an unplugged PE returns.
    #[serde(deserialize_with = "duration")]
    pub unplugged: Duration,
    /// Share of the observations that come late, 0..1.
    pub late_looks: f64,
    /// The maximum delay.
    #[serde(deserialize_with = "duration")]
    pub late: Duration,
    /// Share of the observations before which the clock jumps ahead while no thread ran, as after a suspend.
    pub clock_jumps: f64,
    /// The maximum jump.
    #[serde(deserialize_with = "duration")]
    pub clock_jump: Duration,
}

impl Faults {
    /// Returns the first parameter that is out of its range, with the range.
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let rate = |x: f64| (0.0..=1e6).contains(&x);
        [
            ("lost_readings", share(self.lost_readings), "0 to 1"),
            ("refused_binds", share(self.refused_binds), "0 to 1"),
            ("late_binds", share(self.late_binds), "0 to 1"),
            ("kills_per_s", rate(self.kills_per_s), "0 to 1000000"),
            ("unplugs_per_s", rate(self.unplugs_per_s), "0 to 1000000"),
            ("late_looks", share(self.late_looks), "0 to 1"),
            ("clock_jumps", share(self.clock_jumps), "0 to 1"),
        ]
        .into_iter()
        .find(|(_, holds, _)| !holds)
        .map(|(name, _, range)| (name, range))
    }
}
