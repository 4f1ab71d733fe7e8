//! The real machine as a World: observes the threads of applications and changes them with actuators.

mod application;
mod events;
mod given_back;
mod hot_plug;
mod onlooker;
pub mod policy_command;
mod processes;
mod programs;
mod readings;
mod rounds;
mod sleep;
mod treating;
mod treatments;
mod trees;
pub mod upgrade;
mod upgrading;
mod working;

pub use crate::application::{Application, Ends};
pub use crate::hot_plug::HotPlug;
pub use crate::onlooker::{Onlooker, Trees};
pub use crate::processes::Processes;
use crate::programs::Programs;
use crate::rounds::Rounds;
pub use crate::treatments::MakeTreatments;
use crate::treatments::Treated;
use crate::upgrade::Deferred;
use crate::working::Working;
use corewise_binding::actuators::Actuators;
use corewise_binding::heartbeat;
use corewise_binding::shared::board::SharedBoard;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{
    CounterReading, Event, EventBatch, EventKind, Observation, Standing, ThreadReading,
};
use corewise_core::plan::{Action, Change, Outcome, SettingKind};
use corewise_core::report::Sources;
use corewise_core::time::Time;
use corewise_core::world::{Wake, World};
use corewise_counters::CounterSource;
use corewise_counters::progress::WorkMeter;
use corewise_counters::reports::ProgramReports;
use corewise_discovery::{Discovery, DiscoveryError, NewThread, ThreadFacts};
use corewise_sys::affinity;
use corewise_sys::clock::process_cpu_time;
use corewise_sys::proc::Proc;
use corewise_sys::signals::Signals;
use corewise_sys::standard_error;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval at which the allowed PEs are read, as the kernel does not report changes of masks and
/// cpusets.
const ALLOWED_WITHIN: Duration = Duration::from_millis(100);

/// The maximum time between two drains of the counters' buffers. A buffer that is half full wakes earlier,
/// and threads that start or end cause a drain sooner, as the code of an ended thread is no longer available.
const DRAINED_WITHIN: Duration = Duration::from_millis(100);
const DRAINED_AT_NEWS_WITHIN: Duration = Duration::from_millis(10);

/// The real machine.
pub struct LiveWorld {
    parts: Parts,
    started: Instant,
    /// The command, while it runs.
    command: Option<Pid>,
    exit_status: Option<ExitStatus>,
    /// The subscribed events, and those that have happened.
    kinds: Vec<EventKind>,
    events: Vec<Event>,
    /// Reports by programs about their threads, and the applications that report progress.
    reports: ProgramReports,
    reporting: HashSet<AppId>,
    working: Working,
    /// The programs of processes.
    programs: Programs,
    /// Programs that are applications.
    executed: BTreeMap<AppId, Application>,
    /// The processes of each application at the last observation, for threads that only the counters know.
    members: HashMap<u32, AppId>,
    /// The PEs that corewise itself may use: those that user and cpuset allow for the whole application.
    baseline: Arc<CpuSet>,
    outcomes: Vec<Outcome>,
    watching: bool,
    finished: bool,
    /// When the counters' buffers were last drained.
    drained: Option<Instant>,
    /// When the allowed PEs were last read between two observations.
    allowed_read: Option<Instant>,
    /// The start of the present round.
    woken: Option<Instant>,
    rounds: Rounds,
    /// How long events are left alone after some were taken in, and when that was.
    rest: Duration,
    refreshed: Option<Instant>,
    /// A model of the machine that is not yet taken.
    machine: Option<MachineModel>,
    hot_plug: Option<HotPlug>,
    /// Whether everything that sources show is available.
    is_complete: bool,
    notes: Vec<String>,
    onlooker: Option<Box<dyn Onlooker>>,
    treated: Treated,
}

