//! Restoring every mask.
//!
//! Problem: a bound thread must get its own mask back whatever happens; threads that it created meanwhile
//! have inherited the narrow mask without being in the journal; and a mask that somebody else has set since
//! must be kept. Approach: each bound thread is restored if its mask is still the one we set. Then every
//! thread of the run ([`super::members`]) that has a mask we handed out, and did not set it itself, is
//! restored as well. This is repeated until passes find no thread to restore: then everybody alive was seen
//! with a wide mask, and later threads descend from these.
//!
//! Processes may end before they are seen and leave others behind, on a busy machine in every pass, most of
//! them unrelated. So a pass that misses a process still counts, but many of them are needed ([`QUIET`]). A
//! thread may be restored while it is creating another, which already has the narrow mask and is not visible
//! yet: passes count only if the thread has run since the last one that did ([`Look::is_halfway`]). When a
//! cpuset shrinks, the kernel overrides a mask but remembers it for the time when the cpuset grows again: the
//! overridden form of our mask counts as our mask ([`seen`]). The kernel changes one thread after the other,
//! so a mask that is neither ours nor the thread's own is checked again for a moment. The restoring thread is
//! real-time if permitted ([`be_in_time`]); otherwise the threads that it is looking for may delay it.
//!
//! Limits: where a cpuset has shrunk to a mask of ours, restored threads look like unrestored ones, so after
//! many passes a chain of processes is assumed to have been caught. A thread that pins itself to exactly the
//! PEs we had given to its creator, within two intervals before the end, is mistaken for one that inherited
//! them.

use super::frequency;
use super::ledger::Ledger;
use super::mask::{self, ActToken};
use super::members::{Members, Membership};
use super::turns;
use corewise_core::cpuset::CpuSet;
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use corewise_sys::real_time::RealTime;
use corewise_sys::task::Task;
use nix::errno::Errno;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What could not be restored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remains {
    /// Threads that the system does not let us change, as they run a program with another user's rights.
    pub refused: Vec<u32>,
    /// Whether time ran out before it was certain that no inherited masks are left.
    pub outrun: bool,
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.refused.is_empty() {
            let threads: Vec<String> = self.refused.iter().map(u32::to_string).collect();
            write!(
                f,
                "the system does not permit restoring the affinity masks of the threads {}",
                threads.join(", ")
            )?;
        }
        if self.outrun {
            f.write_str(if self.refused.is_empty() { "" } else { "; " })?;
            f.write_str(
                "processes with restricted affinity masks start others faster than they can be found",
            )?;
        }
        Ok(())
    }
}

