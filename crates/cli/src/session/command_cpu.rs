//! The CPU time of the command with its descendants, as the kernel sums it up.
//!
//! Problem: what threads did before they were watched is in no reading. Approach: the kernel adds the time of
//! a process to that of the one that waits for it, so in the end all of it is corewise's. Limits: children
//! that corewise had before the command cannot be distinguished, and processes that outlive it are missing.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::time::Duration;

/// The sum from a command's start on.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommandCpu {
    /// The time of earlier children; `None` if the command's cannot be distinguished.
    before: Option<Duration>,
}

impl CommandCpu {
    /// Begins with a command that has not run yet. `others` are children of this process that are not of it.
    pub fn begin(others: &[u32]) -> CommandCpu {
        CommandCpu { before: others.is_empty().then(of_children).flatten() }
    }

    /// Returns the time of all that has ended.
    pub fn so_far(self) -> Option<Duration> {
        Some(of_children()?.saturating_sub(self.before?))
    }
}

fn of_children() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let ns = usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds();
    Some(Duration::from_nanos(ns as u64))
}
