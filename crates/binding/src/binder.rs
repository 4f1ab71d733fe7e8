//! Setting masks so that each can be given back: with leave to act, the journal of changes and the guardian.
//!
//! Between a look at a thread and the change of its mask everything may happen: its cpuset shrinks, the
//! thread pins itself, it ends and its number is given to another. So a thread is bound only while its mask
//! is the one that the decision rests on, and only if it had started by then.

use super::group::Slowed;
use super::guardian::Guardian;
use super::ledger::{Bound, Entry, Ledger};
use super::mask::{self, ActToken};
use super::members::ByParentage;
use super::restore::{Remains, restore, seen};
use super::slots::Slots;
use super::turns::Turns;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::plan::OutcomeKind;
use corewise_discovery::followed::Followed;
use corewise_sys::affinity;
use corewise_sys::task::Task;
use nix::errno::Errno;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the end of a run may be held up by threads that inherited a mask. If that is not enough, the
/// guardian goes on.
const WITHIN: Duration = Duration::from_millis(300);

/// How long, if there is no guardian.
const WITHIN_ALONE: Duration = Duration::from_secs(5);

/// More than any machine has: PEs with numbers below this are told to others.
const PES_MAX: i64 = 1 << 20;

/// See the module's text.
pub struct Binder {
    token: ActToken,
    ledger: Ledger,
    guardian: Guardian,
    followed: Option<Followed>,
    /// What is given back to a thread that nobody has narrowed, so that it follows its cpuset when that grows
    /// later: every PE.
    all_pes: CpuSet,
    /// What the cpuset allows.
    cpuset: CpuSet,
    /// Whether a user has narrowed corewise.
    narrowed: bool,
    turns: Turns,
    /// The PEs on each of which this corewise has bound a thread alone, for others to know.
    claimed: Slots,
    /// When threads were seen to be bound to each of them last.
    bound_at: HashMap<i64, Instant>,
    /// By what discovery tells the noted threads from later owners of their numbers.
    generations: HashMap<u32, u64>,
}

/// What a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Basis<'a> {
    /// What corewise itself was allowed: what user and cpuset allow the whole application.
    pub baseline: &'a CpuSet,
    /// The mask that the thread had, if it was not bound.
    pub mask: &'a CpuSet,
    /// When the threads were looked at, as a time of start.
    pub at: u64,
}

/// For how long a PE stays claimed on which no thread is bound any more.
const CLAIMED_FOR: Duration = Duration::from_secs(2);

impl Binder {
    /// Begins the journal of a run.
    pub fn new(guardian: Guardian, followed: Option<io::Result<Followed>>) -> io::Result<Binder> {
        let token = ActToken::mint();
        let (own, cpuset) = affinity::own_and_cpuset()?;
        // Without the kernel's list, threads that inherited a mask are looked for by their parentage.
        let followed = followed.and_then(Result::ok);
        let mut binder = Binder {
            token,
            ledger: Ledger::default(),
            guardian,
            followed,
            all_pes: affinity::all_pes(),
            narrowed: own != cpuset,
            cpuset,
            turns: Turns::open()?,
            claimed: Slots::open("claimed-pes", PES_MAX)?,
            bound_at: HashMap::new(),
            generations: HashMap::new(),
        };
        if let Some(followed) = &binder.followed {
            binder.guardian.hand_over(followed);
        }
        binder.note(Entry::Guardian(binder.guardian.process()));
        Ok(binder)
    }

    /// The journal.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the cpuset allowed at the last look.
    pub fn cpuset(&self) -> &CpuSet {
        &self.cpuset
    }

    /// To be called when corewise's own mask has changed: by its cpuset, or by its user.
    pub fn own_mask_changed(&mut self) {
        // If it cannot be told, masks are surprises, and who has one is not bound.
        if let Ok((own, cpuset)) = affinity::own_and_cpuset() {
            (self.narrowed, self.cpuset) = (own != cpuset, cpuset);
        }
    }

    /// What a user should know, in words.
    pub fn notes(&self) -> Vec<String> {
        self.guardian.notes()
    }

    /// Notes a change in the journal.
    pub fn note(&mut self, entry: Entry) {
        self.ledger.note(entry.clone());
        self.guardian.write(&entry, &self.ledger);
    }

    /// Notes a process of the application; one that has ended needs no note.
    pub fn note_member(&mut self, pid: u32) {
        if let Ok(Some(process)) = Task::of(pid)
            && self.ledger.members().get(&pid) != Some(&process.start)
        {
            self.note(Entry::Member(process));
        }
    }

    /// Notes that somebody else decides where the thread runs.
    pub fn note_pinned(&mut self, tid: u32, generation: u64) {
        if !self.ledger.is_pinned(tid)
            && let Ok(Some(thread)) = Task::of(tid)
        {
            self.note(Entry::Pinned(thread));
            self.generations.insert(tid, generation);
        }
    }

    /// A thread has this number now: what was noted of an earlier owner is no longer true.
    pub fn meet(&mut self, tid: u32, generation: u64) {
        if let Some(&noted) = self.generations.get(&tid)
            && noted != generation
        {
            self.forget(tid, noted);
        }
    }

