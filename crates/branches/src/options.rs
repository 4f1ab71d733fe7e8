//! What is recorded, and how.

use corewise_sys::cgroup::ControlGroup;
use corewise_sys::launch::Output;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// `lbr` if the machine has it, else `shadow`.
    Auto,
    /// The processor's branch records.
    Lbr,
    /// Emulation of preempted threads, or of stopped ones where preempting is not permitted.
    Shadow,
    /// Emulation of threads that are stopped with `ptrace`.
    ShadowPtrace,
    /// Single steps: slow, for verification.
    Step,
}

/// The recorded processes.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A command, from its start to its end, with all descendants.
    Command(&'a [OsString]),
    /// A running process, with its descendants.
    Pid(u32),
    /// The processes of a control group, including those that join it later, until none is left. For
    /// [`Backend::Shadow`] where threads may be preempted.
    Cgroup(&'a ControlGroup),
    /// All processes of the machine but corewise, likewise.
    System,
}

/// The branches of a long window: so many that it forgets where it began.
pub const LONG_BRANCHES: u32 = 1024;
/// The long windows of each second of a thread, unless more are asked for: each pauses it for about a quarter
/// of a millisecond, so together they cost half a percent.
pub const LONG_PER_SECOND_MAX: u32 = 20;

/// How to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// The sampler.
    pub backend: Backend,
    /// Mean CPU time between the samples of a running thread.
    pub period: Duration,
    /// Branches per window.
    pub branches_max: u32,
    /// The maximum number of instructions per window.
    pub instructions_max: u32,
    /// One window in this many has [`LONG_BRANCHES`] instead (`shadow` and `shadow-ptrace`); 0: none has;
    /// `None`: one in eight, but at most [`LONG_PER_SECOND_MAX`] of a thread.
    pub long_one_in: Option<u32>,
    /// When to end, if the command does not end before.
    pub duration: Option<Duration>,
    /// Ends the recording when it is set.
    pub stop: Arc<AtomicBool>,
    /// The destination of a command's output.
    pub output: Output,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backend: Backend::Auto,
            period: Duration::from_millis(10),
            branches_max: 32,
            instructions_max: 4000,
            long_one_in: None,
            duration: None,
            stop: Arc::default(),
            output: Output::Own,
        }
    }
}
