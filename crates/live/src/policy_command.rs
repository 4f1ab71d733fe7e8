//! The command of a policy that is another program ([`corewise_core::policy::exec`]): starts it, transfers
//! lines, and ends it with all its descendants.
//!
//! Problem: the command is foreign code. It may be slow, crash, never read, write without end, or start
//! others and leave them behind. It must not be mistaken for a part of the application, outlive corewise, or
//! have rights that it does not need. Approach: corewise runs itself again as a *keeper* ([`SUBCOMMAND`]),
//! which detaches itself, drops rights, and starts the command in a process group of its own.
//!
//! - The keeper is not a child of the application, like the [guardian](corewise_binding::guardian), so
//!   neither the keeper nor the command is followed or waited for.
//! - Beside the pipes of scenes and answers, whose other ends only the command holds, there is a *lifeline*
//!   between keeper and corewise. The kernel notifies the keeper when corewise closes its end, or dies; then,
//!   or when the command ends, it kills the command's group, and all processes that have left the group,
//!   which it has adopted. So the pipe of answers ends when nobody can answer any more, whether the command
//!   has ended or only closed its output.
//! - Rights: at most those of the placed command. It can gain none (`no_new_privs`), inherits no descriptors
//!   but its three streams, and if root was reached by `sudo`, it runs as the calling user.
//!
//! Both pipes are non-blocking: corewise waits no longer than the given time, and keeps at most [`LINE_MAX`]
//! bytes of input.
//!
//! Limits: what the command starts may be killed a moment after corewise has ended.

use corewise_binding::heartbeat;
use corewise_core::policy::exec::Peer;
use corewise_sys::helper;
use corewise_sys::launch::{Launch, LaunchError};
use corewise_sys::proc::{self, Proc};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Pid, Uid, User, geteuid, initgroups, pipe2, setgid, setgroups, setsid, setuid};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The hidden subcommand that runs the binary as keeper.
pub const SUBCOMMAND: &str = "policy-keeper";

/// The longest line that is accepted, in bytes.
pub const LINE_MAX: usize = 16 << 20;

/// How long to wait for the end of a command that no longer reads, to distinguish the two cases.
const ENDS_WITHIN: Duration = Duration::from_millis(300);

/// The running command of a policy; killed on drop.
#[derive(Debug)]
pub struct PolicyCommand {
    keeper: u32,
    /// The keeper lives as long as this is open.
    _lifeline: OwnedFd,
    scenes: File,
    answers: File,
    unsent: Vec<u8>,
    received: Vec<u8>,
    patience: Duration,
}

