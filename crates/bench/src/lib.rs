//! Measuring the real machine: the kernels' code, and the executor that runs them on chosen PEs.
//!
//! What is measured, how often, and what it means is decided in `corewise_core::calibrate`.

mod cgroup;
pub mod comparison;
pub mod conditions;
mod disturbance;
pub mod executor;
pub mod kernels;
mod memory;
pub mod nas;
pub mod virtualisation;
mod workers;