/// The parts of a live world.
pub struct Parts {
    /// What the user named, in order of [`AppId`]s.
    pub applications: Vec<Application>,
    /// What ends the run.
    pub ends: Ends,
    /// The source of threads.
    pub discovery: Box<dyn Discovery>,
    /// The source of counters.
    pub counters: Box<dyn CounterSource>,
    /// What changes threads.
    pub actuators: Actuators,
    /// The processes with several threads, if their waits may be changed.
    pub processes: Option<Processes>,
    /// Measures progress if the counters do not; `None` if progress is not needed.
    pub work: Option<WorkMeter>,
    /// What all runs of the user share, if changes of waits are guarded. Here it is read, the loop's owner
    /// writes.
    pub board: Rc<RefCell<Option<SharedBoard>>>,
    /// The signals.
    pub signals: Signals,
    /// What a run that begins with light sources has yet to get.
    pub deferred: Option<Deferred>,
}

/// An error of the machine as a whole.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Threads cannot be discovered any more.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The heavier sources cannot be opened.
    #[error("{0}")]
    Sources(String),
    /// A system call failed that should not.
    #[error("{call} failed: {errno}")]
    System {
        /// The system call.
        call: &'static str,
        /// The system's error.
        errno: Errno,
    },
}

impl LiveWorld {
    /// Creates the world around a command that is about to run, or around running processes.
    pub fn new(parts: Parts, started: Instant) -> Result<Self, LiveError> {
        let command = match parts.ends {
            Ends::WithCommand { command, .. } => Some(command),
            Ends::WithTargets { .. } | Ends::OnRequest => None,
        };
        Ok(Self {
            command,
            machine: None,
            hot_plug: None,
            is_complete: parts.deferred.is_none(),
            notes: Vec::new(),
            onlooker: None,
            treated: Treated::default(),
            parts,
            kinds: Vec::new(),
            events: Vec::new(),
            reports: ProgramReports::default(),
            reporting: HashSet::new(),
            working: Working::default(),
            programs: Programs::new(Proc::own()),
            executed: BTreeMap::new(),
            members: HashMap::new(),
            started,
            exit_status: None,
            baseline: Arc::new(own_mask()?),
            outcomes: Vec::new(),
            watching: true,
            finished: false,
            drained: None,
            allowed_read: None,
            woken: None,
            rounds: Rounds::default(),
            rest: Duration::ZERO,
            refreshed: None,
        })
    }

    /// Notices PEs that come online from now on.
    pub fn notice_pes(&mut self, hot_plug: HotPlug) {
        self.hot_plug = Some(hot_plug);
    }

    /// Lets somebody look on from now on.
    pub fn set_onlooker(&mut self, onlooker: Box<dyn Onlooker>) {
        self.onlooker = Some(onlooker);
    }

