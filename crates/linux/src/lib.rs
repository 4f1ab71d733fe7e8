//! The real machine: what Linux tells of topology, threads and counters, and how threads are bound.
//!
//! Unsafe code stands here (system calls, libpfm), each block with the reason why it is sound.

pub mod actuator;
pub mod attach;
pub mod bench;
pub mod binding;
mod bpf;
pub mod branches;
mod clock;
pub mod code;
pub mod comparison;
pub mod counters;
pub mod descriptors;
pub mod discovery;
pub mod elf;
pub mod environment;
mod helper;
pub mod host;
mod inherited;
pub mod input;
pub mod launch;
pub mod lines;
pub mod live;
mod mapped_file;
pub mod policy_command;
pub mod privileged;
pub mod progress;
mod real_time;
mod rounds;
pub mod runtimes;
pub mod signals;
pub mod slow;
pub mod stack;
pub mod topology;
pub mod truth;
mod witness;
