//! Signals and children: corewise sits between a shell and a command, and neither should notice.
//!
//! Every signal is blocked and read from a descriptor. Signals to the whole process group (the terminal's
//! keys, a shell's `kill %1`) have reached the command directly; signals to corewise alone are passed on.
//! When the command stops, corewise stops with the same signal, as the shell expects of its job, and
//! continues when either is continued. When the command dies of a signal, corewise dies of it, too
//! ([`end_as`]).

use crate::inherited::{Inherited, is_ignored, set_disposition};
use crate::standard_error::{self, NeverWait};
use crate::witness::{Heard, STOPPING, Witness};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::{Pid, getpgid, getpgrp, getpid};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals that ask a program to end.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Returns the signals that ask this process to end: not those that it was started to ignore (`nohup`).
pub fn ending() -> SigSet {
    ENDING.into_iter().filter(|signal| !is_ignored(*signal)).collect()
}

/// The signals' descriptor, the witness, and what the command inherits.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
    inherited: Inherited,
    witness: Option<Witness>,
    /// Until signals have their effect again.
    _never_wait: NeverWait,
}

/// The result of the signals and ended children since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct News {
    /// The command's exit status, once it has ended.
    pub ended: Option<ExitStatus>,
    /// Whether no child is left, neither the command nor an orphan of it.
    pub no_children: bool,
    /// Whether corewise was asked to end (by a signal that would end it).
    pub asked_to_end: bool,
}

impl Signals {
    /// Takes over the signals. This process must have only one thread.
    pub fn open() -> Result<Signals, Errno> {
        let inherited = Inherited::take_over()?;
        let descriptor =
            SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        // Without a witness (no process can be created) the kernel's signals count as sent to the group.
        let witness = Witness::start().ok();
        Ok(Signals { descriptor, inherited, witness, _never_wait: standard_error::never_wait() })
    }

