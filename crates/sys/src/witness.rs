//! The witness: a process in corewise's process group that receives the same signals as the group.
//!
//! Problem: corewise passes signals on to the command, except those that the command has received itself
//! because they were sent to the whole group: by Ctrl-C, by `kill %1` of a shell, by the command's own `kill
//! 0`. A signal does not show which processes have received it. Approach: a second process of the group
//! blocks every signal, so they stay pending there. A signal that both corewise and the witness have received
//! was sent to the group. The kernel signals a group under a lock, so a system call that takes this lock
//! (`setpgid`) ensures that both have their copy by then. `SIGCONT` and the signals that stop a job discard
//! each other while they are pending, so one of them that the witness lacks may have been discarded there by
//! one that it has: that came later, and to the group, so it counts for both.
//!
//! The witness also wakes corewise. When the command stops, corewise stops as well, so that the shell
//! notices; if then only the command is continued, a stopped corewise could not notice that itself. The
//! witness answers each request, so what it has sent for an earlier one has arrived: a late `SIGCONT` would
//! discard the signal by which corewise stops.
//!
//! Limits: if two processes get the same signal individually, the witness cannot tell. A `SIGSTOP` to the
//! group also stops the witness, which then does not see the command continue alone; nor does it wake
//! corewise after the group has got one more stopping signal meanwhile. It ends with corewise.

use crate::helper::{self, is_stopped};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::ops::BitOr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// An answer takes some µs; after this time, none will come.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it checks whether a stopped command has been continued.
const LOOK_MS: u8 = 20;
/// The signals that stop a job and can be refused.
pub(crate) const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
/// No process has this ID.
const NOBODY: libc::pid_t = libc::pid_t::MAX;

/// The witness, as corewise sees it.
#[derive(Debug)]
pub struct Witness {
    pid: Pid,
    line: UnixStream,
}

/// The signals that the group has received, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Heard(u64);

impl Heard {
    /// Returns whether the group has received this signal, or one that discards it.
    pub(crate) fn has(self, signal: i32) -> bool {
        let same_or_later = match signal {
            libc::SIGCONT => job_control(),
            _ if bit(signal) & job_control() != 0 => bit(signal) | bit(libc::SIGCONT),
            _ => bit(signal),
        };
        self.0 & same_or_later != 0
    }
}

impl BitOr for Heard {
    type Output = Heard;

    fn bitor(self, other: Heard) -> Heard {
        Heard(self.0 | other.0)
    }
}

fn bit(signal: i32) -> u64 {
    1 << ((signal - 1) & 63)
}

/// Returns the signals by which a shell stops and continues its jobs, one bit each.
fn job_control() -> u64 {
    STOPPING.into_iter().fold(bit(libc::SIGCONT), |bits, stop| bits | bit(stop as i32))
}

impl Witness {
    /// Starts the witness. Every signal must be blocked, and this process must have only one thread.
    pub(crate) fn start() -> std::io::Result<Witness> {
        let (line, its_end) = UnixStream::pair()?;
        line.set_read_timeout(Some(PATIENCE))?;
        let corewise = nix::unistd::getpid();
        match helper::fork()? {
            Some(pid) => Ok(Witness { pid, line }),
            None => {
                drop(line);
                serve(its_end, corewise)
            }
        }
    }

    /// Returns its process ID.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns what the group has received since the last call, all of which has reached corewise as well. An
    /// error means that the witness is gone.
    pub(crate) fn heard(&mut self) -> std::io::Result<Heard> {
        wait_for_lock();
        let heard = self.ask(Request::WhatWasHeard).map(Heard);
        wait_for_lock();
        heard
    }

    /// Until the next request: sends SIGCONT to corewise, once, when it is stopped and the process no longer.
    pub(crate) fn wake_when_it_goes_on(&mut self, pid: Pid) -> std::io::Result<()> {
        self.ask(Request::WakeWhenItGoesOn(pid.as_raw())).map(drop)
    }

