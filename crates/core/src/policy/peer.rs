//! A command that decides, as [`exec`](super::exec) talks with it.
//!
//! Starting programs and reading pipes is nothing for a pure crate, so the caller does both: here is what
//! policies and their parameters need of it.

use std::time::Duration;

/// A running command.
pub trait Peer {
    /// Sends a text and waits at most `within` for a line; returns `None` if none came. An error message
    /// means that the command can no longer be reached.
    fn exchange(&mut self, text: &str, within: Duration) -> Result<Option<String>, String>;
}

/// Starts a command; the error says in words why that failed.
pub type StartCommand<'a> = &'a dyn Fn(&str) -> Result<Box<dyn Peer>, String>;
