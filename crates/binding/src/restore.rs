//! Restoring everything.
//!
//! Problem: a bound thread must get its own mask back whatever happens; threads that it created meanwhile
//! have inherited the narrow mask without being in the journal; and a mask that somebody else has set since
//! must be kept. Approach: each bound thread is restored if its mask is still the one we set. Then every
//! thread of the run ([`super::members`]) that has a mask we handed out, and did not set it itself, is
//! restored as well. So is every thread with a weight or a policy that was handed out, before it was
//! created, to a process that it descends from ([`super::descent`]), and every process with a word of a
//! changed program that it was forked from ([`super::words`]). This is repeated until passes find nothing to
//! restore: then all that live were seen as they should be, and later threads and processes descend from
//! these.
//!
//! Words come last: a hostile program can delay those who read its memory for ever, and must not keep others
//! from their masks.
//!
//! Processes may end before they are seen and leave others behind, on a busy machine in every pass, most of
//! them unrelated. So a pass that misses a process still counts, but many of them are needed ([`QUIET`]). A
//! thread may be restored while it is creating another, which already has the narrow mask and is not visible
//! yet: passes count only if the thread has run since the last one that did ([`is_halfway`]). When a
//! cpuset shrinks, the kernel overrides a mask but remembers it for the time when the cpuset grows again: the
//! overridden form of our mask counts as our mask ([`mask::seen`]). The kernel changes one thread after the
//! other, so a mask that is neither ours nor the thread's own is checked again for a moment. The restoring
//! thread is real-time if permitted ([`sched_policy::run_first`]); otherwise the threads that it is looking
//! for may delay it.
//!
//! Limits: where a cpuset has shrunk to a mask of ours, restored threads look like unrestored ones, so after
//! many passes a chain of processes is assumed to have been caught. A thread that pins itself to exactly the
//! PEs we had given to its creator, within two intervals before the end, is mistaken for one that inherited
//! them; so is one that has made itself `SCHED_IDLE`, or has set a nice level, as its process or one that it
//! descends from was given. Orphans that corewise has not started keep a weight that they have inherited and
//! were not met with.

use super::act_token::ActToken;
use super::frequency;
use super::ledger::Ledger;
use super::mask::{self, seen};
use super::members::{ByParentage, Members, Membership};
use super::sched_policy;
use super::thread_weight::WeightChange;
use super::word::{Memories, Word, WriteError};
use corewise_core::cpuset::CpuSet;
use corewise_discovery::followed::Followed;
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use nix::errno::Errno;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What could not be restored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remains {
    /// Threads that the system does not let us change, as they run a program with another user's rights.
    pub refused: Vec<u32>,
    /// Processes whose memory the system does not let us write to.
    pub closed: BTreeSet<u32>,
    /// Whether time ran out before it was certain that no inherited changes are left.
    pub outrun: bool,
}

impl Remains {
    /// Adds what else remains.
    pub fn with(self, other: Remains) -> Remains {
        let (refused, closed) = ([self.refused, other.refused].concat(), &self.closed | &other.closed);
        Remains { refused, closed, outrun: self.outrun || other.outrun }
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |ids: &mut dyn Iterator<Item = &u32>| ids.map(u32::to_string).collect::<Vec<_>>().join(", ");
        let mut remains = Vec::new();
        if !self.refused.is_empty() {
            let threads = list(&mut self.refused.iter());
            remains.push(format!(
                "the system does not permit restoring the affinity masks, scheduling policies or nice levels \
                 of the threads {threads}"
            ));
        }
        if !self.closed.is_empty() {
            let processes = list(&mut self.closed.iter());
            remains.push(format!(
                "the system does not permit restoring how idle threads wait in the processes {processes}"
            ));
        }
        if self.outrun {
            remains.push(
                "processes with inherited changes start others faster than they can be found".to_owned(),
            );
        }
        f.write_str(&remains.join("; "))
    }
}

/// Restores everything that is still ours, and returns what could not be restored. Nothing may be changed
/// meanwhile. `followed` is the kernel's list of the threads, if there is one. `memories` are those that were
/// kept open of the programs that were written to.
pub fn restore(
    ledger: &Ledger,
    token: &ActToken,
    followed: Option<&mut Followed>,
    memories: &Memories,
    within: Duration,
) -> io::Result<Remains> {
    let remains = restore_threads(ledger, token, followed, within)?;
    Ok(restore_words(ledger, memories, within)?.with(remains))
}

