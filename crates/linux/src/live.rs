//! The real machine as a World: observes the threads of one application and changes them by an actuator.

use crate::actuator::Actuator;
use crate::binding::affinity;
use crate::counters::CounterSource;
use crate::discovery::{Discovery, DiscoveryError, ThreadFacts};
use crate::signals::Signals;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::{
    ApplicationReading, CounterReading, Hints, Observation, Standing, ThreadReading,
};
use corewise_core::plan::{Action, Outcome};
use corewise_core::time::Time;
use corewise_core::world::{Wake, World};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The real machine.
pub struct LiveWorld {
    parts: Parts,
    started: Instant,
    command: Option<Pid>,
    exit_status: Option<ExitStatus>,
    /// The PEs that corewise itself may use: what user and cpuset allow the whole application.
    baseline: Arc<CpuSet>,
    outcomes: Vec<Outcome>,
    watching: bool,
    finished: bool,
    /// Since when the present round is under way.
    woken: Option<Instant>,
    rounds: Vec<Duration>,
}

/// What a live world is made of.
pub struct Parts {
    /// The application's name.
    pub name: Arc<str>,
    /// The command's process.
    pub command: Pid,
    /// The source of threads.
    pub discovery: Box<dyn Discovery>,
    /// The source of counters.
    pub counters: Box<dyn CounterSource>,
    /// What changes threads.
    pub actuator: Box<dyn Actuator>,
    /// The signals.
    pub signals: Signals,
    /// Whether what outlives the command is followed to its end.
    pub wait: bool,
}

/// What can go wrong with the machine as a whole.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Threads cannot be discovered any more.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// A system call that cannot fail did.
    #[error("{call} failed: {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// The system's answer.
        errno: Errno,
    },
}

impl LiveWorld {
    /// The world around a command that is about to run.
    pub fn new(parts: Parts, started: Instant) -> Result<Self, LiveError> {
        Ok(Self {
            command: Some(parts.command),
            parts,
            started,
            exit_status: None,
            baseline: Arc::new(own_mask()?),
            outcomes: Vec::new(),
            watching: true,
            finished: false,
            woken: None,
            rounds: Vec::new(),
        })
    }

    /// How the command ended, once it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.exit_status
    }

    /// How long each round took, from waking up to the last action carried out.
    pub fn rounds(&self) -> &[Duration] {
        &self.rounds
    }

    /// What the sources could not see, in words.
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles = self.parts.discovery.losses();
        troubles.extend(self.parts.counters.troubles());
        troubles.extend(self.parts.actuator.troubles());
        troubles
    }

    /// After an error: gives everything back, and from then on only follows the command to its end.
    pub fn stop_watching(&mut self) {
        self.watching = false;
        self.parts.actuator.give_back();
    }

    fn system(call: &'static str) -> impl Fn(Errno) -> LiveError {
        move |errno| LiveError::System { call, errno }
    }

    /// Takes in whatever has happened.
    fn refresh(&mut self) -> Result<(), LiveError> {
        if self.watching {
            for thread in self.parts.discovery.refresh()? {
                self.parts.counters.watch(&thread);
            }
            self.parts.counters.drain();
        }
        let news = self.parts.signals.take(self.command).map_err(Self::system("waitpid"))?;
        if news.ended.is_some() {
            self.exit_status = news.ended;
            self.command = None;
        }
        // As long as the command runs, a signal is its matter.
        self.finished |=
            news.no_children || (self.command.is_none() && (!self.parts.wait || news.asked_to_end));
        Ok(())
    }

    fn reading(&mut self, facts: ThreadFacts) -> ThreadReading {
        let counters = match facts.ended {
            true => self.parts.counters.last(facts.tid),
            false => self.parts.counters.read(facts.tid),
        };
        self.reading_with(facts, counters)
    }

    fn reading_with(&mut self, facts: ThreadFacts, counters: Option<CounterReading>) -> ThreadReading {
        let (standing, permitted) = if facts.ended {
            self.parts.actuator.forget(&facts);
            (Standing::Free, self.baseline.clone())
        } else {
            self.parts.actuator.standing(&facts)
        };
        ThreadReading {
            thread: ThreadId { tid: facts.tid, generation: facts.generation },
            pid: facts.pid,
            app: AppId(0),
            name: facts.name,
            cpu_ns: facts.cpu_ns,
            runnable_ns: facts.runnable_ns,
            runnable: facts.runnable,
            last_pe: facts.last_pe,
            standing,
            permitted,
            counters,
            hints: Hints::default(),
            ended: facts.ended,
        }
    }
}

