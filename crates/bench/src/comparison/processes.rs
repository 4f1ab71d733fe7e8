//! Starts the applications of a workload, waits for them, and leaves nothing behind.

use super::attendant::Attendant;
use super::error::RunError;
use super::output::Streams;
use corewise_core::comparison::{Completion, Workload};
use corewise_sys::launch::Launch;
use corewise_sys::proc::Proc;
use corewise_sys::signals::ending;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// How long processes that outlive their command may take to end by themselves.
const GRACE: Duration = Duration::from_millis(500);
/// How long a process may take to end after it is asked to.
const PATIENCE: Duration = Duration::from_secs(2);

/// The measurements of a workload's run.
#[derive(Debug)]
pub struct Ended {
    /// Time from the first start until all applications have completed.
    pub wall: Duration,
    /// Time until no process was left.
    pub whole: Duration,
    /// CPU time in user mode of all processes that have ended.
    pub user: Duration,
    /// CPU time in the kernel, likewise.
    pub system: Duration,
    /// How long each application took.
    pub completions: Vec<Completion>,
    /// The index of the first application that failed, and its exit status.
    pub failure: Option<(usize, ExitStatus)>,
    /// The number of processes that had to be ended.
    pub left_behind: u32,
    /// Whether it exceeded the timeout.
    pub timed_out: bool,
    /// Whether corewise was continued meanwhile, after it was stopped.
    pub continued: bool,
}

/// What ends a run before its workload has completed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Until {
    /// Continue if an application fails.
    pub ignore_failure: bool,
    /// End after this time.
    pub timeout: Option<Duration>,
}

/// The children of this process, and the signals that announce their end.
#[derive(Debug)]
pub struct Processes {
    signals: SignalFd,
    attendant: Attendant,
    /// Whether corewise was continued in the present run.
    continued: bool,
}

impl Processes {
    /// Blocks the signals, and adopts orphans from now on.
    pub fn open() -> Result<Processes, RunError> {
        let attendant = Attendant::start().map_err(RunError::Attendant)?;
        let mut signals = ending();
        signals.add(Signal::SIGCHLD);
        signals.add(Signal::SIGCONT);
        signals.thread_block()?;
        nix::sys::prctl::set_child_subreaper(true)?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Processes { signals, attendant, continued: false })
    }

    /// Returns how long time stood still since the last call; zero if the attendant was killed.
    pub fn stood_still(&mut self) -> Duration {
        self.attendant.stood_still().unwrap_or_default()
    }

    /// Runs a workload until it has completed, an application fails (unless that is ignored), or the timeout
    /// passes. Returns `None` if corewise was asked to end. No process is left in any case.
    pub fn run(
        &mut self,
        workload: &Workload,
        streams: &Streams,
        until: Until,
    ) -> Result<Option<Ended>, RunError> {
        self.continued = false;
        let mut round = Round::new(workload, until.timeout, self.attendant.pid());
        let result = self.follow(&mut round, streams, until.ignore_failure);
        let (wall, timed_out) = (round.begin.elapsed(), round.is_late());
        let over = matches!(result, Ok(true)) && round.running.is_empty();
        let left_behind = self.end(&mut round, if over { GRACE } else { Duration::ZERO })?;
        if !result? {
            return Ok(None);
        }
        let wall = round.last_end.map_or(wall, |end| end.duration_since(round.begin));
        Ok(Some(Ended {
            timed_out,
            wall: round.time_of_one().unwrap_or(wall),
            whole: round.begin.elapsed(),
            user: round.user,
            system: round.system,
            completions: round.completions(),
            failure: round.failure,
            left_behind: if over { left_behind } else { 0 },
            continued: self.continued,
        }))
    }

    /// Returns `false` if corewise was asked to end.
    fn follow(
        &mut self,
        round: &mut Round<'_>,
        streams: &Streams,
        ignore_failure: bool,
    ) -> Result<bool, RunError> {
        loop {
            let next = round.start_due(streams)?;
            if self.wait(next)? {
                return Ok(false);
            }
            reap(round)?;
            if round.is_over() || round.is_late() || (round.failure.is_some() && !ignore_failure) {
                return Ok(true);
            }
        }
    }

    /// Waits until a child ends or the timeout passes. Returns whether corewise was asked to end.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Errno> {
        // Rounded up: what is due at the timeout must be due after the wait.
        let timeout = timeout.map(|left| left + Duration::from_millis(1));
        let timeout =
            timeout.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        match poll(&mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut asked_to_end = false;
        while let Some(info) = self.signals.read_signal()? {
            match info.ssi_signo as i32 {
                libc::SIGCHLD => {}
                libc::SIGCONT => self.continued = true,
                _ => asked_to_end = true,
            }
        }
        Ok(asked_to_end)
    }

    /// Ends the remaining processes after a grace time; returns the number of processes that had to be ended.
    fn end(&mut self, round: &mut Round<'_>, grace: Duration) -> Result<u32, Errno> {
        if self.all_end_within(round, grace)? {
            return Ok(0);
        }
        let left = round.children().len() as u32;
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            round.signal(signal);
            if self.all_end_within(round, PATIENCE)? {
                break;
            }
        }
        // Orphans of a killed process become children.
        while !self.all_end_within(round, Duration::from_millis(10))? {
            round.signal(Signal::SIGKILL);
        }
        Ok(left)
    }

    fn all_end_within(&mut self, round: &mut Round<'_>, time: Duration) -> Result<bool, Errno> {
        let end = Instant::now() + time;
        loop {
            if !reap(round)? {
                return Ok(true);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.wait(Some(left))?;
        }
    }
}

