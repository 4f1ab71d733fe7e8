//! What the threads of all PEs do until something else happens, in few bytes.
//!
//! Problem: when one thread asks more of memory, dozens of others that use the same channel go on at another
//! pace; to account for all that they did until then, each time, is most of the cost of a simulation.
//! Approach: a lane knows of a thread only what its next event depends on: the work that is left, and what
//! comes first. It adds up what the thread did, and [`Sim::settle`](crate::sim::Sim) accounts for it once
//! somebody wants to know. Limits: whatever changes a running thread settles it before, and sets up its lane
//! again afterwards ([`Sim::schedule`](crate::sim::Sim)).

use corewise_core::machine_model::contention::Use;
use corewise_core::time::Time;

/// The time of what never happens: after all others.
pub(crate) const NEVER: Time = Time(u64::MAX);

/// The thread of a PE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    /// The time up to which it is known what the thread did.
    pub at: Time,
    /// Work cycles that are left, infinite if only something else ends what it does, and the time that it
    /// owes before.
    pub left: f64,
    pub debt_ns: f64,
    /// Work cycles per nanosecond, as they follow from its use of memory.
    pub pace: f64,
    pub channel: Use,
    /// When something happens however fast it works.
    pub until: Time,
    /// The time for which it did what it does since it was last settled, and the work of that time.
    pub useful_ns: f64,
    pub work: f64,
    /// The pending event.
    pub event_at: Time,
}

impl Default for Lane {
    /// Nothing happens.
    fn default() -> Self {
        let (at, until, event_at, channel) = (Time(0), NEVER, NEVER, Use::default());
        let (left, debt_ns, pace, useful_ns, work) = (f64::INFINITY, 0.0, 0.0, 0.0, 0.0);
        Self { at, left, debt_ns, pace, channel, until, useful_ns, work, event_at }
    }
}

impl Lane {
    /// Lets the thread go on until now.
    pub fn advance(&mut self, now: Time) {
        let ns = (now.0 - self.at.0) as i64 as f64;
        self.at = now;
        let paid = self.debt_ns.min(ns);
        self.debt_ns -= paid;
        let useful_ns = ns - paid;
        let work = useful_ns * self.pace;
        self.left -= work;
        self.useful_ns += useful_ns;
        self.work += work;
    }

    /// Returns when its next event comes.
    pub fn next(&self) -> Time {
        self.after(self.left.max(0.0) / self.pace).min(self.until)
    }

    /// Returns when it has paid its debt and then gone on for so long, if that is ever.
    pub fn after(&self, ns: f64) -> Time {
        if ns < 1e18 {
            Time(self.at.0.saturating_add(round_up(self.debt_ns + round_up(ns)) as i64 as u64))
        } else {
            NEVER
        }
    }
}

/// Returns the next whole number, as `f64::ceil` does, which is a call where processors may lack it. They
/// have no instruction for numbers without a sign either.
fn round_up(x: f64) -> f64 {
    let down = x as i64 as f64;
    if down < x { down + 1.0 } else { down }
}
