//! The runtime libraries of watched programs: whether their threads are held up, and how long idle ones spin.
//!
//! Problem: idle threads of a parallel program spin for a while, as work may come at once. Where another
//! program needs their PEs, that harms both; where nobody does, it helps. Programs choose at their start.
//!
//! Approach: of every process with several threads it is added up, every [`PERIOD`] (less often while all is
//! calm), for how long they waited for a PE (`schedstat`): that is being held up, by whomever, but for a
//! quota of their control group ([`Throttling`]), which gives nobody else their PEs. Then the process is
//! told of ([`Event::Delayed`](corewise_core::observe::Event)), and whether it has a runtime library whose
//! variable is known ([`libgomp`], [`openmpi`]). Such libraries are looked for when they are loaded
//! (`search`), before anything is delayed. What to do is decided by the engine ([`corewise_core::waits`]);
//! how long threads spin is changed here, and restored: by corewise, its guardian, or the next start. What a
//! process forks has its values: they are restored when it is first seen, or at the end.
//!
//! Limits: a process with thousands of threads is looked at less often, so that looking costs no more than
//! [`COST_MAX`] in the long run.

pub mod libgomp;
pub mod loaded;
pub mod openmpi;
mod search;
pub mod variable;

use crate::guardian::{Changes, Guardian};
use corewise_code::space::FileKey;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::observe::ProcessDelay;
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind, Setting, SettingKind};
use corewise_core::waits::{CALM_MAX, DELAYED_FROM};
use corewise_discovery::NewThread;
use corewise_sys::allowance::Allowance;
use corewise_sys::clock::{own_cpu_time, process_cpu_time};
use corewise_sys::limits::Throttling;
use corewise_sys::proc::idle::IdleTime;
use corewise_sys::proc::{Proc, Schedstat, SchedstatFile};
use search::Schedule;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};
use variable::Variable;

/// Time between two looks at the same process; while one is delayed but nothing was changed; and at most.
/// While no process is delayed it grows to this part of the time since the last one was.
pub const PERIOD: Duration = Duration::from_millis(10);
const PERIOD_DELAYED: Duration = Duration::from_millis(5);
const PERIOD_MAX: Duration = Duration::from_millis(50);
/// The same if all threads yield while they spin: how they share the PEs depends on every disturbance.
pub const PERIOD_IF_DISTURBING: Duration = Duration::from_millis(250);
const PERIOD_CALM_PART: u32 = 20;

/// The share of a PE that looking may cost in the long run.
pub const COST_MAX: f64 = 0.002;

/// Share of the time in which threads want a PE but wait for it, from which on it is looked for a runtime
/// library, and told.
const DELAYED_MIN: f64 = 0.02;

/// Over which time it is added up at least whether threads want PEs all the time, and from which share on
/// they do. (What a thread waits is known when it waits no longer.)
const BUSY_FOR: Duration = Duration::from_millis(50);
const BUSY_MIN: f64 = 0.85;

/// For how long it is told of a process that is held up no longer: until its own choice holds again.
const TOLD_FOR: Duration = CALM_MAX.saturating_mul(2);

/// Of a thread more than this many are not kept open: descriptors are few.
const KEPT_OPEN_MAX: usize = 256;

/// The variables by which a user decides how threads wait. Such a wish wins.
pub const WISHES: [&str; 4] = [libgomp::WISHES[0], libgomp::WISHES[1], "KMP_BLOCKTIME", openmpi::VARIABLE];

/// The variable by which the user has decided, if one of [`WISHES`] is set.
pub fn wish() -> Option<&'static str> {
    WISHES.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// The runtimes of the watched processes.
