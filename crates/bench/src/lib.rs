//! Measuring the real machine: the code of the kernels, and the executor that runs them on chosen PEs.
//!
//! `corewise_core::calibrate` decides what is measured and how often, and evaluates the results.

mod cgroup;
pub mod comparison;
pub mod conditions;
mod disturbance;
pub mod executor;
pub mod kernels;
mod memory;
pub mod nas;
pub mod openmp;
pub mod virtualisation;
mod workers;
