//! Calibration: measure what the processing elements of a machine share, and what that costs or gains.
//!
//! A machine is asked through one seam, [`Executor`]: run these [`Task`]s at the same time and say what each
//! did. The real machine implements it (`corewise-bench`), and so does a model machine (`corewise-sim`),
//! where the truth is known. What is asked, in which order and how often, and what the answers mean, is
//! decided here.

mod assemble;
mod cell;
mod classes;
pub mod discover;
mod executor;
mod kernel;
mod nas_time;
mod plan;
mod samples;
mod session;
mod settings;

pub use executor::{Executor, ExecutorError, NasRun, REGION_UNIT, Repetition, Task, TaskRun, whole_pages};
pub use kernel::{Focus, Kernel, KernelUsage, Nas, ProblemClass};
pub use session::calibrate;
pub use settings::{Mode, Phase, Progress, Settings};

#[cfg(test)]
mod tests;
