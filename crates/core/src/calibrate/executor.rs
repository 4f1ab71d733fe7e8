//! The interface between the calibration method and the machine that is measured.

use crate::ids::PeId;
use crate::kernels::{Kernel, Nas, ProblemClass};
use crate::time::Time;
use std::time::Duration;

/// Regions are multiples of this many bytes: pages.
pub const REGION_UNIT: u64 = 4096;

/// Rounds a region's size to whole pages, at least one.
pub fn whole_pages(bytes: f64) -> u64 {
    (bytes as u64 / REGION_UNIT).max(1) * REGION_UNIT
}

/// The work of one PE during one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// The PE.
    pub pe: PeId,
    /// The kernel.
    pub kernel: Kernel,
    /// The size of its region in bytes, a multiple of [`REGION_UNIT`], for kernels that have one; 0 for the
    /// others.
    pub region_bytes: u64,
    /// The share of the time in which it works, above 0 to 1; in the rest it waits without touching anything.
    /// This sets a neighbour's demand on a resource.
    pub duty: f64,
}

impl Task {
    /// Returns a task that works all the time.
    pub fn new(pe: PeId, kernel: Kernel, region_bytes: u64) -> Self {
        Self { pe, kernel, region_bytes, duty: 1.0 }
    }
}

/// The result of one task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskRun {
    /// Units of the kernel's work done. For a kernel that needs a partner this is the task's own part, so
    /// that the sum over both tasks is the work of the pair.
    pub work: f64,
    /// The duration. All tasks of a repetition work during the whole of it.
    pub elapsed: Duration,
    /// The part of `elapsed` in which the task could not run: stolen by a hypervisor, or taken by another
    /// thread or an interrupt, as far as the machine reports.
    pub lost: Duration,
    /// The PE's clock, measured within this repetition by a dependent chain, in GHz; `None` if it was not
    /// measured.
    pub clock_ghz: Option<f64>,
}

impl TaskRun {
    /// Returns work per second.
    pub fn rate(&self) -> f64 {
        self.work / self.elapsed.as_secs_f64()
    }
}

/// One repetition: the result of each task, in the order of the tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Repetition {
    /// One entry per task.
    pub runs: Vec<TaskRun>,
}

/// A run of a NAS benchmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NasRun {
    /// The timed part, as NPB defines it.
    pub elapsed: Duration,
    /// Whether the result equals the published one.
    pub verified: bool,
}

/// Why something could not be measured. The rest of the calibration continues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// The machine lacks something, or has too little of it: a vector unit, memory, a benchmark's binary.
    #[error("{what}: {why}")]
    Unavailable {
        /// What was requested.
        what: String,
        /// Why it is not available, and what would help.
        why: String,
    },
    /// The PE went offline or may no longer be used.
    #[error("PE {pe} cannot be used: {why}")]
    Pe {
        /// The PE.
        pe: PeId,
        /// The reason.
        why: String,
    },
}

/// A machine that can be measured.
pub trait Executor {
    /// Returns the time since the start of the calibration.
    fn now(&self) -> Time;

    /// Returns whether the user asked to stop. The measurements made until then give a partial profile.
    fn interrupted(&self) -> bool;

    /// Runs all tasks at the same time for about `window` and returns their results. No two tasks have the
    /// same PE. Two tasks of a kernel that needs a partner work on the same memory.
    fn run(&mut self, tasks: &[Task], window: Duration) -> Result<Repetition, ExecutorError>;

    /// Releases all regions and allocates new ones. The physical location of pages then varies between
    /// repetitions and appears as noise, instead of being a hidden constant.
    fn renew_memory(&mut self);

    /// Runs a NAS benchmark with one thread on each of the PEs.
    fn run_nas(&mut self, nas: Nas, class: ProblemClass, pes: &[PeId]) -> Result<NasRun, ExecutorError>;
}
