//! What is done about waits before all else is ready.
//!
//! Problem: programs that share a machine lose most of their time in waits from their first moments on, and a
//! short one is over before kernel programs are loaded and clocks opened, which would take PEs from it, too.
//! Approach: the little that waits need is read from `/proc` from the start: which threads the command has,
//! and for how long they wait for a PE. What was changed by the time that all is ready, the [`Runtimes`] tell
//! with the next delay, and the engine goes on from there. Limits: who was held up only before that is in no
//! report. A process whose parent ends before it is seen is met later.

use corewise_binding::guardian::Guardian;
use corewise_binding::runtimes::{PERIOD_IF_DISTURBING, Runtimes};
use corewise_binding::turns;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::plan::{Change, OutcomeKind, Placement, SettingKind};
use corewise_core::report::WaitsReport;
use corewise_core::teams::Teams;
use corewise_core::time::Time;
use corewise_core::waits::{Cures, Waits};
use corewise_discovery::NewThread;
use corewise_sys::allowance::Allowance;
use corewise_sys::clock::own_cpu_time;
use corewise_sys::proc::Proc;
use nix::unistd::{SysconfVar, sysconf};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// Time between two looks for new threads, until the command has a team and after; longer if looks take more
/// than [`COST_MAX`] of a PE.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_WITH_TEAMS: Duration = Duration::from_millis(10);
/// The same for threads that yield while they spin: how they share the PEs depends on every disturbance.
const LOOK_IF_DISTURBING: Duration = PERIOD_IF_DISTURBING;
const COST_MAX: f64 = 0.01;

/// Looks that are due this soon are made together: each interrupts a thread of the program.
const TOGETHER: Duration = Duration::from_millis(8);

/// Whose waits are short and who spends this share of his CPU time in the kernel may be better off with
/// turns, which samples tell. *Measured* while two copies shared two PEs: 0.04 to 0.07 where short waits are
/// right, 0.15 and 0.37 where turns are better.
const BLOCKING_FROM: f64 = 0.125;
/// Of so many ticks of CPU time (10 ms each). Fewer than 1 in 7 say so of one that spends 0.07.
const BLOCKING_TICKS: u64 = 32;
/// Time between two looks at that.
const LOOK_FOR_BLOCKING: Duration = Duration::from_millis(50);

/// The CPU time of processes from when on it is judged, all and in the kernel, in ticks.
#[derive(Default)]
struct KernelTimes(HashMap<u32, (u64, u64)>);

impl KernelTimes {
    /// Takes in the time that a process has had so far; whether it has lately been in the kernel for too
    /// much of it.
    fn blocks(&mut self, pid: u32, all: u64, kernel: u64) -> bool {
        let before = *self.0.entry(pid).or_insert((all, kernel));
        let (spent, in_kernel) = (all.saturating_sub(before.0), kernel.saturating_sub(before.1));
        if spent < BLOCKING_TICKS {
            return false;
        }
        self.0.insert(pid, (all, kernel));
        in_kernel as f64 >= BLOCKING_FROM * spent as f64
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
    allowance: Allowance,
    runtimes: Runtimes,
    waits: Waits,
    teams: Teams,
    pes: usize,
    present: Placement,
    /// The processes whose waits or teams were changed.
    changed: BTreeSet<(SettingKind, ThreadId)>,
    /// When it was last looked how much of their time those with short waits spend in the kernel, that time,
    /// and whether turns may be better for one.
    times_read: Instant,
    times: KernelTimes,
    turns_may_help: bool,
    /// Whether programs may take turns.
    turns: bool,
}

impl Early {
    /// Of a command that has just been started with the value `planted`.
    pub fn new(command: u32, config: &EngineConfig, planted: Option<u64>) -> Early {
        let now = Instant::now();
        let pes = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
        Early {
            proc: Proc::own(),
            command,
            began: now,
            threads: HashSet::new(),
            last_created: None,
            due: now + LOOK,
            allowance: Allowance::new(COST_MAX),
            runtimes: Runtimes::new(config, planted),
            // Who spins in code of his own is told by samples.
            waits: Waits::new(Cures { turns: false, ..config.cures }),
            teams: Teams::new(config.adapt_team),
            pes: pes.map_or(1, |pes| pes as usize),
            present: Placement::default(),
            changed: BTreeSet::new(),
            times_read: now,
            times: KernelTimes::default(),
            turns_may_help: false,
            turns: config.cures.turns,
        }
    }

