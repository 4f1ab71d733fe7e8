//! How long the idle threads of a process spin before they sleep.
//!
//! Problem: whoever waits for work can spin, which answers at once but takes a PE, or sleep, which costs a
//! block and a wake-up (some microseconds). Runtime libraries spin for milliseconds. That is right as long as
//! nobody else needs the PE; where several programs share a machine, threads spin on the PEs that those need
//! for whom they wait, and everything takes ten times as long.
//!
//! Approach: as long as the threads of a process are held up (they want a PE but wait for it), its idle
//! threads spin no longer than a block costs: whatever comes, that takes at most twice the time of the best
//! choice (Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning for a shared-memory
//! multiprocessor", SOSP'91). When they have not been held up for a while, the library's own choice holds
//! again; each relapse doubles that while ([`CALM_MIN`] to [`CALM_MAX`]), so that it does not go to and fro.
//! It is the spin-then-notify of "parallelism-aware scheduling", section 3.2, for programs that know nothing
//! of it.
//!
//! Some programs spin in their own code, too. When only their library's waits sleep, they spin the more: so
//! where the threads of a process still spin after the change ([`OWN_SPINNING_MIN`] by sampled code), it is
//! taken back for good.
//!
//! Limits: who is held up without having idle threads (more working threads than PEs) gains nothing by this,
//! and loses next to nothing.

use crate::ids::ThreadId;
use crate::observe::ProcessDelay;
use crate::plan::{Outcome, OutcomeKind, Placement, Setting, SettingKind, WantedSetting};
use crate::time::Time;
use std::collections::HashMap;
use std::time::Duration;

/// Turns of its loop that an idle thread spins while its process is held up: some 5 to 10 µs on the
/// processors of the last years (a turn is one PAUSE, 40 to 140 cycles), about what a block costs.
pub const SHORT_TURNS: u64 = 200;

/// Share of the time in which threads want a PE but wait for it, from which on they count as held up.
pub const DELAYED_FROM: f64 = 0.1;

/// And below which they count as not held up.
pub const CALM_BELOW: f64 = 0.03;

/// For how long they must not be held up at least before the library's own choice holds again.
pub const CALM_MIN: Duration = Duration::from_millis(100);

/// And at most, after many relapses.
pub const CALM_MAX: Duration = Duration::from_secs(10);

/// Share of a process's time that it still spins after the change, from which on it spins in its own code.
pub const OWN_SPINNING_MIN: f64 = 0.3;

/// For how long a change must have held before it is judged by that.
pub const JUDGED_AFTER: Duration = Duration::from_millis(1500);

/// What is known of the waits of every process that is, or was, held up.
#[derive(Debug, Default)]
pub struct Waits {
    processes: HashMap<ThreadId, Process>,
}

/// How the waits of one process are now.
#[derive(Debug)]
struct Process {
    state: State,
    /// How long it must be calm before its own choice holds again.
    calm: Duration,
    /// When its own choice began to hold again.
    calm_from: Option<Time>,
}

#[derive(Debug)]
enum State {
    /// The library's own choice.
    Own,
    /// Short waits, since then; and since when it is calm.
    Short { since: Time, calm_since: Option<Time>, reason: String },
    /// The library's own choice for good: short waits do not help.
    Left,
}

impl Waits {
    /// Takes in for how long a process was held up. Whether something else is wanted now.
    pub fn take(&mut self, delay: &ProcessDelay, now: Time) -> bool {
        let share = delay.share();
        let process = self.processes.entry(delay.leader).or_insert_with(Process::new);
        match &mut process.state {
            State::Own if share >= DELAYED_FROM => {
                let relapsed = |from: Time| now.since(from) < 10 * process.calm;
                process.calm = match process.calm_from {
                    Some(from) if relapsed(from) => (2 * process.calm).min(CALM_MAX),
                    _ => CALM_MIN,
                };
                let reason = format!("its threads waited for a PE for {:.0} % of their time", 100.0 * share);
                process.state = State::Short { since: now, calm_since: None, reason };
                true
            }
            State::Own | State::Left => false,
            State::Short { calm_since, .. } => {
                if share >= CALM_BELOW {
                    *calm_since = None;
                    return false;
                }
                let since = *calm_since.get_or_insert(now);
                let is_calm = now.since(since) >= process.calm;
                if is_calm {
                    (process.state, process.calm_from) = (State::Own, Some(now));
                }
                is_calm
            }
        }
    }

    /// Takes in what became of a change.
    pub fn take_outcome(&mut self, outcome: &Outcome) {
        match (outcome.change.setting_kind(), &outcome.result) {
            // It is another program now, or has unloaded the library: all begins anew.
            (Some(SettingKind::SpinTurns), OutcomeKind::Gone) => self.forget(outcome.thread),
            // Somebody else decides from now on.
            (Some(SettingKind::SpinTurns), OutcomeKind::NotOurs) => {
                if let Some(process) = self.processes.get_mut(&outcome.thread) {
                    process.state = State::Left;
                }
            }
            _ => {}
        }
    }

    /// Takes in which share of its time a process spun lately, by sampled code.
    pub fn judge(&mut self, leader: ThreadId, spinning: f64, now: Time) {
        if let Some(process) = self.processes.get_mut(&leader)
            && let State::Short { since, .. } = process.state
            && now.since(since) >= JUDGED_AFTER
            && spinning >= OWN_SPINNING_MIN
        {
            process.state = State::Left;
        }
    }

    /// The processes whose waits are short now.
    pub fn short(&self) -> Vec<ThreadId> {
        let is_short = |process: &Process| matches!(process.state, State::Short { .. });
        let short = self.processes.iter().filter(|(_, process)| is_short(process));
        short.map(|(&leader, _)| leader).collect()
    }

    /// Adds what is wanted.
    pub fn add_to(&self, wanted: &mut Placement) {
        for (&leader, process) in &self.processes {
            if let State::Short { reason, .. } = &process.state {
                let setting =
                    WantedSetting { setting: Setting::SpinTurns(SHORT_TURNS), reason: reason.clone() };
                wanted.settings.entry((leader, SettingKind::SpinTurns)).or_insert(setting);
            }
        }
    }

    /// A thread has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.processes.remove(&thread);
    }
}

impl Process {
    fn new() -> Self {
        Self { state: State::Own, calm: CALM_MIN, calm_from: None }
    }
}

#[cfg(test)]
mod tests;
