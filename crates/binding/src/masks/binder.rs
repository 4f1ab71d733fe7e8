//! Setting masks so that each can be restored: with permission to act, the journal of changes and the
//! guardian.
//!
//! Between the observation of a thread and the change of its mask anything may happen: its cpuset shrinks,
//! the thread pins itself, it ends and its ID is reused. So a thread is bound only while its mask is the one
//! that the decision is based on, and only if it had started by then.

use super::heirs::Heirs;
use crate::act_token::ActToken;
use crate::actuator::refusal;
use crate::changes::Changes;
use crate::ledger::{Bound, Entry, Ledger};
use crate::mask::{self, is_seen_as};
use crate::shared::places::Places;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::plan::OutcomeKind;
use corewise_discovery::heirs;
use corewise_sys::affinity;
use corewise_sys::task::Task;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

/// More than any machine has: PEs with indices below this are announced to other runs.
const PES_MAX: i64 = 1 << 20;

/// Sets masks and records them; see the module documentation.
pub struct Binder {
    token: ActToken,
    ledger: Ledger,
    changes: Changes,
    /// `None` without the kernel's list; started with the first binding.
    heirs: Option<Heirs>,
    /// All PEs: the mask to restore for a thread that nobody has restricted, so that it follows its cpuset
    /// when that grows later.
    all_pes: CpuSet,
    /// The PEs that the cpuset allows.
    cpuset: CpuSet,
    /// Whether a user has restricted corewise.
    narrowed: bool,
    /// The PEs to each of which this corewise has bound a thread alone, announced to other runs.
    claimed: Places,
    /// When threads were last seen to be bound to each of them.
    bound_at: HashMap<i64, Instant>,
    /// The generation of each recorded thread, to distinguish it from later threads with the same ID.
    generations: HashMap<u32, u64>,
}

/// The basis of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Basis<'a> {
    /// The PEs that corewise itself was allowed: those that user and cpuset allow for the whole application.
    pub baseline: &'a CpuSet,
    /// The mask that the thread had, if it was not bound.
    pub mask: &'a CpuSet,
    /// When the thread was observed, in units of start times.
    pub at: u64,
}

/// How long a PE stays claimed after its last thread was freed.
const CLAIMED_FOR: Duration = Duration::from_secs(2);

impl Binder {
    /// Creates the binder, which records its changes there.
    pub fn new(changes: Changes) -> io::Result<Binder> {
        let (own, cpuset) = affinity::own_and_cpuset()?;
        Ok(Binder {
            token: ActToken::mint(),
            ledger: Ledger::default(),
            changes,
            heirs: None,
            all_pes: affinity::all_pes(),
            narrowed: own != cpuset,
            cpuset,
            claimed: Places::open("claimed-pes", PES_MAX)?,
            bound_at: HashMap::new(),
            generations: HashMap::new(),
        })
    }

    /// Returns the journal.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the mask to restore for a thread that has a mask that corewise handed out. The kernel shows
    /// none for one that sleeps on PEs that went offline.
    pub fn original_of(&self, mask: &CpuSet) -> Option<&CpuSet> {
        let offline = || self.ledger.handed_out().find(|(ours, _)| !ours.intersects(&self.cpuset));
        let asleep = || offline().filter(|_| mask.is_empty()).map(|(_, original)| original);
        self.ledger.original_of(mask).or_else(asleep)
    }

    /// Returns the PEs that the cpuset allowed at the last observation.
    pub fn cpuset(&self) -> &CpuSet {
        &self.cpuset
    }

    /// Must be called when corewise's own mask has changed, by its cpuset or by its user.
    pub fn own_mask_changed(&mut self) {
        // If this cannot be read, masks will be unexpected, and threads with such masks are not bound.
        if let Ok((own, cpuset)) = affinity::own_and_cpuset() {
            (self.narrowed, self.cpuset) = (own != cpuset, cpuset);
        }
    }

    /// Records a change in the journal.
    pub fn note(&mut self, entry: Entry) {
        // Before a mask is set, it is asked whether that has failed.
        let _ = self.changes.record(&entry);
        self.ledger.note(entry);
    }

    /// Records a process of the application, unless it has ended.
    pub fn note_member(&mut self, pid: u32) {
        if let Ok(Some(process)) = Task::of(pid)
            && self.ledger.members().get(&pid) != Some(&process.start)
        {
            self.note(Entry::Member(process));
        }
    }

    /// Records that somebody else decides where the thread runs.
    pub fn note_pinned(&mut self, tid: u32, generation: u64) {
        if !self.ledger.is_pinned(tid)
            && let Ok(Some(thread)) = Task::of(tid)
        {
            self.note(Entry::Pinned(thread));
            self.generations.insert(tid, generation);
        }
    }

