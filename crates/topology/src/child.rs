//! Runs C libraries on untrusted input in a child process.
//!
//! libhwloc crashes on some damaged files, and may loop or exhaust memory on others. In a child process it
//! does no harm: the result comes back through a pipe, and a child that crashes, or takes too much time or
//! memory, gives an error. Limit: the child is a copy of a process that may have threads, so a lock held by
//! one of them stays locked in it; a child that waits for it forever is ended, too.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The largest machines take a second.
const TIME_MAX: Duration = Duration::from_secs(30);
/// The child's address space, which includes a copy of this process.
const MEMORY_MAX: u64 = 16 << 30;
/// The maximum size of a result, in bytes. The largest machines need some MiB.
const RESULT_MAX: usize = 256 << 20;

/// Runs `work` in a child process. Returns its error, or one that describes how the child ended.
pub fn run<T: Serialize + DeserializeOwned>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    run_within(TIME_MAX, work)
}

fn run_within<T: Serialize + DeserializeOwned>(
    time: Duration,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let (ours, theirs) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| errno.to_string())?;
    // SAFETY: the C library makes its own locks usable in the child. The child allocates, takes none of our
    // locks, and ends without running any code of the parent.
    match unsafe { fork() }.map_err(|errno| format!("no process can be made: {errno}"))? {
        ForkResult::Child => {
            drop(ours);
            answer(work, theirs.into())
        }
        ForkResult::Parent { child } => {
            drop(theirs);
            let heard = receive(ours.into(), time);
            if heard.is_err() {
                // The child may have ended by itself.
                let _ = kill(child, Signal::SIGKILL);
            }
            parse_answer(heard, child)
        }
    }
}

/// Runs in the child and does not return.
fn answer<T: Serialize>(work: impl FnOnce() -> Result<T, String>, mut pipe: File) -> ! {
    // If any of this fails, the parent's time limit still applies.
    let _ = setrlimit(Resource::RLIMIT_AS, MEMORY_MAX, MEMORY_MAX);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    std::panic::set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("it panics over it".to_owned()));
    if let Ok(text) = serde_json::to_vec(&result) {
        let _ = pipe.write_all(&text);
    }
    // SAFETY: `_exit` ends the process at once and runs none of the parent's exit handlers.
    unsafe { libc::_exit(0) }
}

/// Reads everything that the child writes.
fn receive(mut pipe: File, time: Duration) -> Result<Vec<u8>, String> {
    let end = Instant::now() + time;
    let (mut said, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let ready = poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout);
        match ready {
            Ok(0) => return Err(format!("it takes longer than {time:?}")),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.to_string()),
        }
        match pipe.read(&mut buffer).map_err(|error| error.to_string())? {
            0 => return Ok(said),
            _ if said.len() > RESULT_MAX => return Err("it says too much about it".to_owned()),
            length => said.extend_from_slice(&buffer[..length]),
        }
    }
}

/// Returns the result, once the child has ended.
fn parse_answer<T: DeserializeOwned>(heard: Result<Vec<u8>, String>, child: Pid) -> Result<T, String> {
    let ended = loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            ended => break ended,
        }
    };
    let heard = heard?;
    if let Ok(result) = serde_json::from_slice::<Result<T, String>>(&heard) {
        return result;
    }
    Err(match ended {
        Ok(WaitStatus::Signaled(_, signal, _)) => format!("it crashes over it ({signal})"),
        _ => "it ends over it".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_and_a_crash_does_not_hurt() {
        assert_eq!(run(|| Ok(vec![1, 2])), Ok(vec![1, 2]));
        assert_eq!(run::<u8>(|| Err("no".to_owned())), Err("no".to_owned()));
        let error = run::<u8>(|| panic!("on purpose")).unwrap_err();
        assert!(error.contains("panics"), "{error}");
        let error = run::<u8>(|| {
            // SAFETY: ends this process as a crash of the library would.
            unsafe { libc::raise(libc::SIGKILL) };
            Ok(1)
        });
        assert_eq!(error, Err("it crashes over it (SIGKILL)".to_owned()));
    }

    #[test]
    fn a_child_that_waits_for_ever_is_given_up() {
        let forever = || {
            nix::unistd::pause();
            Ok(1)
        };
        let error = run_within::<u8>(Duration::from_millis(100), forever).unwrap_err();
        assert_eq!(error, "it takes longer than 100ms");
    }
}
