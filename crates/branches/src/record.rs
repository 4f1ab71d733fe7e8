//! Runs a [`Sampler`] on a target from beginning to end.

use super::error::BranchError;
use super::event::Periods;
use super::options::{Options, Target};
use super::ptrace::{self, Status};
use super::recorded::{Progress, Recorded};
use super::trace::Lengths;
use super::tracer::{News, Sampler, Tracer};
use corewise_sys::launch::{self, LaunchError};
use corewise_sys::signals::{self, Signals};
use nix::errno::Errno;
use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, kill, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::{Pid, gettid};
use std::ffi::OsString;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often requests to end are checked and progress is reported.
const TICK: Duration = Duration::from_millis(50);
/// The number of ticks between checks of the signals that programs handle, and of what they have started.
const TICKS_PER_CHECK: u32 = 20;

/// Whether a tick has come since the last check. (A busy tracer never waits long enough to be interrupted.)
static TICKED: AtomicBool = AtomicBool::new(false);

/// Interrupts this thread's waiting at every tick.
struct Ticks {
    _timer: Timer,
}

impl Ticks {
    fn start() -> Result<Ticks, Errno> {
        let action = SigAction::new(SigHandler::SigAction(alarm), SaFlags::SA_SIGINFO, SigSet::empty());
        // SAFETY: the handler writes an atomic only; the signal is there to interrupt a system call.
        unsafe { sigaction(Signal::SIGALRM, &action) }?;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGALRM);
        mask.thread_unblock()?;
        let notify =
            SigevNotify::SigevThreadId { signal: Signal::SIGALRM, thread_id: gettid().as_raw(), si_value: 0 };
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?;
        timer.set(Expiration::Interval(TICK.into()), TimerSetTimeFlags::empty())?;
        Ok(Ticks { _timer: timer })
    }
}

/// Returns whether a SIGALRM came from elsewhere than from the ticks.
static ALARM_WAS_SENT: AtomicBool = AtomicBool::new(false);

extern "C" fn alarm(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel calls a handler of this kind with a valid pointer.
    let is_tick = unsafe { (*info).si_code } == libc::SI_TIMER;
    (if is_tick { &TICKED } else { &ALARM_WAS_SENT }).store(true, Ordering::Relaxed);
}

/// A started command to be recorded.
struct Command {
    pid: i32,
    signals: Signals,
    starting: Option<JoinHandle<Result<Pid, LaunchError>>>,
    exit_status: Option<ExitStatus>,
}

/// Records with a sampler.
pub fn record(
    target: Target<'_>,
    options: &Options,
    name: &str,
    sampler: &mut dyn Sampler,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    let seed = Instant::now().elapsed().as_nanos() as u64 ^ u64::from(std::process::id());
    let mut tracer = Tracer::new(sampler, Lengths::new(options), Periods::new(options.period, seed));
    let (words, mut command) = match target {
        Target::Command(command) => {
            let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            (words, Some(Command::start(command, options, &mut tracer)?))
        }
        Target::Pid(pid) => {
            tracer.attach(pid as i32).map_err(|errno| match errno {
                Errno::ESRCH => BranchError::NoProcess(pid),
                errno => BranchError::Follow { pid, errno },
            })?;
            (vec![format!("pid {pid}")], None)
        }
        Target::Cgroup(_) | Target::System => return Err(BranchError::OneProcessOnly(options.backend)),
    };
    let ticks = Ticks::start();
    let _ticks = ticks.map_err(|errno| BranchError::System { what: "cannot start a timer", errno })?;
    let ended = follow(&mut tracer, command.as_mut(), options, on_progress);
    for (tid, status) in tracer.detach() {
        command.iter_mut().for_each(|command| command.heard_of_end(tid, status));
    }
    ended?;
    let exit_status = command.map(Command::finish).transpose()?;
    let pauses = std::mem::take(&mut tracer.collected.pauses);
    let mut recording = tracer.collected.into_recording();
    recording.command = words;
    recording.backend = name.to_owned();
    Ok(Recorded { recording, exit_status, pauses })
}

