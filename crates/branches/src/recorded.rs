//! What has been recorded.

use super::collect::Pauses;
use corewise_paths::window::BranchRecording;
use std::process::ExitStatus;

/// The progress of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The number of windows so far.
    pub windows: usize,
    /// The number of processes that are followed at the moment.
    pub processes: usize,
}

/// A finished recording.
#[derive(Debug)]
pub struct Recorded {
    /// The windows.
    pub recording: BranchRecording,
    /// How the command ended; `None` for a running process.
    pub exit_status: Option<ExitStatus>,
    /// How long threads were paused by samples; empty for `lbr`.
    pub pauses: Pauses,
}
