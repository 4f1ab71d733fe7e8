//! The rules of this machine: where their files are, and what they ask about a process. What rules mean, and
//! which one applies, is in `corewise-rules`, which is pure.

pub mod facts;
pub mod files;