    /// What was changed so far, for a command that ends before it is watched.
    pub fn report(&self) -> WaitsReport {
        let count = |of| self.changed.iter().filter(|(kind, _)| *kind == of).count() as u64;
        WaitsReport {
            spinning_cpu_seconds: None,
            shortened_processes: count(SettingKind::SpinCount),
            processes_in_turns: 0,
            processes_with_smaller_teams: count(SettingKind::TeamSize),
            guard: None,
        }
    }

    /// Whether some process has several threads, so that there may be something to change.
    pub fn has_teams(&self) -> bool {
        self.runtimes.has_teams()
    }

    /// From now on something may be changed.
    pub fn may_write(&mut self, guardian: &Guardian) -> io::Result<()> {
        self.runtimes.may_write(guardian)
    }

    /// Looks, and changes what is to be changed. Until when to look again.
    pub fn look(&mut self) -> Duration {
        if Instant::now() + TOGETHER >= self.due {
            self.meet_new_threads();
        }
        let now = Time(self.began.elapsed().as_nanos() as u64);
        let mut changes = false;
        for delay in self.runtimes.look() {
            changes |= self.waits.take(&delay, now);
            changes |= self.teams.take(&delay, self.pes, now);
        }
        if changes {
            self.change();
        }
        if self.turns && self.times_read.elapsed() >= LOOK_FOR_BLOCKING {
            self.note_whether_turns_help();
        }
        let left = self.due.saturating_duration_since(Instant::now());
        let due = self.runtimes.due_within();
        due.filter(|due| *due < left + TOGETHER).unwrap_or(left)
    }

    /// Whether turns may be right, which samples tell: threads are held up and want PEs all the time all the
    /// same, so they may wait in code of their own; or they block so often that short waits waste time; or
    /// other programs take turns.
    pub fn needs_samples(&self) -> bool {
        self.runtimes.never_sleep() || self.turns_may_help
    }

    /// Whether threads that want PEs all the time are delayed.
    pub fn is_delayed(&self) -> bool {
        self.runtimes.is_any_delayed()
    }

    /// For whoever goes on.
    pub fn into_runtimes(self) -> Runtimes {
        self.runtimes
    }

    fn change(&mut self) {
        let mut wanted = Placement::default();
        self.waits.add_to(&mut wanted);
        self.teams.add_to(&mut wanted);
        let actions = self.present.actions_towards(&wanted, []);
        for outcome in actions.iter().filter_map(|action| self.runtimes.apply(action)) {
            self.waits.take_outcome(&outcome);
            self.teams.take_outcome(&outcome);
            if let (Change::Set(setting), OutcomeKind::Done) = (&outcome.change, &outcome.result) {
                self.changed.insert((setting.kind(), outcome.thread));
            }
        }
        self.present = wanted;
    }

    fn note_whether_turns_help(&mut self) {
        self.times_read = Instant::now();
        for (_, leader) in self.changed.iter().filter(|(kind, _)| *kind == SettingKind::SpinCount) {
            if let Ok(Some(stat)) = self.proc.process(leader.tid) {
                self.turns_may_help |= self.times.blocks(leader.tid, stat.cpu_ticks, stat.kernel_ticks);
            }
            self.turns_may_help = self.turns_may_help || turns::are_taken_beside(leader.tid);
        }
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
                        self.runtimes.watch(&thread);
                    }
                }
            }
        }
        let period = match self.runtimes.gives_way() {
            Some(true) => LOOK_IF_DISTURBING,
            Some(false) => LOOK_WITH_TEAMS,
            None => LOOK,
        };
        self.due = Instant::now() + period.max(self.allowance.spend(own_cpu_time() - cpu_before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a process that spends this share in the kernel is found to block, looked at every 50 ms.
    fn is_found(share: f64, looks: u64) -> bool {
        let mut times = KernelTimes::default();
        // What it did while it loaded its libraries does not count.
        (0..looks).any(|look| times.blocks(1, 100 + 10 * look, 90 + (share * 10.0 * look as f64) as u64))
    }

    #[test]
    fn a_process_that_is_often_in_the_kernel_blocks() {
        assert!(is_found(0.15, 20) && is_found(0.37, 5));
        assert!(!is_found(0.37, 3), "so little time tells nothing");
        assert!(!is_found(0.07, 1_000), "however long it runs");
    }

    #[test]
    fn time_is_judged_anew_each_time_and_for_each_process() {
        let mut times = KernelTimes::default();
        assert!(!times.blocks(1, 0, 0) && !times.blocks(2, 0, 0));
        assert!(!times.blocks(1, 1_000, 50));
        assert!(!times.blocks(2, 1_000, 50));
        assert!(times.blocks(1, 1_040, 60), "what was before is judged");
        assert!(!times.blocks(2, 1_040, 52));
    }
}