    /// Registers a thread; records about an earlier thread with the same ID become invalid.
    pub fn meet(&mut self, tid: u32, generation: u64) {
        if let Some(&noted) = self.generations.get(&tid)
            && noted != generation
        {
            self.forget(tid, noted);
        }
    }

    /// Forgets a thread that has ended, or has undone its own pinning.
    pub fn forget(&mut self, tid: u32, generation: u64) {
        if self.generations.get(&tid) == Some(&generation) {
            self.generations.remove(&tid);
            self.note(Entry::Forget(tid));
        }
    }

    /// Returns the PEs to which other runs of this user have bound threads.
    pub fn taken(&self) -> CpuSet {
        self.claimed.others().into_iter().map(|place| PeId(place as u32)).collect()
    }

    /// Announces the PEs to which threads are bound, or were a moment ago: the guard frees them for an epoch.
    /// (If two runs have bound threads to the same PE, the second sees that it is taken.)
    /// Those to which threads were `moved` count, too.
    pub fn claim_bound_pes(&mut self, moved: &HashMap<u32, CpuSet>) {
        let now = Instant::now();
        let bound = self.ledger.all_bound().map(|bound| &bound.ours).chain(moved.values());
        for pes in bound.filter(|pes| pes.len() == 1) {
            let places = pes.iter().map(|pe| i64::from(pe.0));
            self.bound_at.extend(places.map(|place| (place, now)));
        }
        let claimed = &mut self.claimed;
        self.bound_at.retain(|&place, at| {
            let is_kept = at.elapsed() < CLAIMED_FOR;
            if is_kept {
                claimed.take(place);
            } else {
                claimed.leave(place);
            }
            is_kept
        });
    }

    /// Gives inherited masks back in time from now on.
    pub fn watch_heirs(&mut self, bound: heirs::Heirs) {
        // Without it, the next observation shows inherited masks.
        self.heirs = Heirs::start(bound).ok();
        let entered =
            self.heirs.iter().flat_map(|heirs| self.ledger.all_bound().map(move |bound| (heirs, bound)));
        entered.for_each(|(heirs, Bound { thread, ours, original })| heirs.enter(thread.id, ours, original));
    }

    /// Binds a thread.
    pub fn bind(&mut self, tid: u32, generation: u64, basis: Basis, pes: &CpuSet) -> OutcomeKind {
        let thread = match Task::of(tid) {
            Ok(Some(thread)) if thread.start < basis.at => thread,
            // The thread has ended, and its ID has been reused.
            Ok(_) => {
                self.forget(tid, generation);
                return OutcomeKind::Gone;
            }
            Err(error) => return OutcomeKind::Refused(error.to_string()),
        };
        let (mask, own) = match affinity::get(tid).and_then(|mask| Ok((mask, affinity::get(0)?))) {
            Ok(masks) => masks,
            Err(errno) => return refusal(errno),
        };
        let bound = self.ledger.bound(thread);
        let is_expected =
            bound.map_or(mask == *basis.mask, |bound| is_seen_as(&bound.ours, &self.cpuset, &mask));
        if !is_expected || own != *basis.baseline || self.ledger.is_pinned(tid) {
            // Somebody else has set the mask, or the cpuset is changing: the next observation will show it.
            return OutcomeKind::NotOurs;
        }
        if let Some(why) = self.changes.failure() {
            return OutcomeKind::Refused(why);
        }
        // PEs that are offline now belong to it, too.
        let is_narrower = mask != own || self.narrowed;
        let all = || if is_narrower { mask::with_offline(tid, &mask) } else { self.all_pes.clone() };
        let original = bound.map_or_else(all, |bound| bound.original.clone());
        let before = bound.cloned();
        // Write before acting, so that the journal has every change whenever we are killed.
        let bind = Entry::Bind { thread, original: original.clone(), ours: pes.clone() };
        let recorded = self.changes.record(&bind);
        self.ledger.note(bind);
        // Bound again, it is to have the mask from before the first time.
        let original = self.ledger.bound(thread).map_or(original, |bound| bound.original.clone());
        self.generations.insert(tid, generation);
        if let Err(why) = recorded {
            self.unbound(tid, before);
            return OutcomeKind::Refused(why);
        }
        self.heirs.iter().for_each(|heirs| heirs.enter(tid, pes, &original));
        if let Err(errno) = mask::set(&self.token, tid, pes) {
            self.unbound(tid, before);
            return refusal(errno);
        }
        if Task::of(tid).is_ok_and(|now| now != Some(thread)) {
            // It ended meanwhile. If its ID was reused, the new thread was bound.
            let _ = mask::set(&self.token, tid, &original);
            self.forget(tid, generation);
            return OutcomeKind::Gone;
        }
        OutcomeKind::Done
    }

