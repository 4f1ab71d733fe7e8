//! What is done about waits before all else is ready.
//!
//! Problem: programs that share a machine lose most of their time in waits from their first moments on, and a
//! short one is over before kernel programs are loaded and clocks opened, which would take PEs from it, too.
//! Approach: the little that waits need is read from `/proc` from the start: which threads the command has,
//! and for how long they wait for a PE. What was changed by the time that all is ready, the [`Runtimes`] tell
//! with the next delay, and the engine goes on from there. Limits: who was held up only before that is in no
//! report. A process whose parent ends before it is seen is met later.

use crate::Processes;
use corewise_binding::guardian::Guardian;
use corewise_binding::runtimes::Runtimes;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::observe::ProcessDelay;
use corewise_core::plan::{Change, OutcomeKind, Placement, SettingKind};
use corewise_core::report::{ChangedProgram, WaitsReport};
use corewise_core::time::Time;
use corewise_core::waits::{Mitigations, Timeslices, Waits};
use corewise_counters::delays::PERIOD_IF_DISTURBING;
use corewise_discovery::NewThread;
use corewise_sys::allowance::Allowance;
use corewise_sys::clock::own_cpu_time;
use corewise_sys::proc::Proc;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks for new threads, until the command has a team; longer if looks take more than
/// [`COST_MAX`] of a PE.
const LOOK: Duration = Duration::from_millis(5);
/// The same afterwards, and what it grows to: this part of the time since the last new thread.
const LOOK_WITH_TEAMS: Duration = Duration::from_millis(10);
const LOOK_WITH_TEAMS_MAX: Duration = Duration::from_millis(50);
const LOOK_WITH_TEAMS_PART: u32 = 20;
/// The same for threads that yield while they spin: how they share the PEs depends on every disturbance.
const LOOK_IF_DISTURBING: Duration = PERIOD_IF_DISTURBING;
const COST_MAX: f64 = 0.01;

/// Looks that are due this soon are made together: each interrupts a thread of the program.
const TOGETHER: Duration = Duration::from_millis(8);

/// Whose waits are short and whose threads run for no longer at a time may be better off with turns, which
/// samples tell. *Measured* while two copies shared two PEs: 46 µs or more where short waits are right, 5 to
/// 12 where turns are better.
const BLOCKING_WITHIN: Duration = Duration::from_micros(32);
/// Over so much CPU time: by then a process has wasted about as much as it costs to get ready.
const JUDGED_OVER: Duration = Duration::from_millis(400);
/// How often the threads of processes with short waits block.
#[derive(Default)]
struct Blocking(HashMap<ThreadId, Timeslices>);

impl Blocking {
    /// Takes in a look at a process with short waits; whether it has lately blocked very often.
    fn take(&mut self, delay: &ProcessDelay) -> bool {
        let timeslices = self.0.entry(delay.leader).or_default();
        timeslices.take(delay);
        if timeslices.run() < JUDGED_OVER {
            return false;
        }
        std::mem::take(timeslices).mean().is_some_and(|mean| mean <= BLOCKING_WITHIN)
    }
}

/// See the module's text.
pub struct Early {
    proc: Proc,
    command: u32,
    began: Instant,
    threads: HashSet<u32>,
    /// The machine's last thread when it was looked for new ones, and when that is due again.
    last_created: Option<u32>,
    due: Instant,
    /// When a new thread was found last.
    met: Instant,
    allowance: Allowance,
    processes: Processes,
    waits: Waits,
    present: Placement,
    /// The processes whose waits were changed, and their programs.
    changed: BTreeSet<(SettingKind, ThreadId)>,
    programs: BTreeMap<ThreadId, Arc<str>>,
    blocking: Blocking,
    /// Whether turns may be better for a process.
    turns_may_help: bool,
    /// Whether programs may take turns.
    turns: bool,
}

impl Early {
    /// Of a command that has just been started.
    pub fn new(command: u32, config: &EngineConfig) -> Early {
        let now = Instant::now();
        Early {
            proc: Proc::own(),
            command,
            began: now,
            threads: HashSet::new(),
            last_created: None,
            due: now + LOOK,
            met: now,
            allowance: Allowance::new(COST_MAX),
            processes: Processes::new(Runtimes::new(config), now),
            // Who spins in code of his own is told by samples.
            waits: Waits::new(Mitigations { turns: false, ..config.mitigations }),
            present: Placement::default(),
            changed: BTreeSet::new(),
            programs: BTreeMap::new(),
            blocking: Blocking::default(),
            turns_may_help: false,
            turns: config.mitigations.turns,
        }
    }

    /// What was changed so far, for a command that ends before it is watched.
    pub fn report(&self) -> WaitsReport {
        let count = |of| self.changed.iter().filter(|(kind, _)| *kind == of).count() as u64;
        WaitsReport {
            handled: true,
            programs: ChangedProgram::count(self.programs.values().cloned()),
            spinning_cpu_seconds: None,
            shortened_processes: count(SettingKind::SpinCount),
            processes_in_turns: 0,
            team_size: None,
            guard: None,
        }
    }