#[derive(Debug)]
pub struct Runtimes {
    proc: Proc,
    /// Whether it may be changed how long threads spin.
    spin: bool,
    /// The record of changes; `None`: nothing is written any more.
    changes: Option<Changes>,
    processes: BTreeMap<u32, Process>,
    /// Mapped files that hold no runtime library.
    others: HashSet<FileKey>,
    kept_open: usize,
    /// When the next look is due.
    due: Instant,
    /// When a process was held up, or got a second thread, last.
    eventful_at: Instant,
    /// The CPU time that looks may take, without searches.
    allowance: Allowance,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Process {
    leader: ThreadId,
    threads: HashMap<u32, Watched>,
    copies: Vec<Idling>,
    /// Spin counts that were 0 at the last search: their library may not have set them yet.
    unset: Vec<Variable>,
    /// The spin count that is wanted of them, if not the library's own choice.
    wanted: Option<u64>,
    /// The idle time of its PEs while something is changed, and for how long its threads ran and corewise
    /// looked meanwhile, in nanoseconds.
    idle: Option<(IdleTime, u64, u64)>,
    /// Whether it has LLVM's OpenMP (or Intel's) and no other runtime: its idle threads give their PE away
    /// while they spin, so that neither a shorter time nor turns do it any good.
    gives_way: bool,
    /// What would help if its threads are delayed and nothing can be changed.
    advice: Option<&'static str>,
    schedule: Schedule,
    looked_at: Instant,
    /// Whether it has ended: its first thread has.
    is_over: bool,
    /// The CPU time of corewise by then.
    by_us: Duration,
    /// For how long quotas keep it from its PEs, and how much of that its threads have not been seen to wait.
    throttling: Throttling,
    throttled_ns: u64,
    /// Since when it is added up what its threads wanted, that time, and how long of it they waited.
    busy: (Instant, u64, u64),
    /// Whether they wanted PEs all the time lately, and were held up.
    is_busy: bool,
    /// The most threads that it had at a time.
    most_threads: usize,
    /// Until when it is told of, held up or not.
    told_until: Instant,
}

/// What tells how long the idle threads of one copy of a runtime library spin.
#[derive(Debug)]
struct Idling {
    variable: Variable,
    runtime: Runtime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Libgomp,
    OpenMpi,
}

impl Runtime {
    /// What is written so that threads spin for so many turns.
    fn value(self, turns: u64) -> u64 {
        match self {
            Runtime::Libgomp => turns,
            Runtime::OpenMpi => openmpi::YIELD,
        }
    }
}

#[derive(Debug)]
struct Watched {
    file: SchedstatFile,
    last: Schedstat,
}

impl Runtimes {
    /// To do what these parameters permit; but nothing before there is a guardian.
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            proc: Proc::own(),
            spin: config.cures.spin,
            changes: None,
            processes: BTreeMap::new(),
            others: HashSet::new(),
            kept_open: 0,
            due: Instant::now() + PERIOD,
            eventful_at: Instant::now(),
            allowance: Allowance::new(COST_MAX),
            notes: Vec::new(),
        }
    }

    /// From now on something may be written, which is recorded for the guardian.
    pub fn may_write(&mut self, guardian: &Guardian) {
        self.changes = Some(guardian.changes());
    }

    /// Takes note of a thread.
    pub fn watch(&mut self, thread: &NewThread) {
        let now = Instant::now();
        let leads = thread.tid == thread.pid;
        let leader = ThreadId { tid: thread.pid, generation: if leads { thread.generation } else { 0 } };
        if leads && !self.processes.contains_key(&thread.pid) {
            self.meet_child(thread.pid);
        }
        let process = self.processes.entry(thread.pid).or_insert_with(|| Process {
            leader,
            threads: HashMap::new(),
            copies: Vec::new(),
            unset: Vec::new(),
            wanted: None,
            idle: None,
            gives_way: false,
            advice: None,
            schedule: Schedule::from(now),
            looked_at: now,
            is_over: false,
            by_us: process_cpu_time(),
            throttling: Throttling::default(),
            throttled_ns: 0,
            busy: (now, 0, 0),
            is_busy: false,
            most_threads: 0,
            told_until: now,
        });
        if leads {
            process.leader = leader;
        }
        let keep = self.kept_open < KEPT_OPEN_MAX;
        if let Ok(Some(file)) = self.proc.schedstat(thread.pid, thread.tid, keep)
            && let Ok(Some(last)) = file.read()
        {
            self.kept_open += usize::from(keep);
            process.threads.insert(thread.tid, Watched { file, last });
        }
        if process.threads.len() > process.most_threads {
            // A team begins: its library is there.
            process.most_threads = process.threads.len();
            process.schedule.restart(now);
        }
        if process.threads.len() == 2 {
            // What it did alone is no matter of teams.
            process.throttling = Throttling::of(Path::new("/"), thread.pid);
            process.delay();
            self.eventful_at = now;
            self.due = self.due.min(now + PERIOD);
        }
    }

    /// Restores the values of a new process that was forked while they were changed, whoever its parent is by
    /// now. (One that was started by `vfork` still has its parent's memory: there they are changed again.)
    fn meet_child(&mut self, pid: u32) {
        if self.changes.as_ref().is_some_and(|changes| changes.restore_fork(pid)) {
            self.processes.values_mut().flat_map(Process::variables_mut).for_each(Variable::renew);
        }
    }

    /// Whether a process has several threads.
    pub fn has_teams(&self) -> bool {
        self.processes.values().any(|process| process.threads.len() > 1)
    }

    /// Whether all processes with several threads have a runtime whose threads yield while they spin; `None`
    /// if there is no such process.
    pub fn gives_way(&self) -> Option<bool> {
        let mut teams = self.processes.values().filter(|process| process.threads.len() > 1).peekable();
        teams.peek()?;
        Some(teams.all(|process| process.gives_way))
    }

    /// Whether threads that want PEs all the time are held up.
    pub fn is_any_delayed(&self) -> bool {
        self.processes.values().any(|process| process.is_busy)
    }

    /// The same, and they do not give way: they may wait in code of their own, which samples tell.
    pub fn never_sleep(&self) -> bool {
        self.processes.values().any(|process| process.is_busy && !process.gives_way)
    }

    /// Until when the next look is due; `None` while no process has several threads, or nothing may be
    /// written.
    pub fn due_within(&self) -> Option<Duration> {
        let is_due = self.changes.is_some() && self.has_teams();
        is_due.then(|| self.due.saturating_duration_since(Instant::now()))
    }

    /// Time from one look to the next; `pressing`: a process is delayed of which nothing was changed.
    fn period(&self, pressing: bool) -> Duration {
        if self.gives_way() == Some(true) {
            return PERIOD_IF_DISTURBING;
        }
        let calm = (self.eventful_at.elapsed() / PERIOD_CALM_PART).clamp(PERIOD, PERIOD_MAX);
        if pressing { PERIOD_DELAYED } else { calm }
    }

    /// Looks, if a look is due: which processes with several threads were held up, or are no longer.
    pub fn look(&mut self) -> Vec<ProcessDelay> {
        if self.due_within().is_none_or(|within| !within.is_zero()) {
            return Vec::new();
        }
        let (began, cpu_before) = (Instant::now(), own_cpu_time());
        let mut searching = Duration::ZERO;
        let mut delays = Vec::new();
        let (mut kept_open, mut notes, mut is_pressing) = (0, Vec::new(), false);
        self.processes.retain(|&pid, process| {
            let delay = process.delay();
            kept_open +=
                process.threads.values().filter(|t| matches!(t.file, SchedstatFile::Open(_))).count();
            let is_delayed = delay.share_without_pe() >= DELAYED_MIN;
            if process.is_search_due(pid, began, is_delayed) {
                let before = own_cpu_time();
                notes.extend(process.search(pid, self.spin, &mut self.others, self.changes.as_ref()));
                searching += own_cpu_time() - before;
            }
            if is_delayed && process.threads.len() > 1 {
                process.told_until = began + TOLD_FOR;
                if delay.share() >= DELAYED_FROM {
                    notes.extend(process.advice.map(str::to_owned));
                }
                // Frequent looks at threads that yield while they spin would only disturb them.
                if delay.share_without_pe() >= DELAYED_FROM && !process.gives_way {
                    self.eventful_at = began;
                    is_pressing |= !process.is_changed() && delay.share() >= DELAYED_FROM;
                }
            }
            // As long as something is changed, it is told, too, that they wait no longer.
            if !process.is_over && (process.is_changed() || began < process.told_until) {
                let (adaptable, gives_way) = (!process.copies.is_empty(), process.gives_way);
                let idle_percent = process.idle_percent(&self.proc, &delay);
                delays.push(ProcessDelay { adaptable, gives_way, idle_percent, ..delay });
            }
            !process.threads.is_empty()
        });
        notes.iter().for_each(|note| self.note(note));
        self.kept_open = kept_open;
        // Not by the clock: where PEs are contended, corewise waits for one, too. A search is rare.
        let cost = (own_cpu_time() - cpu_before).saturating_sub(searching);
        self.due = Instant::now() + self.period(is_pressing).max(self.allowance.spend(cost));
        delays
    }

    /// Takes note that a thread has ended. The kernel shows the times of a process until its parent waits for
    /// it; they must not be reported any more.
    pub fn forget(&mut self, thread: ThreadId) {
        let process = self.processes.get_mut(&thread.tid);
        process
            .into_iter()
            .filter(|process| process.leader == thread)
            .for_each(|process| process.is_over = true);
    }

    /// Whether a change is one of runtime libraries.
    pub fn is_ours(action: &Action) -> bool {
        matches!(action.change.setting_kind(), Some(SettingKind::SpinCount))
    }

    /// Carries out a change, if it is one of runtime libraries.
    pub fn apply(&mut self, action: &Action) -> Option<Outcome> {
        let result = match action.change {
            Change::Set(Setting::SpinCount(count)) => self.write(action.thread, Some(count)),
            Change::Reset(SettingKind::SpinCount) => self.write(action.thread, None),
            _ => return None,
        };
        Some(Outcome { thread: action.thread, change: action.change.clone(), result })
    }

    /// Every process as it was. From then on nothing is written, and the guardian may go.
    pub fn give_back(&mut self) {
        for variable in self.processes.values_mut().flat_map(Process::variables_mut) {
            // Who is gone, or has decided otherwise since, needs nothing.
            let _ = variable.give_back();
        }
        self.changes = None;
    }

    /// What a user should know, in words.
    pub fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Lets the idle threads of a process spin so long, or as long as at first.
    fn write(&mut self, leader: ThreadId, count: Option<u64>) -> OutcomeKind {
        let process = self.processes.get_mut(&leader.tid).filter(|process| !process.copies.is_empty());
        let (Some(process), Some(changes)) = (process, &self.changes) else {
            return OutcomeKind::Refused("no runtime library whose waits can be changed".to_owned());
        };
        process.wanted = count;
        process.begin_idle_time(&self.proc);
        process.busy = (Instant::now(), 0, 0);
        process.write(changes)
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }
}