    /// A thread has ended, or has undone its own pinning.
    pub fn forget(&mut self, tid: u32, generation: u64) {
        if self.generations.get(&tid) == Some(&generation) {
            self.generations.remove(&tid);
            self.note(Entry::Forget(tid));
        }
    }

    /// The PEs on which other corewise of this user have bound threads.
    pub fn taken(&self) -> CpuSet {
        self.claimed.others().into_iter().map(|slot| PeId(slot as u32)).collect()
    }

    /// Lets others know on which PEs threads are bound, or were a moment ago: the guard frees them for an
    /// epoch. (If two have bound threads on the same one, the second sees that it is taken.)
    pub fn claim_bound_pes(&mut self) {
        let now = Instant::now();
        for bound in self.ledger.all_bound().filter(|bound| bound.ours.len() == 1) {
            let slots = bound.ours.iter().map(|pe| i64::from(pe.0));
            self.bound_at.extend(slots.map(|slot| (slot, now)));
        }
        let claimed = &mut self.claimed;
        self.bound_at.retain(|&slot, at| {
            let is_kept = at.elapsed() < CLAIMED_FOR;
            if is_kept {
                claimed.take(slot);
            } else {
                claimed.leave(slot);
            }
            is_kept
        });
    }

    /// To be called before a round of binding: whether the guardian is at its place.
    pub fn prepare(&mut self) {
        self.guardian.look();
    }

    /// Binds a thread.
    pub fn bind(&mut self, tid: u32, generation: u64, basis: Basis, pes: &CpuSet) -> OutcomeKind {
        let thread = match Task::of(tid) {
            Ok(Some(thread)) if thread.start < basis.at => thread,
            // It has ended, whoever has its number now.
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
        let expected = bound.map_or(basis.mask.clone(), |bound| seen(&bound.ours, &self.cpuset));
        if mask != expected || own != *basis.baseline || self.ledger.is_pinned(tid) {
            // Somebody else has set it, or the cpuset changes just now: the next look will tell.
            return OutcomeKind::NotOurs;
        }
        if let Some(why) = self.guardian.failure() {
            return OutcomeKind::Refused(why.to_owned());
        }
        let original = if mask == own && !self.narrowed { &self.all_pes } else { &mask }.clone();
        let before = bound.cloned();
        // Written before it is done: whenever we are killed, the journal has every change.
        self.note(Entry::Bind { thread, original: original.clone(), ours: pes.clone() });
        self.generations.insert(tid, generation);
        if let Some(why) = self.guardian.failure() {
            let why = why.to_owned();
            self.unbound(tid, before);
            return OutcomeKind::Refused(why);
        }
        if let Err(errno) = mask::set(&self.token, tid, pes) {
            self.unbound(tid, before);
            return refusal(errno);
        }
        if Task::of(tid).is_ok_and(|now| now != Some(thread)) {
            // It ended meanwhile. Should its number have an owner already, that one was bound.
            let _ = mask::set(&self.token, tid, &original);
            self.forget(tid, generation);
            return OutcomeKind::Gone;
        }
        OutcomeKind::Done
    }

    /// A thread could not be bound: it is as it was before.
    fn unbound(&mut self, tid: u32, before: Option<Bound>) {
        self.note(match before {
            None => Entry::Free(tid),
            Some(Bound { thread, original, ours }) => Entry::Bind { thread, original, ours },
        });
    }

    /// Gives a thread its mask back.
    pub fn free(&mut self, tid: u32, generation: u64) -> OutcomeKind {
        self.meet(tid, generation);
        let mask = match affinity::get(tid) {
            Ok(mask) => mask,
            Err(errno) => return refusal(errno),
        };
        let is_ours = |bound: &Bound| seen(&bound.ours, &self.cpuset) == mask;
        let original = match self.ledger.bound_as(tid) {
            Some(bound) => is_ours(bound).then_some(&bound.original),
            None => self.ledger.original_of(&mask),
        };
        let Some(original) = original.filter(|_| !self.ledger.is_pinned(tid)) else {
            return OutcomeKind::NotOurs;
        };
        let result =
            mask::set(&self.token, tid, original).or_else(|_| mask::set(&self.token, tid, &self.all_pes));
        match result {
            Ok(()) => {
                self.note(Entry::Free(tid));
                OutcomeKind::Done
            }
            Err(errno) => refusal(errno),
        }
    }

    /// Lets the threads of a process run in turns with those of others.
    pub fn let_take_turns(&mut self, pid: u32) -> OutcomeKind {
        let process = match Task::of(pid) {
            Ok(Some(process)) => process,
            Ok(None) => return OutcomeKind::Gone,
            Err(error) => return OutcomeKind::Refused(error.to_string()),
        };
        if let Err(why) = self.turns.check(pid) {
            return OutcomeKind::Refused(why);
        }
        let group = Slowed::of(Path::new("/"), pid);
        self.note(Entry::InTurns(process));
        group.iter().for_each(|group| self.note(Entry::Slowed(group.clone())));
        if let Some(why) = self.guardian.failure() {
            let why = why.to_owned();
            self.note(Entry::NoTurns(pid));
            return OutcomeKind::Refused(why);
        }
        self.turns.join(process, group)
    }

    /// Lets the threads of a process run whenever there is a PE.
    pub fn end_turns(&mut self, pid: u32) -> OutcomeKind {
        if self.turns.leave(&self.token, pid) {
            self.note(Entry::NoTurns(pid));
        }
        OutcomeKind::Done
    }

    /// A process is new.
    pub fn meet_process(&self, pid: u32) {
        self.turns.meet(&self.token, pid);
    }

    /// Until when a turn begins, if any process takes turns.
    pub fn due_within(&self) -> Option<Duration> {
        self.turns.due_within()
    }

    /// Does what is due.
    pub fn act_in_time(&mut self) {
        self.turns.act(&self.token);
    }

    /// Gives everything back. What cannot be is left to the guardian and the next corewise.
    pub fn let_go(mut self) {
        self.guardian.look();
        let within = if self.guardian.is_there() { WITHIN } else { WITHIN_ALONE };
        if let Some(followed) = &mut self.followed {
            // Parentage is the second look in any case.
            let _ = restore(&self.ledger, &self.token, followed, within);
        }
        let mut by_parentage = ByParentage::new(self.ledger.members());
        let remains = match restore(&self.ledger, &self.token, &mut by_parentage, within) {
            Ok(remains) if remains == Remains::default() => return self.guardian.dismiss(&mut self.ledger),
            Ok(remains) => remains.to_string(),
            Err(error) => error.to_string(),
        };
        // Else it sees the socket close and goes on.
        if !self.guardian.is_there() {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "corewise: not all PEs could be given back: {remains}");
        }
    }
}