/// Restores every mask and limit that is still ours, ends all turns, and returns what could not be restored.
/// No thread may be bound meanwhile.
pub fn restore(
    ledger: &Ledger,
    token: &ActToken,
    members: &mut dyn Members,
    within: Duration,
) -> io::Result<Remains> {
    let _in_time = be_in_time();
    let started = Instant::now();
    let mut remains = Remains::default();
    let mut given = HashMap::new();
    let mut quiet = 0;
    if !ledger.is_settled() {
        turns::restore(ledger, token);
        frequency::restore(Path::new(frequency::SYSTEM), ledger, token);
    }
    while !ledger.is_settled() {
        let mut look = Look { ledger, token, cpuset: affinity::of_cpuset()?, given: &mut given };
        let seen = look.take(members)?;
        let is_halfway = seen.found == 0 && look.is_halfway();
        quiet = seen.quiet(is_halfway).map_or(0, |worth| quiet + worth);
        let elapsed = started.elapsed();
        let settled = seen.unsettled == 0 || elapsed > SETTLES_WITHIN;
        if quiet >= QUIET && settled || elapsed > within {
            remains = Remains { outrun: quiet < QUIET, refused: seen.refused };
            break;
        }
        if is_halfway || !settled {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(remains)
}

/// Makes this thread run before all normal ones until the result is dropped, if permitted.
///
/// On Linux 6.18 we have seen processes that each start the next and end delay everything else on their PE
/// for more than a minute (`docs/faults.md`).
pub fn be_in_time() -> Option<RealTime> {
    RealTime::enter(1).ok()
}

/// The required total value of consecutive passes that find nothing. A single pass is never sufficient, as a
/// list is not read in one instant.
const QUIET: usize = 30;

/// The value of a pass that saw every thread.
const SAW_ALL: usize = 10;

/// The value of a pass that missed a thread that ended.
const MISSED_SOME: usize = 1;

/// How long the kernel may take to change the masks of all threads of a cpuset.
const SETTLES_WITHIN: Duration = Duration::from_millis(50);

/// The pause before the next pass when threads must first continue.
const PAUSE: Duration = Duration::from_millis(2);

/// One pass over all threads, restoring those that need it.
struct Look<'a> {
    ledger: &'a Ledger,
    token: &'a ActToken,
    /// The PEs that the cpuset allows.
    cpuset: CpuSet,
    /// The threads that were restored, and how long each had run, in ns, at the last pass that counted.
    given: &'a mut HashMap<Task, Option<u64>>,
}

/// The result of a pass.
#[derive(Default)]
struct Seen {
    /// The number of restored threads, plus those that look as if they had inherited a mask but may be
    /// unrelated.
    found: usize,
    /// Whether a thread ended before it was seen and may have left a thread with an inherited mask.
    missed: bool,
    /// Bound threads whose mask is neither ours nor their own.
    unsettled: usize,
    refused: Vec<u32>,
}

impl Seen {
    /// Returns the value of the pass if it found nothing.
    fn quiet(&self, is_halfway: bool) -> Option<usize> {
        let worth = match (self.missed, is_halfway) {
            (true, _) => MISSED_SOME,
            (false, true) => 0,
            (false, false) => SAW_ALL,
        };
        (self.found == 0).then_some(worth)
    }
}

impl Look<'_> {
    fn take(&mut self, members: &mut dyn Members) -> io::Result<Seen> {
        let mut result = Seen::default();
        for bound in self.ledger.all_bound() {
            let tid = bound.thread.id;
            let Ok(mask) = affinity::get(tid) else { continue };
            if Task::of(tid)? != Some(bound.thread) {
                continue;
            }
            if mask == seen(&bound.ours, &self.cpuset) {
                self.give_back(tid, &mask, &bound.original, &mut result)?;
            } else if mask != seen(&bound.original, &self.cpuset) {
                result.unsettled += 1;
            }
        }
        let ledger = self.ledger;
        let as_seen = ledger.handed_out().map(|(ours, original)| (ours, seen(ours, &self.cpuset), original));
        // Where the cpuset overrides our mask, others may have the same mask without us: restoring ours must
        // not narrow theirs.
        let handed_out: HashMap<CpuSet, &CpuSet> = as_seen
            .filter(|(ours, seen, original)| *ours == seen || seen.is_subset(original))
            .map(|(_, seen, original)| (seen, original))
            .collect();
        let missed = members.look(&mut |tid, belongs| {
            let Ok(mask) = affinity::get(tid) else {
                result.missed = true;
                return Ok(());
            };
            match handed_out.get(&mask) {
                Some(original) if !self.has_pinned_itself(tid)? => match belongs {
                    Membership::Yes => self.give_back(tid, &mask, original, &mut result)?,
                    Membership::Unknown if seen(original, &self.cpuset) == mask => result.missed = true,
                    Membership::Unknown => result.found += 1,
                },
                _ => {}
            }
            Ok(())
        })?;
        result.missed |= missed;
        Ok(result)
    }

    fn has_pinned_itself(&self, tid: u32) -> io::Result<bool> {
        let Some(start) = self.ledger.pinned_start(tid) else { return Ok(false) };
        Ok(Task::of(tid)? == Some(Task { id: tid, start }))
    }

    /// Returns whether a restored thread may be in the middle of creating a thread with the old mask: one
    /// that is ready to run and has not run since this was last denied.
    fn is_halfway(&mut self) -> bool {
        // If the run time is not available, for want of descriptors or from the kernel, there is nothing to
        // wait for.
        let run_ns = |thread: Task| match thread.state() {
            Ok(Some('R' | 'D')) => {
                let file = Proc::own().schedstat(thread.id, thread.id, false).ok()??;
                Some(file.read().ok()??.run_ns)
            }
            _ => None,
        };
        let given = self.given.iter_mut();
        let present: Vec<_> = given.filter_map(|(&thread, ran)| Some((ran, run_ns(thread)?))).collect();
        let is_halfway = present.iter().any(|(ran, now)| ran.is_none_or(|before| before == *now));
        for (ran, now) in present {
            if !is_halfway || ran.is_none() {
                *ran = Some(now);
            }
        }
        is_halfway
    }

    /// Restores `original` for a thread that has the mask `ours`.
    fn give_back(&mut self, tid: u32, ours: &CpuSet, original: &CpuSet, result: &mut Seen) -> io::Result<()> {
        let set = |mask: &CpuSet| mask::set(self.token, tid, mask);
        let done = match set(original) {
            // None of the original PEs is left (offline, or out of the cpuset): all PEs are the closest
            // substitute.
            Err(Errno::EINVAL) => set(&affinity::all_pes()),
            result => result,
        };
        match done {
            Ok(()) => {
                let known = self.given.len();
                if let Ok(Some(thread)) = Task::of(tid) {
                    self.given.entry(thread).or_default();
                }
                if affinity::get(tid).as_ref() != Ok(ours) {
                    result.found += 1;
                } else {
                    // Nothing visible has changed, so its descendants cannot be identified either.
                    result.missed |= self.given.len() > known;
                }
            }
            Err(Errno::ESRCH) => result.missed = true,
            Err(_) => result.refused.push(tid),
        }
        Ok(())
    }
}