/// Whatever ends it, every process is as it was.
impl Drop for Runtimes {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Process {
    /// Whether its waits are others than its own choice.
    fn is_changed(&self) -> bool {
        self.variables().any(Variable::is_changed)
    }

    fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.copies.iter().map(|copy| &copy.variable)
    }

    fn variables_mut(&mut self) -> impl Iterator<Item = &mut Variable> {
        self.copies.iter_mut().map(|copy| &mut copy.variable)
    }

    /// For how long its threads ran, and waited for a PE, since the last look. What corewise itself took of
    /// the PEs, most of it at the start, is no time that others need them.
    fn delay(&mut self) -> ProcessDelay {
        let elapsed_ns = self.looked_at.elapsed().as_nanos() as u64;
        self.looked_at = Instant::now();
        let (mut run_ns, mut wait_ns, mut timeslices) = (0, 0, 0);
        self.threads.retain(|_, watched| {
            let Ok(Some(now)) = watched.file.read() else { return false };
            run_ns += now.run_ns.saturating_sub(watched.last.run_ns);
            wait_ns += now.wait_ns.saturating_sub(watched.last.wait_ns);
            timeslices += now.timeslices.saturating_sub(watched.last.timeslices);
            watched.last = now;
            true
        });
        let throttled_ns = self.throttled(wait_ns);
        wait_ns -= throttled_ns;
        let by_us = process_cpu_time();
        wait_ns = wait_ns.saturating_sub(by_us.saturating_sub(self.by_us).as_nanos() as u64);
        self.by_us = by_us;
        self.note_whether_busy(run_ns + throttled_ns, wait_ns);
        let (leader, adaptable) = (self.leader, !self.copies.is_empty());
        let spin_count = self.wanted.filter(|_| adaptable);
        let gives_way = self.gives_way;
        ProcessDelay {
            leader,
            run_ns,
            wait_ns,
            throttled_ns,
            elapsed_ns,
            timeslices: Some(timeslices),
            idle_percent: None,
            adaptable,
            gives_way,
            other_gangs: 0,
            spin_count,
        }
    }