fn refusal(errno: Errno) -> OutcomeKind {
    match errno {
        Errno::ESRCH => OutcomeKind::Gone,
        errno => OutcomeKind::Refused(errno.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_sys::task;
    use corewise_testing::needs;

    /// In a thread of its own, for which `act` is called with its number and its mask; `None` with one PE
    /// only.
    fn with_thread<T: Send + 'static>(
        act: impl FnOnce(&mut Binder, u32, CpuSet) -> T + Send + 'static,
    ) -> (T, CpuSet) {
        let in_thread = move || {
            let mut binder = Binder::new(Guardian::idle(), None).unwrap();
            let own = affinity::get(0).unwrap();
            // It is judged a tick after its start at the earliest.
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

    // The thread binds itself, so that with it "corewise" is narrow, too: that is no matter for one bind.

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
    fn while_a_cpuset_changes_nobody_is_bound() {
        needs!(TwoPes);
        let (outcomes, mask) = with_thread(|binder, tid, own| {
            let before = own.union(&CpuSet::single(corewise_core::ids::PeId(4000)));
            // corewise has the smaller set already, the thread has it before corewise.
            [(&before, &before), (&before, &own), (&own, &before)].map(|(baseline, mask)| {
                binder.bind(tid, 1, Basis { baseline, mask, at: task::now() }, &last(&own))
            })
        });
        assert_eq!(outcomes, [OutcomeKind::NotOurs, OutcomeKind::NotOurs, OutcomeKind::NotOurs]);
        assert!(mask.len() > 1);
    }

    /// As an earlier run had bound it, whose guardian gives its PEs back only now.
    #[test]
    fn what_corewise_gets_back_after_its_start_its_threads_get_back_too() {
        needs!(TwoPes);
        let original = std::thread::spawn(|| {
            let own = affinity::get(0).unwrap();
            affinity::narrow_self(&last(&own)).unwrap();
            let mut binder = Binder::new(Guardian::idle(), None).unwrap();
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
    fn what_was_noted_of_a_thread_is_forgotten_when_its_number_has_another_owner() {
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
    fn who_cannot_be_bound_anew_is_known_to_be_bound_as_before() {
        needs!(TwoPes);
        let (known, mask) = with_thread(|binder, tid, own| {
            let basis = |own| Basis { baseline: own, mask: own, at: task::now() };
            let ours = last(&own);
            binder.bind(tid, 1, basis(&own), &ours);
            binder.guardian = Guardian::idle().without_space();
            let outcome = binder.bind(tid, 1, basis(&ours), &CpuSet::single(own.first().unwrap()));
            assert!(matches!(outcome, OutcomeKind::Refused(_)), "{outcome:?}");
            binder.ledger.bound_as(tid).unwrap().ours.clone()
        });
        assert_eq!(known, mask);
    }

    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        needs!(TwoPes);
        let (outcome, mask) = with_thread(|binder, tid, own| {
            binder.guardian = Guardian::idle().without_space();
            let basis = Basis { baseline: &own, mask: &own, at: task::now() };
            let outcome = binder.bind(tid, 1, basis, &last(&own));
            assert!(binder.notes()[0].contains("nothing was bound"), "{:?}", binder.notes());
            outcome
        });
        assert!(matches!(outcome, OutcomeKind::Refused(_)) && mask.len() > 1, "{outcome:?}");
    }
}
