//! What the rest of corewise asks of Linux: processes and threads, signals, files that users name, affinity
//! masks of its own, and starting a command as if it had been started alone.
//!
//! Nothing here changes what is not corewise's own: that is the matter of the crate `binding`.

pub mod affinity;
pub mod cgroup;
pub mod clock;
pub mod descriptors;
pub mod environment;
pub mod helper;
pub mod inherited;
pub mod input;
pub mod launch;
pub mod limits;
pub mod niceness;
pub mod privileged;
pub mod proc;
pub mod real_time;
pub mod signals;
pub mod stack;
pub mod task;
mod witness;
