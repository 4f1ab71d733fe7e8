//! What a command must get as corewise got it, though something on the way has changed it.
//!
//! Most of what a process inherits passes through corewise untouched: limits, umask, directory, priority,
//! affinity, session. The exceptions stand here. Rust's runtime changes two things before `main` (it ignores
//! SIGPIPE, and opens `/dev/null` where a standard stream is closed), so they are looked at before it runs.
//! corewise itself blocks every signal and needs SIGCHLD; and timers and the duty to adopt orphans pass over
//! `exec`, but not over the `fork` that corewise puts in between.

use crate::proc::Proc;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// What Rust's runtime is about to change: a bit for each closed standard stream, and [`PIPE_IGNORED`].
static AT_START: AtomicU8 = AtomicU8::new(0);
const PIPE_IGNORED: u8 = 1 << 3;
const STANDARD_STREAMS: std::ops::RangeInclusive<RawFd> = 0..=2;

/// Called by the C library before `main`.
#[used]
// SAFETY: the section holds pointers to functions of just this kind.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_start;

extern "C" fn look_at_start() {
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

/// What corewise has taken over, to be handed on to the command.
#[derive(Debug)]
pub struct Inherited {
    mask: SigSet,
    ignores_children: bool,
    adopts_orphans: bool,
    timers: [libc::itimerval; 3],
    descriptors: Vec<RawFd>,
}

impl Inherited {
    /// From now on every signal is blocked, no timer runs, and the end of children is heard of.
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

    /// In the process that becomes the command, as the last thing before: gives it everything.
    pub(crate) fn hand_on(&self) -> Result<(), Errno> {
        let at_start = AT_START.load(Ordering::Relaxed);
        let disposition = |ignored| if ignored { SigHandler::SigIgn } else { SigHandler::SigDfl };
        set_disposition(Signal::SIGPIPE, disposition(at_start & PIPE_IGNORED != 0))?;
        set_disposition(Signal::SIGCHLD, disposition(self.ignores_children))?;
        for stream in STANDARD_STREAMS.filter(|stream| at_start & (1 << stream) != 0) {
            // SAFETY: this process is about to become another and uses the stream no more.
            unsafe { libc::close(stream) };
        }
        if self.adopts_orphans {
            prctl::set_child_subreaper(true)?;
        }
        for (which, left) in TIMERS.into_iter().zip(&self.timers) {
            // SAFETY: the kernel reads the structure behind the reference; the old one is not asked for.
            unsafe { libc::setitimer(which, left, std::ptr::null_mut()) };
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }

    /// Once the command has them, corewise lets go of the descriptors that it was started with, so that
    /// whoever reads from a pipe sees its end when the command closes it. Standard error it keeps, to speak
    /// on.
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

    /// The signals that were blocked.
    pub(crate) fn mask(&self) -> &SigSet {
        &self.mask
    }
}

/// Leaves a signal to the kernel again.
pub fn reset_disposition(signal: Signal) -> Result<(), Errno> {
    set_disposition(signal, SigHandler::SigDfl)
}

pub(crate) fn set_disposition(signal: Signal, handler: SigHandler) -> Result<(), Errno> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: it is only called to ignore a signal or to leave it to the kernel: no handler could run.
    unsafe { sigaction(signal, &action) }.map(drop)
}

/// The descriptors that outlived the `exec` of corewise, beside the standard streams: what corewise opens
/// itself does not outlive one. Where `/proc` cannot be read, none is known, and they stay open until the
/// end.
fn descriptors() -> Vec<RawFd> {
    let outlives_exec = |descriptor: &RawFd| {
        // SAFETY: the call takes no pointer and changes nothing.
        let flags = unsafe { libc::fcntl(*descriptor, libc::F_GETFD) };
        flags != -1 && flags & libc::FD_CLOEXEC == 0
    };
    let open = Proc::own().own_descriptors().into_iter();
    open.filter(|descriptor| !STANDARD_STREAMS.contains(descriptor)).filter(outlives_exec).collect()
}
