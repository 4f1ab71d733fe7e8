//! The real machine as a World: observes the threads of one application and binds them.

use crate::binding::guardian::Guardian;
use crate::binding::hands::{Basis, Hands};
use crate::binding::ledger::{Entry, Ledger};
use crate::binding::restore::seen;
use crate::binding::{affinity, task};
use crate::counters::CounterSource;
use crate::discovery::{Discovery, DiscoveryError, ThreadFacts};
use crate::environment;
use crate::signals::Signals;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::{
    ApplicationReading, CounterReading, Hints, Observation, Standing, ThreadReading,
};
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind};
use corewise_core::time::Time;
use corewise_core::world::{Wake, World};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The real machine.
pub struct LiveWorld {
    parts: Parts,
    hands: Option<Hands>,
    started: Instant,
    command: Option<Pid>,
    exit_status: Option<ExitStatus>,
    /// The PEs that corewise itself may use: what user and cpuset allow the whole application.
    baseline: Arc<CpuSet>,
    processes: HashMap<u32, Process>,
    /// When the threads were looked at last, as a time of start.
    observed: u64,
    /// The free threads whose user lets them have fewer PEs than corewise, with these.
    limited: HashMap<u32, Arc<CpuSet>>,
    /// Threads whose masks were a surprise, with their generations; and those of the last look.
    doubts: HashSet<(u32, u64)>,
    earlier_doubts: HashSet<(u32, u64)>,
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
    /// The signals.
    pub signals: Signals,
    /// Whether what outlives the command is followed to its end.
    pub wait: bool,
}

/// What is remembered of a process.
struct Process {
    /// The name of its first thread when its environment was read: another name means another program.
    name: Arc<str>,
    /// Whether its user placed its threads by an environment variable.
    user_placed: bool,
    /// The mask that the process started with: what its user gave it.
    permitted: Arc<CpuSet>,
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
    /// The world around a command that is about to run. With a guardian it may bind threads, without it only
    /// looks on.
    pub fn new(parts: Parts, guardian: Option<Guardian>, started: Instant) -> Result<Self, LiveError> {
        let baseline = Arc::new(own_mask()?);
        let hands = guardian.map(|guardian| Hands::new(guardian, parts.discovery.followed()));
        let hands = hands.transpose().map_err(Self::system("sched_setaffinity"))?;
        let mut world = Self {
            command: Some(parts.command),
            parts,
            hands,
            started,
            exit_status: None,
            baseline,
            processes: HashMap::new(),
            observed: 0,
            limited: HashMap::new(),
            doubts: HashSet::new(),
            earlier_doubts: HashSet::new(),
            outcomes: Vec::new(),
            watching: true,
            finished: false,
            woken: None,
            rounds: Vec::new(),
        };
        // Orphans become children of corewise.
        world.with_hands(|hands| hands.note_member(std::process::id()));
        Ok(world)
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
        troubles.extend(self.hands.iter().flat_map(Hands::notes));
        troubles
    }

    /// After an error: gives everything back, and from then on only follows the command to its end.
    pub fn stop_watching(&mut self) {
        self.watching = false;
        self.let_go();
    }