    /// Returns what the command inherits.
    pub(crate) fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// Does something that may take long, before anything is changed and any command runs: so long, signals
    /// that ask to end simply end this process.
    pub fn may_end_during<T>(&self, act: impl FnOnce() -> T) -> T {
        let asked: SigSet =
            ending().into_iter().filter(|signal| !self.inherited.mask().contains(*signal)).collect();
        // If it fails, the signals are heard afterwards.
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&asked), None);
        let done = act();
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&asked), None);
        done
    }

    /// Returns the process that listens to the group's signals, which belongs to corewise and not to the
    /// application.
    pub fn witness(&self) -> Option<Pid> {
        self.witness.as_ref().map(Witness::pid)
    }

    /// Closes the descriptors that corewise was started with, once the command runs: all but standard error,
    /// and standard output if it is kept.
    pub fn let_go_of_descriptors(&mut self, keep_output: bool) {
        self.inherited.let_go_of_descriptors(keep_output);
    }

    /// Returns a descriptor that is readable when there is a signal.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Must be called when the command has just been created: it did not get the group's earlier signals.
    pub(crate) fn command_created(&mut self, command: Pid) -> Result<(), Errno> {
        let _ = self.heard();
        self.take_signals(Some(command)).map(drop)
    }

    /// Takes in all pending signals and ended children. `command` is `None` once it has ended.
    pub fn take(&mut self, command: Option<Pid>) -> Result<News, Errno> {
        let mut news = News { asked_to_end: self.take_signals(command)?, ..News::default() };
        self.reap(command, &mut news)?;
        Ok(news)
    }

    /// Follows the command to its end, and does nothing else.
    pub fn follow(&mut self, command: Pid) -> Result<ExitStatus, Errno> {
        loop {
            let news = self.take(Some(command))?;
            match (news.ended, news.no_children) {
                (Some(status), _) => return Ok(status),
                (None, true) => return Err(Errno::ECHILD),
                (None, false) => {}
            }
            match ppoll(&mut [PollFd::new(self.fd(), PollFlags::POLLIN)], None, None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Takes in all pending signals and returns whether one asks to end.
    pub fn take_signals(&mut self, command: Option<Pid>) -> Result<bool, Errno> {
        let mut asked_to_end = false;
        let (signals, heard) = self.pending()?;
        for info in signals {
            let number = info.ssi_signo as i32;
            asked_to_end |= Signal::try_from(number).is_ok_and(|signal| ending().contains(signal));
            if !self.is_own_matter(&info) {
                match command {
                    Some(command) => pass_on(&info, is_for_group(&info, heard), command),
                    None => self.stop_if_asked_to(number)?,
                }
            }
        }
        Ok(asked_to_end)
    }

    /// Returns the pending signals and what the witness has heard of them, `None` if there is no witness.
    ///
    /// A signal to the group is pending for both at the same moment. So the witness has heard what was read
    /// before it was asked, and what it has heard can be read: it is asked until nothing more has come.
    fn pending(&mut self) -> Result<(Vec<siginfo>, Option<Heard>), Errno> {
        let (mut pending, mut heard) = (Vec::new(), Some(Heard::default()));
        loop {
            let known = pending.len();
            while let Some(info) = self.descriptor.read_signal()? {
                pending.push(info);
            }
            if pending[known..].iter().all(|info| self.is_own_matter(info)) {
                return Ok((pending, heard));
            }
            heard = heard.and_then(|before| Some(before | self.heard()?));
        }
    }

    /// Returns `None` if there is no witness.
    fn heard(&mut self) -> Option<Heard> {
        let heard = self.witness.as_mut()?.heard();
        if heard.is_err() {
            self.witness = None;
        }
        heard.ok()
    }

    /// Returns whether the signal was caused by corewise itself (its children, its files, its CPU time) or by
    /// the witness.
    fn is_own_matter(&self, info: &siginfo) -> bool {
        let sender = Pid::from_raw(info.ssi_pid as i32);
        let is_sent = info.ssi_code <= 0;
        match info.ssi_signo as i32 {
            libc::SIGCHLD | libc::SIGXCPU if !is_sent => true,
            _ => is_sent && (sender == getpid() || Some(sender) == self.witness()),
        }
    }

    fn reap(&mut self, command: Option<Pid>, news: &mut News) -> Result<(), Errno> {
        loop {
            let mut status = 0;
            // Not nix's, which knows no real-time signals.
            // SAFETY: the status is a valid place for the answer.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED) };
            match Errno::result(pid) {
                Ok(0) => return Ok(()),
                Ok(pid) if command.is_none_or(|command| command.as_raw() != pid) => {}
                Ok(pid) if libc::WIFSTOPPED(status) => {
                    self.stop_with(Pid::from_raw(pid), libc::WSTOPSIG(status))?;
                }
                Ok(_) => news.ended = Some(ExitStatus::from_raw(status)),
                Err(Errno::ECHILD) => {
                    news.no_children = true;
                    return Ok(());
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Stops after the command has stopped, until either is continued.
    fn stop_with(&mut self, command: Pid, signal: i32) -> Result<(), Errno> {
        if let Some(witness) = &mut self.witness
            && witness.wake_when_it_goes_on(command).is_err()
        {
            self.witness = None;
        }
        stop_by_number(signal)
    }

    fn stop_if_asked_to(&self, signal: i32) -> Result<(), Errno> {
        STOPPING.into_iter().find(|one| *one as i32 == signal).map_or(Ok(()), stop_by)
    }
}

/// The remaining work is corewise's own, and a signal may end it.
impl Drop for Signals {
    fn drop(&mut self) {
        // Signals that the command has got must not end corewise, which has a report to write; nor must the
        // limit on the size of files, which is reported as an error.
        let _ = self.take_signals(None);
        let mut mask = *self.inherited.mask();
        mask.add(Signal::SIGXFSZ);
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None);
    }
}

/// Returns whether the whole process group got the signal.
fn is_for_group(info: &siginfo, heard: Option<Heard>) -> bool {
    heard.map_or(info.ssi_code == libc::SI_KERNEL, |heard| heard.has(info.ssi_signo as i32))
}

fn pass_on(info: &siginfo, is_for_group: bool, command: Pid) {
    if is_for_group {
        // A command that a shell started alone as a job would lead the group and could not leave it.
        let has_left = getpgid(Some(command)).is_ok_and(|group| group != getpgrp());
        if !has_left || getpgrp() != getpid() {
            return;
        }
    }
    // It may have ended a moment ago.
    match info.ssi_code {
        libc::SI_QUEUE => queue(info, command),
        // SAFETY: the call takes no pointer. (Not nix's, which knows no real-time signals.)
        _ => drop(unsafe { libc::kill(command.as_raw(), info.ssi_signo as i32) }),
    }
}

/// Passes the signal on with its value.
fn queue(info: &siginfo, command: Pid) {
    let value = libc::sigval { sival_ptr: std::ptr::with_exposed_provenance_mut(info.ssi_ptr as usize) };
    // SAFETY: the value is passed on unchanged and not used as a pointer here.
    unsafe { libc::sigqueue(command.as_raw(), info.ssi_signo as i32, value) };
}

/// Stops this process by the signal that has stopped the command.
pub fn stop_by_number(signal: i32) -> Result<(), Errno> {
    stop_by(STOPPING.into_iter().find(|one| *one as i32 == signal).unwrap_or(Signal::SIGSTOP))
}

/// Stops this process by this signal, if the kernel permits it. (It does not if nobody could continue it.)
fn stop_by(signal: Signal) -> Result<(), Errno> {
    if signal == Signal::SIGSTOP {
        return kill(getpid(), signal);
    }
    let mut alone = SigSet::empty();
    alone.add(signal);
    // The command's disposition is its own, independent of what corewise has inherited.
    set_disposition(signal, SigHandler::SigDfl)?;
    kill(getpid(), signal)?;
    sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&alone), None)?;
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&alone), None)
}

/// Ends this process as the command ended: dies of the signal that killed it, without a core dump. Returns
/// the exit status to use in all other cases.
pub fn end_as(status: ExitStatus) -> u8 {
    let Some(signal) = status.signal() else { return status.code().unwrap_or(0) as u8 };
    if without_core_dump().is_ok() {
        // SAFETY: all zeros is a value of these plain structures; the kernel reads and writes references to
        // them; no handler is installed.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &action, std::ptr::null_mut());
            let mut alone: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut alone, signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &alone, std::ptr::null_mut());
            libc::kill(libc::getpid(), signal);
        }
    }
    // The first process of a container does not die of its own signals.
    shell_status(status)
}