    /// From now on it counts how idle its PEs are, if its waits are changed.
    fn begin_idle_time(&mut self, proc: &Proc) {
        self.idle =
            self.wanted.is_some().then(|| (IdleTime::begin(proc, self.threads.keys().copied()), 0, 0));
    }

    /// How idle its PEs are while something is changed, of the time that others leave, with what a look
    /// showed.
    fn idle_percent(&mut self, proc: &Proc, delay: &ProcessDelay) -> Option<u8> {
        let (idle, ran_ns, elapsed_ns) = self.idle.as_mut()?;
        (*ran_ns, *elapsed_ns) = (*ran_ns + delay.run_ns, *elapsed_ns + delay.elapsed_ns);
        let percent = idle.take(proc)?.percent_beside(*ran_ns as f64 / (*elapsed_ns).max(1) as f64);
        (*ran_ns, *elapsed_ns) = (0, 0);
        Some(percent)
    }

    /// How much of what its threads waited was their quota's doing: as if each PE that a quota closed had one
    /// of them. What a thread waited is known when it runs again: at the latest by the next look.
    fn throttled(&mut self, wait_ns: u64) -> u64 {
        let new = self.throttling.since_last().as_nanos() as u64;
        let all = self.throttled_ns + new;
        let waited = wait_ns.min(all);
        self.throttled_ns = new.min(all - waited);
        waited
    }