impl PolicyCommand {
    /// Runs the command in a shell. Every wait for it lasts at least `patience`.
    pub fn start(command: &str, patience: Duration) -> io::Result<PolicyCommand> {
        let (their_scenes, scenes) = pipe2(OFlag::O_CLOEXEC)?;
        let (answers, their_answers) = pipe2(OFlag::O_CLOEXEC)?;
        let (lifeline, their_lifeline) = pipe2(OFlag::O_CLOEXEC)?;
        let number = their_lifeline.as_raw_fd().to_string();
        let keeper = Launch::of([proc::PROGRAM, SUBCOMMAND, &number, command]).map_err(io::Error::other)?;
        let keeper = keeper.input(their_scenes).output(their_answers).descriptor(their_lifeline).start();
        let status = keeper.map_err(io::Error::other)?.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("its keeper did not start: {status}")));
        }
        let (scenes, mut answers) = (File::from(scenes), File::from(answers));
        let mut pid = [0; 4];
        answers.read_exact(&mut pid)?;
        for pipe in [&scenes, &answers] {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let keeper = u32::from_ne_bytes(pid);
        let (unsent, received) = (Vec::new(), Vec::new());
        Ok(PolicyCommand { keeper, _lifeline: lifeline, scenes, answers, unsent, received, patience })
    }

    /// Returns the process ID of the keeper, which belongs to corewise and not to the application.
    pub fn keeper(&self) -> u32 {
        self.keeper
    }

    /// Writes as much as the pipe takes.
    fn write_some(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.scenes.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what is available, up to the end of a line.
    fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut looked_at = 0;
        loop {
            let new_line = self.received[looked_at..].iter().position(|byte| *byte == b'\n');
            if let Some(at) = new_line {
                let line: Vec<u8> = self.received.drain(..=looked_at + at).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            looked_at = self.received.len();
            if looked_at > LINE_MAX {
                return Err(io::Error::other(format!("it wrote a line of more than {} MiB", LINE_MAX >> 20)));
            }
            let mut chunk = [0; 1 << 16];
            match self.answers.read(&mut chunk) {
                Ok(0) => return Err(io::Error::other("it has ended or closed its output")),
                Ok(read) => self.received.extend(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns why the command no longer reads. An ending command closes its input first, and its output a
    /// moment later.
    fn why_reading_stopped(&mut self) -> io::Error {
        self.unsent.clear();
        let read = self.wait(ENDS_WITHIN).and_then(|()| self.read_line());
        read.err().unwrap_or_else(|| io::Error::other("it reads no more"))
    }

    fn wait(&self, within: Duration) -> io::Result<()> {
        let mut pipes = vec![PollFd::new(self.answers.as_fd(), PollFlags::POLLIN)];
        if !self.unsent.is_empty() {
            pipes.push(PollFd::new(self.scenes.as_fd(), PollFlags::POLLOUT));
        }
        heartbeat::promise(within);
        let ms = within.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        match poll(&mut pipes, PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Peer for PolicyCommand {
    fn exchange(&mut self, text: &str, within: Duration) -> Result<Option<String>, String> {
        let within = if within.is_zero() { within } else { within.max(self.patience) };
        let end = Instant::now() + within;
        self.unsent.extend(text.as_bytes());
        let mut exchange = || -> io::Result<Option<String>> {
            loop {
                if let Some(line) = self.read_line()? {
                    return Ok(Some(line));
                }
                match self.write_some() {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                        return Err(self.why_reading_stopped());
                    }
                    written => written?,
                }
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(None);
                }
                self.wait(left)?;
            }
        };
        exchange().map_err(|error| error.to_string())
    }
}

/// Runs the keeper: detaches itself, drops rights, starts the command, and kills it when it is no longer
/// needed. Standard input is the pipe of scenes, standard output that of answers; the lifeline's end has this
/// number.
pub fn main(lifeline: RawFd, command: &str) -> io::Result<()> {
    let number = u32::try_from(lifeline).ok().filter(|number| *number > 2).ok_or(Errno::EBADF)?;
    for (first, last) in [(3, number - 1), (number + 1, u32::MAX)] {
        // SAFETY: the call takes no pointer, and this process has opened nothing yet.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
    // SAFETY: corewise has handed it over, and it is not used elsewhere.
    let lifeline = unsafe { OwnedFd::from_raw_fd(lifeline) };
    fcntl(&lifeline, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    if helper::fork()?.is_some() {
        return Ok(());
    }
    setsid()?;
    corewise_binding::guardian::ignore_termination_signals()?;
    drop_rights()?;
    prctl::set_child_subreaper(true)?;
    io::stdout().write_all(&std::process::id().to_ne_bytes())?;
    io::stdout().flush()?;
    let child = start(command);
    // Only the command reads the scenes, and only it writes answers.
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: both are open, and this process needs the stream no more.
        unsafe { libc::dup2(nothing.as_raw_fd(), stream) };
    }
    let child = child.map_err(io::Error::other)?;
    wait_for_end(child, &lifeline)?;
    end_all(child);
    Ok(())
}

/// Runs the command in a process group of its own; it is killed with its keeper.
fn start(command: &str) -> Result<Pid, LaunchError> {
    let shell = Launch::of(["/bin/sh", "-c", command])?.leading_a_group().ending_with_corewise();
    Ok(shell.start()?.pid())
}

/// Turns root by `sudo` into the calling user, and prevents gaining rights from here on.
fn drop_rights() -> io::Result<()> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if geteuid().is_root()
        && let (Some(uid), Some(gid)) = (number("SUDO_UID"), number("SUDO_GID"))
    {
        let gid = Gid::from_raw(gid);
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        match user.and_then(|user| CString::new(user.name).ok()) {
            Some(name) => initgroups(&name, gid)?,
            None => setgroups(&[gid])?,
        }
        setgid(gid)?;
        setuid(Uid::from_raw(uid))?;
    }
    Ok(prctl::set_no_new_privs()?)
}

/// Waits until the command has ended or corewise needs it no more.
fn wait_for_end(child: Pid, lifeline: &OwnedFd) -> io::Result<()> {
    // SAFETY: the call takes no pointer.
    let raw = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0) })?;
    // SAFETY: the kernel has just opened it for this process, and it is not used elsewhere.
    let ended = unsafe { OwnedFd::from_raw_fd(raw as i32) };
    let mut both =
        [PollFd::new(ended.as_fd(), PollFlags::POLLIN), PollFd::new(lifeline.as_fd(), PollFlags::empty())];
    loop {
        match poll(&mut both, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

/// Kills the command's group, then all adopted processes that have left it, until none is left.
fn end_all(group: Pid) {
    let _ = killpg(group, Signal::SIGKILL);
    loop {
        for child in Proc::own().children(std::process::id()).unwrap_or_default() {
            let _ = kill(Pid::from_raw(child as i32), Signal::SIGKILL);
        }
        match waitpid(Pid::from_raw(-1), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