/// Returns how the kernel shows a mask under this cpuset: the common PEs, or the cpuset if there are none.
pub fn seen(mask: &CpuSet, cpuset: &CpuSet) -> CpuSet {
    let common = mask.intersection(cpuset);
    if common.is_empty() { cpuset.clone() } else { common }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Bound, Entry};
    use super::super::members::ByParentage;
    use super::*;
    use corewise_testing::{Capability, or_skip};
    use std::sync::{Mutex, PoisonError};

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_cpuset_leaves_of_a_mask_what_both_allow_or_overrides_it() {
        assert_eq!(seen(&set("2"), &set("0-3")), set("2"));
        assert_eq!(seen(&set("2-5"), &set("0-3")), set("2-3"));
        assert_eq!(seen(&set("5"), &set("0-3")), set("0-3"));
    }

    /// The members that the test lists.
    struct Listed(Vec<Vec<u32>>);

    impl Members for Listed {
        fn look(&mut self, see: &mut dyn FnMut(u32, Membership) -> io::Result<()>) -> io::Result<bool> {
            let threads = self.0.pop().unwrap_or_default();
            threads.into_iter().try_for_each(|tid| see(tid, Membership::Yes)).map(|()| false)
        }
    }

    const WITHIN: Duration = Duration::from_secs(2);

    /// In a thread of its own: binds it, calls `then`, restores, and returns the masks before and after.
    fn restore_after(then: impl FnOnce(&mut Ledger, &ActToken, Task) + Send + 'static) -> (CpuSet, CpuSet) {
        restore_from(affinity::all_pes(), then)
    }

    /// Like [`restore_after`], with the PEs that the restoring thread may use.
    fn restore_from(
        restorer: CpuSet,
        then: impl FnOnce(&mut Ledger, &ActToken, Task) + Send + 'static,
    ) -> (CpuSet, CpuSet) {
        // The other tests' threads belong to the same process: a concurrent restoration may mistake this
        // thread for one that inherited its mask.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::spawn(move || {
            let token = ActToken::mint();
            let thread = Task::of(nix::unistd::gettid().as_raw() as u32).unwrap().unwrap();
            let original = affinity::get(0).unwrap();
            let ours = CpuSet::single(original.last().unwrap());
            let mut ledger = Ledger::default();
            ledger.note(Entry::Bind { thread, original: original.clone(), ours: ours.clone() });
            mask::set(&token, 0, &ours).unwrap();
            then(&mut ledger, &token, thread);
            // Like the guardian, which is not bound.
            let restored = std::thread::spawn(move || {
                let token = ActToken::mint();
                mask::set(&token, 0, &restorer).unwrap();
                let members = ledger.members().clone();
                restore(&ledger, &token, &mut ByParentage::new(&members), WITHIN).unwrap()
            });
            assert_eq!(restored.join().unwrap(), Remains::default());
            let after = affinity::get(0).unwrap();
            mask::set(&token, 0, &original).unwrap();
            (original, after)
        })
        .join()
        .unwrap()
    }

    #[test]
    fn a_bound_thread_gets_its_mask_back() {
        let (before, after) = restore_after(|_, _, _| {});
        assert_eq!(before, after);
    }

    #[test]
    fn a_mask_that_somebody_else_set_is_kept() {
        let (before, after) = restore_after(|_, token, _| {
            let first = CpuSet::single(affinity::all_pes().first().unwrap());
            mask::set(token, 0, &first).unwrap();
        });
        assert!(before.len() < 2 || after.len() == 1, "{before} became {after}");
    }

    #[test]
    fn after_done_nothing_is_touched() {
        let (before, after) = restore_after(|ledger, _, _| ledger.note(Entry::Done));
        assert!(before.len() < 2 || after.len() == 1);
    }

    #[test]
    fn an_inherited_mask_that_is_not_in_the_journal_is_restored_too() {
        let (before, after) = restore_after(|ledger, _, thread| {
            ledger.note(Entry::Member(Task::own().unwrap()));
            ledger.note(Entry::Free(thread.id));
        });
        assert_eq!(before, after);
    }

    #[test]
    fn the_next_owner_of_a_bound_threads_number_keeps_its_mask() {
        let (before, after) = restore_after(|ledger, _, thread| {
            let Bound { original, ours, .. } = ledger.bound(thread).unwrap().clone();
            *ledger = Ledger::default();
            let earlier = Task { start: thread.start - 1, ..thread };
            ledger.note(Entry::Bind { thread: earlier, original, ours });
        });
        assert!(before.len() < 2 || after.len() == 1, "{before} became {after}");
    }

    #[test]
    fn who_pinned_itself_is_no_heir_but_the_next_owner_of_its_number_may_be() {
        for (earlier, kept) in [(0, true), (1, false)] {
            let (before, after) = restore_after(move |ledger, _, thread| {
                ledger.note(Entry::Member(Task::own().unwrap()));
                ledger.note(Entry::Free(thread.id));
                ledger.note(Entry::Pinned(Task { start: thread.start - earlier, ..thread }));
            });
            assert!(before.len() < 2 || (after.len() == 1) == kept, "{before} became {after}");
        }
    }

    /// A listed thread that ends before it is seen may have left a thread with an inherited mask.
    #[test]
    fn it_is_looked_again_until_everybody_was_seen() {
        std::thread::spawn(|| {
            let token = ActToken::mint();
            let (tid, own) = (nix::unistd::gettid().as_raw() as u32, affinity::get(0).unwrap());
            let ours = CpuSet::single(own.last().unwrap());
            let mut ledger = Ledger::default();
            ledger.note(Entry::HandedOut { original: own.clone(), ours: ours.clone() });
            mask::set(&token, 0, &ours).unwrap();
            let restored = std::thread::spawn(move || {
                let token = ActToken::mint();
                mask::set(&token, 0, &affinity::all_pes()).unwrap();
                // From the last to the first.
                let mut members = Listed(vec![vec![tid], vec![u32::MAX / 2], vec![u32::MAX / 2]]);
                restore(&ledger, &token, &mut members, WITHIN)
            });
            assert_eq!(restored.join().unwrap().unwrap(), Remains::default());
            assert_eq!(affinity::get(0), Ok(own));
        })
        .join()
        .unwrap();
    }

    /// Every pass has a thread that cannot be judged; passes take this long.
    struct Busy(Option<u32>, Duration);

    impl Members for Busy {
        fn look(&mut self, see: &mut dyn FnMut(u32, Membership) -> io::Result<()>) -> io::Result<bool> {
            std::thread::sleep(self.1);
            self.0.map_or(Ok(()), |tid| see(tid, Membership::Unknown))?;
            Ok(true)
        }
    }

    fn restored_by(mut members: Busy, within_ms: u64) -> Remains {
        let own = affinity::get(0).unwrap();
        let mut ledger = Ledger::default();
        // A restored mask would be visible there.
        let original = own.union(&CpuSet::single(affinity::of_cpuset().unwrap().last().unwrap()));
        ledger.note(Entry::HandedOut { original, ours: own });
        restore(&ledger, &ActToken::mint(), &mut members, Duration::from_millis(within_ms)).unwrap()
    }

    #[test]
    fn strangers_that_end_all_the_time_hold_nobody_up() {
        assert_eq!(restored_by(Busy(None, Duration::ZERO), 10_000), Remains::default());
    }

    #[test]
    fn who_is_never_caught_is_told() {
        corewise_testing::needs!(TwoPes);
        std::thread::spawn(|| {
            mask::set(&ActToken::mint(), 0, &CpuSet::single(affinity::get(0).unwrap().first().unwrap()))
                .unwrap();
            let tid = nix::unistd::gettid().as_raw() as u32;
            assert!(restored_by(Busy(Some(tid), Duration::ZERO), 5).outrun);
        })
        .join()
        .unwrap();
    }

    /// This thread is real-time and leaves the other no time on their PE.
    #[test]
    fn who_was_given_its_mask_back_and_has_not_run_since_may_be_creating_a_thread() {
        let missing = |errno: &Errno| (*errno == Errno::EPERM).then_some(Capability::RealTime);
        std::thread::spawn(move || {
            let token = ActToken::mint();
            mask::set(&token, 0, &CpuSet::single(affinity::get(0).unwrap().first().unwrap())).unwrap();
            let _real_time = or_skip!(RealTime::enter(1), missing);
            let mut child =
                std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            let busy = Task::of(child.id()).unwrap().unwrap();
            let normal = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameters live through the call, which only reads them.
            assert_eq!(unsafe { libc::sched_setscheduler(busy.id as i32, libc::SCHED_OTHER, &normal) }, 0);
            let mut given = HashMap::from([(busy, None)]);
            let ledger = Ledger::default();
            let cpuset = affinity::of_cpuset().unwrap();
            let mut look = Look { ledger: &ledger, token: &token, cpuset, given: &mut given };
            for _ in 0..3 {
                assert!(look.is_halfway());
            }
            while look.is_halfway() {
                std::thread::sleep(PAUSE);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!look.is_halfway(), "it has ended");
        })
        .join()
        .unwrap();
    }

    /// One pass without findings does not make up for those for which there was no time.
    #[test]
    fn a_slow_look_is_not_enough() {
        assert!(restored_by(Busy(None, Duration::from_millis(10)), 5).outrun);
    }

    #[test]
    fn corewise_gives_back_though_its_user_has_narrowed_it_meanwhile() {
        corewise_testing::needs!(TwoPes);
        let first = CpuSet::single(affinity::get(0).unwrap().first().unwrap());
        let (before, after) = restore_from(first, |_, _, _| {});
        assert_eq!(before, after);
    }
}
