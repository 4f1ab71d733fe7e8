//! Policies that choose at each dispatch which thread runs next on a PE.
//!
//! Problem: a [`Policy`](super::Policy) says on which PEs threads may run; which of a PE's threads run at the
//! same time as which of its neighbour's is left to the system. The papers' schedulers are part of the kernel
//! and choose that, too. Approach: a world that can ask calls a [`Dispatch`] whenever a PE is free: with the
//! threads that its system would let run next, in that order, and with those that run on the sibling PEs. The
//! choice is among threads that are owed time, so that it changes when they run, not how much. Source: the
//! hook of "Hardware support for path profiling … and co-scheduling", §4.1 (a function that is called by the
//! Linux 2.6 scheduler). Limits: only the simulated world asks.

use super::cosched;
use crate::ids::{PeId, ThreadId};

/// What happened in each cycle of a thread's last slice on a PE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventsPerCycle {
    /// L2 misses.
    pub l2_misses: f64,
    /// The share of cycles in which the FPU was busy.
    pub fpu: f64,
    /// Branches.
    pub branches: f64,
}

/// A thread that runs or may run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The thread.
    pub thread: ThreadId,
    /// Its last slice; `None` before the first one has ended.
    pub last: Option<EventsPerCycle>,
}

/// A free PE.
#[derive(Debug, Clone, Copy)]
pub struct Vacancy<'a> {
    /// The PE.
    pub pe: PeId,
    /// The threads that may run there, at least one: the one that the system would choose comes first.
    pub candidates: &'a [Candidate],
    /// Those that run on the other PEs of its core.
    pub beside: &'a [Candidate],
}

/// A choice at each dispatch.
pub trait Dispatch {
    /// Returns which of the candidates runs.
    fn pick(&mut self, vacancy: &Vacancy<'_>) -> usize;
}

/// The names of all that choose at dispatch.
pub const NAMES: &[&str] = &["cosched"];

/// Returns the one of that name with its default parameters.
pub fn build(name: &str) -> Option<Box<dyn Dispatch>> {
    (name == "cosched").then(cosched::at_dispatch)
}
