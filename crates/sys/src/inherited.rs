//! What corewise was started with and has changed for itself: programs get it unchanged.
//!
//! Most of what a process inherits passes through corewise untouched: limits, umask, directory, priority,
//! affinity, session. The exceptions are here. Signals: Rust's runtime ignores SIGPIPE, corewise needs
//! SIGCHLD and blocks signals, and the C library ignores its own (32 and 33) in what it starts. Rust's
//! runtime opens `/dev/null` where a standard stream is closed. Timers and the duty to adopt orphans survive
//! `exec`, but not the `fork` that corewise does in between. All this is recorded before Rust's runtime
//! begins.

use crate::proc::Proc;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The standard streams that were closed: one bit each.
static CLOSED_STREAMS: AtomicU8 = AtomicU8::new(0);
/// The signals that were ignored: bit 0 is signal 1.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// The signals that were blocked.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static ADOPTS_ORPHANS: AtomicBool = AtomicBool::new(false);

const STANDARD_STREAMS: std::ops::RangeInclusive<RawFd> = 0..=2;
/// All signals that the kernel has.
const SIGNALS: std::ops::RangeInclusive<libc::c_int> = 1..=64;
/// The size of the kernel's sets of signals, in bytes.
const SET_BYTES: usize = size_of::<u64>();

/// Called by the C library before `main`.
#[used]
// SAFETY: the section holds pointers to functions of exactly this type.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record_start;

extern "C" fn record_start() {
    // SAFETY: the call takes no pointer and changes nothing.
    let is_closed = |stream: &RawFd| unsafe { libc::fcntl(*stream, libc::F_GETFD) } == -1;
    let closed = STANDARD_STREAMS.filter(is_closed).fold(0, |bits, stream| bits | 1 << stream);
    CLOSED_STREAMS.store(closed, Ordering::Relaxed);
    let ignored = SIGNALS.filter(|signal| KernelAction::of(*signal).is_ignored());
    IGNORED.store(ignored.fold(0, |bits, signal| bits | bit(signal)), Ordering::Relaxed);
    BLOCKED.store(swap_blocked(None), Ordering::Relaxed);
    ADOPTS_ORPHANS.store(prctl::get_child_subreaper().unwrap_or(false), Ordering::Relaxed);
    // A process that ignores it is not notified of ended children, and cannot wait for them.
    KernelAction::ignored(false).set(libc::SIGCHLD);
}

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Returns the signals that were ignored: bit 0 is signal 1.
#[cfg(test)]
pub(crate) fn ignored() -> u64 {
    IGNORED.load(Ordering::Relaxed)
}

/// Returns whether a signal was ignored.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    IGNORED.load(Ordering::Relaxed) & bit(signal as libc::c_int) != 0
}

/// What happens at a signal, as the kernel knows it. (The C library hides its own signals.)
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: libc::sighandler_t,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

impl KernelAction {
    /// Ignoring a signal, or its default.
    fn ignored(is_ignored: bool) -> KernelAction {
        let handler = if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
        KernelAction { handler, flags: 0, restorer: 0, mask: 0 }
    }

    fn of(signal: libc::c_int) -> KernelAction {
        let mut action = KernelAction::ignored(false);
        let nothing = std::ptr::null::<KernelAction>();
        // SAFETY: nothing is set, and the kernel writes to where the reference points.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, nothing, &raw mut action, SET_BYTES) };
        action
    }

    /// Sets it. Two signals cannot be set, and cannot be other than by default.
    fn set(self, signal: libc::c_int) {
        let nothing = std::ptr::null_mut::<KernelAction>();
        // SAFETY: the kernel reads the structure behind the reference; it names no handler that could run.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const self, nothing, SET_BYTES) };
    }

    fn is_ignored(self) -> bool {
        self.handler == libc::SIG_IGN
    }
}

/// Returns the signals that this thread blocks, and blocks others instead, if given.
fn swap_blocked(blocked: Option<u64>) -> u64 {
    let new = blocked.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut before = 0u64;
    // SAFETY: the kernel reads a set, if there is one, and writes to where the reference points.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, &raw mut before, SET_BYTES);
    }
    before
}

/// Closes a standard stream again that was closed, in the process that is about to execute a program.
pub(crate) fn restore_stream(stream: RawFd) {
    if CLOSED_STREAMS.load(Ordering::Relaxed) & (1 << stream) != 0 {
        // SAFETY: this process is about to execute another program and no longer uses the stream.
        unsafe { libc::close(stream) };
    }
}

/// Restores what a program inherits otherwise, likewise. Makes system calls only.
pub(crate) fn restore() -> Result<(), Errno> {
    if ADOPTS_ORPHANS.load(Ordering::Relaxed) {
        prctl::set_child_subreaper(true)?;
    }
    let ignored = IGNORED.load(Ordering::Relaxed);
    SIGNALS.for_each(|signal| KernelAction::ignored(ignored & bit(signal) != 0).set(signal));
    swap_blocked(Some(BLOCKED.load(Ordering::Relaxed)));
    Ok(())
}

const TIMERS: [libc::c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

/// The remaining time of this process's timers.
#[derive(Debug, Clone)]
pub(crate) struct Timers([libc::itimerval; 3]);

impl Timers {
    /// Stops them.
    fn stop() -> Timers {
        // SAFETY: all zeros is a value of this plain structure.
        let stopped: libc::itimerval = unsafe { std::mem::zeroed() };
        let mut timers = [stopped; 3];
        for (which, left) in TIMERS.into_iter().zip(&mut timers) {
            // SAFETY: the kernel reads one structure and writes the other, both of which are references.
            unsafe { libc::setitimer(which, &stopped, left) };
        }
        Timers(timers)
    }

    /// Lets them go on, in the process that is about to execute the command.
    pub(crate) fn go_on(&self) {
        for (which, left) in TIMERS.into_iter().zip(&self.0) {
            // SAFETY: the kernel reads the structure behind the reference; the old one is not requested.
            unsafe { libc::setitimer(which, left, std::ptr::null_mut()) };
        }
    }
}

/// What corewise has taken over in order to stand in front of one command.
#[derive(Debug)]
pub struct Inherited {
    mask: SigSet,
    timers: Timers,
    descriptors: Vec<RawFd>,
}

impl Inherited {
    /// Blocks every signal and stops all timers.
    pub(crate) fn take_over() -> Result<Inherited, Errno> {
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut mask))?;
        Ok(Inherited { mask, timers: Timers::stop(), descriptors: descriptors() })
    }

    /// Returns the timers that the command is to have.
    pub(crate) fn timers(&self) -> Timers {
        self.timers.clone()
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
