//! How the threads of processes wait for each other, and what is better.
//!
//! **Problem.** A thread that waits for work can spin, which answers at once but takes a PE, or sleep, which
//! costs a block and a wake-up. Runtime libraries spin for milliseconds. That is right as long as nobody else
//! needs the PE; where several programs share a machine, threads spin on the PEs of the threads that they
//! wait for, and everything takes ten times as long.
//!
//! **Approach.** A process waits in one of three ways ([`State`]): as its library chose (*own*), for no
//! longer than a block costs (*short*), or as it chose but in *turns* with other programs, each of which then
//! has all PEs at once (gang scheduling: Ousterhout, "Scheduling techniques for concurrent systems",
//! ICDCS'82). A fourth way, fewer threads, can only be chosen before a program starts ([`teams`]). Three
//! principles decide:
//!
//! 1. *One currency*: the share of its PE time that a process loses ([`losses`]), for each way as it was
//!    seen, or else by a model. What was never tried is expected to lose a tenth ([`losses::UNTRIED`]).
//! 2. *Rent or buy*: a process changes when staying has cost what a change costs, and not before. Where the
//!    loss is known by samples only, the test of the [guard](crate::evidence) must show it.
//! 3. *Backoff*: what did not help is tried again ever more rarely.
//!
//! **What happens** to a program of GNU's OpenMP with two threads on two PEs:
//! - *Alone*: no thread waits for a PE, so own waits lose nothing, and nothing is changed.
//! - *Beside a second one*: each thread runs half of the time, so own waits lose all. After 6 ms lost both
//!   have short waits. If they wait every few microseconds, samples show that blocks cost more than a tenth;
//!   each offers to take turns, and as soon as both do, they take them.
//! - *Beside a disturbance*: something takes a PE now and then. Own waits lose what it takes, short waits
//!   their blocks, and the idle time until threads are awake again. If that is more, own waits come back, and
//!   short ones are tried again after half a second, one second, and so on.
//! - *Two libraries* in one program, each with two threads: four threads want two PEs, so it is as beside a
//!   second one, until one of the libraries sleeps.
//! - *In a quota* that stops its threads: what they spin, its own team needs. After two periods it has short
//!   waits, under which threads rest that would spin. If these rest little and block often, own waits come
//!   back, and so they do when the quota would do for all threads. No other run gains or loses by that, so
//!   the guard of waits does not try it: in its short epochs a quota is not spent.
//! - *Under steal*: a virtual machine that gets less than its PEs sees it as a disturbance, if at all.
//!
//! A program that spins in its own code, or in a library whose waits cannot be changed, goes from its own
//! waits to turns when samples show its spinning while it lacks PEs. LLVM's OpenMP yields while it spins; two
//! of its threads on one PE yield to each other in vain, and the system leaves them there for seconds, so
//! that its threads are kept [apart](Waits::apart).
//!
//! **Limits.** What is better for one program may be worse for others: the [guard of
//! waits](crate::guard::waits) tries that. A program with more working threads than PEs that never wait for
//! each other gains nothing.

pub mod looks;
pub mod losses;
mod process;
pub mod teams;
#[cfg(test)]
mod tests;

pub use self::losses::Samples;
pub use self::process::{QUOTA_IS_SPENT, State};
use crate::ids::ThreadId;
use crate::machine_model::Switching;
use crate::observe::{ProcessReading, Program};
use crate::plan::{Outcome, OutcomeKind, Placement, SettingKind, WantedSetting};
use crate::time::Time;
pub use crate::wait_changes::WaitChanges;
use process::Process;
use std::collections::BTreeMap;
use std::time::Duration;

/// The settings that are decided here.
const KINDS: [SettingKind; 2] = [SettingKind::SpinCount, SettingKind::Turns];

/// The waits of all processes with several threads.
#[derive(Debug, Default)]
pub struct Waits {
    may: WaitChanges,
    /// What stopping threads costs here.
    pub costs: Switching,
    processes: BTreeMap<ThreadId, Process>,
}

impl Waits {
    /// Creates the state of no process, on a machine where switches cost this.
    pub fn new(may: WaitChanges, costs: Switching) -> Self {
        Self { may, costs, processes: BTreeMap::new() }
    }

    /// Takes in which programs processes run now. If the waits of the last one are changed, the outcome of
    /// the next change will say that it is gone.
    pub fn take_programs(&mut self, programs: &[Program]) {
        for leader in programs.iter().map(|program| program.leader) {
            if self.processes.get(&leader).is_some_and(|process| !process.is_changed()) {
                self.processes.remove(&leader);
            }
        }
    }

