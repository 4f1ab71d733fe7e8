//! Starts a command so that it can be watched from its first instruction.
//!
//! The child waits before `exec` until counters and discovery are attached, then becomes the command as if it
//! had been started alone: same process group, same terminal, same standard streams, and the [`Inherited`]
//! attributes.

use crate::inherited::Inherited;
use crate::signals::Signals;
use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;

/// The destination of the command's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Standard output: the user wants the command's output.
    Own,
    /// Standard error: the user wants what corewise prints.
    ToStandardError,
}

/// A child that waits for [`Waiting::start`].
#[derive(Debug)]
pub struct Waiting {
    pid: Pid,
    go: File,
    failure: File,
}

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The command contains a zero byte.
    #[error("`{0}` holds a zero byte, which no command can")]
    ZeroByte(String),
    /// The program does not exist.
    #[error("cannot find the command `{0}`: check the spelling and PATH")]
    NotFound(String),
    /// The program exists but cannot be executed.
    #[error("cannot execute `{command}`: {errno}")]
    CannotExecute {
        /// The command.
        command: String,
        /// The system's error.
        errno: Errno,
    },
    /// No process could be created.
    #[error("cannot create a process: {0}")]
    Fork(#[from] Errno),
    /// The pipe to the child broke.
    #[error("cannot talk to the new process: {0}")]
    Pipe(#[from] std::io::Error),
}

impl LaunchError {
    /// Returns the exit status that a shell would give: 127 not found, 126 not executable.
    pub fn exit_status(&self) -> u8 {
        match self {
            LaunchError::NotFound(_) => 127,
            LaunchError::CannotExecute { .. } => 126,
            _ => 125,
        }
    }
}

/// Creates the child; `signals` are passed on to it from now on. The command also gets these environment
/// variables.
///
/// Must be called while this process has only one thread, as the child runs ordinary code until `exec`.
pub fn prepare(
    command: &[OsString],
    signals: &mut Signals,
    output: Output,
    variables: &[(&str, String)],
) -> Result<Waiting, LaunchError> {
    let words = command
        .iter()
        .map(|word| CString::new(word.clone().into_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| LaunchError::ZeroByte(String::from_utf8_lossy(&error.into_vec()).into_owned()))?;
    let (wait, go) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let (failure, report) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    for (name, value) in variables {
        // SAFETY: this process has one thread, so no other code reads the environment; the variables are for
        // the command and its descendants.
        unsafe { std::env::set_var(name, value) };
    }
    // SAFETY: this process has one thread, so the child may run any code before it executes the command.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            signals.command_created(child)?;
            Ok(Waiting { pid: child, go: go.into(), failure: failure.into() })
        }
        ForkResult::Child => {
            drop((go, failure));
            become_command(&words, signals.inherited(), output, wait, report)
        }
    }
}

/// Runs in the child and does not return.
fn become_command(
    words: &[CString],
    inherited: &Inherited,
    output: Output,
    wait: OwnedFd,
    report: OwnedFd,
) -> ! {
    let mut go = [0u8];
    // An end of file means that corewise died before the start: do not run the command.
    if File::from(wait).read_exact(&mut go).is_ok() {
        let ready = redirect(output).and_then(|()| inherited.restore_for_command());
        let errno = match ready.and_then(|()| nix::unistd::execvp(&words[0], words)) {
            Ok(never) => match never {},
            Err(errno) => errno,
        };
        // If the parent is gone, there is no reader.
        let _ = File::from(report).write_all(&(errno as i32).to_ne_bytes());
    }
    // SAFETY: `_exit` ends the process at once and runs none of the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

fn redirect(output: Output) -> Result<(), Errno> {
    match output {
        Output::Own => Ok(()),
        Output::ToStandardError => nix::unistd::dup2_stdout(std::io::stderr()),
    }
}

impl Waiting {
    /// Returns the child's process ID.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the command start. Returns when it runs, or with the reason why it does not; the child is then
    /// reaped.
    pub fn start(mut self, command: &str) -> Result<Pid, LaunchError> {
        self.go.write_all(b"!")?;
        let mut answer = Vec::new();
        self.failure.read_to_end(&mut answer)?;
        let Ok(code) = <[u8; 4]>::try_from(answer.as_slice()) else { return Ok(self.pid) };
        let _ = nix::sys::wait::waitpid(self.pid, None);
        let command = command.to_owned();
        Err(match Errno::from_raw(i32::from_ne_bytes(code)) {
            Errno::ENOENT => LaunchError::NotFound(command),
            errno => LaunchError::CannotExecute { command, errno },
        })
    }
}
