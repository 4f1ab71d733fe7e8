//! What is known of a session when it has ended.

use corewise_core::report::{Circumstances, Report, Sources, WaitsReport};
use corewise_sys::launch::LaunchError;
use corewise_sys::proc::Proc;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// The result of a session.
pub struct Ended {
    /// What is known of it.
    pub knowledge: Knowledge,
    /// How the command ended.
    pub exit_status: ExitStatus,
    /// An error about what could not be written.
    pub failure: Option<anyhow::Error>,
}

/// What is known of a run.
pub enum Knowledge {
    /// Its report.
    Report(Box<Report>),
    /// The command was not watched.
    Unwatched {
        /// Why not.
        why: &'static str,
        /// What was done about its waits.
        waits: Box<WaitsReport>,
        /// The duration of the run.
        wall: Duration,
        /// The CPU time of the command, if it is known.
        cpu: Option<Duration>,
    },
}

/// Returns the circumstances of a run of this process, as far as they are known at any time.
pub fn circumstances(
    command: Vec<String>,
    dry_run: bool,
    sources: Sources,
    notes: Vec<String>,
) -> Circumstances {
    Circumstances {
        command,
        dry_run,
        evidence: "measured",
        host: None,
        sources,
        rounds: Vec::new(),
        command_cpu: None,
        // Not the maximum of `getrusage`, which begins with that of the process that started this one.
        peak_memory_bytes: Proc::own().own_status().bytes("VmHWM"),
        notes,
    }
}

/// Returns an exit status with this code.
pub fn exited(code: u8) -> ExitStatus {
    ExitStatus::from_raw(i32::from(code) << 8)
}

/// Returns the exit status for an error: the shell's for a command that did not start, else 125.
pub fn exit_status_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<LaunchError>().map_or(125, LaunchError::exit_status)
}