/// Reaps every child that has ended; returns whether one is left.
fn reap(round: &mut Round<'_>) -> Result<bool, Errno> {
    loop {
        let mut status = 0;
        // SAFETY: all zeros is a value of this plain structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: status and usage are valid places for the answers.
        let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) };
        match Errno::result(pid) {
            Ok(0) => return Ok(true),
            Ok(pid) => round.ended(pid as u32, ExitStatus::from_raw(status), &usage),
            Err(Errno::ECHILD) => return Ok(false),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// One run of a workload.
struct Round<'a> {
    workload: &'a Workload,
    /// A child of this process that is not part of the run.
    attendant: Pid,
    begin: Instant,
    /// When the fixed time ends, for a run of a fixed time.
    fixed_end: Option<Instant>,
    /// When the timeout passes.
    late: Option<Instant>,
    /// When each application is started next, if at all.
    due: Vec<Option<Instant>>,
    /// The index and start time of each running application, by its process.
    running: BTreeMap<u32, (usize, Instant)>,
    /// How often each application has completed, and its total time.
    completed: Vec<(u32, Duration)>,
    last_end: Option<Instant>,
    failure: Option<(usize, ExitStatus)>,
    user: Duration,
    system: Duration,
}

impl Round<'_> {
    fn new(workload: &Workload, timeout: Option<Duration>, attendant: Pid) -> Round<'_> {
        let begin = Instant::now();
        let due = |start: f64| Some(begin + Duration::from_secs_f64(start));
        Round {
            workload,
            attendant,
            begin,
            fixed_end: workload.fixed_seconds.map(|seconds| begin + Duration::from_secs_f64(seconds)),
            late: timeout.and_then(|timeout| begin.checked_add(timeout)),
            due: workload.applications.iter().map(|one| due(one.start_seconds)).collect(),
            running: BTreeMap::new(),
            completed: vec![(0, Duration::ZERO); workload.applications.len()],
            last_end: None,
            failure: None,
            user: Duration::ZERO,
            system: Duration::ZERO,
        }
    }

    /// Starts the applications that are due; returns the time until the next event.
    fn start_due(&mut self, streams: &Streams) -> Result<Option<Duration>, RunError> {
        for (index, application) in self.workload.applications.iter().enumerate() {
            let now = Instant::now();
            if self.due[index].is_some_and(|due| due <= now) {
                let [input, output, error] = streams.of(index)?;
                let launch = Launch::of(&application.command)?.leading_a_group();
                let launch = match &application.pes {
                    Some(pes) => launch.pes(pes.clone()),
                    None => launch,
                };
                let running = launch.input(input).output(output).error(error).start()?;
                self.running.insert(running.pid().as_raw() as u32, (index, now));
                self.due[index] = None;
            }
        }
        let next = self.due.iter().flatten().chain(&self.fixed_end).chain(&self.late).min();
        Ok(next.map(|due| due.saturating_duration_since(Instant::now())))
    }

    fn ended(&mut self, pid: u32, status: ExitStatus, usage: &libc::rusage) {
        let duration = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        self.user += duration(usage.ru_utime);
        self.system += duration(usage.ru_stime);
        let Some((index, start)) = self.running.remove(&pid) else { return };
        if self.is_over() {
            return;
        }
        let now = Instant::now();
        let (times, time) = &mut self.completed[index];
        *times += 1;
        *time += now.duration_since(start);
        if !status.success() {
            self.failure.get_or_insert((index, status));
        }
        if self.is_over() {
            self.last_end = Some(now);
        } else if self.workload.completions > 1 || self.fixed_end.is_some() {
            self.due[index] = Some(now);
        }
    }

    /// Returns whether every application has completed often enough, or the fixed time has passed.
    fn is_over(&self) -> bool {
        if let Some(end) = self.fixed_end {
            return Instant::now() >= end;
        }
        self.completed.iter().all(|(times, _)| *times >= self.workload.completions)
    }

    /// Returns whether the timeout has passed.
    fn is_late(&self) -> bool {
        !self.is_over() && self.late.is_some_and(|late| Instant::now() >= late)
    }

    /// Returns, for a run of a fixed time, the geometric mean over the applications of the time of one
    /// completion; zero if one has not completed.
    fn time_of_one(&self) -> Option<Duration> {
        self.fixed_end?;
        let logs = self.completed.iter().map(|(times, time)| (time.as_secs_f64() / f64::from(*times)).ln());
        let mean = logs.sum::<f64>() / self.completed.len() as f64;
        Some(Duration::try_from_secs_f64(mean.exp()).unwrap_or_default())
    }

    /// Sends a signal to the groups of the running applications and to adopted orphans. Orphans that are
    /// adopted only afterwards get it the next time.
    fn signal(&self, signal: Signal) {
        for &leader in self.running.keys() {
            let _ = kill(Pid::from_raw(-(leader as i32)), signal);
        }
        for child in self.children() {
            let _ = kill(child, signal);
        }
    }

    /// Returns the run's processes among the children of this process, which has one thread.
    fn children(&self) -> Vec<Pid> {
        let children = Proc::own().children(std::process::id()).unwrap_or_default();
        let children = children.into_iter().map(|pid| Pid::from_raw(pid as i32));
        children.filter(|pid| *pid != self.attendant).collect()
    }

    fn completions(&self) -> Vec<Completion> {
        let of =
            |(application, (times, time)): (&corewise_core::comparison::Application, &(u32, Duration))| {
                Completion {
                    application: application.name.clone(),
                    seconds: time.as_secs_f64() / f64::from((*times).max(1)),
                    times: *times,
                }
            };
        self.workload.applications.iter().zip(&self.completed).map(of).collect()
    }
}
