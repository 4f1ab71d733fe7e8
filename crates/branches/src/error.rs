//! Why nothing could be recorded.

use super::options::Backend;
use corewise_sys::launch::LaunchError;
use nix::errno::Errno;

/// Why nothing could be recorded.
#[derive(Debug, thiserror::Error)]
pub enum BranchError {
    /// The command did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There is no such process.
    #[error("there is no process {0}: `pgrep NAME` prints the numbers of those that there are")]
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
