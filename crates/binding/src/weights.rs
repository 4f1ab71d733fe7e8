//! The [`Actuator`] of weights: which share a thread gets of a PE that others want, too.
//!
//! Problem: a mask is not work-conserving: it keeps a thread from PEs that nobody else needs. A thread that
//! is to have a PE first needs a larger weight there, not the PE alone. Approach: a weight in percent is the
//! nearest nice level of that one thread ([`WeightChange`]), relative to the level that its user chose; the
//! weight "idle" is the policy `SCHED_IDLE`. Each change is recorded before it is made, and undone by
//! corewise, its guardian or the next start, but only while the thread is the same and still as corewise made
//! it. What a thread creates inherits its level and its policy: a thread that was created since a level was
//! handed out, has that level and none of its own from corewise gets the original one, when it is first seen
//! or at the end, if it descends from one that was given that level ([`super::descent`]).
//!
//! Where that could not be undone, nothing is changed: to lower a nice level (a smaller share becomes larger
//! again) takes CAP_SYS_NICE or a limit that allows the level.
//!
//! Limits: with `sched_autogroup_enabled` the kernel divides PEs among sessions first, and among the threads
//! of a session by their levels: a level decides nothing against threads of other sessions. The same holds
//! for control groups with a CPU controller ([`super::group`] changes the parts of both). A thread that sets
//! itself to exactly a level that was handed out, after that was done, is mistaken for one that inherited it.
//! Between two threads with different own levels and the same level from corewise, threads that inherit it
//! get the lower of the two: a user may raise it, but not lower it. A process that lowers its limit on nice
//! levels after its weight was changed may keep it.

use super::act_token::ActToken;
use super::actuator::{Actuator, refusal};
use super::changes::Changes;
use super::ledger::{Entry, Ledger, Weighed};
use super::sched_policy::{self, NORMAL};
use super::thread_weight::{self, WeightChange};
use corewise_core::ids::ThreadId;
use corewise_core::plan::{Action, Change, OutcomeKind, Setting, SettingKind, Weight};
use corewise_discovery::NewThread;
use corewise_sys::niceness;
use corewise_sys::task::Task;
use std::collections::{HashMap, HashSet};

/// See the module.
#[derive(Debug)]
pub struct Weights {
    token: ActToken,
    changes: Changes,
    /// What was recorded here.
    ledger: Ledger,
    /// The process of each thread.
    process_of: HashMap<u32, u32>,
    /// Whether every nice level can be lowered again.
    is_capable: bool,
}

impl Weights {
    /// Creates the actuator, which records its changes there.
    pub fn new(changes: Changes) -> Weights {
        Weights {
            token: ActToken::mint(),
            changes,
            ledger: Ledger::default(),
            process_of: HashMap::new(),
            is_capable: thread_weight::may_lower_all(),
        }
    }

    /// Records a change that is about to be made; says why it must not be made.
    fn record(&mut self, entry: Entry) -> Result<(), String> {
        self.ledger.note(entry.clone());
        self.changes.record(&entry)
    }

    fn record_change(&mut self, weighed: Weighed) -> Result<(), String> {
        let process = Task::of(self.process_of(weighed.thread.id)).map_err(|error| error.to_string())?;
        self.changes.hand_out_weight(process.ok_or("its process has ended")?, weighed.change)?;
        self.record(Entry::Weighed(weighed))
    }

    fn process_of(&self, tid: u32) -> u32 {
        self.process_of.get(&tid).copied().unwrap_or(tid)
    }

    fn set(&mut self, tid: u32, weight: Weight) -> OutcomeKind {
        let thread = match Task::of(tid) {
            Ok(Some(thread)) => thread,
            Ok(None) => return OutcomeKind::Gone,
            Err(error) => return OutcomeKind::Refused(error.to_string()),
        };
        if let Some(weighed) = self.ledger.weighed(thread).copied() {
            // From its own weight to the new one.
            match self.undo(weighed) {
                OutcomeKind::Done => {}
                result => return result,
            }
        }
        let change = match self.plan(tid, weight) {
            Ok(Some(change)) => change,
            Ok(None) => return OutcomeKind::Done,
            Err(result) => return result,
        };
        if let Err(why) = self.record_change(Weighed { thread, change }) {
            self.forget_weight(tid);
            return OutcomeKind::Refused(why);
        }
        let made = change.make(&self.token, tid);
        if Task::of(tid).is_ok_and(|now| now != Some(thread)) {
            // It ended meanwhile. If its ID was reused, the new thread was changed.
            if made.is_ok() {
                let _ = change.undo(&self.token, tid);
            }
            self.forget_weight(tid);
            return OutcomeKind::Gone;
        }
        if let Err(errno) = made {
            self.forget_weight(tid);
            return refusal(errno);
        }
        OutcomeKind::Done
    }

