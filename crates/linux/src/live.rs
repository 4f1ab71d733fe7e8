//! The real machine as a World: observes the threads of one application and binds them.

use crate::binding::affinity::{self, ActToken};
use crate::binding::guardian::Guardian;
use crate::binding::ledger::{Bound, Entry, Ledger, seen};
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
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The real machine.
pub struct LiveWorld {
    parts: Parts,
    hands: Option<Hands>,
    started: Instant,
    command: Option<Pid>,
    exit_status: Option<u8>,
    /// The PEs that corewise itself may use: what user and cpuset allow the whole application.
    baseline: Arc<CpuSet>,
    processes: HashMap<u32, Process>,
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
}

/// What it takes to act: the token, the book of changes and the guardian that has a copy of it.
struct Hands {
    token: ActToken,
    ledger: Ledger,
    guardian: Guardian,
    guardian_is_gone: bool,
    /// What is given back to a thread that was not narrowed.
    unnarrowed: CpuSet,
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

const GUARDIAN_GONE: &str = "the guardian that gives everything back after a crash is gone";

impl Hands {
    fn new(guardian: Guardian) -> Result<Hands, Errno> {
        let token = ActToken::mint();
        let unnarrowed = affinity::unnarrowed(&token)?;
        Ok(Hands { token, ledger: Ledger::default(), guardian, guardian_is_gone: false, unnarrowed })
    }
}

impl LiveWorld {
    /// The world around a command that is about to run. With a guardian it may bind threads, without it only
    /// looks on.
    pub fn new(parts: Parts, guardian: Option<Guardian>, started: Instant) -> Result<Self, LiveError> {
        let baseline = Arc::new(own_mask()?);
        let hands = guardian.map(Hands::new).transpose().map_err(Self::system("sched_setaffinity"))?;
        let mut world = Self {
            command: Some(parts.command),
            parts,
            hands,
            started,
            exit_status: None,
            baseline,
            processes: HashMap::new(),
            outcomes: Vec::new(),
            watching: true,
            finished: false,
            woken: None,
            rounds: Vec::new(),
        };
        // Orphans become children of corewise.
        world.note(Entry::Member(std::process::id()));
        Ok(world)
    }

    /// The command's exit status, once it has ended.
    pub fn exit_status(&self) -> Option<u8> {
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
        if self.hands.as_ref().is_some_and(|hands| hands.guardian_is_gone) {
            troubles.push(format!("{GUARDIAN_GONE}: from then on nothing was bound"));
        }
        troubles
    }

    /// After an error: gives everything back, and from then on only follows the command and its orphans to
    /// their end.
    pub fn stop_watching(&mut self) {
        self.watching = false;
        self.let_go();
    }

