//! The [`Actuator`] of affinity masks: who has set a thread's mask, and how to change it.
//!
//! Problem: a mask does not show who has set it. Approach: a mask that corewise has set is in the ledger. A
//! mask that equals the process's own, or everything that is allowed, is nobody's decision. A mask that
//! corewise gave to another thread was inherited from that thread. Any other mask is the thread's own wish
//! and stays. The kernel changes the masks of a cpuset one after the other, so an unexpected mask counts only
//! if it is still there at the next observation, and only in observations during which corewise's own mask
//! stayed the same: a cpuset that shrinks and grows time and again shows the same mask time and again. PEs
//! that are offline now, and come back, are part of what a user permits, though the kernel does not show
//! them.
//!
//! What a bound thread starts inherits its mask, and programs size themselves by it for good. So a thread
//! that has inherited a mask gets its own back as soon as it is seen: with BPF before it can look at its
//! mask, if corewise gets a PE in time. A process that starts programs is not bound any more, not even when
//! it runs another program itself. One that executes another program in its own place, as a script that
//! prepares something does at its end, gets its mask back and is judged anew; at the second time it counts as
//! one that starts programs.
//!
//! A thread that is moved has a narrow mask for the microseconds in which the kernel takes it to another PE.
//! [`habits`] remembers which programs asked for what bound threads cannot have.
//!
//! Limits: a thread that pins itself to exactly the PEs that corewise has given to another thread is mistaken
//! for one that inherited them, unless it had the mask before, or none of its ancestors was ever bound (known
//! with BPF, which reports the creator of a thread). See [`crate::restore`] for the end.

mod binder;
mod habits;
mod heirs;

use self::binder::{Basis, Binder};
use self::habits::{Habit, Habits, UNSEEN};
use crate::actuator::Actuator;
use crate::changes::Changes;
use crate::ledger::{Entry, Ledger};
use crate::mask::{self, is_seen_as};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::ThreadId;
use corewise_core::observe::{Sizing, Standing};
use corewise_core::plan::{Action, Change, OutcomeKind};
use corewise_discovery::asks::Ask;
use corewise_discovery::heirs::Heirs;
use corewise_discovery::{NewThread, Start, ThreadFacts};
use corewise_sys::environment;
use corewise_sys::proc::Proc;
use corewise_sys::{affinity, task};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// The actuator of affinity masks, which sets none until it [begins](Masks::begin); see the module
/// documentation.
#[derive(Default)]
pub struct Masks {
    /// `None` for a dry run.
    binder: Option<Binder>,
    /// Whether the kernel has a list of the threads; else they are found by polling only.
    is_followed: bool,
    /// The PEs that corewise itself may use.
    allowed: Arc<CpuSet>,
    /// The PEs that are online.
    online: CpuSet,
    processes: HashMap<u32, Process>,
    /// When the threads were last observed, in units of start times.
    observed: u64,
    /// The free threads to which their user permits fewer PEs than corewise has, with these PEs.
    limited: HashMap<u32, Arc<CpuSet>>,
    /// Whether a thread was ever bound. `false` implies that no ancestor was bound either, so it cannot have
    /// inherited a mask from us. Unknown for threads that are missing.
    was_bound: HashMap<u32, bool>,
    /// The processes that start programs.
    starters: HashSet<u32>,
    /// The page faults of the children that processes had before they executed their present programs.
    faults_before: HashMap<u32, u64>,
    /// The processes that have executed another program while they were bound, with that one ([`image_of`]).
    executed: HashMap<u32, u64>,
    /// The process of each thread.
    process_of: HashMap<u32, u32>,
    /// Bound threads that were given their own masks back because they start or execute programs.
    given_back: HashSet<u32>,
    /// Where threads were moved that have their own masks.
    moved: HashMap<u32, CpuSet>,
    habits: Habits,
    /// Whether somebody sees what bound threads ask for.
    sees_asks: bool,
    /// Whether a thread was bound, as opposed to moved.
    pub has_bound: bool,
    /// The unexpected masks of this pass, by thread and generation, and those of the last pass.
    doubts: HashMap<(u32, u64), CpuSet>,
    earlier_doubts: HashMap<(u32, u64), CpuSet>,
}

