//! The runtime libraries of watched programs: whether their threads are held up, and how long idle ones spin.
//!
//! Problem: idle threads of a parallel program spin for a while, as work may come at once. Where another
//! program needs their PEs, that harms both; where nobody does, it helps. Programs choose at their start.
//!
//! Approach: of every process with several threads it is added up, every [`PERIOD`], for how long they waited
//! for a PE (`schedstat`): that is being held up, by whomever. Only then is it looked for a runtime library
//! whose variable is known ([`libgomp`]), and the process told of
//! ([`Event::Delayed`](corewise_core::observe::Event)). What to do is decided by the engine
//! ([`corewise_core::waits`]); how long threads spin is changed here, and given back: also by the guardian,
//! which is handed the memory that was written to.
//!
//! Limits: a process with thousands of threads is looked at less often, so that looking costs no more than
//! [`COST_MAX`]. What a process forks has its values: it is given its own back when it is first seen, but not
//! if corewise is killed before.

pub mod libgomp;

use crate::guardian::{Guardian, Words};
use corewise_code::space::FileKey;
use corewise_core::ids::ThreadId;
use corewise_core::observe::ProcessDelay;
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind, Setting, SettingKind};
use corewise_core::waits::CALM_MAX;
use corewise_discovery::NewThread;
use corewise_sys::clock::own_cpu_time;
use corewise_sys::proc::{Proc, Schedstat, SchedstatFile};
use libgomp::{SpinCount, WriteError};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// Time between two looks at the same process.
pub const PERIOD: Duration = Duration::from_millis(10);

/// The share of a PE that looking may cost.
pub const COST_MAX: f64 = 0.002;

/// Share of the time in which threads want a PE but wait for it, from which on it is looked for a runtime
/// library, and told.
const DELAYED_MIN: f64 = 0.02;

/// How long it is waited between two searches of the same process: at first, and at most, as it doubles with
/// every one. (A library can be loaded at any time.)
const SEARCH_AFTER: Duration = Duration::from_millis(50);
const SEARCH_AFTER_MAX: Duration = Duration::from_secs(1);

/// For how long it is told of a process that is held up no longer: until its own choice holds again.
const TOLD_FOR: Duration = CALM_MAX.saturating_mul(2);

/// Of a thread more than this many are not kept open: descriptors are few.
const KEPT_OPEN_MAX: usize = 256;

/// The variables by which a user decides how threads wait. Such a wish wins.
pub const WISHES: [&str; 3] = [libgomp::VARIABLE, "OMP_WAIT_POLICY", "KMP_BLOCKTIME"];

/// The variable by which the user has decided, if one of [`WISHES`] is set.
pub fn wish() -> Option<&'static str> {
    WISHES.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// What the program is started with: about what libgomp takes by itself, but hardly found by chance.
pub fn planted_value() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let chance = u64::from(now.subsec_nanos()) ^ u64::from(std::process::id()).wrapping_mul(0x9e37_79b9);
    300_000 + chance % 9_973
}

/// The runtimes of the watched processes.
#[derive(Debug)]
pub struct Runtimes {
    proc: Proc,
    /// What programs were started with; `None`: their variables cannot be found.
    planted: Option<u64>,
    /// `None`: nothing is written any more.
    guardian: Option<Words>,
    processes: BTreeMap<u32, Process>,
    kept_open: usize,
    looked_at: Instant,
    /// The CPU time of the last look, without searches.
    cost: Duration,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Process {
    leader: ThreadId,
    threads: HashMap<u32, Watched>,
    copies: Vec<SpinCount>,
    /// The spin count that is wanted of them, if not the library's own choice.
    wanted: Option<u64>,
    /// Mapped files that are no such library.
    others: HashSet<FileKey>,
    search_at: Instant,
    search_after: Duration,
    /// The most threads that it had at a time.
    most_threads: usize,
    /// Until when it is told of, held up or not.
    told_until: Instant,
}

#[derive(Debug)]
struct Watched {
    file: SchedstatFile,
    last: Schedstat,
}

impl Runtimes {
    /// Of programs that are started with the value `planted`, if with any. The guardian is entrusted with
    /// what is written.
    pub fn new(planted: Option<u64>, guardian: &Guardian) -> io::Result<Self> {
        Ok(Self {
            proc: Proc::at("/proc"),
            planted,
            guardian: Some(guardian.words()?),
            processes: BTreeMap::new(),
            kept_open: 0,
            looked_at: Instant::now(),
            cost: Duration::ZERO,
            notes: Vec::new(),
        })
    }