    fn let_go(&mut self) {
        if let Some(hands) = self.hands.take() {
            hands.let_go();
        }
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
        let (standing, permitted) =
            if facts.ended { (Standing::Free, self.baseline.clone()) } else { self.standing(&facts) };
        if facts.ended {
            self.with_hands(|hands| hands.forget(facts.tid, facts.generation));
        }
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

    /// Who decides where the thread runs, and where its user lets it run.
    fn standing(&mut self, facts: &ThreadFacts) -> (Standing, Arc<CpuSet>) {
        let Ok(mask) = affinity::get(facts.tid) else { return (Standing::Free, self.baseline.clone()) };
        self.with_hands(|hands| hands.meet(facts.tid, facts.generation));
        if let Some(bound) = self.ledger().and_then(|ledger| ledger.bound_as(facts.tid)) {
            if seen(&bound.ours, &self.baseline) == mask || self.is_first_doubt(facts) {
                let original =
                    self.ledger().and_then(|ledger| ledger.bound_as(facts.tid)).map(|b| &b.original);
                let permitted = original.map_or_else(CpuSet::new, |own| own.intersection(&self.baseline));
                return (Standing::Bound, Arc::new(permitted));
            }
            // Somebody else has set it since: it is no longer ours to give back.
            self.with_hands(|hands| hands.note(Entry::Free(facts.tid)));
        }
        let process = self.process(facts);
        let (user_placed, permitted) = (process.user_placed, process.permitted.clone());
        let is_heir = self.ledger().is_some_and(|ledger| ledger.heir_of(&mask).is_some());
        let is_pinned = self.ledger().is_some_and(|ledger| ledger.is_pinned(facts.tid));
        let mask = Arc::new(mask);
        if user_placed {
            if is_heir {
                self.with_hands(|hands| hands.note_pinned(facts.tid, facts.generation));
            }
            return (Standing::UserPlaced, mask);
        }
        if mask == permitted || mask == self.baseline {
            if is_pinned {
                self.with_hands(|hands| hands.forget(facts.tid, facts.generation));
            }
            if mask != self.baseline {
                self.limited.insert(facts.tid, mask.clone());
            }
            return (Standing::Free, mask);
        }
        // Who had this mask before we handed it out has it from somebody else.
        let had_it_before = self.earlier_doubts.contains(&(facts.tid, facts.generation));
        if is_heir && !is_pinned && !had_it_before {
            return (Standing::Inherited, permitted);
        }
        if !is_pinned && !self.is_first_doubt(facts) {
            self.with_hands(|hands| hands.note_pinned(facts.tid, facts.generation));
        }
        (Standing::SelfPinned, mask)
    }

    /// Whether the thread's mask was no surprise at the last look. The kernel changes the masks of a cpuset
    /// one after the other, also while we look: only what is still so at the next look is somebody's wish.
    fn is_first_doubt(&mut self, facts: &ThreadFacts) -> bool {
        let thread = (facts.tid, facts.generation);
        !self.earlier_doubts.contains(&thread) && self.doubts.insert(thread)
    }

    /// What is known of the thread's process; looked up when it is new or has become another program.
    fn process(&mut self, facts: &ThreadFacts) -> &Process {
        let leads = facts.tid == facts.pid;
        let known = self.processes.get(&facts.pid);
        let stale = known.is_none_or(|process| leads && process.name != facts.name);
        if stale {
            self.with_hands(|hands| hands.note_member(facts.pid));
            // The first thread's mask is what the process was started with; the others may have pinned
            // themselves.
            let mask = affinity::get(facts.pid).unwrap_or_default();
            let heir = self.ledger().and_then(|ledger| ledger.heir_of(&mask)).cloned();
            // A single PE is a decision of the program or its user; several are a limit within which to
            // place.
            let permitted = match heir {
                Some(original) => Arc::new(original.intersection(&self.baseline)),
                None if mask.len() > 1 => Arc::new(mask),
                None => self.baseline.clone(),
            };
            let user_placed = environment::places_threads(facts.pid);
            self.processes.insert(facts.pid, Process { name: facts.name.clone(), user_placed, permitted });
        }
        &self.processes[&facts.pid]
    }

    fn ledger(&self) -> Option<&Ledger> {
        self.hands.as_ref().map(Hands::ledger)
    }

    fn with_hands(&mut self, act: impl FnOnce(&mut Hands)) {
        if let Some(hands) = &mut self.hands {
            act(hands);
        }
    }

    fn carry_out(&mut self, action: &Action) -> OutcomeKind {
        let Some(hands) = &mut self.hands else {
            return OutcomeKind::Refused("not permitted to act".to_owned());
        };
        let ThreadId { tid, generation } = action.thread;
        let mask = self.limited.get(&tid).unwrap_or(&self.baseline);
        let basis = Basis { baseline: &self.baseline, mask, at: self.observed };
        match &action.change {
            Change::Bind(pes) => hands.bind(tid, generation, basis, pes),
            Change::Free => hands.free(tid, generation, basis),
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
        self.observed = task::now();
        self.limited.clear();
        self.earlier_doubts = std::mem::take(&mut self.doubts);
        let facts = self.parts.discovery.threads()?;
        let processes: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.pid).collect();
        let left: Vec<u32> = self.processes.keys().copied().filter(|pid| !processes.contains(pid)).collect();
        for pid in left {
            self.processes.remove(&pid);
            self.with_hands(|hands| hands.note(Entry::Left(pid)));
        }
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
        let actions = if self.hands.is_some() { actions } else { &[] };
        if actions.iter().any(|action| matches!(action.change, Change::Bind(_))) {
            self.with_hands(Hands::prepare);
        }
        for action in actions {
            let result = self.carry_out(action);
            let (thread, change) = (action.thread, action.change.clone());
            self.outcomes.push(Outcome { thread, change, result });
        }
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
        self.let_go();
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