    /// Returns the change that gives a thread with its own weight this one; `None` if it has it. Says why it
    /// is not possible.
    fn plan(&self, tid: u32, weight: Weight) -> Result<Option<WeightChange>, OutcomeKind> {
        let refused = |why: &str| Err(OutcomeKind::Refused(why.to_owned()));
        let change = match weight {
            Weight::Percent(percent) => {
                WeightChange::percent(niceness::level_of(tid).map_err(refusal)?, percent)
            }
            Weight::Idle => WeightChange::Idle,
        };
        let pid = self.process_of(tid);
        if change == WeightChange::Idle {
            if self.changes.takes_turns(pid) {
                return refused("its process takes turns");
            }
            if sched_policy::of(tid).map_err(refusal)? != NORMAL {
                return refused("it has a scheduling policy of its own");
            }
        }
        if change.is_in_force(tid).map_err(refusal)? {
            return Ok(None);
        }
        if !change.can_be_undone(tid, self.is_capable) {
            return refused("to undo it needs CAP_SYS_NICE, or a limit on nice levels that allows its own");
        }
        Ok(Some(change))
    }

    /// Gives a thread its own weight back, if it is still as corewise made it.
    fn undo(&mut self, Weighed { thread, change }: Weighed) -> OutcomeKind {
        let is_same = match Task::of(thread.id) {
            Ok(now) => now == Some(thread),
            // It may be, so that what is recorded of it stays.
            Err(error) => return OutcomeKind::Refused(error.to_string()),
        };
        let result = match change.is_in_force(thread.id) {
            _ if !is_same => OutcomeKind::Gone,
            Ok(true) => change.undo(&self.token, thread.id).map_or_else(refusal, |()| OutcomeKind::Done),
            // Somebody else decides about it now.
            Ok(false) => OutcomeKind::NotOurs,
            Err(errno) => refusal(errno),
        };
        if !matches!(result, OutcomeKind::Refused(_)) {
            self.forget_weight(thread.id);
        }
        result
    }

    fn forget_weight(&mut self, tid: u32) {
        // If this cannot be written, that a thread is still as corewise made it is checked before it is
        // changed.
        let _ = self.record(Entry::OwnWeight(tid));
    }
}

impl Actuator for Weights {
    fn meet(&mut self, thread: &NewThread) {
        self.process_of.insert(thread.tid, thread.pid);
        if let Some(inherited) = self.changes.meet_heir(thread) {
            // It may have ended; whatever else fails is tried again at the end.
            let _ = inherited.undo(&self.token, thread.tid);
        }
    }

    fn forget(&mut self, thread: ThreadId) {
        self.process_of.remove(&thread.tid);
        if self.ledger.all_weighed().any(|weighed| weighed.thread.id == thread.tid) {
            self.forget_weight(thread.tid);
        }
    }

    fn retain_processes(&mut self, living: &HashSet<u32>) {
        self.changes.retain_processes(living);
    }

    fn apply(&mut self, action: &Action) -> Option<OutcomeKind> {
        let tid = action.thread.tid;
        match action.change {
            Change::Set(Setting::Weight(weight)) => Some(self.set(tid, weight)),
            Change::Reset(SettingKind::Weight) => {
                let weighed = self.ledger.all_weighed().find(|weighed| weighed.thread.id == tid).copied();
                Some(weighed.map_or(OutcomeKind::Done, |weighed| self.undo(weighed)))
            }
            _ => None,
        }
    }

    fn take_given_back(&mut self) -> Vec<(u32, Change)> {
        let weighed: Vec<Weighed> = self.ledger.all_weighed().copied().collect();
        let give_back = |weighed: Weighed| {
            let _ = self.undo(weighed);
            (weighed.thread.id, Change::Reset(SettingKind::Weight))
        };
        weighed.into_iter().map(give_back).collect()
    }

    /// The ledger has all changes, and [`crate::restore`] also sees what is inherited meanwhile.
    fn give_back(&mut self) {
        self.ledger = Ledger::default();
    }
}

#[cfg(test)]
mod tests;
