//! Attributes that corewise changes for itself and must hand on to the command unchanged.
//!
//! Most of what a process inherits passes through corewise untouched: limits, umask, directory, priority,
//! affinity, session. The exceptions are here. Rust's runtime changes two things before `main` (it ignores
//! SIGPIPE, and opens `/dev/null` where a standard stream is closed), so they are recorded before it runs.
//! corewise itself blocks every signal and needs SIGCHLD. Timers and the subreaper attribute survive `exec`,
//! but not the `fork` that corewise does in between.

use crate::proc::Proc;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// The state that Rust's runtime is about to change: a bit for each closed standard stream, and
/// [`PIPE_IGNORED`].
static AT_START: AtomicU8 = AtomicU8::new(0);
const PIPE_IGNORED: u8 = 1 << 3;
const STANDARD_STREAMS: std::ops::RangeInclusive<RawFd> = 0..=2;

/// Called by the C library before `main`.
#[used]
// SAFETY: the section holds pointers to functions of exactly this type.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record_start;

extern "C" fn record_start() {
    let mut found = 0;
    for stream in STANDARD_STREAMS {
        // SAFETY: the call takes no pointer and changes nothing.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            found |= 1 << stream;
        }
    }
    if is_ignored(libc::SIGPIPE) {
        found |= PIPE_IGNORED;
    }
    AT_START.store(found, Ordering::Relaxed);
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all zeros is a value of this plain structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and the kernel writes to where the reference points.
    let answer = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    answer == 0 && action.sa_sigaction == libc::SIG_IGN
}

const TIMERS: [libc::c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

/// The original attributes, to be handed on to the command.
#[derive(Debug)]
pub struct Inherited {
    mask: SigSet,
    ignores_children: bool,
    adopts_orphans: bool,
    timers: [libc::itimerval; 3],
    descriptors: Vec<RawFd>,
}

impl Inherited {
    /// Blocks every signal, stops all timers, and enables notification of ended children.
    pub(crate) fn take_over() -> Result<Inherited, Errno> {
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut mask))?;
        let ignores_children = is_ignored(libc::SIGCHLD);
        set_disposition(Signal::SIGCHLD, SigHandler::SigDfl)?;
        let adopts_orphans = prctl::get_child_subreaper().unwrap_or(false);
        // SAFETY: all zeros is a value of this plain structure.
        let stopped: libc::itimerval = unsafe { std::mem::zeroed() };
        let mut timers = [stopped; 3];
        for (which, left) in TIMERS.into_iter().zip(&mut timers) {
            // SAFETY: the kernel reads one structure and writes the other, both of which are references.
            unsafe { libc::setitimer(which, &stopped, left) };
        }
        Ok(Inherited { mask, ignores_children, adopts_orphans, timers, descriptors: descriptors() })
    }

    /// Restores all attributes, in the process that is about to execute the command.
    pub(crate) fn restore_for_command(&self) -> Result<(), Errno> {
        let at_start = AT_START.load(Ordering::Relaxed);
        let disposition = |ignored| if ignored { SigHandler::SigIgn } else { SigHandler::SigDfl };
        set_disposition(Signal::SIGPIPE, disposition(at_start & PIPE_IGNORED != 0))?;
        set_disposition(Signal::SIGCHLD, disposition(self.ignores_children))?;
        for stream in STANDARD_STREAMS.filter(|stream| at_start & (1 << stream) != 0) {
            // SAFETY: this process is about to execute another program and no longer uses the stream.
            unsafe { libc::close(stream) };
        }
        if self.adopts_orphans {
            prctl::set_child_subreaper(true)?;
        }
        for (which, left) in TIMERS.into_iter().zip(&self.timers) {
            // SAFETY: the kernel reads the structure behind the reference; the old one is not requested.
            unsafe { libc::setitimer(which, left, std::ptr::null_mut()) };
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }

    /// Closes the descriptors that corewise was started with, once the command has them, so that the reader
    /// of a pipe sees its end when the command closes it. Standard error stays open for messages.
    pub(crate) fn let_go_of_descriptors(&mut self, keep_output: bool) {
        if let Ok(nothing) = std::fs::File::options().read(true).write(true).open("/dev/null") {
            for stream in [0, 1].into_iter().filter(|stream| *stream == 0 || !keep_output) {
                // SAFETY: both are open, and nothing in this process relies on what the stream was.
                unsafe { libc::dup2(nothing.as_raw_fd(), stream) };
            }
        }
        for descriptor in self.descriptors.drain(..) {
            // SAFETY: it was open before this program began, so nothing in it owns the descriptor.
            unsafe { libc::close(descriptor) };
        }
    }

    /// Returns the signals that were blocked.
    pub(crate) fn mask(&self) -> &SigSet {
        &self.mask
    }
}

/// Restores the default disposition of a signal.
pub fn reset_disposition(signal: Signal) -> Result<(), Errno> {
    set_disposition(signal, SigHandler::SigDfl)
}

pub(crate) fn set_disposition(signal: Signal, handler: SigHandler) -> Result<(), Errno> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: only called to ignore a signal or to restore its default: no handler could run.
    unsafe { sigaction(signal, &action) }.map(drop)
}

/// Returns the descriptors that survived the `exec` of corewise, except the standard streams; those that
/// corewise opens itself do not survive one. If `/proc` cannot be read the result is empty, and they stay
/// open until the end.
fn descriptors() -> Vec<RawFd> {
    let outlives_exec = |descriptor: &RawFd| {
        // SAFETY: the call takes no pointer and changes nothing.
        let flags = unsafe { libc::fcntl(*descriptor, libc::F_GETFD) };
        flags != -1 && flags & libc::FD_CLOEXEC == 0
    };
    let open = Proc::own().own_descriptors().into_iter();
    open.filter(|descriptor| !STANDARD_STREAMS.contains(descriptor)).filter(outlives_exec).collect()
}
