//! Path profiles, pure: from short windows of executed branches to how often each path of a function is taken.
//!
//! A sampler (`corewise-linux`) records [`window::Window`]s; [`program::Program`] says what the code at a
//! location is. Nothing here reads a file or a process.

pub mod program;
pub mod window;
