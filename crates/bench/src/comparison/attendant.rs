//! The attendant: a small process that stops the commands while corewise is stopped, and sees when time
//! stands still.
//!
//! Problem: Ctrl-Z stops corewise and not the commands, each of which leads a group of its own; they run on
//! unattended, and the time until corewise goes on counts as theirs. Nobody can handle `SIGSTOP`. When the
//! whole machine or the container is suspended, nobody runs, and the clock goes on. Approach: a process
//! beside corewise naps, and looks. If corewise is stopped, it stops all descendants of corewise until
//! corewise goes on. If it has slept for much longer than it wanted, and has not waited for a PE meanwhile,
//! it was frozen, and so were the commands; the clock that it looks at goes on during a suspend. corewise
//! asks it after each run, and [repeats](corewise_core::comparison) a run in which time stood still.
//!
//! It is in a process group of its own, so that Ctrl-Z does not stop it, and ends with corewise. If corewise
//! is killed while it is stopped, the commands go on, as they do otherwise.
//!
//! Source: ours; `schedstat` in the kernel's documentation. Limits: the commands stop up to [`NAP`] later
//! than corewise. A command that somebody else stops alone is not seen. A descendant that another user owns
//! is not stopped.

use corewise_sys::clock::boot_time;
use corewise_sys::helper;
use corewise_sys::proc::{Proc, SchedstatFile};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, setpgid};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long it sleeps between two looks. *Measured*: a look takes some 30 µs, which is 0.03 % of a PE.
const NAP: Duration = Duration::from_millis(100);

/// A nap that takes longer than it should by so much was no nap. Timers are late by milliseconds, and a
/// hypervisor withholds a PE for tenths of a second.
const STILL: Duration = Duration::from_secs(1);

/// How long an answer may take: it may wait for a PE.
const PATIENCE: Duration = Duration::from_secs(10);

/// The attendant, as corewise sees it.
#[derive(Debug)]
pub struct Attendant {
    pid: Pid,
    line: UnixStream,
}

impl Attendant {
    /// Starts it. This process must have only one thread.
    pub fn start() -> io::Result<Attendant> {
        let (line, its_end) = UnixStream::pair()?;
        line.set_read_timeout(Some(PATIENCE))?;
        let corewise = getpid();
        match helper::fork()? {
            Some(pid) => Ok(Attendant { pid, line }),
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

    /// Returns how long time stood still since the last call.
    pub fn stood_still(&mut self) -> io::Result<Duration> {
        self.line.write_all(b"?")?;
        let mut answer = [0; 8];
        self.line.read_exact(&mut answer)?;
        Ok(Duration::from_nanos(u64::from_ne_bytes(answer)))
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        helper::kill_and_reap(self.pid);
    }
}

/// Runs the attendant.
fn serve(mut line: UnixStream, corewise: Pid) -> ! {
    helper::close_all_but(&line);
    helper::take_name(c"attendant");
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let own = Proc::own().own_schedstat();
    let mut still = Duration::ZERO;
    let mut last = Look::new(own.as_ref());
    loop {
        let is_asked = nap(&line);
        let look = Look::new(own.as_ref());
        still += look.stood_still_since(&last);
        last = look;
        if is_asked {
            let answer = (still.as_nanos() as u64).to_ne_bytes();
            // The end of the line means the end of corewise.
            if line.read_exact(&mut [0]).is_err() || line.write_all(&answer).is_err() {
                helper::end();
            }
            still = Duration::ZERO;
        }
        if helper::is_stopped(corewise) {
            still += attend(&line, corewise);
            last = Look::new(own.as_ref());
        }
    }
}

/// Sleeps; returns whether there is something to read.
fn nap(line: &UnixStream) -> bool {
    let time = PollTimeout::try_from(NAP).unwrap_or(PollTimeout::MAX);
    !matches!(poll(&mut [PollFd::new(line.as_fd(), PollFlags::POLLIN)], time), Ok(0) | Err(Errno::EINTR))
}

/// Stops the commands until corewise goes on, or has ended; returns how long that took.
fn attend(line: &UnixStream, corewise: Pid) -> Duration {
    let begin = boot_time();
    let stopped = stop_descendants(corewise);
    while helper::is_stopped(corewise) && !nap(line) {}
    for process in stopped {
        // It may have been killed.
        let _ = kill(process, Signal::SIGCONT);
    }
    boot_time().saturating_sub(begin)
}

/// Stops all descendants of a process but this one, each before its children, and returns those that were not
/// stopped already.
fn stop_descendants(of: Pid) -> Vec<Pid> {
    let (mut stopped, mut parents) = (Vec::new(), vec![of]);
    while let Some(parent) = parents.pop() {
        let children = Proc::own().children(parent.as_raw() as u32).unwrap_or_default();
        for child in children.into_iter().map(|pid| Pid::from_raw(pid as i32)).filter(|pid| *pid != getpid())
        {
            if !helper::is_stopped(child) && kill(child, Signal::SIGSTOP).is_ok() {
                stopped.push(child);
            }
            parents.push(child);
        }
    }
    stopped
}

/// What the clocks show at a look.
struct Look {
    at: Duration,
    /// The time on a PE, or waiting for one; `None` if the kernel does not count it.
    wanted: Option<Duration>,
}

impl Look {
    fn new(own: Option<&SchedstatFile>) -> Look {
        let times = own.and_then(|file| file.read().ok().flatten());
        let wanted = times.map(|times| Duration::from_nanos(times.run_ns + times.wait_ns));
        Look { at: boot_time(), wanted }
    }

    /// Returns how long it has neither slept as it wanted nor wanted a PE since another look; zero if that is
    /// explained by late timers.
    fn stood_still_since(&self, last: &Look) -> Duration {
        let (Some(now), Some(before)) = (self.wanted, last.wanted) else { return Duration::ZERO };
        let elapsed = self.at.saturating_sub(last.at);
        let unexplained = elapsed.saturating_sub(now.saturating_sub(before)).saturating_sub(NAP);
        if unexplained < STILL { Duration::ZERO } else { unexplained }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_it_neither_slept_nor_waited_for_a_pe_stood_still() {
        let look = |at: u64, wanted: u64| Look {
            at: Duration::from_millis(at),
            wanted: Some(Duration::from_millis(wanted)),
        };
        let still = |at: u64, wanted: u64| {
            look(1000 + at, 50 + wanted).stood_still_since(&look(1000, 50)).as_millis()
        };
        assert_eq!([still(100, 0), still(20, 0), still(250, 5), still(9000, 8900)], [0; 4]);
        assert_eq!((still(4100, 0), still(5100, 1000)), (4000, 4000));
        let unknown = Look { at: Duration::from_secs(90), wanted: None };
        assert_eq!(unknown.stood_still_since(&look(0, 0)), Duration::ZERO);
    }
}
