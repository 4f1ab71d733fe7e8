//! The [`Actuator`] of affinity masks: whose decision a thread's mask is, and how it is set.
//!
//! Problem: a mask does not tell who set it. Approach: one that corewise has set is in the ledger; one that
//! is the process's own, or all that is allowed, is nobody's decision; one that corewise handed out to
//! another thread was inherited from that; any other is the thread's own wish, and stays. The kernel
//! changes the masks of a cpuset one after the other, so a surprise counts only if it is still there at the
//! next look.
//!
//! Limits: a thread that pins itself to just the PEs that corewise has given another is taken for one that
//! inherited them, unless it was seen with them before. See [`super::restore`] for the end.

use super::binder::{Basis, Binder};
use super::guardian::Guardian;
use super::ledger::{Entry, Ledger};
use super::restore::seen;
use super::{affinity, task};
use crate::actuator::Actuator;
use crate::discovery::ThreadFacts;
use crate::discovery::followed::Followed;
use crate::environment;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::ThreadId;
use corewise_core::observe::Standing;
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind};
use nix::errno::Errno;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// See the module's text.
pub struct AffinityActuator {
    /// `None`: it only looks on.
    binder: Option<Binder>,
    /// The PEs that corewise itself may use.
    allowed: Arc<CpuSet>,
    processes: HashMap<u32, Process>,
    /// When the threads were looked at last, as a time of start.
    observed: u64,
    /// The free threads whose user lets them have fewer PEs than corewise, with these.
    limited: HashMap<u32, Arc<CpuSet>>,
    /// Threads whose masks were a surprise, with their generations; and those of the last look.
    doubts: HashSet<(u32, u64)>,
    earlier_doubts: HashSet<(u32, u64)>,
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

impl AffinityActuator {
    /// With a guardian it may set masks, without it only looks on. `followed` is the kernel's own list of the
    /// threads, where there is one.
    pub fn new(guardian: Option<Guardian>, followed: Option<io::Result<Followed>>) -> Result<Self, Errno> {
        let binder = guardian.map(|guardian| Binder::new(guardian, followed)).transpose()?;
        let mut actuator = Self {
            binder,
            allowed: Arc::default(),
            processes: HashMap::new(),
            observed: 0,
            limited: HashMap::new(),
            doubts: HashSet::new(),
            earlier_doubts: HashSet::new(),
        };
        // Orphans become children of corewise.
        actuator.with_binder(|binder| binder.note_member(std::process::id()));
        Ok(actuator)
    }

    fn ledger(&self) -> Option<&Ledger> {
        self.binder.as_ref().map(Binder::ledger)
    }

    fn with_binder(&mut self, act: impl FnOnce(&mut Binder)) {
        if let Some(binder) = &mut self.binder {
            act(binder);
        }
    }

    /// Whether the thread's mask was no surprise at the last look. The kernel changes the masks of a cpuset
    /// one after the other, also while we look: only what is still so at the next look is somebody's wish.
    fn is_first_doubt(&mut self, facts: &ThreadFacts) -> bool {
        let thread = (facts.tid, facts.generation);
        !self.earlier_doubts.contains(&thread) && self.doubts.insert(thread)
    }

    /// What is known of the thread's process; looked up when it is new or has become another program.
    fn process(&mut self, facts: &ThreadFacts) -> &Process {
        let leads = facts.tid == facts.pid;
        let known = self.processes.get(&facts.pid);
        let stale = known.is_none_or(|process| leads && process.name != facts.name);
        if stale {
            self.with_binder(|binder| binder.note_member(facts.pid));
            // The first thread's mask is what the process was started with; the others may have pinned
            // themselves.
            let mask = affinity::get(facts.pid).unwrap_or_default();
            let inherited = self.ledger().and_then(|ledger| ledger.heir_of(&mask)).cloned();
            // A single PE is a decision of the program or its user; several are a limit within which to
            // place.
            let permitted = match inherited {
                Some(original) => Arc::new(original.intersection(&self.allowed)),
                None if mask.len() > 1 => Arc::new(mask),
                None => self.allowed.clone(),
            };
            let user_placed = environment::places_threads(facts.pid);
            self.processes.insert(facts.pid, Process { name: facts.name.clone(), user_placed, permitted });
        }
        &self.processes[&facts.pid]
    }
}

impl Actuator for AffinityActuator {
    fn begin_look(&mut self, allowed: &Arc<CpuSet>) {
        self.allowed = allowed.clone();
        self.observed = task::now();
        self.limited.clear();
        self.earlier_doubts = std::mem::take(&mut self.doubts);
    }