    fn ask(&mut self, request: Request) -> std::io::Result<u64> {
        self.line.write_all(&request.to_bytes())?;
        let mut answer = [0; 8];
        self.line.read_exact(&mut answer)?;
        Ok(u64::from_ne_bytes(answer))
    }
}

/// Returns when every signal to the group that has reached one of its processes has reached them all.
fn wait_for_lock() {
    // Fails, but only after it has taken the lock. SAFETY: the call takes no pointer.
    unsafe { libc::setpgid(NOBODY, 1) };
}

impl Drop for Witness {
    fn drop(&mut self) {
        helper::kill_and_reap(self.pid);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    WhatWasHeard,
    WakeWhenItGoesOn(i32),
}

impl Request {
    fn to_bytes(self) -> [u8; 4] {
        match self {
            Request::WhatWasHeard => 0,
            Request::WakeWhenItGoesOn(pid) => pid,
        }
        .to_ne_bytes()
    }

    fn from_bytes(bytes: [u8; 4]) -> Request {
        match i32::from_ne_bytes(bytes) {
            0 => Request::WhatWasHeard,
            pid => Request::WakeWhenItGoesOn(pid),
        }
    }
}

/// Runs the witness.
fn serve(mut line: UnixStream, corewise: Pid) -> ! {
    helper::close_all_but(&line);
    helper::take_name(c"witness");
    let (mut request, mut heard) = ([0; 4], 0);
    // The end of the line means the end of corewise.
    while line.read_exact(&mut request).is_ok() {
        heard |= take_pending();
        let request = Request::from_bytes(request);
        let answer = match request {
            Request::WhatWasHeard => std::mem::take(&mut heard),
            // Corewise stops now, and with that takes its copy of what has stopped the command.
            Request::WakeWhenItGoesOn(_) => {
                heard &= !job_control();
                0
            }
        };
        if line.write_all(&answer.to_ne_bytes()).is_err() {
            break;
        }
        if let Request::WakeWhenItGoesOn(pid) = request {
            heard |= wake(&line, corewise, Pid::from_raw(pid));
        }
    }
    helper::end()
}

fn take_pending() -> u64 {
    let mut taken = 0;
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        // SAFETY: both references are valid; further information about the signal is not requested.
        let signal = unsafe { libc::sigtimedwait(SigSet::all().as_ref(), std::ptr::null_mut(), &at_once) };
        if signal < 1 {
            return taken;
        }
        taken |= bit(signal);
    }
}

/// Returns what the group has received meanwhile.
fn wake(line: &UnixStream, corewise: Pid, command: Pid) -> u64 {
    let mut heard = 0;
    loop {
        let goes_on_alone = !is_stopped(command) && is_stopped(corewise);
        // A shell continues the whole group, and may stop it again before the command has run.
        heard |= take_pending();
        if heard & job_control() != 0 {
            return heard;
        }
        if goes_on_alone {
            // It may have ended.
            let _ = kill(corewise, Signal::SIGCONT);
            return heard;
        }
        match poll(&mut [PollFd::new(line.as_fd(), PollFlags::POLLIN)], PollTimeout::from(LOOK_MS)) {
            Ok(0) | Err(Errno::EINTR) => {}
            _ => return heard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_discards_another_while_it_is_pending_counts_for_both() {
        let heard = |signals: &[i32]| Heard(signals.iter().fold(0, |bits, signal| bits | bit(*signal)));
        assert!(heard(&[libc::SIGTSTP]).has(libc::SIGCONT), "stopped again before the witness was asked");
        assert!(heard(&[libc::SIGCONT]).has(libc::SIGTSTP), "continued before the witness was asked");
        assert!(!heard(&[libc::SIGTTIN]).has(libc::SIGTSTP), "they do not discard each other");
        assert!(!heard(&[libc::SIGCONT, libc::SIGTSTP]).has(libc::SIGINT), "it does not discard others");
        assert!((heard(&[]) | heard(&[libc::SIGINT])).has(libc::SIGINT), "of several answers");
    }
}
