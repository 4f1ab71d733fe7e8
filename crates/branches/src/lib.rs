//! Branch records of running programs: windows of consecutively executed branches, with or without hardware.
//!
//! Three samplers record the same windows ([`corewise_paths::window`]). [`lbr`] reads the processor's own
//! branch records. [`shadow`] needs no hardware: now and then it emulates what a thread will do next, while
//! the thread is paused: preempted (`preempt`) or, where that is not permitted, stopped with `ptrace`
//! (`tracer`). [`step`] really executes a stopped thread's next branches one instruction at a time, which is
//! slow, and serves to verify the others. [`record()`] selects one of them and runs it on a command or a
//! running process.

#[cfg(target_arch = "x86_64")]
pub mod busy;
pub mod collect;
#[cfg(target_arch = "x86_64")]
mod event;
pub mod lbr;
#[cfg(target_arch = "x86_64")]
mod mapped;
pub mod modules;
#[cfg(target_arch = "x86_64")]
mod preempt;
#[cfg(target_arch = "x86_64")]
mod ptrace;
#[cfg(target_arch = "x86_64")]
mod record;
#[cfg(target_arch = "x86_64")]
pub mod shadow;
#[cfg(target_arch = "x86_64")]
pub mod step;
mod target;
pub mod trace;
#[cfg(target_arch = "x86_64")]
mod tracer;
#[cfg(target_arch = "x86_64")]
pub mod verify;

use collect::Pauses;
use corewise_paths::window::BranchRecording;
use corewise_sys::cgroup::ControlGroup;
use corewise_sys::launch::{LaunchError, Output};
use nix::errno::Errno;
use std::ffi::OsString;
use std::process::ExitStatus;
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

/// Why nothing could be recorded.
#[derive(Debug, thiserror::Error)]
pub enum BranchError {
    /// The command did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Following a process was refused.
    #[error(
        "process {pid} may not be followed ({errno}): run corewise as the process's user or as root, see \
         that no debugger follows it, and set kernel.yama.ptrace_scope to 0 for processes that corewise did \
         not start"
    )]
    Follow {
        /// The process.
        pid: u32,
        /// The system's error.
        errno: Errno,
    },
    /// The clock event was refused.
    #[error(
        "the cpu-clock event was refused ({0}): set kernel.perf_event_paranoid to 2 or less, or give \
         corewise CAP_PERFMON"
    )]
    Clock(Errno),
    /// The sampler cannot work on this machine.
    #[error("the sampler `{sampler}` cannot work here: {reason}")]
    Unavailable {
        /// Its name.
        sampler: &'static str,
        /// The reason.
        reason: String,
    },
    /// Groups and the whole system are recorded by one sampler only.
    #[error("a service or the whole system is recorded by `shadow` only, not by {0:?}")]
    OneProcessOnly(Backend),
    /// And that sampler cannot work.
    #[error(
        "a service or the whole system is recorded by preempting its threads, which is not possible here: \
         {0}; run corewise as root, on x86-64 and Linux 5.16 or newer"
    )]
    ManyNeedPreempting(String),
    /// The system refused something else.
    #[error("{what}: {errno}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The system's error.
        errno: Errno,
    },
}

/// Records a target's windows until it ends, or as long as the options say. `on_progress` is called some
/// times per second.
///
/// A command must be started while this process has one thread (see [`corewise_sys::launch::prepare`]).
pub fn record(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    if let Target::Pid(pid) = target
        && !target::is_alive(pid)
    {
        return Err(BranchError::NoProcess(pid));
    }
    let is_many = match target {
        Target::Command(_) | Target::Pid(_) => false,
        Target::Cgroup(_) | Target::System => true,
    };
    let mut recorded = match options.backend {
        Backend::Auto | Backend::Shadow if is_many => record_many(target, options, on_progress),
        backend if is_many => Err(BranchError::OneProcessOnly(backend)),
        Backend::Lbr => lbr::record(target, options, on_progress),
        Backend::Auto if lbr::probe().is_ok() => lbr::record(target, options, on_progress),
        Backend::Auto | Backend::Shadow => record_preempted(target, options, on_progress),
        Backend::ShadowPtrace => record_stopped(target, options, false, on_progress),
        Backend::Step => record_stopped(target, options, true, on_progress),
    }?;
    let Recorded { recording, pauses, .. } = &mut recorded;
    recording.period_ns = u64::try_from(options.period.as_nanos()).unwrap_or(u64::MAX);
    recording.branches_max = options.branches_max;
    if let (Some(median), Some(high)) = (pauses.quantile(0.5), pauses.quantile(0.95)) {
        let us = |ns: u32| f64::from(ns) / 1e3;
        let (count, median, high) = (pauses.count(), us(median), us(high));
        recording.notes.push(format!(
            "Threads were paused {count} times for {median:.0} µs (median; 95 %: {high:.0} µs)."
        ));
    }
    Ok(recorded)
}

#[cfg(target_arch = "x86_64")]
fn record_preempted(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    match preempt::Preempting::prepare() {
        Ok(preempting) => preempting.record(target, options, on_progress),
        Err(reason) => {
            let mut recorded = record_stopped(target, options, false, on_progress)?;
            recorded.recording.notes.push(format!(
                "Threads were stopped with ptrace, which costs them more, as preempting them is not \
                 possible: {reason}."
            ));
            Ok(recorded)
        }
    }
}

/// Processes of a group or of the whole system are never stopped or traced.
#[cfg(target_arch = "x86_64")]
fn record_many(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    let preempting = preempt::Preempting::prepare().map_err(BranchError::ManyNeedPreempting)?;
    preempting.record(target, options, on_progress)
}

#[cfg(not(target_arch = "x86_64"))]
fn record_many(_: Target<'_>, _: &Options, _: &mut dyn FnMut(Progress)) -> Result<Recorded, BranchError> {
    Err(BranchError::ManyNeedPreempting("it is for x86-64 only".to_owned()))
}

#[cfg(not(target_arch = "x86_64"))]
fn record_preempted(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    record_stopped(target, options, false, on_progress)
}

#[cfg(target_arch = "x86_64")]
fn record_stopped(
    target: Target<'_>,
    options: &Options,
    step: bool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    if step {
        // The thread would stand still for a tenth of a second.
        let options = &Options { long_one_in: Some(0), ..options.clone() };
        return record::record(target, options, "step", &mut step::Stepper::default(), on_progress);
    }
    let shadow = shadow::sampler::Shadow::new()
        .map_err(|errno| BranchError::System { what: "cannot make room for thunks", errno });
    record::record(target, options, "shadow-ptrace", &mut shadow?, on_progress)
}

#[cfg(not(target_arch = "x86_64"))]
fn record_stopped(
    _: Target<'_>,
    _: &Options,
    step: bool,
    _: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    let sampler = if step { "step" } else { "shadow" };
    Err(BranchError::Unavailable { sampler, reason: "it is for x86-64 only".to_owned() })
}