    fn retain_processes(&mut self, living: &HashSet<u32>) {
        let left: Vec<u32> = self.processes.keys().copied().filter(|pid| !living.contains(pid)).collect();
        for pid in left {
            self.processes.remove(&pid);
            self.with_binder(|binder| binder.note(Entry::Left(pid)));
        }
    }

    fn standing(&mut self, facts: &ThreadFacts) -> (Standing, Arc<CpuSet>) {
        let Ok(mask) = affinity::get(facts.tid) else { return (Standing::Free, self.allowed.clone()) };
        self.with_binder(|binder| binder.meet(facts.tid, facts.generation));
        if let Some(bound) = self.ledger().and_then(|ledger| ledger.bound_as(facts.tid)) {
            let permitted = Arc::new(bound.original.intersection(&self.allowed));
            if seen(&bound.ours, &self.allowed) == mask || self.is_first_doubt(facts) {
                return (Standing::Bound, permitted);
            }
            // Somebody else has set it since: it is no longer ours to give back.
            self.with_binder(|binder| binder.note(Entry::Free(facts.tid)));
        }
        let process = self.process(facts);
        let (user_placed, permitted) = (process.user_placed, process.permitted.clone());
        let handed_out = self.ledger().is_some_and(|ledger| ledger.heir_of(&mask).is_some());
        let is_pinned = self.ledger().is_some_and(|ledger| ledger.is_pinned(facts.tid));
        let mask = Arc::new(mask);
        if user_placed {
            if handed_out {
                self.with_binder(|binder| binder.note_pinned(facts.tid, facts.generation));
            }
            return (Standing::UserPlaced, mask);
        }
        if mask == permitted || mask == self.allowed {
            if is_pinned {
                self.with_binder(|binder| binder.forget(facts.tid, facts.generation));
            }
            if mask != self.allowed {
                self.limited.insert(facts.tid, mask.clone());
            }
            return (Standing::Free, mask);
        }
        // Who had this mask before we handed it out has it from somebody else.
        let had_it_before = self.earlier_doubts.contains(&(facts.tid, facts.generation));
        if handed_out && !is_pinned && !had_it_before {
            return (Standing::Inherited, permitted);
        }
        if !is_pinned && !self.is_first_doubt(facts) {
            self.with_binder(|binder| binder.note_pinned(facts.tid, facts.generation));
        }
        (Standing::SelfPinned, mask)
    }

    fn forget(&mut self, facts: &ThreadFacts) {
        self.with_binder(|binder| binder.forget(facts.tid, facts.generation));
    }

    fn apply(&mut self, actions: &[Action]) -> Vec<Outcome> {
        let Some(binder) = &mut self.binder else { return Vec::new() };
        if actions.iter().any(|action| matches!(action.change, Change::Bind(_))) {
            binder.prepare();
        }
        let carry_out = |action: &Action| {
            let ThreadId { tid, generation } = action.thread;
            let mask = self.limited.get(&tid).unwrap_or(&self.allowed);
            let basis = Basis { baseline: &self.allowed, mask, at: self.observed };
            let result = match &action.change {
                Change::Bind(pes) => binder.bind(tid, generation, basis, pes),
                Change::Free => binder.free(tid, generation, basis),
                Change::Set(_) | Change::Reset(_) => OutcomeKind::Unsupported,
            };
            Outcome { thread: action.thread, change: action.change.clone(), result }
        };
        actions.iter().map(carry_out).collect()
    }

    fn give_back(&mut self) {
        if let Some(binder) = self.binder.take() {
            binder.let_go();
        }
    }

    fn troubles(&self) -> Vec<String> {
        self.binder.iter().flat_map(Binder::notes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::plan::{Setting, SettingKind, Weight};

    #[test]
    fn a_setting_is_answered_as_unsupported_and_who_only_looks_on_answers_nothing() {
        let changes = [Change::Set(Setting::Weight(Weight::Idle)), Change::Reset(SettingKind::SpinTurns)];
        let thread = ThreadId { tid: std::process::id(), generation: 0 };
        let actions = changes.map(|change| Action { thread, change, reason: String::new() });
        // In a thread of its own, whose mask is looked at to tell what its user allows.
        std::thread::spawn(move || {
            let mut actuator = AffinityActuator::new(Some(Guardian::idle()), None).unwrap();
            let results = actuator.apply(&actions).into_iter().map(|outcome| outcome.result);
            assert_eq!(results.collect::<Vec<_>>(), [OutcomeKind::Unsupported, OutcomeKind::Unsupported]);
            actuator.give_back();
            assert!(actuator.apply(&actions).is_empty());
        })
        .join()
        .unwrap();
    }
}