impl World for LiveWorld {
    type Error = LiveError;

    fn now(&self) -> Time {
        Time(self.started.elapsed().as_nanos() as u64)
    }

    fn observe(&mut self) -> Result<Observation, LiveError> {
        self.baseline = Arc::new(own_mask()?);
        self.parts.actuator.begin_look(&self.baseline);
        let facts = self.parts.discovery.threads()?;
        let processes: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.pid).collect();
        self.parts.actuator.retain_processes(&processes);
        // What the counters know of those who have ended is complete now.
        self.parts.counters.drain();
        let living: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.tid).collect();
        let mut threads: Vec<ThreadReading> = facts.into_iter().map(|facts| self.reading(facts)).collect();
        for (facts, reading) in self.parts.counters.unclaimed(&living) {
            threads.push(self.reading_with(facts, Some(reading)));
        }
        let parallelism = self.parts.discovery.parallelism();
        Ok(Observation {
            at: self.now(),
            allowed: CpuSet::clone(&self.baseline),
            threads,
            applications: vec![ApplicationReading {
                app: AppId(0),
                name: self.parts.name.clone(),
                runnable_thread_ns: parallelism.runnable_thread_ns,
                active_ns: parallelism.active_ns,
                sequential_ns: parallelism.sequential_ns,
                runnable_max: parallelism.runnable_max,
                exact: parallelism.exact,
            }],
            outcomes: std::mem::take(&mut self.outcomes),
            own_cpu_ns: own_cpu_ns(),
        })
    }

    fn apply(&mut self, actions: &[Action]) {
        self.outcomes.extend(self.parts.actuator.apply(actions));
        self.rounds.extend(self.woken.take().map(|woken| woken.elapsed()));
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, LiveError> {
        loop {
            self.woken = Some(Instant::now());
            self.refresh()?;
            if self.finished {
                return Ok(Wake::Finished);
            }
            let left = deadline.since(self.now());
            if left.is_zero() {
                return Ok(Wake::Deadline);
            }
            let mut nap = left;
            let mut descriptors = vec![PollFd::new(self.parts.signals.fd(), PollFlags::POLLIN)];
            if self.watching {
                nap = self.parts.discovery.refresh_within().map_or(left, |within| within.min(left));
                let wakers = self.parts.discovery.wake_fd().into_iter().chain(self.parts.counters.wake_fd());
                descriptors.extend(wakers.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            }
            match poll(&mut descriptors, timeout(nap)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(Self::system("poll")(errno)),
            }
        }
    }
}

/// Whatever ended the run, nothing stays bound.
impl Drop for LiveWorld {
    fn drop(&mut self) {
        self.parts.actuator.give_back();
    }
}

/// Rounded up, so that a short rest of time does not become a busy loop.
fn timeout(nap: Duration) -> PollTimeout {
    let ms = nap.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
}

fn own_mask() -> Result<CpuSet, LiveError> {
    affinity::get(0).map_err(LiveWorld::system("sched_getaffinity"))
}

fn own_cpu_ns() -> u64 {
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| (usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds()) as u64)
        .unwrap_or(0)
}

/// The most memory that this process has held so far. (Not `getrusage`'s maximum, which begins with that of
/// the process that started it.)
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