    fn let_go(&mut self) {
        let Some(mut hands) = self.hands.take() else { return };
        let own = own_mask().unwrap_or_else(|_| CpuSet::clone(&self.baseline));
        if hands.ledger.restore(&hands.token, &own).is_ok() {
            // If the guardian is gone, there is nobody to tell; if not, it will not do it again.
            let _ = hands.guardian.tell(&Entry::Done);
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
        self.finished |= news.no_children || (news.asked_to_end && self.command.is_none());
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
        let is_booked = |ledger: &Ledger| ledger.bound(facts.tid).is_some() || ledger.is_pinned(facts.tid);
        if facts.ended && self.ledger().is_some_and(is_booked) {
            self.note(Entry::Forget(facts.tid));
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
        if let Some(bound) = self.ledger().and_then(|ledger| ledger.bound(facts.tid)) {
            if seen(&bound.ours, &self.baseline) == mask {
                return (Standing::Bound, Arc::new(bound.original.intersection(&self.baseline)));
            }
            // Somebody else has set it since: it is no longer ours to give back.
            self.note(Entry::Free(facts.tid));
        }
        let process = self.process(facts);
        let (user_placed, permitted) = (process.user_placed, process.permitted.clone());
        if user_placed {
            if self.ledger().is_some_and(|ledger| ledger.heir_of(&mask).is_some()) {
                self.note_pinned(facts.tid);
            }
            return (Standing::UserPlaced, Arc::new(mask));
        }
        if mask == *permitted || mask == *self.baseline {
            if self.ledger().is_some_and(|ledger| ledger.is_pinned(facts.tid)) {
                self.note(Entry::Forget(facts.tid));
            }
            return (Standing::Free, Arc::new(mask));
        }
        if self.ledger().is_some_and(|l| l.heir_of(&mask).is_some() && !l.is_pinned(facts.tid)) {
            return (Standing::Inherited, permitted);
        }
        self.note_pinned(facts.tid);
        (Standing::SelfPinned, Arc::new(mask))
    }

    /// What is known of the thread's process; looked up when it is new or has become another program.
    fn process(&mut self, facts: &ThreadFacts) -> &Process {
        let leads = facts.tid == facts.pid;
        let known = self.processes.get(&facts.pid);
        let stale = known.is_none_or(|process| leads && process.name != facts.name);
        if stale {
            self.note(Entry::Member(facts.pid));
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
        self.hands.as_ref().map(|hands| &hands.ledger)
    }

    /// Notes once that somebody else decides where the thread runs.
    fn note_pinned(&mut self, tid: u32) {
        if self.ledger().is_some_and(|ledger| !ledger.is_pinned(tid)) {
            self.note(Entry::Pinned(tid));
        }
    }

    /// Notes a change in the book and in the guardian's copy. `false` if the guardian is gone.
    fn note(&mut self, entry: Entry) -> bool {
        let Some(hands) = &mut self.hands else { return false };
        hands.guardian_is_gone |= hands.guardian.tell(&entry).is_err();
        hands.ledger.note(entry);
        !hands.guardian_is_gone
    }

    fn carry_out(&mut self, action: &Action) -> OutcomeKind {
        let tid = action.thread.tid;
        let mask = match affinity::get(tid) {
            Ok(mask) => mask,
            Err(Errno::ESRCH) => {
                self.note(Entry::Free(tid));
                return OutcomeKind::Gone;
            }
            Err(errno) => return OutcomeKind::Refused(errno.to_string()),
        };
        match &action.change {
            Change::Bind(pes) => self.bind(tid, mask, pes),
            Change::Free => self.free(tid, &mask),
        }
    }

    fn bind(&mut self, tid: u32, mask: CpuSet, pes: &CpuSet) -> OutcomeKind {
        let Some(hands) = &self.hands else { return OutcomeKind::Refused("not permitted to act".to_owned()) };
        let is_ours = |bound: &Bound| seen(&bound.ours, &self.baseline) == mask;
        if hands.ledger.bound(tid).is_some_and(|bound| !is_ours(bound)) || hands.ledger.is_pinned(tid) {
            self.note(Entry::Free(tid));
            return OutcomeKind::NotOurs;
        }
        // Told before it is done: whenever we are killed, the guardian knows of every change.
        let original = if mask == *self.baseline { hands.unnarrowed.clone() } else { mask.clone() };
        if hands.guardian_is_gone || !self.note(Entry::Bind { tid, original, ours: pes.clone() }) {
            return OutcomeKind::Refused(GUARDIAN_GONE.to_owned());
        }
        let Some(hands) = &self.hands else { return OutcomeKind::NotOurs };
        match affinity::set(&hands.token, tid, pes) {
            Ok(()) => OutcomeKind::Done,
            Err(errno) => {
                // A thread that was bound before keeps that mask, which is still to be given back.
                let held = mask != *pes && hands.ledger.heir_of(&mask).is_some();
                if !held {
                    self.note(Entry::Free(tid));
                }
                match errno {
                    Errno::ESRCH => OutcomeKind::Gone,
                    errno => OutcomeKind::Refused(errno.to_string()),
                }
            }
        }
    }

    fn free(&mut self, tid: u32, mask: &CpuSet) -> OutcomeKind {
        let Some(hands) = &self.hands else { return OutcomeKind::NotOurs };
        let original = match hands.ledger.bound(tid) {
            Some(bound) if seen(&bound.ours, &self.baseline) == *mask => Some(&bound.original),
            Some(_) => None,
            None => hands.ledger.heir_of(mask),
        };
        let Some(original) = original.filter(|_| !hands.ledger.is_pinned(tid)) else {
            self.note(Entry::Free(tid));
            return OutcomeKind::NotOurs;
        };
        let result = affinity::set(&hands.token, tid, original)
            .or_else(|_| affinity::set(&hands.token, tid, &self.baseline));
        match result {
            Ok(()) => {
                self.note(Entry::Free(tid));
                OutcomeKind::Done
            }
            Err(Errno::ESRCH) => OutcomeKind::Gone,
            Err(errno) => OutcomeKind::Refused(errno.to_string()),
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
        let facts = self.parts.discovery.threads()?;
        let processes: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.pid).collect();
        let left: Vec<u32> = self.processes.keys().copied().filter(|pid| !processes.contains(pid)).collect();
        for pid in left {
            self.processes.remove(&pid);
            self.note(Entry::Left(pid));
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