    /// With the time in which they waited for nobody else, and that in which they did.
    fn note_whether_busy(&mut self, run_ns: u64, wait_ns: u64) {
        let (since, wanted_ns, waited_ns) = &mut self.busy;
        (*wanted_ns, *waited_ns) = (*wanted_ns + run_ns + wait_ns, *waited_ns + wait_ns);
        let elapsed = since.elapsed();
        if elapsed < BUSY_FOR || self.threads.len() < 2 {
            return;
        }
        let share = *wanted_ns as f64 / (elapsed.as_nanos() as f64 * self.threads.len() as f64);
        let waited = *waited_ns as f64 / *wanted_ns as f64;
        self.is_busy = share >= BUSY_MIN && waited >= DELAYED_FROM;
        self.busy = (Instant::now(), 0, 0);
    }

    /// Lets its idle threads spin as it is wanted.
    fn write(&mut self, changes: &Changes) -> OutcomeKind {
        let (mut answer, wanted) = (OutcomeKind::Done, self.wanted);
        self.copies.retain_mut(|Idling { variable, runtime }| {
            let written = match wanted {
                Some(turns) => variable.write_recorded(runtime.value(turns), changes),
                None => variable.give_back(),
            };
            let is_ours = written.is_ok();
            answer = written.err().map_or_else(|| answer.clone(), OutcomeKind::from);
            is_ours
        });
        answer
    }
}

#[cfg(test)]
mod tests;