    /// Records that a thread could not be bound and is as it was before.
    fn unbound(&mut self, tid: u32, before: Option<Bound>) {
        self.note(match before {
            None => Entry::Free(tid),
            Some(Bound { thread, original, ours }) => Entry::Bind { thread, original, ours },
        });
    }

    /// A thread was moved, and has its own mask: what it starts inherits its weight.
    pub fn watch_moved(&mut self, tid: u32) {
        self.heirs.iter().for_each(|heirs| heirs.enter(tid, &self.all_pes, &self.all_pes));
    }

    /// A moved thread is as it was.
    pub fn forget_moved(&mut self, tid: u32) {
        self.heirs.iter().for_each(|heirs| heirs.remove(tid));
    }

    /// Restores a thread's mask.
    pub fn free(&mut self, tid: u32, generation: u64) -> OutcomeKind {
        self.meet(tid, generation);
        let mask = match affinity::get(tid) {
            Ok(mask) => mask,
            Err(errno) => return refusal(errno),
        };
        let is_ours = |bound: &Bound| is_seen_as(&bound.ours, &self.cpuset, &mask);
        let original = match self.ledger.bound_as(tid) {
            Some(bound) => is_ours(bound).then_some(&bound.original),
            None => self.original_of(&mask),
        };
        let Some(original) = original.filter(|_| !self.ledger.is_pinned(tid)) else {
            return OutcomeKind::NotOurs;
        };
        let result =
            mask::set(&self.token, tid, original).or_else(|_| mask::set(&self.token, tid, &self.all_pes));
        match result {
            Ok(()) => {
                self.heirs.iter().for_each(|heirs| heirs.remove(tid));
                self.note(Entry::Free(tid));
                OutcomeKind::Done
            }
            Err(errno) => refusal(errno),
        }
    }

