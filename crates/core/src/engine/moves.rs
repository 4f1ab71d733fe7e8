//! Threads that are moved instead of bound, because their programs size themselves by their masks.
//!
//! Problem: a program asks how many PEs it may use, at any time, and has that many threads for good: OpenMP
//! at its first parallel region, numpy when it is imported, a JVM, node, .NET, Go or a Rust pool whenever
//! somebody wants to know. The answer is the mask of the thread that asks. Bound to one PE, it says one.
//!
//! Approach: bind nobody who may still build a team. A thread that works alone in its process is *moved*: it
//! gets a narrow mask for the microseconds in which the kernel takes it to its PE, and then its own again. It
//! stays there by itself where it has a claim by weight ([`crate::policy::Claims`]): the system balances load
//! by moving the threads that wait, and this one hardly ever waits. If it has strayed by a later look, it is
//! moved again, and looked at soon; the more often it strays, the longer it is left where it went
//! ([`STRAYS`]): it is no fight with the system's balancing. As soon as a second thread of the process wants
//! a PE, the team is there, and threads are bound as before, unless the program was seen to ask for the mask
//! of a bound thread ([`Sizing::Asks`]): it is never bound again. A rule that names PEs is its user's word:
//! its mask is what the program shall see, so there a thread that works alone is bound to all of these.
//!
//! Source: ours. The guard has moved threads back like this before. *Emulated*, one of two PEs half as fast,
//! beside a team of three, by hand: a single thread at nice -15 took 1.19 s bound, 1.33 to 1.39 s moved, and
//! 3.4 to 6.2 s as Linux places it.
//!
//! Limits: without a weight, beside others, it strays as the system likes, and is off its PE until the next
//! look, or for as long as it is left there. A program with a second thread that works (a JVM while it
//! compiles) is bound, and seen to ask only with BPF.

use crate::backoff::Backoff;
use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::observe::Sizing;
use crate::policy::Subject;
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Duration;

/// How long a thread that has strayed, and was moved again, is left where it strays to next. A move costs
/// some 50 µs, and the caches about a millisecond (*measured*, two PEs that share nothing): a hundredth of
/// the first wait, and next to nothing of the last one.
pub const STRAYS: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));

/// Returns the threads that a mask could mislead: those whose programs may ask for it now.
pub fn may_ask(subjects: &[Subject]) -> FxHashSet<ThreadId> {
    let looks = |subject: &&Subject| !subject.sizing.is_fixed();
    if !subjects.iter().any(|subject| looks(&subject)) {
        return FxHashSet::default();
    }
    let mut working: FxHashMap<u32, usize> = FxHashMap::default();
    for subject in subjects.iter().filter(|subject| subject.runnable) {
        *working.entry(subject.pid).or_default() += 1;
    }
    let is_alone = |subject: &Subject| working.get(&subject.pid).is_none_or(|&threads| threads <= 1);
    let may_ask = |subject: &&Subject| subject.sizing == Sizing::Asks || is_alone(subject);
    subjects.iter().filter(looks).filter(may_ask).map(|subject| subject.view.thread).collect()
}

/// Returns whether a moved thread wants a PE and is elsewhere.
pub fn has_strayed(subject: &Subject, pes: &CpuSet) -> bool {
    subject.runnable && subject.view.last_pe.is_some_and(|pe| !pes.contains(pe))
}

#[cfg(test)]
mod tests;
