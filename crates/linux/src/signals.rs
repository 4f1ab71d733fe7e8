//! Signals and children: corewise stands between a shell and a command, and both should not notice.
//!
//! Signals are read from a descriptor, so their dispositions stay as inherited. A signal that the terminal
//! sends goes to the whole foreground group, so the command has it already and nothing is done; one that
//! somebody sent to corewise is passed on. When the command is stopped by a signal of its own, corewise stops
//! too, as the shell expects of its job.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals that are passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals' descriptor and the mask to return to.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
    inherited: SigSet,
}

/// What the signals and children of the last moments amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct News {
    /// The exit status of the command, once it has ended: its own, or 128 + the signal's number.
    pub ended: Option<u8>,
    /// No child is left, neither the command nor an orphan of it.
    pub no_children: bool,
    /// Somebody asked corewise to end (a signal that would end it).
    pub asked_to_end: bool,
}

impl Signals {
    /// Blocks the signals and opens their descriptor.
    pub fn open() -> Result<Signals, Errno> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        for signal in PASSED_ON {
            set.add(signal);
        }
        let mut inherited = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut inherited))?;
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { descriptor, inherited })
    }

    /// The mask that corewise was started with.
    pub fn inherited(&self) -> &SigSet {
        &self.inherited
    }

    /// Readable when there is a signal.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Takes in all pending signals and ended children. `command` is `None` once it has ended.
    pub fn take(&mut self, command: Option<Pid>) -> Result<News, Errno> {
        let mut news = News { asked_to_end: self.take_signals(command)?, ..News::default() };
        self.reap(command, &mut news)?;
        Ok(news)
    }

    /// Takes in all pending signals and says whether one asks to end.
    pub(crate) fn take_signals(&mut self, command: Option<Pid>) -> Result<bool, Errno> {
        let mut asked_to_end = false;
        while let Some(info) = self.descriptor.read_signal()? {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
            if signal == Signal::SIGCHLD {
                continue;
            }
            asked_to_end |= !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2);
            // What the kernel sends (the terminal's keys, a hang-up) the command gets itself.
            if info.ssi_code != libc::SI_KERNEL
                && let Some(command) = command
            {
                // It may have ended a moment ago.
                let _ = kill(command, signal);
            }
        }
        Ok(asked_to_end)
    }

    fn reap(&self, command: Option<Pid>, news: &mut News) -> Result<(), Errno> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Exited(pid, status)) if Some(pid) == command => {
                    news.ended = Some(status as u8)
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if Some(pid) == command => {
                    news.ended = Some(128 + signal as i32 as u8);
                }
                Ok(WaitStatus::Stopped(pid, _)) if Some(pid) == command && is_stopped(pid) => {
                    raise(Signal::SIGSTOP)?;
                    // Continued: whoever continued us alone meant the command.
                    let _ = kill(pid, Signal::SIGCONT);
                }
                Ok(WaitStatus::StillAlive) => return Ok(()),
                Ok(_) => {}
                Err(Errno::ECHILD) => {
                    news.no_children = true;
                    return Ok(());
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// For work of corewise's own, without a command: a flag that is set when somebody asks corewise to end.
/// Asked again, corewise ends at once, as without this.
///
/// To be called before other threads are started: they inherit that the signals are blocked. Processes that
/// `std` starts do not.
pub fn asked_to_end() -> std::io::Result<Arc<AtomicBool>> {
    let mut signals = Signals::open()?;
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    let listen = move || {
        // A descriptor that fails can tell nothing any more: better to end than to hear no wish.
        while let Ok(false) = signals.take_signals(None) {
            // Whether poll fails or not, the next reading shows whether there was a signal.
            let _ = poll(&mut [PollFd::new(signals.fd(), PollFlags::POLLIN)], PollTimeout::NONE);
        }
        flag.store(true, Ordering::Relaxed);
        // This thread alone no longer blocks them, so the next one is for it and does what it always does.
        let _ = signals.inherited().thread_set_mask();
        loop {
            std::thread::park();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(asked)
}

/// Whether the process is stopped at this moment. After Ctrl-Z and `fg`, the news of the stop is old.
fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
}
