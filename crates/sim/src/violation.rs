//! Which [invariants](crate::invariants) there are, and how one was violated.

use corewise_core::time::Time;
use std::fmt;

/// An invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Time and everything counted over it are monotonic.
    Time,
    /// No thread runs or is bound outside of the allowed PEs.
    AllowedPes,
    /// Threads that decide for themselves are left alone, and refused actions are not repeated at once.
    LeftAlone,
    /// What a treatment does not permit is not done, and not kept.
    Treated,
    /// A step requests a bounded number of changes, and at most one bind per thread.
    Binds,
    /// A thread is in exactly one place while it wants to run.
    Places,
    /// No PE is idle while a thread waits that could use it.
    Idle,
    /// Every runnable thread gets a PE in bounded time.
    Starvation,
    /// Threads that share a PE have it by their weights.
    Shares,
    /// Threads move a bounded number of times per second.
    Migrations,
    /// All work is done exactly once, and no time is lost.
    Work,
    /// Every program completes.
    Progress,
    /// Engine and world agree on which threads are bound where.
    Agreement,
    /// Waits are changed only of processes that were reported as delayed, and spin counts only where a
    /// library has one.
    Settings,
    /// At the end no thread is bound any more or has a changed weight, and no process has changed waits.
    Restored,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Time => "time and counts only grow",
            Rule::AllowedPes => "no thread runs or is bound outside of the allowed PEs",
            Rule::LeftAlone => "a thread that decides for itself, or was refused, is left alone",
            Rule::Treated => "what a treatment does not permit is not done, and not kept",
            Rule::Binds => "a step asks for a bounded number of changes",
            Rule::Places => "a thread is in one place just while it wants to run",
            Rule::Idle => "no PE is idle while a thread waits that could have it",
            Rule::Starvation => "every runnable thread gets a PE in bounded time",
            Rule::Shares => "threads that share a PE have it by their weights",
            Rule::Migrations => "threads move a bounded number of times per second",
            Rule::Work => "all work is done, once, and no time is lost",
            Rule::Progress => "every program comes to its end",
            Rule::Agreement => "engine and world agree on which thread is bound where",
            Rule::Settings => "waits change only where they delay, and can be changed",
            Rule::Restored => "in the end no thread is bound, and all weights and waits are as before",
        })
    }
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("after {:.6} s: {rule}: {detail}", at.as_secs_f64())]
pub struct Violation {
    /// The simulated time.
    pub at: Time,
    /// The invariant.
    pub rule: Rule,
    /// How it was violated.
    pub detail: String,
}

/// The state of the checks of the simulator's own state.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// Whether the balancer has just run.
    pub balanced: bool,
    /// How far the virtual times of each PE's threads were apart when none had come or gone for a while.
    pub apart: Vec<Option<i64>>,
    /// The first violation.
    pub violation: Option<Violation>,
}