/// Follows the target until nothing is left or an end is requested.
fn follow(
    tracer: &mut Tracer<'_>,
    mut command: Option<&mut Command>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<(), BranchError> {
    let system = |what| move |errno| BranchError::System { what, errno };
    let begin = Instant::now();
    let mut ticks = 0;
    loop {
        match tracer.wait().map_err(system("cannot follow the threads"))? {
            News::None => {}
            News::Ended(tid, status) => {
                if let Some(command) = command.as_mut() {
                    command.heard_of_end(tid, status);
                }
                if command
                    .as_ref()
                    .map_or(tracer.thread_count() == 0, |command| command.exit_status.is_some())
                {
                    return Ok(());
                }
            }
            News::NoneLeft => return Ok(()),
        }
        if TICKED.swap(false, Ordering::Relaxed) {
            ticks += 1;
            if let Some(command) = command.as_mut() {
                command.pass_signals().map_err(system("cannot read signals"))?;
            }
            if ticks % TICKS_PER_CHECK == 0 {
                tracer.check_signals();
                tracer.follow_untraced();
            }
            let (windows, processes) = (tracer.collected.window_count(), tracer.process_count());
            on_progress(Progress { windows, processes });
        }
        if let Some((tid, signal)) = tracer.stopped.take()
            && command.as_ref().is_some_and(|command| command.pid == tid)
        {
            signals::stop_by_number(signal).map_err(system("cannot stop with the command"))?;
        }
        if let Some(errno) = tracer.refused() {
            return Err(BranchError::Clock(errno));
        }
        let is_over = options.duration.is_some_and(|duration| begin.elapsed() >= duration);
        if is_over || options.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

impl Command {
    fn start(words: &[OsString], options: &Options, tracer: &mut Tracer<'_>) -> Result<Command, BranchError> {
        let system = |what| move |errno| BranchError::System { what, errno };
        let mut signals = Signals::open().map_err(system("cannot open the signals"))?;
        let waiting = launch::prepare(words, &mut signals, options.output, &[])?;
        let pid = waiting.pid().as_raw();
        tracer.attach_child(pid).map_err(|errno| BranchError::Follow { pid: pid as u32, errno })?;
        let name = words[0].to_string_lossy().into_owned();
        // Another thread waits for its start, because it may first stop for a signal, which must be received
        // here.
        let starting = Some(std::thread::spawn(move || waiting.start(&name)));
        Ok(Command { pid, signals, starting, exit_status: None })
    }

    fn heard_of_end(&mut self, tid: i32, status: ExitStatus) {
        if tid == self.pid {
            self.exit_status = Some(status);
        }
    }

    fn pass_signals(&mut self) -> Result<(), Errno> {
        let pid = self.exit_status.is_none().then(|| Pid::from_raw(self.pid));
        if ALARM_WAS_SENT.swap(false, Ordering::Relaxed)
            && let Some(pid) = pid
        {
            // It may have ended a moment ago.
            let _ = kill(pid, Signal::SIGALRM);
        }
        self.signals.take_signals(pid).map(|_| ())
    }

    /// Waits for the command's end, if it has not ended while it was followed; returns its exit status.
    fn finish(mut self) -> Result<ExitStatus, BranchError> {
        if let Some(starting) = self.starting.take() {
            starting.join().expect("starting does not panic")?;
        }
        while self.exit_status.is_none() {
            // It is no longer followed, so it is an ordinary child.
            match ptrace::wait_any() {
                Ok((tid, Status::Ended(status))) => self.heard_of_end(tid, status),
                Ok(_) => {}
                Err(Errno::EINTR) => {
                    self.pass_signals().map_err(|errno| BranchError::System { what: "signals", errno })?;
                }
                Err(errno) => return Err(BranchError::System { what: "cannot wait for the command", errno }),
            }
        }
        Ok(self.exit_status.expect("the loop ends with one"))
    }
}
