//! Linux interfaces for the rest of corewise: processes and threads, signals, files that users name, its own
//! affinity mask, and starting a command as if it had been started alone.
//!
//! This crate only changes what belongs to corewise itself; the crate `binding` changes other threads.

pub mod affinity;
pub mod allowance;
pub mod cgroup;
pub mod clock;
pub mod demand;
pub mod descriptors;
pub mod environment;
pub mod held;
pub mod helper;
pub mod inherited;
pub mod input;
pub mod launch;
pub mod limits;
pub mod niceness;
pub mod privileged;
pub mod proc;
pub mod real_time;
pub mod shortage;
pub mod signals;
pub mod stack;
pub mod standard_error;
pub mod task;
mod witness;