/// The remembered state of a process.
struct Process {
    /// The name of its first thread when its environment was read: another name means another program.
    name: Arc<str>,
    /// The program that it runs ([`image_of`]).
    image: Option<u64>,
    /// Whether its user placed its threads by an environment variable.
    user_placed: bool,
    /// The mask with which the process started, as set by its user; PEs that are offline included.
    permitted: Arc<CpuSet>,
}

impl Masks {
    /// Sets masks from now on, which are recorded there.
    pub fn begin(&mut self, changes: Changes) -> io::Result<()> {
        self.binder = Some(Binder::new(changes)?);
        // Orphans become children of corewise.
        self.with_binder(|binder| binder.note_member(std::process::id()));
        Ok(())
    }

    /// From now on the kernel has a list of the threads.
    pub fn follow(&mut self) {
        self.is_followed = true;
    }

    /// Gives inherited masks back in time from now on.
    pub fn watch_heirs(&mut self, bound: Heirs) {
        self.with_binder(|binder| binder.watch_heirs(bound));
    }

    /// Announces the PEs to which threads are bound to other runs.
    pub fn claim_bound_pes(&mut self) {
        if let Some(binder) = &mut self.binder {
            binder.claim_bound_pes(&self.moved);
        }
    }

    /// Takes in which processes have asked for what bound threads cannot have; `None` if nobody can see that.
    /// Returns notes for the user.
    pub fn note_asks(&mut self, asks: Option<&[Ask]>) -> Vec<String> {
        self.sees_asks = asks.is_some();
        let asks = asks.unwrap_or_default();
        let processes = || self.processes.keys().copied();
        let notes = asks.iter().filter_map(|ask| self.habits.note(ask, processes())).collect();
        for pid in asks.iter().map(|ask| ask.pid) {
            if self.habits.of(pid) == Some(Habit::NeedsAllPes) {
                let of_process = self.process_of.iter().filter(|(_, process)| **process == pid);
                let threads: Vec<u32> = of_process.map(|(tid, _)| *tid).collect();
                self.given_back.extend(&threads);
                self.with_binder(|binder| threads.iter().for_each(|tid| binder.give_back(*tid)));
            }
        }
        notes
    }

    /// Returns how the program of a process chooses the number of its threads.
    pub fn sizing(&self, pid: u32) -> Sizing {
        if self.habits.of(pid) == Some(Habit::Asks) { Sizing::Asks } else { Sizing::MayAsk }
    }

    fn ledger(&self) -> Option<&Ledger> {
        self.binder.as_ref().map(Binder::ledger)
    }

    fn original_of(&self, mask: &CpuSet) -> Option<&CpuSet> {
        self.binder.as_ref()?.original_of(mask)
    }

    fn with_binder(&mut self, act: impl FnOnce(&mut Binder)) {
        if let Some(binder) = &mut self.binder {
            act(binder);
        }
    }

    /// Returns whether this unexpected mask of the thread is new. The kernel changes the masks of a cpuset
    /// one after the other, even during a pass: only a mask that is still there at the next pass is a
    /// decision, and none that is seen while corewise's own mask changes.
    fn is_first_doubt(&mut self, facts: &ThreadFacts, mask: &CpuSet) -> bool {
        if affinity::get(std::process::id()).as_ref() != Ok(&*self.allowed) {
            return true;
        }
        let is_first = !self.was_in_doubt(facts, mask);
        if is_first {
            self.doubts.insert((facts.tid, facts.generation), mask.clone());
        }
        is_first
    }

    fn was_in_doubt(&self, facts: &ThreadFacts, mask: &CpuSet) -> bool {
        self.earlier_doubts.get(&(facts.tid, facts.generation)) == Some(mask)
    }

    /// Returns whether a new thread has a mask that was given to others.
    fn inherits(&self, tid: u32) -> bool {
        let is_any_handed_out = self.ledger().is_some_and(|ledger| ledger.handed_out().next().is_some());
        is_any_handed_out && affinity::get(tid).is_ok_and(|mask| self.original_of(&mask).is_some())
    }

    /// Returns the standing of a thread that is free or bound, unless its process is left alone.
    fn unless_starter(&self, pid: u32, standing: Standing) -> Standing {
        if self.habits.of(pid) == Some(Habit::NeedsAllPes) {
            Standing::NeedsAllPes
        } else if self.starters.contains(&pid) {
            Standing::StartsPrograms
        } else {
            standing
        }
    }

