//! Calibration: measures what the processing elements of a machine share, and what that costs or gains.
//!
//! The machine is accessed through one interface, [`Executor`]: it runs a set of [`Task`]s at the same time
//! and returns their results. The real machine implements it (`corewise-bench`), and so does a simulated
//! machine (`corewise-sim`), for which the truth is known. This module decides what is measured, in which
//! order and how often, and what the results mean.

mod assemble;
mod cell;
mod classes;
pub mod discover;
mod executor;
mod nas_time;
mod plan;
mod samples;
mod session;
mod settings;

pub use executor::{Executor, ExecutorError, NasRun, REGION_UNIT, Repetition, Task, TaskRun, whole_pages};
pub use session::calibrate;
pub use settings::{Mode, Phase, Progress, Settings};

#[cfg(test)]
mod tests;