/// Restores everything but what stands in the memory of programs.
pub fn restore_threads(
    ledger: &Ledger,
    token: &ActToken,
    followed: Option<&mut Followed>,
    within: Duration,
) -> io::Result<Remains> {
    let _first = sched_policy::run_first();
    if let Some(followed) = followed {
        // Threads that the kernel cannot list are found by their parents, which is the second search in any
        // case.
        let _ = restore_members(ledger, token, followed, within);
    }
    restore_members(ledger, token, &mut ByParentage::new(ledger.members()), within)
}

/// Restores the threads that one source lists.
fn restore_members(
    ledger: &Ledger,
    token: &ActToken,
    members: &mut dyn Members,
    within: Duration,
) -> io::Result<Remains> {
    if ledger.is_settled() {
        return Ok(Remains::default());
    }
    restore_turns(ledger, token);
    frequency::restore(Path::new(frequency::SYSTEM), ledger.lowered(), token);
    if !ledger.threads_may_have_inherited() {
        return Ok(Remains::default());
    }
    let mut given = HashMap::new();
    until_quiet(within, || {
        let cpuset = affinity::of_cpuset()?;
        let mut look = Look { ledger, token, cpuset, given: &mut given };
        let seen = look.take(members)?;
        Ok((seen.found == 0 && is_halfway(&mut given), seen))
    })
}

/// Restores what stands in the memory of programs. Call it last: a program can delay it for ever.
pub fn restore_words(ledger: &Ledger, memories: &Memories, within: Duration) -> io::Result<Remains> {
    let _first = sched_policy::run_first();
    if ledger.is_settled() || ledger.words().is_empty() {
        return Ok(Remains::default());
    }
    let mut given = HashMap::new();
    until_quiet(within, || {
        let seen = look_at_words(ledger, memories, &mut given);
        Ok((seen.found == 0 && is_halfway(&mut given), seen))
    })
}

