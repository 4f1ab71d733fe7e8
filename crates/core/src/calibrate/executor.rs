//! The seam between the method of calibration and the machine that is measured.

use super::{Kernel, Nas, ProblemClass};
use crate::ids::PeId;
use crate::time::Time;
use std::time::Duration;

/// Regions are multiples of this many bytes: pages.
pub const REGION_UNIT: u64 = 4096;

/// A region of about this many bytes, one page at least.
pub fn whole_pages(bytes: f64) -> u64 {
    (bytes as u64 / REGION_UNIT).max(1) * REGION_UNIT
}

/// What one PE is to do during one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// Where.
    pub pe: PeId,
    /// What.
    pub kernel: Kernel,
    /// The size of its region in bytes, a multiple of [`REGION_UNIT`], for kernels that have one; 0 for the
    /// others.
    pub region_bytes: u64,
    /// The share of the time in which it works, above 0 to 1; the rest it waits without touching anything. A
    /// neighbour's demand on a resource is set by this.
    pub duty: f64,
}

impl Task {
    /// A task that works all the time.
    pub fn new(pe: PeId, kernel: Kernel, region_bytes: u64) -> Self {
        Self { pe, kernel, region_bytes, duty: 1.0 }
    }
}

/// What one task did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskRun {
    /// Units of the kernel's work done; of a kernel that needs a partner this task's own part, so that the
    /// sum over both tasks is what the pair did.
    pub work: f64,
    /// In this time. All tasks of a repetition work during the whole of it.
    pub elapsed: Duration,
    /// The part of it in which the task could not run: stolen by a hypervisor, or taken by another thread or
    /// an interrupt, as far as the machine tells.
    pub lost: Duration,
    /// The PE's clock as measured within this repetition by a dependent chain, in GHz; `None` where it was
    /// not measured.
    pub clock_ghz: Option<f64>,
}

impl TaskRun {
    /// Work per second.
    pub fn rate(&self) -> f64 {
        self.work / self.elapsed.as_secs_f64()
    }
}

/// One repetition: what each task did, in the order of the tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Repetition {
    /// One entry a task.
    pub runs: Vec<TaskRun>,
}

/// A run of a NAS benchmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NasRun {
    /// The timed part, as NPB defines it.
    pub elapsed: Duration,
    /// Whether the result is the published one.
    pub verified: bool,
}

/// Why something could not be measured. The rest of the calibration goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// This machine has no such thing, or too little of it: a vector unit, memory, a benchmark's binary.
    #[error("{what}: {why}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why it cannot be had, and what would help.
        why: String,
    },
    /// The PE went away or may not be used any more.
    #[error("PE {pe} cannot be used: {why}")]
    Pe {
        /// Which.
        pe: PeId,
        /// Why.
        why: String,
    },
}

/// A machine that can be measured.
pub trait Executor {
    /// Time since the start of the calibration.
    fn now(&self) -> Time;

    /// Whether the user asked to stop. What was measured until then makes a partial profile.
    fn interrupted(&self) -> bool;

    /// Runs all tasks at the same time for about `window` and says what each did. No two tasks have the same
    /// PE. Two tasks of a kernel that needs a partner work on the same memory.
    fn run(&mut self, tasks: &[Task], window: Duration) -> Result<Repetition, ExecutorError>;

    /// Gives all regions back and takes fresh ones, so that the chance of a page's place is part of the noise
    /// that repetitions show and not a constant that hides.
    fn renew_memory(&mut self);

    /// Runs a NAS benchmark with one thread on each of the PEs.
    fn run_nas(&mut self, nas: Nas, class: ProblemClass, pes: &[PeId]) -> Result<NasRun, ExecutorError>;
}
