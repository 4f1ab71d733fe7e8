//! What can go wrong with a machine while somebody schedules it, and how often it does.
//!
//! Problem: on a real machine readings are lost, binds fail, PEs come and go, threads are killed, and
//! corewise itself is suspended or late; what a policy and the engine make of that must be known before they
//! meet it.
//! Approach: each kind of fault has a rate. Those of threads and PEs come as events of the simulation, those
//! of looking and acting happen at the seam ([`crate::world`]). All chance is seeded, in streams of its own,
//! so a fault that is switched off changes nothing else. Source: the faults that `docs/faults.md` tries on a
//! real machine. Limits: faults are independent of each other and of what runs; memory, disk and the
//! observer's own crash are not in it (see `docs/faults.md`).
//!
//! What the machine makes of them is Linux's way: a thread on a PE that goes is moved within its mask; where
//! the mask has no other PE it is widened to all of them and stays so, whoever had set it
//! (`select_fallback_rq`). A thread that is killed leaves its locks to the next in line, nobody waits for it
//! at a barrier, and the application's run no longer counts as a completion.

use crate::program::duration;
use serde::Deserialize;
use std::time::Duration;

/// How often what goes wrong; by default nothing does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Share of the counter readings that are missing, 0..1.
    pub lost_readings: f64,
    /// Share of the binds that the system refuses, 0..1.
    pub refused_binds: f64,
    /// Share of the binds that come too late, 0..1: the thread was killed since it was looked at.
    pub late_binds: f64,
    /// Threads killed per second.
    pub kills_per_s: f64,
    /// PEs unplugged per second; the last one stays.
    pub unplugs_per_s: f64,
    /// Mean time until an unplugged PE returns.
    #[serde(deserialize_with = "duration")]
    pub unplugged: Duration,
    /// Share of the looks at the machine that come late, 0..1.
    pub late_looks: f64,
    /// The most by which they do.
    #[serde(deserialize_with = "duration")]
    pub late: Duration,
    /// Share of the looks before which the clock has jumped ahead while no thread ran, as after a suspend.
    pub clock_jumps: f64,
    /// The most by which it does.
    #[serde(deserialize_with = "duration")]
    pub clock_jump: Duration,
}

impl Faults {
    /// The first parameter that is out of its range, with the range.
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
