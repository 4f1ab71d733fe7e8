//! A target that runs by itself while it is recorded: started or found, waited for, never stopped.

use super::error::BranchError;
use super::options::{Options, Target};
use corewise_sys::cgroup::ControlGroup;
use corewise_sys::launch;
use corewise_sys::proc::Proc;
use corewise_sys::signals::Signals;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often its state is checked.
const INTERVAL: Duration = Duration::from_millis(20);

/// What is running.
pub(super) struct Running {
    /// The command's words, or a name of the target.
    pub words: Vec<String>,
    /// How a command ended.
    pub exit_status: Option<ExitStatus>,
    followed: Followed,
    signals: Option<Signals>,
    begin: Instant,
}

/// What is followed.
#[derive(Debug, Clone)]
pub(super) enum Followed {
    /// A command, before its first instruction.
    Command(Pid),
    /// A process that runs.
    Process(u32),
    /// The processes of a control group.
    Cgroup(ControlGroup),
    /// All processes.
    System,
}

/// The state of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is being recorded.
    Recorded,
    /// The recording is over, but corewise waits for a command because it needs its exit status.
    Late,
    /// Nothing is left to do.
    Over,
}

impl Running {
    /// Starts or finds the target. `attach` is called before a command's first instruction, or while the
    /// target runs.
    pub fn start<Attached>(
        target: Target<'_>,
        options: &Options,
        attach: impl FnOnce(&Followed) -> Result<Attached, BranchError>,
    ) -> Result<(Running, Attached), BranchError> {
        let (words, followed) = match target {
            Target::Command(words) => {
                let mut signals = Signals::open().map_err(system("cannot open the signals"))?;
                let waiting = launch::prepare(words, &mut signals, options.output, &[])?;
                let followed = Followed::Command(waiting.pid());
                let attached = attach(&followed)?;
                waiting.start(&words[0].to_string_lossy())?;
                let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
                let signals = Some(signals);
                let begin = Instant::now();
                return Ok((Running { words, exit_status: None, followed, signals, begin }, attached));
            }
            Target::Pid(pid) => (format!("pid {pid}"), Followed::Process(pid)),
            Target::Cgroup(group) => (group.to_string(), Followed::Cgroup(group.clone())),
            Target::System => ("the system".to_owned(), Followed::System),
        };
        let attached = attach(&followed)?;
        let (words, begin) = (vec![words], Instant::now());
        Ok((Running { words, exit_status: None, followed, signals: None, begin }, attached))
    }

    /// Waits for some time.
    pub fn wait(&mut self, options: &Options) -> Result<Phase, BranchError> {
        let is_over = match (&mut self.signals, &self.followed) {
            (Some(signals), Followed::Command(pid)) => {
                let interval = PollTimeout::try_from(INTERVAL).unwrap_or(PollTimeout::ZERO);
                // An error does not matter: the next check sees everything.
                let _ = poll(&mut [PollFd::new(signals.fd(), PollFlags::POLLIN)], interval);
                let news = signals
                    .take(self.exit_status.is_none().then_some(*pid))
                    .map_err(system("cannot read signals"))?;
                self.exit_status = self.exit_status.or(news.ended);
                self.exit_status.is_some()
            }
            (_, followed) => {
                std::thread::sleep(INTERVAL);
                match followed {
                    Followed::Process(pid) => !is_alive(*pid),
                    // If it cannot be read, it is read again.
                    Followed::Cgroup(group) => group.processes().is_ok_and(|all| all.is_empty()),
                    Followed::Command(_) | Followed::System => false,
                }
            }
        };
        let is_late = options.duration.is_some_and(|duration| self.begin.elapsed() >= duration);
        Ok(match (is_over || options.stop.load(Ordering::Relaxed), is_late) {
            (true, _) => Phase::Over,
            (false, false) => Phase::Recorded,
            (false, true) if self.signals.is_some() => Phase::Late,
            (false, true) => Phase::Over,
        })
    }
}

/// Returns whether a process exists and has not ended, even if its parent has not waited for it yet.
pub(super) fn is_alive(pid: u32) -> bool {
    matches!(Proc::own().process(pid), Ok(Some(stat)) if !stat.is_zombie())
}

fn system(what: &'static str) -> impl FnOnce(Errno) -> BranchError {
    move |errno| BranchError::System { what, errno }
}