    /// Looks whether a process that was bound has executed a program since: without BPF nothing reports it.
    fn look_for_execution(&mut self, facts: &ThreadFacts) {
        let was_bound = facts.tid == facts.pid && self.was_bound.get(&facts.pid) == Some(&true);
        let known = self.processes.get(&facts.pid).filter(|_| was_bound);
        let Some(before) = known.and_then(|process| process.image) else { return };
        if image_of(facts.pid).is_some_and(|image| image != before) {
            self.with_binder(|binder| binder.give_back(facts.pid));
            self.note_execution(facts.tid, facts.pid);
        }
    }

    /// A process that was bound has executed another program, and has its mask back.
    fn note_execution(&mut self, tid: u32, pid: u32) {
        self.processes.remove(&pid);
        self.given_back.insert(tid);
        // The kernel may report what a look has found already.
        let Some(image) = image_of(pid) else { return };
        if self.executed.insert(pid, image).is_some_and(|before| before != image) {
            self.starters.insert(pid);
        }
    }

    /// Returns the state of the thread's process, which is read when the process is new or runs another
    /// program.
    fn process(&mut self, facts: &ThreadFacts) -> &Process {
        let leads = facts.tid == facts.pid;
        let known = self.processes.get(&facts.pid);
        let image = known.and_then(|process| process.image);
        if known.is_none_or(|process| leads && process.name != facts.name) {
            self.with_binder(|binder| binder.note_member(facts.pid));
            // The first thread's mask is what the process was started with; the others may have pinned
            // themselves.
            let mask = affinity::get(facts.pid).unwrap_or_default();
            let inherited = self.original_of(&mask).cloned();
            // A single PE is a decision of the program or its user; several are a limit within which to
            // place.
            let permitted = match inherited {
                Some(original) => Arc::new(original.intersection(&self.allowed)),
                None if mask.len() > 1 => Arc::new(mask::with_offline(facts.pid, &mask)),
                None => self.allowed.clone(),
            };
            let user_placed = environment::places_threads(facts.pid);
            // Another name may mean another program: the next look finds that, if the process is bound.
            let image = image.or_else(|| image_of(facts.pid));
            let name = facts.name.clone();
            self.habits.meet(facts.pid);
            self.processes.insert(facts.pid, Process { name, image, user_placed, permitted });
        }
        &self.processes[&facts.pid]
    }
}

/// Returns a number that differs once a process has executed another program; `None` if it is not known now.
fn image_of(pid: u32) -> Option<u64> {
    Proc::own().process(pid).ok().flatten()?.stack
}

/// Returns the page faults of the child processes that a process has waited for.
fn children_faults(pid: u32) -> u64 {
    Proc::own().task(pid).ok().flatten().map_or(0, |stat| stat.children_faults)
}

impl Masks {
    /// Gives threads that run with the mask of a bound thread their own masks back. A process that starts
    /// programs is not bound any more.
    pub fn give_back_to(&mut self, starts: &[Start]) {
        let Some(binder) = &mut self.binder else { return };
        for start in starts {
            binder.give_back(start.tid);
            // A new thread has not seen the inherited mask: if it has the same one later, it is its own.
            if start.tid != start.by_tid {
                self.was_bound.insert(start.tid, false);
            }
            self.process_of.insert(start.tid, start.pid);
        }
        for start in starts.iter().filter(|start| start.is_of_program()) {
            // An heir hands nothing on, though the kernel may have thought so at that moment.
            if self.was_bound.get(&start.by_tid) != Some(&true) {
                continue;
            }
            self.with_binder(|binder| binder.give_back(start.by_tid));
            if start.tid == start.by_tid {
                self.note_execution(start.tid, start.pid);
            } else {
                self.starters.insert(start.by_pid);
                self.given_back.insert(start.by_tid);
            }
        }
    }

    /// A process runs another program than the last one with its ID: whether that started others, or had its
    /// threads placed by its user, says nothing of this one.
    pub fn note_program(&mut self, pid: u32) {
        // One that executes programs again and again while it is bound is still left alone.
        if !self.executed.contains_key(&pid) {
            self.starters.remove(&pid);
        }
        let faults = if self.is_followed { 0 } else { children_faults(pid) };
        if faults > 0 {
            self.faults_before.insert(pid, faults);
        }
        // Read again at the next look; the image says whether it has executed another one while it was bound.
        self.processes.get_mut(&pid).into_iter().for_each(|process| process.name = "".into());
    }