    /// Whether some process has several threads, so that there may be something to change.
    pub fn has_teams(&self) -> bool {
        self.processes.meter.has_teams()
    }

    /// From now on something may be changed.
    pub fn may_write(&mut self, guardian: &Guardian) {
        self.processes.runtimes.may_write(guardian);
    }

    /// Looks, and changes what is to be changed. Until when to look again.
    pub fn look(&mut self) -> Duration {
        if Instant::now() + TOGETHER >= self.due {
            self.meet_new_threads();
        }
        let now = Time(self.began.elapsed().as_nanos() as u64);
        let mut changes = false;
        for delay in self.processes.read() {
            changes |= self.waits.take(&delay, now);
            if delay.spin_count.is_some() {
                // It blocks often, or other programs take turns beside it.
                self.turns_may_help |= self.turns && (self.blocking.take(&delay) || delay.other_gangs > 0);
            }
        }
        if changes {
            self.change();
        }
        let left = self.due.saturating_duration_since(Instant::now());
        let due = self.processes.due_within();
        due.filter(|due| *due < left + TOGETHER).unwrap_or(left)
    }

    /// Whether turns may be right, which samples tell: threads are held up and want PEs all the time all the
    /// same, so they may wait in code of their own; or they block so often that short waits waste time; or
    /// other programs take turns.
    pub fn needs_samples(&self) -> bool {
        self.processes.meter.is_any_busy_without_yielding() || self.turns_may_help
    }

    /// Whether threads that want PEs all the time are delayed.
    pub fn is_delayed(&self) -> bool {
        self.processes.meter.is_any_busy()
    }

    /// Returns the processes, for the world that continues.
    pub fn into_processes(self) -> Processes {
        self.processes
    }

    fn change(&mut self) {
        let mut wanted = Placement::default();
        self.waits.add_to(&mut wanted);
        let actions = self.present.actions_towards(&wanted, []);
        for outcome in actions.iter().filter_map(|action| self.processes.apply(action)) {
            self.waits.take_outcome(&outcome);
            if let (Change::Set(setting), OutcomeKind::Done) = (&outcome.change, &outcome.result) {
                self.changed.insert((setting.kind(), outcome.thread));
                let name = self.proc.program_name(outcome.thread.tid);
                self.programs.extend(name.map(|name| (outcome.thread, name.into())));
            }
        }
        self.present = wanted;
    }

    fn meet_new_threads(&mut self) {
        let (began, cpu_before) = (Instant::now(), own_cpu_time());
        let last_created = self.proc.last_created();
        if last_created.is_none() || last_created != self.last_created {
            self.last_created = last_created;
            let mut processes = vec![self.command];
            while let Some(pid) = processes.pop() {
                // Who cannot be looked at has ended.
                processes.extend(self.proc.children(pid).unwrap_or_default());
                for tid in self.proc.threads(pid).ok().flatten().unwrap_or_default() {
                    if self.threads.insert(tid) {
                        let thread = NewThread { tid, pid, creator_tid: None, generation: 0, created: began };
                        self.processes.meet(&thread);
                        self.met = began;
                    }
                }
            }
        }
        let calm = self.met.elapsed() / LOOK_WITH_TEAMS_PART;
        let period = match self.processes.meter.yields() {
            Some(true) => LOOK_IF_DISTURBING,
            Some(false) => calm.clamp(LOOK_WITH_TEAMS, LOOK_WITH_TEAMS_MAX),
            None => LOOK,
        };
        self.due = Instant::now() + period.max(self.allowance.spend(own_cpu_time() - cpu_before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at a process that ran for so long in so many timeslices.
    fn look(tid: u32, run_ms: u64, timeslices: u64) -> ProcessDelay {
        ProcessDelay {
            leader: ThreadId { tid, generation: 0 },
            run_ns: run_ms * 1_000_000,
            wait_ns: 0,
            throttled_ns: 0,
            elapsed_ns: 10_000_000,
            timeslices: Some(timeslices),
            idle_percent: None,
            adaptable: true,
            gives_way: false,
            other_gangs: 0,
            spin_count: Some(50),
        }
    }

    #[test]
    fn threads_that_run_for_a_few_microseconds_at_a_time_block_often() {
        let mut blocking = Blocking::default();
        let mut after = |tid, timeslices| (1..100).find(|_| blocking.take(&look(tid, 10, timeslices)));
        assert_eq!(after(1, 800), Some(40), "12 µs each, as soon as there was time enough");
        assert_eq!(after(2, 220), None, "46 µs each");
        assert_eq!(after(3, 0), None, "whoever never gives its PE away");
    }

    #[test]
    fn what_was_before_does_not_count_for_ever() {
        let mut blocking = Blocking::default();
        assert!(!blocking.take(&look(1, 10_000, 10)));
        assert!(!blocking.take(&look(2, 399, 40_000)));
        assert!(blocking.take(&look(1, 400, 40_000)));
    }
}
