//! The pure part of corewise: what a machine looks like, what its threads need, and where they should run.
//!
//! Nothing here reads a file, a clock, the environment or a global: every function is a function of its
//! arguments. The real machine, a recording and a model machine are three [`world::World`]s that run the
//! same [`engine::Engine`] and the same [`policy::Policy`].
//!
//! The way through the code, whatever the world:
//!
//! ```text
//! observe -> view -> classify -> policy -> plan -> actions -> world, whose outcomes are observed next
//! ```

pub mod backoff;
pub mod board;
pub mod cadence;
pub mod calibrate;
pub mod classify;
pub mod code;
pub mod comparison;
pub mod cpuset;
pub mod engine;
pub mod evidence;
pub mod guard;
pub mod ids;
pub mod interference;
pub mod kernels;
pub mod losses;
pub mod machine_model;
pub mod observe;
pub mod own_cost;
pub mod pairs;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod program;
pub mod progress;
pub mod random;
pub mod recording;
pub mod report;
pub mod stats;
pub mod time;
pub mod top;
pub mod topology;
pub mod view;
pub mod wait_changes;
pub mod waits;
pub mod world;