/// Returns the exit status as a shell gives it: 128 + N for a program that signal N killed.
pub fn shell_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 0,
    }
}

fn without_core_dump() -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, 0, hard)?;
    // A program to which dumps are piped gets them regardless of the limit.
    nix::sys::prctl::set_dumpable(false)
}

/// Returns a flag that is set when corewise is asked to end, for work without a command. A second request
/// ends corewise at once, as it would without this function.
///
/// Must be called before other threads are started, which inherit the blocked signals. Programs do not: they
/// get those that corewise was started with ([`launch`](crate::launch)).
pub fn asked_to_end() -> std::io::Result<Arc<AtomicBool>> {
    let asked_for = ending();
    let before = asked_for.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    let listen = move || {
        // If this ever fails, ending is better than ignoring requests.
        let _ = asked_for.wait();
        flag.store(true, Ordering::Relaxed);
        // Only this thread no longer blocks the signals, so the next one is delivered to it with its default
        // effect.
        let _ = before.thread_set_mask();
        loop {
            std::thread::park();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// In a process of its own, whose signals they are.
    #[test]
    fn while_it_may_end_a_signal_ends_this_process_at_once() {
        const CHILD: &str = "SIGNALS_TEST";
        if std::env::var_os(CHILD).is_some() {
            let signals = Signals::open().unwrap();
            signals.may_end_during(|| {
                println!("is busy");
                std::thread::sleep(std::time::Duration::from_secs(1000));
            });
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "signals::tests::while_it_may_end_a_signal_ends_this_process_at_once"]);
        child.args(["--nocapture", "--test-threads=1"]).env(CHILD, "1").stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("is busy")));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    }
}
