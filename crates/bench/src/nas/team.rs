//! Threads that compute together, each pinned to a PE.
//!
//! The benchmarks alternate between parallel phases, like OpenMP's `parallel for`: the first member runs the
//! program, and [`Team::each`] gives every member a part of the data, including the first, and returns when
//! all are done. Parts are owned values or disjoint `&mut` slices, everything else is shared by `&`, so the
//! compiler proves that members do not write what others use. It cannot prove that no member keeps a phase's
//! closure after the phase; [`Team::fork`] and [`Shared::help`] argue why this holds.
//!
//! Waiting members spin for a while, since phases last microseconds, and then yield their PE.

use super::error::NasError;
use corewise_core::ids::PeId;
use corewise_sys::affinity;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of spins, about 50 µs, before a member yields.
const SPINS: u32 = 1 << 12;

/// The work of a phase, called with each member's number.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// What all members share.
struct Shared {
    /// The phase's work, on the first member's stack; null tells the others to leave.
    work: AtomicPtr<Work<'static>>,
    /// The number of phases that have begun.
    phase: AtomicUsize,
    /// The members, without the first, that have finished the phase.
    done: AtomicUsize,
    /// The first failure of a member.
    failure: Mutex<Option<Failure>>,
}

enum Failure {
    Error(NasError),
    Panic(Box<dyn Any + Send>),
}

/// The members as the first of them sees them.
pub struct Team<'a> {
    shared: &'a Shared,
    size: usize,
}

/// Runs a program on the first PE with the help of one thread on each of the others. A PE may be named twice.
pub fn run<R: Send>(pes: &[PeId], program: impl FnOnce(&Team) -> R + Send) -> Result<R, NasError> {
    let (&first, others) = pes.split_first().ok_or(NasError::NoPes)?;
    let shared = Shared {
        work: AtomicPtr::new(ptr::null_mut()),
        phase: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        failure: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        let dismissal = Dismissal(&shared);
        let shared = &shared;
        let thread = || std::thread::Builder::new().name("corewise-nas".into());
        for (&pe, member) in others.iter().zip(1..) {
            thread().spawn_scoped(scope, move || shared.help(member, pe)).map_err(NasError::Thread)?;
        }
        let lead = thread().spawn_scoped(scope, || {
            bind(first)?;
            wait_until(|| shared.done.load(Ordering::Acquire) == others.len());
            shared.check()?;
            Ok(program(&Team { shared, size: pes.len() }))
        });
        let result = lead.map_err(NasError::Thread)?.join();
        drop(dismissal);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Tells the members to leave, however the program ends.
struct Dismissal<'a>(&'a Shared);

impl Drop for Dismissal<'_> {
    fn drop(&mut self) {
        self.0.work.store(ptr::null_mut(), Ordering::Relaxed);
        self.0.phase.fetch_add(1, Ordering::Release);
    }
}

impl Shared {
    /// The main loop of a member other than the first.
    fn help(&self, member: usize, pe: PeId) {
        if let Err(error) = bind(pe) {
            self.fail(Failure::Error(error));
        }
        self.done.fetch_add(1, Ordering::Release);
        for phases_seen in 0.. {
            wait_until(|| self.phase.load(Ordering::Acquire) != phases_seen);
            let work = self.work.load(Ordering::Relaxed);
            if work.is_null() {
                return;
            }
            // SAFETY: `Team::fork` stored the pointer before it began the phase, and it keeps the work alive
            // and begins no other phase until this member, too, has counted itself as done.
            let work = unsafe { *work };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(member))) {
                self.fail(Failure::Panic(panic));
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }

    fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// Propagates the panic of a member in the first member.
    fn check(&self) -> Result<(), NasError> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Team<'_> {
    /// Calls `work` once on each member and returns the results. There must be one part per member.
    pub fn each<P, R: Send>(&self, parts: P, work: impl Fn(P::Item) -> R + Sync) -> Vec<R>
    where
        P: IntoIterator<Item: Send>,
    {
        let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        assert_eq!(parts.len(), self.size, "one part a member");
        let results: Vec<_> = parts.iter().map(|_| Mutex::new(None)).collect();
        // Each member locks its own part, so locks are never contended.
        self.fork(&|member| {
            let part = parts[member].lock().unwrap_or_else(PoisonError::into_inner).take();
            let result = part.map(&work);
            *results[member].lock().unwrap_or_else(PoisonError::into_inner) = result;
        });
        let result = |slot: Mutex<Option<R>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|slot| result(slot).expect("every member has worked")).collect()
    }

    /// Runs one phase: all members run the work, and it is over when this returns or panics.
    fn fork(&self, work: Work) {
        let Shared { work: place, phase, done, .. } = self.shared;
        // The others forget the work before this function ends, so the lifetime that the cast drops is kept.
        place.store(ptr::from_ref(&work).cast_mut().cast(), Ordering::Relaxed);
        done.store(0, Ordering::Relaxed);
        phase.fetch_add(1, Ordering::Release);
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        wait_until(|| done.load(Ordering::Acquire) == self.size - 1);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        // Only the binding fails with an error, and that was checked.
        let _ = self.shared.check();
    }

    /// The members' numbers of `0..count`: consecutive, and equal to within one.
    pub fn shares(&self, count: usize) -> Vec<Range<usize>> {
        let bound = |member| count * member / self.size;
        (0..self.size).map(|member| bound(member)..bound(member + 1)).collect()
    }

    /// Cuts a slice of items of `unit` elements each into the members' [`shares`](Self::shares).
    pub fn split<'s, T>(&self, mut slice: &'s mut [T], unit: usize) -> Vec<&'s mut [T]> {
        let shares = self.shares(slice.len() / unit);
        let cut = |share: Range<usize>| {
            slice.split_off_mut(..share.len() * unit).expect("the shares of a slice fill it")
        };
        shares.into_iter().map(cut).collect()
    }
}

fn bind(pe: PeId) -> Result<(), NasError> {
    affinity::bind_self(pe).map_err(|errno| NasError::Bind { pe, errno })
}

fn wait_until(ready: impl Fn() -> bool) {
    let mut spins = 0;
    while !ready() {
        if spins < SPINS {
            spins += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_pes(count: usize) -> Vec<PeId> {
        affinity::get(0).unwrap().iter().collect::<Vec<_>>().into_iter().cycle().take(count).collect()
    }

    #[test]
    fn members_work_on_their_own_parts_and_see_what_others_wrote() {
        for size in 1..=5 {
            let sums = run(&some_pes(size), |team| {
                let mut numbers = vec![0u64; 3 * 7];
                let mut sums = vec![];
                for round in 0..200 {
                    let parts = team.split(&mut numbers, 3);
                    team.each(parts, |part| part.iter_mut().for_each(|number| *number += round));
                    sums = team.each(vec![(); size], |()| numbers.iter().sum::<u64>());
                }
                sums
            });
            assert_eq!(sums.unwrap(), vec![21 * 199 * 200 / 2; size]);
        }
    }

    #[test]
    fn members_stay_on_their_pes() {
        let pes = some_pes(3);
        let masks = run(&pes, |team| team.each(vec![(); 3], |()| affinity::get(0).unwrap())).unwrap();
        let expected: Vec<_> = pes.iter().map(|&pe| corewise_core::cpuset::CpuSet::single(pe)).collect();
        assert_eq!(masks, expected);
    }

    #[test]
    fn a_pe_that_cannot_be_used_is_named() {
        let pes = [some_pes(1)[0], PeId(100_000)];
        for pes in [&pes[..], &pes[1..]] {
            let error = run(pes, |_| ()).unwrap_err();
            assert!(matches!(error, NasError::Bind { pe: PeId(100_000), .. }), "{error}");
        }
        assert!(matches!(run(&[], |_| ()), Err(NasError::NoPes)));
    }

    #[test]
    fn a_members_panic_ends_the_run() {
        for culprit in 0..3 {
            let program = |team: &Team| {
                team.each(vec![0, 1, 2], |member| assert_ne!(member, culprit, "as planned"));
            };
            let panic = catch_unwind(AssertUnwindSafe(|| run(&some_pes(3), program))).unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(message.contains("as planned"), "{message}");
        }
    }
}