/// Repeats a pass until passes find nothing to restore, and no restored thread is in the middle of something.
fn until_quiet(within: Duration, mut pass: impl FnMut() -> io::Result<(bool, Seen)>) -> io::Result<Remains> {
    let (started, mut quiet) = (Instant::now(), 0);
    loop {
        let (is_halfway, seen) = pass()?;
        quiet = seen.quiet(is_halfway).map_or(0, |worth| quiet + worth);
        let elapsed = started.elapsed();
        let settled = seen.unsettled == 0 || elapsed > SETTLES_WITHIN;
        if quiet >= QUIET && settled || elapsed > within {
            return Ok(Remains { outrun: quiet < QUIET, refused: seen.refused, closed: seen.closed });
        }
        if is_halfway || !settled {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Restores the parts of all groups, and the policies of all processes that take turns by the ledger. Threads
/// that have inherited a policy are found by [`restore`], which looks at all threads.
fn restore_turns(ledger: &Ledger, token: &ActToken) {
    ledger.slowed().iter().for_each(|group| group.give_back(token, Path::new("/")));
    ledger.in_turns().for_each(|process| sched_policy::make_normal(token, process));
}

/// Makes all threads normal that take turns by the ledger, and what they have started meanwhile, for as long
/// as corewise is stopped. What takes turns when it goes on has its turn soon.
pub fn make_all_normal(ledger: &Ledger, token: &ActToken) {
    restore_turns(ledger, token);
    if !ledger.has_handed_out_weights() {
        return;
    }
    // A thread that ends meanwhile needs nothing.
    let _ = ByParentage::new(ledger.members()).look(&mut |tid, _| {
        if let Ok(Some(thread)) = Task::of(tid)
            && ledger.inherited_weight(thread, None) == Some(WeightChange::Idle)
        {
            let _ = sched_policy::set(token, tid, sched_policy::NORMAL);
        }
        Ok(())
    });
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
    given: &'a mut Given,
}

/// Restored threads, and how long each had run, in ns, at the last pass that counted.
type Given = HashMap<Task, Option<u64>>;

/// The result of a pass.
#[derive(Default)]
struct Seen {
    /// The number of restored threads and words, plus threads that look as if they had inherited a change but
    /// may be unrelated.
    found: usize,
    /// Whether a thread ended before it was seen and may have left a thread with an inherited mask.
    missed: bool,
    /// Bound threads whose mask is neither ours nor their own.
    unsettled: usize,
    refused: Vec<u32>,
    closed: BTreeSet<u32>,
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
        self.restore_weights(&mut result);
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
            self.restore_inherited_weight(tid, belongs, &mut result);
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

    /// Restores the weights of the threads for which they were changed.
    fn restore_weights(&mut self, result: &mut Seen) {
        let ledger = self.ledger;
        for weighed in ledger.all_weighed() {
            let tid = weighed.thread.id;
            let is_same = Task::of(tid).is_ok_and(|now| now == Some(weighed.thread));
            if is_same && weighed.change.is_in_force(tid) == Ok(true) {
                self.take_changed(tid, weighed.change.undo(self.token, tid), result);
            }
        }
    }

    /// Restores the weight of a thread that has inherited a changed one.
    fn restore_inherited_weight(&mut self, tid: u32, belongs: Membership, result: &mut Seen) {
        let Ok(Some(thread)) = Task::of(tid) else { return };
        match self.ledger.inherited_weight(thread, None) {
            Some(inherited) => self.take_changed(tid, inherited.undo(self.token, tid), result),
            // Whose it is may show soon.
            None if belongs == Membership::Unknown => {
                result.found += usize::from(!self.ledger.like_inherited(thread).is_empty());
            }
            None => {}
        }
    }

    /// Takes in the result of restoring a thread's policy or weight.
    fn take_changed(&mut self, tid: u32, changed: Result<(), Errno>, result: &mut Seen) {
        match changed {
            Ok(()) => {
                note_given(self.given, tid);
                result.found += 1;
            }
            Err(Errno::ESRCH) => result.missed = true,
            Err(_) => result.refused.push(tid),
        }
    }

    fn has_pinned_itself(&self, tid: u32) -> io::Result<bool> {
        let Some(start) = self.ledger.pinned_start(tid) else { return Ok(false) };
        Ok(Task::of(tid)? == Some(Task { id: tid, start }))
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
                note_given(self.given, tid);
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

/// One pass over the words that were written to, and those of processes that were forked meanwhile.
fn look_at_words(ledger: &Ledger, memories: &Memories, given: &mut Given) -> Seen {
    let mut result = Seen::default();
    let Some(since) = ledger.words().iter().map(|word| word.process.start).min() else { return result };
    for word in ledger.words().iter() {
        take_restored(word, word.restore(memories.of(word.process)), given, &mut result);
    }
    // What cannot be listed or read has ended, or is somebody else's.
    let pids = Proc::own().processes().unwrap_or_default().into_iter();
    let processes =
        pids.filter_map(|pid| Task::of(pid).ok().flatten()).filter(|process| process.start >= since);
    for process in processes {
        for word in ledger.words().in_fork(process) {
            take_restored(&word, word.restore(None), given, &mut result);
        }
    }
    result
}

fn take_restored(word: &Word, restored: Result<bool, WriteError>, given: &mut Given, result: &mut Seen) {
    match restored {
        Ok(true) => {
            result.found += 1;
            // Each of its threads may be about to fork, with what stood there before.
            let threads = Proc::own().threads(word.process.id).ok().flatten().unwrap_or_default();
            threads.into_iter().for_each(|tid| note_given(given, tid));
        }
        Err(WriteError::Refused(_)) => _ = result.closed.insert(word.process.id),
        Ok(false) | Err(WriteError::Gone | WriteError::NotOurs) => {}
    }
}

/// Notes that a thread was restored.
fn note_given(given: &mut Given, tid: u32) {
    if let Ok(Some(thread)) = Task::of(tid) {
        given.entry(thread).or_default();
    }
}

/// Returns whether a restored thread may be in the middle of creating a thread with the old mask: one
/// that is ready to run and has not run since this was last denied.
fn is_halfway(given: &mut Given) -> bool {
    // If the run time is not available, for lack of descriptors or from the kernel, there is nothing to
    // wait for.
    let run_ns = |thread: Task| match thread.state() {
        Ok(Some('R' | 'D')) => {
            let file = Proc::own().schedstat(thread.id, thread.id, false).ok()??;
            Some(file.read().ok()??.run_ns)
        }
        _ => None,
    };
    let present: Vec<_> =
        given.iter_mut().filter_map(|(&thread, ran)| Some((ran, run_ns(thread)?))).collect();
    let is_halfway = present.iter().any(|(ran, now)| ran.is_none_or(|before| before == *now));
    for (ran, now) in present {
        if !is_halfway || ran.is_none() {
            *ran = Some(now);
        }
    }
    is_halfway
}

#[cfg(test)]
pub(crate) mod tests;