    /// Registers processes that have started others: they are not bound (any more).
    pub fn note_starters(&mut self, processes: &[u32]) {
        self.starters.extend(processes);
    }

    /// Begins a pass over all threads; later decisions rest on the state found from now on. `allowed` are the
    /// PEs that corewise itself may use: those that user and cpuset allow for the whole application.
    pub fn begin_look(&mut self, allowed: &Arc<CpuSet>) {
        // What corewise was found to be allowed may have been of a moment.
        if self.binder.as_ref().is_some_and(|binder| binder.cpuset() != &**allowed)
            || self.allowed != *allowed
        {
            self.with_binder(Binder::own_mask_changed);
            self.allowed = allowed.clone();
        }
        self.online = affinity::online_pes();
        self.observed = task::now();
        self.limited.clear();
        self.earlier_doubts = std::mem::take(&mut self.doubts);
    }

    /// Returns who decides where the thread runs, and the PEs that its user permits. The thread lives and was
    /// found since the pass began.
    pub fn standing(&mut self, facts: &ThreadFacts) -> (Standing, Arc<CpuSet>) {
        self.look_for_execution(facts);
        // It has ended since it was found and cannot be placed.
        let Ok(mask) = affinity::get(facts.tid) else { return (Standing::Free, Arc::default()) };
        self.process_of.insert(facts.tid, facts.pid);
        self.with_binder(|binder| binder.meet(facts.tid, facts.generation));
        if let Some(binder) = &self.binder
            && let Some(bound) = binder.ledger().bound_as(facts.tid)
        {
            let permitted = Arc::new(bound.original.intersection(&self.allowed));
            if is_seen_as(&bound.ours, binder.cpuset(), &mask) || self.is_first_doubt(facts, &mask) {
                self.process(facts);
                return (self.unless_starter(facts.pid, Standing::Bound), permitted);
            }
            // Somebody else has set the mask since: we must not restore it.
            self.with_binder(|binder| binder.note(Entry::Free(facts.tid)));
        }
        let process = self.process(facts);
        let (user_placed, mut permitted) = (process.user_placed, process.permitted.clone());
        if !permitted.is_subset(&self.online) {
            permitted = Arc::new(permitted.intersection(&self.online));
        }
        let was_bound = self.was_bound.get(&facts.tid).copied();
        let handed_out = was_bound != Some(false) && self.original_of(&mask).is_some();
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
            return (self.unless_starter(facts.pid, Standing::Free), mask);
        }
        // A thread that had this mask before we gave it to another has it from somebody else, except for a
        // formerly bound thread, which may have restored the mask that it found while bound.
        let had_it_before = was_bound != Some(true) && self.was_in_doubt(facts, &mask);
        if handed_out && !is_pinned && !had_it_before {
            return (Standing::Inherited, permitted);
        }
        if !is_pinned && !self.is_first_doubt(facts, &mask) {
            self.with_binder(|binder| binder.note_pinned(facts.tid, facts.generation));
        }
        (Standing::SelfPinned, mask)
    }

    /// Returns the PEs to which other runs of corewise have bound threads.
    pub fn taken(&self) -> CpuSet {
        self.binder.as_ref().map_or_else(CpuSet::new, Binder::taken)
    }
}

impl Masks {
    fn bind(
        &mut self,
        ThreadId { tid, generation }: ThreadId,
        pid: u32,
        pes: &CpuSet,
    ) -> Option<OutcomeKind> {
        let binder = self.binder.as_mut()?;
        // What descends from it is found by it, so that it must be recorded by now.
        if !binder.ledger().members().contains_key(&pid) {
            binder.note_member(pid);
        }
        let mask = self.limited.get(&tid).unwrap_or(&self.allowed);
        let basis = Basis { baseline: &self.allowed, mask, at: self.observed };
        self.given_back.remove(&tid);
        Some(binder.bind(tid, generation, basis, pes))
    }

    fn free(&mut self, ThreadId { tid, generation }: ThreadId) -> Option<OutcomeKind> {
        let is_free = self.given_back.remove(&tid);
        let result = if is_free { OutcomeKind::Done } else { self.binder.as_mut()?.free(tid, generation) };
        if result == OutcomeKind::Done {
            // It may be bound again before the next observation.
            match affinity::get(tid).ok().filter(|mask| *mask != *self.allowed) {
                Some(mask) => self.limited.insert(tid, Arc::new(mask)),
                None => self.limited.remove(&tid),
            };
        }
        Some(result)
    }
}