    /// Restores the mask of a thread that was bound or inherited a mask, if [`Heirs`] has not done so yet.
    pub fn give_back(&mut self, tid: u32) {
        let generation = self.generations.get(&tid).copied().unwrap_or_default();
        if self.free(tid, generation) != OutcomeKind::Done {
            self.heirs.iter().for_each(|heirs| heirs.remove(tid));
            if self.ledger.bound_as(tid).is_some() {
                self.note(Entry::Free(tid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guardian::Guardian;
    use corewise_sys::task;
    use corewise_testing::needs;

    /// Calls `act` in a thread of its own with its ID and its mask; returns `None` if there is only one PE.
    fn with_thread<T: Send + 'static>(
        act: impl FnOnce(&mut Binder, u32, CpuSet) -> T + Send + 'static,
    ) -> (T, CpuSet) {
        let in_thread = move || {
            let mut binder = Binder::new(Guardian::idle().changes()).unwrap();
            let own = affinity::get(0).unwrap();
            // A thread is judged at least a tick after its start.
            let tid = nix::unistd::gettid().as_raw() as u32;
            while task::now() <= Task::of(tid).unwrap().unwrap().start {
                std::thread::yield_now();
            }
            let result = act(&mut binder, tid, own.clone());
            let mask = affinity::get(0).unwrap();
            mask::set(&binder.token, 0, &own).unwrap();
            (result, mask)
        };
        std::thread::spawn(in_thread).join().unwrap()
    }

    fn last(own: &CpuSet) -> CpuSet {
        CpuSet::single(own.last().unwrap())
    }

    // The thread binds itself, which restricts "corewise", too; this is harmless for one bind.

    #[test]
    fn a_thread_is_bound_and_given_back_every_pe() {
        needs!(TwoPes);
        let ((outcome, original), mask) = with_thread(|binder, tid, own| {
            let basis = Basis { baseline: &own, mask: &own, at: task::now() };
            let outcome = binder.bind(tid, 1, basis, &last(&own));
            (outcome, binder.ledger.bound_as(tid).unwrap().original.clone())
        });
        assert_eq!((outcome, original, mask.len()), (OutcomeKind::Done, affinity::all_pes(), 1));
    }

    /// What the cpuset leaves is not what the thread's user wanted.
    #[test]
    fn while_a_cpuset_changes_no_thread_is_bound() {
        needs!(TwoPes);
        let (outcomes, mask) = with_thread(|binder, tid, own| {
            let before = own.union(&CpuSet::single(corewise_core::ids::PeId(4000)));
            // corewise has the smaller set already, or the thread has it before corewise.
            [(&before, &before), (&before, &own), (&own, &before)].map(|(baseline, mask)| {
                binder.bind(tid, 1, Basis { baseline, mask, at: task::now() }, &last(&own))
            })
        });
        assert_eq!(outcomes, [OutcomeKind::NotOurs, OutcomeKind::NotOurs, OutcomeKind::NotOurs]);
        assert!(mask.len() > 1);
    }

    /// As an earlier run had bound it, whose guardian restores it only now.
    #[test]
    fn threads_get_back_what_corewise_gets_back_after_its_start() {
        needs!(TwoPes);
        let original = std::thread::spawn(|| {
            let own = affinity::get(0).unwrap();
            affinity::narrow_self(&last(&own)).unwrap();
            let mut binder = Binder::new(Guardian::idle().changes()).unwrap();
            affinity::narrow_self(&affinity::all_pes()).unwrap();
            binder.own_mask_changed();
            let tid = nix::unistd::gettid().as_raw() as u32;
            let at = Task::of(tid).unwrap().unwrap().start + 1;
            let outcome = binder.bind(tid, 1, Basis { baseline: &own, mask: &own, at }, &last(&own));
            let original = binder.ledger.bound_as(tid).map(|bound| bound.original.clone());
            affinity::narrow_self(&own).unwrap();
            (outcome, original)
        });
        assert_eq!(original.join().unwrap(), (OutcomeKind::Done, Some(affinity::all_pes())));
    }

    #[test]
    fn a_thread_is_given_back_though_corewises_user_has_narrowed_corewise_meanwhile() {
        needs!(TwoPes);
        let ((bound, freed), mask) = with_thread(|binder, tid, own| {
            let basis = Basis { baseline: &own, mask: &own, at: task::now() };
            let bound = binder.bind(tid, 1, basis, &last(&own));
            let narrowed = || {
                affinity::narrow_self(&CpuSet::single(own.first().unwrap())).unwrap();
                binder.own_mask_changed();
                binder.free(tid, 1)
            };
            (bound, std::thread::scope(|scope| scope.spawn(narrowed).join().unwrap()))
        });
        assert_eq!((bound, freed, mask.len() > 1), (OutcomeKind::Done, OutcomeKind::Done, true));
    }

    #[test]
    fn the_next_owner_of_a_judged_threads_number_is_not_bound() {
        needs!(TwoPes);
        let (outcome, mask) = with_thread(|binder, tid, own| {
            let start = Task::of(tid).unwrap().unwrap().start;
            binder.bind(tid, 1, Basis { baseline: &own, mask: &own, at: start }, &last(&own))
        });
        assert_eq!((outcome, mask.len() > 1), (OutcomeKind::Gone, true));
    }

    #[test]
    fn records_of_a_thread_are_forgotten_when_its_number_has_another_owner() {
        needs!(TwoPes);
        with_thread(|binder, tid, own| {
            let basis = Basis { baseline: &own, mask: &own, at: task::now() };
            binder.bind(tid, 1, basis, &last(&own));
            binder.meet(tid, 1);
            assert!(binder.ledger.bound_as(tid).is_some());
            binder.meet(tid, 2);
            assert!(binder.ledger.bound_as(tid).is_none());
        });
    }

    #[test]
    fn a_thread_that_cannot_be_bound_anew_is_known_to_be_bound_as_before() {
        needs!(TwoPes);
        let (known, mask) = with_thread(|binder, tid, own| {
            let basis = |own| Basis { baseline: own, mask: own, at: task::now() };
            let ours = last(&own);
            binder.bind(tid, 1, basis(&own), &ours);
            binder.changes = Guardian::idle().without_space().changes();
            let outcome = binder.bind(tid, 1, basis(&ours), &CpuSet::single(own.first().unwrap()));
            assert!(matches!(outcome, OutcomeKind::Refused(_)), "{outcome:?}");
            binder.ledger.bound_as(tid).unwrap().ours.clone()
        });
        assert_eq!(known, mask);
    }

    #[test]
    fn a_change_that_cannot_be_journalled_is_not_made() {
        needs!(TwoPes);
        let (outcome, mask) = with_thread(|binder, tid, own| {
            let guardian = Guardian::idle().without_space();
            binder.changes = guardian.changes();
            let basis = Basis { baseline: &own, mask: &own, at: task::now() };
            let outcome = binder.bind(tid, 1, basis, &last(&own));
            assert!(guardian.notes()[0].contains("nothing was bound"), "{:?}", guardian.notes());
            outcome
        });
        assert!(matches!(outcome, OutcomeKind::Refused(_)) && mask.len() > 1, "{outcome:?}");
    }
}