    /// Takes note of what may be changed about the waits of each process from now on, by its ID, where the
    /// run permits it, too. A process of which nothing may be changed is forgotten.
    pub fn limit(&mut self, may: impl Fn(u32) -> WaitChanges) {
        let run = self.may;
        self.processes.retain(|leader, process| {
            let may = may(leader.tid).and(run);
            process.limit(may);
            may.any()
        });
    }

    /// Takes in a reading of a process about whose waits this may be changed. Returns whether other settings
    /// are wanted from now on.
    pub fn take(&mut self, reading: &ProcessReading, may: WaitChanges, now: Time) -> bool {
        self.process(reading, may).is_some_and(|process| process.take(reading, now))
    }

    /// Takes in a reading of a time in which all changes were undone.
    pub fn skip(&mut self, reading: &ProcessReading, may: WaitChanges) {
        self.process(reading, may).into_iter().for_each(|process| process.skip(reading));
    }

    fn process(&mut self, reading: &ProcessReading, may: WaitChanges) -> Option<&mut Process> {
        let may = may.and(self.may);
        let new = || Process::new(reading, may, self.costs);
        may.any().then(|| self.processes.entry(reading.leader).or_insert_with(new))
    }

    /// Takes in the outcome of a change.
    pub fn take_outcome(&mut self, outcome: &Outcome) {
        match (outcome.change.setting_kind(), &outcome.result) {
            // It is another program now, or has unloaded the library: all begins anew.
            (Some(SettingKind::SpinCount), OutcomeKind::Gone) => self.forget(outcome.thread),
            (Some(SettingKind::SpinCount), OutcomeKind::NotOurs) => {
                self.processes.get_mut(&outcome.thread).into_iter().for_each(Process::leave_alone);
            }
            _ => {}
        }
    }

    /// Returns the processes whose samples can show that something else is better.
    pub fn to_judge(&self) -> Vec<ThreadId> {
        let of = self.processes.iter().filter(|(_, process)| process.is_to_be_judged());
        of.map(|(&leader, _)| leader).collect()
    }

    /// Takes in what samples have shown of the threads of such a process.
    pub fn judge(&mut self, leader: ThreadId, samples: Samples, now: Time) {
        if let Some(process) = self.processes.get_mut(&leader) {
            process.judge(samples, now);
        }
    }

    /// Forgets samples that were taken while changes were undone.
    pub fn judge_anew(&mut self) {
        self.processes.values_mut().for_each(Process::judge_anew);
    }

    /// Returns the time until the next observation, if samples are to be judged.
    pub fn judged_within(&self, now: Time) -> Option<Duration> {
        self.processes.values().filter_map(|process| process.judged_within(now)).min()
    }

    /// Returns whether a process has lost enough for lack of samples that opening them is worth it.
    pub fn needs_samples(&self) -> bool {
        self.processes.values().any(|process| process.needs_samples())
    }

    /// Returns the processes in a state.
    pub fn in_state(&self, state: State) -> impl Iterator<Item = ThreadId> {
        self.processes.iter().filter(move |(_, process)| process.state() == state).map(|(&leader, _)| leader)
    }

    /// Returns the processes whose threads must not share PEs.
    pub fn apart(&self, now: Time) -> impl Iterator<Item = ThreadId> {
        self.processes.iter().filter(move |(_, process)| process.is_apart(now)).map(|(&leader, _)| leader)
    }

    /// Returns whether the waits of any process are changed because other threads want its PEs.
    pub fn is_any_changed_for_others(&self) -> bool {
        self.processes.values().any(Process::is_changed_for_others)
    }

    /// Returns whether the waits of a process are changed for the sake of its own quota alone.
    pub fn saves_quota(&self, leader: ThreadId) -> bool {
        let process = self.processes.get(&leader);
        process.is_some_and(|process| process.is_changed() && !process.is_changed_for_others())
    }

    /// Adds the settings that are wanted.
    pub fn add_to(&self, wanted: &mut Placement) {
        // Policies do not decide about these.
        wanted.settings.retain(|(_, kind), _| !KINDS.contains(kind));
        for (&leader, process) in &self.processes {
            for (setting, reason) in process.settings() {
                wanted.settings.insert((leader, setting.kind()), WantedSetting { setting, reason });
            }
        }
    }

    /// Takes out the settings that are not in force in an epoch of the guard: what only a quota asks for
    /// stays.
    pub fn undo_for_an_epoch(&self, wanted: &mut Placement) {
        wanted.settings.retain(|(of, kind), _| !KINDS.contains(kind) || self.saves_quota(*of));
    }

    /// Forgets a process whose first thread has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.processes.remove(&thread);
    }
}