impl Actuator for Masks {
    fn meet(&mut self, thread: &NewThread) {
        let own = std::process::id();
        let never = |creator: u32| creator == own || self.was_bound.get(&creator) == Some(&false);
        self.process_of.insert(thread.tid, thread.pid);
        if thread.creator_tid.is_some_and(never) {
            self.was_bound.insert(thread.tid, false);
        } else if self.inherits(thread.tid) {
            self.with_binder(|binder| drop(binder.free(thread.tid, thread.generation)));
            self.was_bound.insert(thread.tid, true);
        } else if self.was_bound.get(&thread.tid) != Some(&false) {
            self.was_bound.remove(&thread.tid);
        }
    }

    fn forget(&mut self, ThreadId { tid, generation }: ThreadId) {
        self.with_binder(|binder| binder.forget(tid, generation));
        // A new thread with the same ID may have inherited a mask.
        self.was_bound.remove(&tid);
        self.process_of.remove(&tid);
        self.given_back.remove(&tid);
        self.moved.remove(&tid);
    }

    fn retain_processes(&mut self, living: &HashSet<u32>) {
        self.faults_before.retain(|pid, _| living.contains(pid));
        let left: Vec<u32> = self.processes.keys().copied().filter(|pid| !living.contains(pid)).collect();
        for pid in left {
            self.processes.remove(&pid);
            self.starters.remove(&pid);
            self.executed.remove(&pid);
            self.habits.forget(pid);
            self.with_binder(|binder| binder.note(Entry::Left(pid)));
        }
    }

    fn apply(&mut self, action: &Action) -> Option<OutcomeKind> {
        if !matches!(action.change, Change::Bind(_) | Change::Move(_) | Change::Free) {
            return None;
        }
        let binder = self.binder.as_mut()?;
        let tid = action.thread.tid;
        self.was_bound.insert(tid, true);
        let pid = self.process_of.get(&tid).copied().unwrap_or(tid);
        if !self.is_followed && children_faults(pid) > self.faults_before.get(&pid).copied().unwrap_or(0) {
            self.starters.insert(pid);
        }
        let leads_free = tid == pid && binder.ledger().bound_as(tid).is_none();
        if let (true, Some(process)) = (leads_free, self.processes.get_mut(&pid)) {
            // The program that it has executed since it was last observed has not seen a mask of ours.
            process.image = image_of(pid).or(process.image);
        }
        let was_moved = self.moved.remove(&tid).is_some();
        match &action.change {
            Change::Bind(_) | Change::Move(_) if self.starters.contains(&pid) => Some(OutcomeKind::NotOurs),
            Change::Bind(pes) => {
                let result = self.bind(action.thread, pid, pes)?;
                self.has_bound |= result == OutcomeKind::Done;
                Some(result)
            }
            Change::Move(pes) => match self.bind(action.thread, pid, pes)? {
                OutcomeKind::Done => {
                    self.moved.insert(tid, pes.clone());
                    let freed = self.free(action.thread)?;
                    // One that is still bound hands on its mask, too.
                    if freed == OutcomeKind::Done {
                        self.with_binder(|binder| binder.watch_moved(tid));
                    }
                    Some(freed)
                }
                failed => Some(failed),
            },
            // It has its own mask already.
            _ if was_moved => {
                self.with_binder(|binder| binder.forget_moved(tid));
                Some(OutcomeKind::Done)
            }
            _ => self.free(action.thread),
        }
    }

    fn take_given_back(&mut self) -> Vec<(u32, Change)> {
        let bound: Vec<u32> =
            self.ledger().into_iter().flat_map(Ledger::all_bound).map(|bound| bound.thread.id).collect();
        self.with_binder(|binder| bound.iter().for_each(|tid| binder.give_back(*tid)));
        bound.into_iter().map(|tid| (tid, Change::Free)).collect()
    }

    fn notes(&self) -> Vec<String> {
        let is_unseen = self.has_bound && !self.sees_asks;
        is_unseen.then(|| UNSEEN.to_owned()).into_iter().collect()
    }

    /// The masks themselves are restored by the ledger ([`crate::restore`]).
    fn give_back(&mut self) {
        self.binder = None;
    }
}

#[cfg(test)]
mod tests;
