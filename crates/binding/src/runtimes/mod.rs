//! The [`Actuator`] of runtime libraries: how long their idle threads spin.
//!
//! Problem: idle threads of a parallel program spin for a while, as work may come at once. Where another
//! program needs their PEs, that harms both; where nobody does, it helps. Programs choose at their start.
//!
//! Approach: whether a process has a runtime library whose variable is known ([`libgomp`], [`openmpi`]) is
//! found when such a library is loaded (`search`), before its threads wait for PEs. What to do is decided by
//! the engine ([`corewise_core::waits`]); how long threads spin is changed here, and restored: by corewise,
//! its guardian, or the next start. What a process forks has its values: they are restored when it is first
//! seen, or at the end.

mod exported;
pub mod libgomp;
pub mod loaded;
pub mod openmpi;
mod process;
mod schedule;
mod search;
pub mod variable;

use crate::actuator::Actuator;
use crate::changes::Changes;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::observe::IdleWaits;
use corewise_core::plan::{Action, Change, OutcomeKind, Setting, SettingKind};
use corewise_core::waits::looks::MATTERS_FROM;
use corewise_discovery::NewThread;
use corewise_sys::proc::Memory;
use loaded::Files;
use process::Process;
use std::collections::BTreeMap;
use std::time::Instant;
use variable::Variable;

/// The share of the time in which threads wait for a PE; at this or more the user gets advice. (From
/// [`MATTERS_FROM`] on it is urgent to find the runtime library of their process.)
const ADVISED_FROM: f64 = 0.1;

/// The variables by which a user decides how threads wait. Such a wish wins.
pub const WISHES: [&str; 4] = [libgomp::WISHES[0], libgomp::WISHES[1], "KMP_BLOCKTIME", openmpi::VARIABLE];

/// The variable by which the user has decided, if one of [`WISHES`] is set.
pub fn wish() -> Option<&'static str> {
    WISHES.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// The runtimes of the watched processes.
#[derive(Debug)]
pub struct Runtimes {
    /// Whether it may be changed how long threads spin.
    spin: bool,
    /// The record of changes; `None`: nothing is written any more.
    changes: Option<Changes>,
    /// The processes whose waits are known, at most.
    most: usize,
    processes: BTreeMap<u32, Process>,
    files: Files,
    notes: Vec<String>,
}

impl Runtimes {
    /// Creates the actuator, which does what these parameters permit, but nothing until it begins.
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            spin: config.waits.spin,
            changes: None,
            most: Memory::kept_max(),
            processes: BTreeMap::new(),
            files: Files::default(),
            notes: Vec::new(),
        }
    }

    /// Writes values from now on, which are recorded there.
    pub fn begin(&mut self, changes: Changes) {
        self.changes = Some(changes);
    }

    /// Restores the values of a new process that was forked while they were changed, whichever process its
    /// parent is by now. (One that was started by `vfork` still has its parent's memory: there they are
    /// changed again.)
    fn meet_child(&mut self, pid: u32) {
        if self.changes.as_ref().is_some_and(|changes| changes.restore_fork(pid) && changes.are_held()) {
            self.processes.values_mut().flat_map(Process::variables_mut).for_each(Variable::renew);
        }
    }

    /// Takes in what a reading shows of a process: its number of threads (0 if it is gone), and the share of
    /// the time in which they wanted a PE but waited for it. Looks for its runtime libraries if that is due.
    pub fn look(&mut self, leader: ThreadId, threads: usize, share: f64) {
        let pid = leader.tid;
        if threads == 0 {
            self.processes.remove(&pid);
            return;
        }
        // Their memory is kept open.
        let kept = self.processes.values().filter(|process| process.keeps_memory()).count();
        let most = self.most;
        let process = self.processes.entry(pid).or_insert_with(|| Process::new(leader));
        let now = Instant::now();
        if threads > process.most_threads && threads > 1 {
            // A team begins: its library is there.
            process.most_threads = threads;
            process.schedule.restart(now);
        }
        let mut notes = Vec::new();
        if process.is_search_due(pid, now, threads, share >= MATTERS_FROM) {
            if kept >= most && !process.keeps_memory() {
                self.note(&format!("waits are changed in {most} processes at a time; there were more"));
                return;
            }
            notes = process.search(pid, self.spin, &mut self.files, self.changes.as_ref());
        }
        if threads > 1 && share >= ADVISED_FROM {
            notes.extend(process.advice.iter().map(|&advice| advice.to_owned()));
        }
        notes.iter().for_each(|note| self.note(note));
    }

    /// Returns how the idle threads of a process wait, and whether that was changed.
    pub fn waits(&self, pid: u32) -> (IdleWaits, bool) {
        self.processes.get(&pid).map_or((IdleWaits::default(), false), Process::waits)
    }

    /// Lets the idle threads of a process spin so long, or as long as at first.
    fn write(&mut self, leader: ThreadId, count: Option<u64>) -> OutcomeKind {
        let process = self.processes.get_mut(&leader.tid).filter(|process| !process.copies.is_empty());
        let (Some(process), Some(changes)) = (process, &self.changes) else {
            return OutcomeKind::Refused("no runtime library whose waits can be changed".to_owned());
        };
        if count.is_some() && !changes.are_held() {
            return OutcomeKind::Refused("everything was given back".to_owned());
        }
        process.wanted = count;
        process.write(changes)
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }
}

impl Actuator for Runtimes {
    fn meet(&mut self, thread: &NewThread) {
        if thread.tid != thread.pid {
            return;
        }
        let leader = ThreadId { tid: thread.tid, generation: thread.generation };
        if !self.processes.contains_key(&thread.pid) {
            self.meet_child(thread.pid);
        }
        self.processes.entry(thread.pid).or_insert_with(|| Process::new(leader)).leader = leader;
    }

    fn forget(&mut self, thread: ThreadId) {
        // Its other threads may continue without the first one; then its library is restored at the end.
        let is_over = |process: &Process| {
            process.leader == thread && process.copies.iter().all(|copy| copy.variable.word().is_none())
        };
        if self.processes.get(&thread.tid).is_some_and(is_over) {
            self.processes.remove(&thread.tid);
        }
    }

    fn apply(&mut self, action: &Action) -> Option<OutcomeKind> {
        match action.change {
            Change::Set(Setting::SpinCount(count)) => Some(self.write(action.thread, Some(count))),
            Change::Reset(SettingKind::SpinCount) => Some(self.write(action.thread, None)),
            _ => None,
        }
    }

    fn take_given_back(&mut self) -> Vec<(u32, Change)> {
        let wanted = self.processes.values().filter(|process| process.wanted.is_some());
        let leaders: Vec<ThreadId> = wanted.map(|process| process.leader).collect();
        let give_back = |leader: ThreadId| {
            let _ = self.write(leader, None);
            (leader.tid, Change::Reset(SettingKind::SpinCount))
        };
        leaders.into_iter().map(give_back).collect()
    }

    /// Writes are few, and the values in memory are restored at once.
    fn give_back(&mut self) {
        for variable in self.processes.values_mut().flat_map(Process::variables_mut) {
            // A process that is gone, or has decided otherwise since, needs nothing.
            let _ = variable.give_back();
        }
        self.changes = None;
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// However it ends, every process is as it was.
impl Drop for Runtimes {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests;
