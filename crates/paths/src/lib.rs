//! Path profiles, pure: from short windows of executed branches to how often each path of a function is
//! taken.
//!
//! A sampler (`corewise-branches`) records [`window::Window`]s; [`program::Program`] says what the code at a
//! location is. Nothing here reads a file or a process.

pub mod accuracy;
mod balance;
pub mod by_build;
mod context;
mod demangled;
mod enumerate;
pub mod estimate;
pub mod exact;
pub mod export;
pub mod fragment;
pub mod graph;
mod join;
pub mod listing;
#[doc(hidden)]
pub mod made_up;
mod mispredicted;
pub mod modules;
pub mod outcome;
pub mod path;
pub mod profile;
pub mod program;
pub mod quality;
pub mod study;
pub mod summary;
mod trie;
mod weight;
pub mod window;

pub use demangled::demangled;