    /// Takes note of a thread.
    pub fn watch(&mut self, thread: &NewThread) {
        let now = Instant::now();
        let leads = thread.tid == thread.pid;
        let leader = ThreadId { tid: thread.pid, generation: if leads { thread.generation } else { 0 } };
        if leads {
            self.meet_child(thread.pid);
        }
        let process = self.processes.entry(thread.pid).or_insert_with(|| Process {
            leader,
            threads: HashMap::new(),
            copies: Vec::new(),
            wanted: None,
            others: HashSet::new(),
            search_at: now,
            search_after: SEARCH_AFTER,
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
            (process.search_at, process.search_after) = (now, SEARCH_AFTER);
        }
    }

    /// Gives a new process its own values back, where it has those that its parent was given.
    fn meet_child(&self, pid: u32) {
        let is_any_changed = |process: &Process| process.copies.iter().any(SpinCount::is_changed);
        if !self.processes.values().any(is_any_changed) {
            return;
        }
        // Who has ended meanwhile needs nothing.
        let Ok(Some(stat)) = self.proc.stat(pid, pid) else { return };
        let copies = self.processes.get(&stat.parent).into_iter().flat_map(|parent| &parent.copies);
        for mut copy in copies.filter_map(|copy| copy.in_child(pid)) {
            let _ = copy.give_back();
        }
    }

    /// Until when the next look is due; `None` while no process has several threads.
    pub fn due_within(&self) -> Option<Duration> {
        let several = self.processes.values().any(|process| process.threads.len() > 1);
        let period = PERIOD.max(self.cost.div_f64(COST_MAX));
        several.then(|| period.saturating_sub(self.looked_at.elapsed()))
    }

    /// Looks, if a look is due: which processes with several threads were held up, or are no longer.
    pub fn look(&mut self) -> Vec<ProcessDelay> {
        if self.due_within().is_none_or(|within| !within.is_zero()) {
            return Vec::new();
        }
        let (began, cpu_before) = (Instant::now(), own_cpu_time());
        let mut searching = Duration::ZERO;
        let mut delays = Vec::new();
        let planted = self.planted;
        let (mut kept_open, mut notes) = (0, Vec::new());
        self.processes.retain(|&pid, process| {
            let delay = process.delay();
            kept_open +=
                process.threads.values().filter(|t| matches!(t.file, SchedstatFile::Open(_))).count();
            let is_delayed = delay.share() >= DELAYED_MIN;
            if let Some(planted) = planted.filter(|_| is_delayed && began >= process.search_at) {
                let before = own_cpu_time();
                notes.extend(process.search(pid, planted, self.guardian.as_ref()));
                searching += own_cpu_time() - before;
            }
            if is_delayed && process.threads.len() > 1 {
                process.told_until = began + TOLD_FOR;
            }
            // As long as something is changed, it is told, too, that they wait no longer.
            let is_changed = process.copies.iter().any(SpinCount::is_changed);
            if is_changed || began < process.told_until {
                delays.push(ProcessDelay { adaptable: !process.copies.is_empty(), ..delay });
            }
            !process.threads.is_empty()
        });
        notes.iter().for_each(|note| self.note(note));
        self.kept_open = kept_open;
        self.looked_at = Instant::now();
        // Not by the clock: where PEs are contended, corewise waits for one, too. A search is rare.
        self.cost = (own_cpu_time() - cpu_before).saturating_sub(searching);
        delays
    }

    /// Whether a change is one of how idle threads spin.
    pub fn is_ours(action: &Action) -> bool {
        action.change.setting_kind() == Some(SettingKind::SpinCount)
    }

    /// Carries out a change, if it is one of how idle threads spin.
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
        for copy in self.processes.values_mut().flat_map(|process| &mut process.copies) {
            // Who is gone, or has decided otherwise since, needs nothing.
            let _ = copy.give_back();
        }
        self.guardian = None;
    }

    /// What a user should know, in words.
    pub fn troubles(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Lets the idle threads of a process spin so long, or as long as at first.
    fn write(&mut self, leader: ThreadId, count: Option<u64>) -> OutcomeKind {
        let process = self.processes.get_mut(&leader.tid).filter(|process| !process.copies.is_empty());
        let (Some(process), Some(guardian)) = (process, &self.guardian) else {
            return OutcomeKind::Refused("no runtime library whose waits can be changed".to_owned());
        };
        process.wanted = count;
        process.write(guardian)
    }

    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }
}

impl Process {
    /// For how long its threads ran, and waited for a PE, since the last look.
    fn delay(&mut self) -> ProcessDelay {
        let mut delay = ProcessDelay { leader: self.leader, run_ns: 0, wait_ns: 0, adaptable: false };
        self.threads.retain(|_, watched| {
            let Ok(Some(now)) = watched.file.read() else { return false };
            delay.run_ns += now.run_ns.saturating_sub(watched.last.run_ns);
            delay.wait_ns += now.wait_ns.saturating_sub(watched.last.wait_ns);
            watched.last = now;
            true
        });
        delay
    }

    /// Lets its idle threads spin as it is wanted.
    fn write(&mut self, guardian: &Words) -> OutcomeKind {
        let (mut answer, wanted) = (OutcomeKind::Done, self.wanted);
        self.copies.retain_mut(|copy| {
            let written = match wanted {
                Some(count) => copy.write_after(count, |memory, word| guardian.entrust(memory, word)),
                None => copy.give_back(),
            };
            if let Err(error) = written {
                answer = match error {
                    WriteError::Gone => OutcomeKind::Gone,
                    WriteError::NotOurs => OutcomeKind::NotOurs,
                    WriteError::Refused(why) => OutcomeKind::Refused(why),
                };
                return false;
            }
            true
        });
        answer
    }

    /// Looks for runtime libraries that were not there yet; what a user should know of it.
    fn search(&mut self, pid: u32, planted: u64, guardian: Option<&Words>) -> Option<String> {
        let found = libgomp::find_again(pid, planted, &mut self.others);
        self.search_at = Instant::now() + self.search_after;
        self.search_after = (2 * self.search_after).min(SEARCH_AFTER_MAX);
        match found {
            Ok(found) => {
                let is_new = |copy: &SpinCount| !self.copies.iter().any(|known| known.is_same(copy));
                let new: Vec<SpinCount> = found.into_iter().filter(is_new).collect();
                self.copies.extend(new);
                if let (Some(guardian), Some(_)) = (guardian, self.wanted) {
                    self.write(guardian);
                }
                None
            }
            // It has ended meanwhile.
            Err(libgomp::FindError::Process { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                None
            }
            Err(error) => Some(format!("waits stay as they are: {error}")),
        }
    }
}

#[cfg(test)]
mod tests;