    /// Returns the command's exit status, once it has ended.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.exit_status
    }

    /// Returns whether the heavier sources are in use.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the sources in use.
    pub fn sources(&self) -> Sources {
        Sources { discovery: self.parts.discovery.name().to_owned(), counters: self.parts.counters.name() }
    }

    /// Returns the durations of rounds, from wake-up to the last action carried out: all, or a sample of very
    /// many with the longest.
    pub fn rounds(&self) -> Vec<Duration> {
        self.rounds.sample()
    }

    /// Returns what the sources could not see, in words.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.parts.discovery.notes());
        notes.extend(self.parts.counters.notes());
        notes.extend(self.parts.actuators.notes());
        notes.extend(self.reports.notes());
        let unknown = self.parts.work.as_ref().and_then(WorkMeter::failure);
        notes.extend(unknown.map(|why| format!("what the placement gains is not known: {why}")));
        notes
    }

    /// Restores everything after an error; from then on only follows the command to its end.
    pub fn stop_watching(&mut self) {
        self.watching = false;
        self.give_back();
    }

    fn give_back(&mut self) {
        // Looks at everything once more, and then lets the guardian go.
        self.parts.actuators.give_back();
    }

    fn system(call: &'static str) -> impl Fn(Errno) -> LiveError {
        move |errno| LiveError::System { call, errno }
    }

    /// Registers a thread that has appeared.
    pub fn meet(&mut self, thread: &NewThread) {
        self.parts.counters.watch(thread);
        self.reports.watch(thread.pid);
        self.parts.actuators.meet(thread);
        // Waits are those of several threads, and most processes have one and end soon.
        let leads = thread.tid == thread.pid;
        let is_read = leads || self.treated.is_read(thread.pid);
        self.parts.processes.iter_mut().filter(|_| is_read).for_each(|processes| processes.meet(thread));
    }

    /// Takes in everything that has happened.
    fn refresh(&mut self) -> Result<(), LiveError> {
        if self.watching && self.rests_for().is_zero() {
            self.refreshed = Some(Instant::now());
            self.parts.actuators.give_back_to(&self.parts.discovery.starts());
            let mut news = self.parts.discovery.refresh()?;
            self.judge_anew(&news);
            self.parts.actuators.note_starters(&news.starters);
            let comes_or_goes = !news.appeared.is_empty() || !news.ended.is_empty();
            // What came and went since the last time needs nothing more.
            let ended: HashSet<ThreadId> = news.ended.iter().copied().collect();
            news.appeared.retain(|NewThread { tid, generation, .. }| {
                !ended.contains(&ThreadId { tid: *tid, generation: *generation })
            });
            news.appeared.iter().for_each(|thread| self.meet(thread));
            self.forget(&news.ended);
            self.parts.actuators.act_in_time();
            let hints = self.reports.look();
            self.note_events(news, hints);
            self.drain_after(if comes_or_goes { DRAINED_AT_NEWS_WITHIN } else { DRAINED_WITHIN });
        }
        let news = self.parts.signals.take(self.command).map_err(Self::system("waitpid"))?;
        if news.ended.is_some() {
            self.exit_status = news.ended;
            self.command = None;
        }
        self.finished |= match self.parts.ends {
            // While the command runs, it handles signals itself.
            Ends::WithCommand { wait, .. } => {
                news.no_children || (self.command.is_none() && (!wait || news.asked_to_end))
            }
            Ends::WithTargets { at } => {
                news.asked_to_end
                    || at.is_some_and(|at| at <= self.now())
                    || (self.watching && self.parts.discovery.is_idle())
            }
            Ends::OnRequest => news.asked_to_end,
        };
        Ok(())
    }

    /// Threads have ended.
    fn forget(&mut self, ended: &[ThreadId]) {
        ended.iter().for_each(|thread| self.reports.forget(thread.tid));
        let processes = self.parts.processes.iter_mut();
        processes.for_each(|processes| ended.iter().for_each(|thread| processes.forget(*thread)));
    }

    /// Drains the counters' buffers if the last drain is that long ago; they hold more than this.
    fn drain_after(&mut self, time: Duration) {
        if self.drained.is_none_or(|at| at.elapsed() >= time) {
            self.parts.counters.drain();
            self.drained = Some(Instant::now());
        }
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
            self.parts.actuators.forget(facts.id());
            (Standing::Free, self.baseline.clone())
        } else {
            self.parts.actuators.standing(&facts)
        };
        let progress = self.progress(&facts, counters.as_ref());
        ThreadReading {
            thread: ThreadId { tid: facts.tid, generation: facts.generation },
            pid: facts.pid,
            app: facts.app,
            name: facts.name,
            cpu_ns: facts.cpu_ns,
            runnable_ns: facts.runnable_ns,
            runnable: facts.runnable,
            last_pe: facts.last_pe,
            standing,
            permitted,
            counters,
            hints: self.reports.hints(facts.pid, facts.tid),
            progress,
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
        if let Some((machine, note)) = self.hot_plug.as_mut().and_then(|plug| plug.look(&self.baseline)) {
            self.machine = machine.or(self.machine.take());
            self.notes.push(note);
        }
        let reserved = self.treated.reserved();
        self.parts.actuators.begin_look(&self.baseline);
        let facts = self.parts.discovery.threads()?;
        let processes: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.pid).collect();
        self.parts.actuators.retain_processes(&processes);
        self.reports.retain(&processes);
        self.reports.look();
        // The counters of ended threads are complete now.
        self.parts.counters.drain();
        let living: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.tid).collect();
        self.members = facts.iter().map(|facts| (facts.pid, facts.app)).collect();
        let mut threads: Vec<ThreadReading> = facts.into_iter().map(|facts| self.reading(facts)).collect();
        for (mut facts, reading) in self.parts.counters.unclaimed(&living) {
            // Counters do not know applications: a thread that came and went unseen belongs to that of its
            // process.
            facts.app = self.members.get(&facts.pid).copied().unwrap_or_default();
            threads.push(self.reading_with(facts, Some(reading)));
        }
        let ended = threads.iter().filter(|reading| reading.ended).map(|reading| reading.thread).collect();
        let treatments = self.treatments(&processes);
        // How processes are treated is part of the observation.
        self.events.retain(|event| !event.is_outdated(&ended) && event.kind() != EventKind::Treated);
        self.programs.retain(&processes);
        for leader in threads.iter().filter(|reading| !reading.ended && reading.thread.tid == reading.pid) {
            self.programs.look(leader.thread, &leader.name);
        }
        let applications = self.applications(&threads);
        Ok(Observation {
            at: self.now(),
            allowed: CpuSet::clone(&self.baseline),
            reserved,
            taken: self.parts.actuators.taken(),
            threads,
            processes: self.processes(),
            treatments,
            applications,
            programs: self.programs.take(),
            outcomes: std::mem::take(&mut self.outcomes),
            own_cpu_ns: process_cpu_time().as_nanos() as u64,
            answers_cpu_ns: self.onlooker.as_deref().map_or(0, |onlooker| onlooker.spent().as_nanos() as u64),
            board: self.parts.board.borrow().as_ref().map(SharedBoard::read),
        })
    }

    fn apply(&mut self, actions: &[Action]) {
        // A process may end before the next observation, and the report is to name its program.
        for action in actions.iter().filter(|action| changes_process(&action.change)) {
            if let Some(facts) = self.parts.discovery.facts(action.thread.tid) {
                self.programs.look(facts.id(), &facts.name);
            }
        }
        let Parts { processes, actuators, .. } = &mut self.parts;
        self.outcomes.extend(actuators.apply(actions));
        if let Some(processes) = processes {
            let changed =
                actions.iter().filter(|action| action.change.setting_kind() == Some(SettingKind::SpinCount));
            changed.for_each(|action| processes.note_waits(action.thread.tid, actuators));
        }
        if let Some(woken) = self.woken.take() {
            self.rounds.add(woken.elapsed());
        }
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        self.kinds = kinds.to_vec();
        if kinds.contains(&EventKind::TlpChanged) {
            self.parts.discovery.report_tlp();
        }
    }

    fn measure(&mut self, of: ThreadId) {
        let Some(work) = &mut self.parts.work else { return };
        if let Some(facts) = self.parts.discovery.facts(of.tid) {
            work.begin(facts.pid, &self.baseline);
        }
    }

    fn better_machine(&mut self) -> Option<MachineModel> {
        self.machine.take()
    }

    fn rest(&mut self, between: Duration) {
        self.rest = between;
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, LiveError> {
        loop {
            self.woken = Some(Instant::now());
            // It is back; on a busy machine it may never have time to sleep.
            heartbeat::promise(Duration::ZERO);
            standard_error::flush();
            self.take_given_back();
            self.refresh()?;
            if let Some(mut onlooker) = self.onlooker.take() {
                self.finished |= onlooker.take_turn(self);
                self.onlooker = Some(onlooker);
            }
            if self.finished {
                return Ok(Wake::Finished);
            }
            self.upgrade_if_due()?;
            if self.machine.is_some() {
                // All is observed at once with the new sources.
                return Ok(Wake::Deadline);
            }
            let left = deadline.since(self.now());
            if left.is_zero() {
                // Leave events pending; otherwise a flood of events would postpone every observation.
                return Ok(Wake::Deadline);
            }
            if !self.events.is_empty() {
                let (events, outcomes) =
                    (std::mem::take(&mut self.events), std::mem::take(&mut self.outcomes));
                return Ok(Wake::Events(EventBatch { at: self.now(), events, outcomes }));
            }
            self.sleep(left)?;
        }
    }
}

/// However the run ends, no thread stays bound.
impl Drop for LiveWorld {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn changes_process(change: &Change) -> bool {
    matches!(change, Change::Set(setting) if setting.kind().is_of_process())
}

fn own_mask() -> Result<CpuSet, LiveError> {
    affinity::get(0).map_err(LiveWorld::system("sched_getaffinity"))
}
