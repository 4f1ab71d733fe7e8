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
//! A look that fails because this process is short of descriptors or memory has seen nothing: no pass counts
//! then, and who restores names the reason ([`Remains::unseen`]). The process first raises its own limits. If
//! that does not help, another one continues: the guardian after corewise, and the next corewise after the
//! guardian, each with limits of its own.
//!
//! Words come last: a hostile program can delay those who read its memory for ever, and must not keep others
//! from their masks.
//!
//! Processes may end before they are seen and leave others behind, on a busy machine in every pass, most of
//! them unrelated. So a pass that misses a process still counts, but many of them are needed ([`QUIET`]). A
//! thread may be restored while it is creating another, which already has the narrow mask and is not visible
//! yet: passes count only if the thread has run since the last one that did ([`is_halfway`]). When a
//! cpuset shrinks, the kernel overrides a mask but remembers it for the time when the cpuset grows again: the
//! overridden form of our mask counts as our mask ([`mask::seen`]); so does that of a thread that sleeps on
//! PEs that went offline, which is empty. The kernel changes one thread after the other, so a mask that is
//! neither ours nor the thread's own is checked again for a moment. The restoring thread is real-time if
//! permitted ([`sched_policy::run_first`]); otherwise the threads that it is looking for may delay it.
//!
//! Limits: where a cpuset has shrunk to a mask of ours, restored threads look like unrestored ones, so after
//! many passes a chain of processes is assumed to have been caught. A thread that pins itself to exactly the
//! PEs we had given to its creator, within two intervals before the end, is mistaken for one that inherited
//! them; so is a thread that chooses `SCHED_IDLE` or a nice level which corewise also gave to its process or
//! to an ancestor of it. Orphans that corewise did not start keep an inherited weight if corewise has not
//! seen them with it.

use super::act_token::ActToken;
use super::descent::Source;
use super::frequency;
use super::ledger::Ledger;
use super::mask::{self, is_seen_as, seen};
use super::members::{ByParentage, Members, Membership};
use super::sched_policy;
use super::thread_weight::WeightChange;
use super::word::{Memories, Word, WriteError};
use corewise_core::cpuset::CpuSet;
use corewise_discovery::followed::Followed;
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use corewise_sys::shortage::{is_shortage, raise_limits, unless_short};
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
    pub refused: BTreeSet<u32>,
    /// Processes whose memory the system does not let us write to.
    pub closed: BTreeSet<u32>,
    /// What else could not be given back, with the reason.
    pub shared: Vec<String>,
    /// Why not everything could be looked at, if so.
    pub unseen: Option<String>,
    /// Whether time ran out before it was certain that no inherited changes are left.
    pub outrun: bool,
}

impl Remains {
    /// Adds what else remains.
    pub fn with(self, other: Remains) -> Remains {
        Remains {
            refused: &self.refused | &other.refused,
            closed: &self.closed | &other.closed,
            shared: [self.shared, other.shared].concat(),
            unseen: self.unseen.or(other.unseen),
            outrun: self.outrun || other.outrun,
        }
    }

    /// Returns whether nothing remains.
    pub fn is_nothing(&self) -> bool {
        *self == Remains::default()
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
        if !self.shared.is_empty() {
            remains.push(format!("the system does not permit giving back {}", self.shared.join(", ")));
        }
        if let Some(why) = &self.unseen {
            remains.push(format!(
                "not every thread could be looked at, and some may have stayed changed ({why})"
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
) -> Remains {
    let remains = restore_threads(ledger, token, followed, within);
    restore_words(ledger, memories, within).with(remains)
}

/// Restores everything but what stands in the memory of programs.
pub fn restore_threads(
    ledger: &Ledger,
    token: &ActToken,
    followed: Option<&mut Followed>,
    within: Duration,
) -> Remains {
    let _raised = raise_limits();
    let _first = sched_policy::run_first();
    // Threads that the kernel cannot list are found by their parents, which is the second search in any case.
    let first = followed.map(|followed| restore_members(ledger, token, followed, within)).unwrap_or_default();
    let second = restore_members(ledger, token, &mut ByParentage::new(ledger.members()), within);
    // What the first search could not do otherwise, the second may have done.
    second.with(Remains { refused: first.refused, unseen: first.unseen, ..Remains::default() })
}

/// Restores the threads that one source lists.
fn restore_members(
    ledger: &Ledger,
    token: &ActToken,
    members: &mut dyn Members,
    within: Duration,
) -> Remains {
    if ledger.is_settled() {
        return Remains::default();
    }
    let (mut given, mut shared) = (HashMap::new(), restore_shared(ledger, token));
    if !ledger.threads_may_have_inherited() {
        return Remains { shared, ..Remains::default() };
    }
    let remains = until_quiet(within, || {
        if !shared.is_empty() {
            shared = restore_shared(ledger, token);
        }
        let cpuset = affinity::of_cpuset()?;
        let mut look = Look { ledger, token, cpuset, given: &mut given };
        let seen = look.take(members)?;
        Ok((seen.found == 0 && is_halfway(&mut given), seen))
    });
    Remains { shared, ..remains }
}

/// Restores what stands in the memory of programs. Call it last: a program can delay it for ever.
pub fn restore_words(ledger: &Ledger, memories: &Memories, within: Duration) -> Remains {
    let _raised = raise_limits();
    let _first = sched_policy::run_first();
    if ledger.is_settled() || ledger.words().is_empty() {
        return Remains::default();
    }
    let mut given = HashMap::new();
    until_quiet(within, || {
        let seen = look_at_words(ledger, memories, &mut given)?;
        Ok((seen.found == 0 && is_halfway(&mut given), seen))
    })
}

/// Repeats a pass until passes find nothing to restore, and no restored thread is in the middle of something.
fn until_quiet(within: Duration, mut pass: impl FnMut() -> io::Result<(bool, Seen)>) -> Remains {
    let (started, raised, mut quiet) = (Instant::now(), raise_limits(), 0);
    loop {
        let (is_halfway, seen) = match pass() {
            Ok(result) => result,
            Err(error) if is_shortage(&error) => {
                raised.renew();
                (false, Seen { unseen: Some(error.to_string()), ..Seen::default() })
            }
            Err(error) => return Remains { unseen: Some(error.to_string()), ..Remains::default() },
        };
        quiet = seen.quiet(is_halfway).map_or(0, |worth| quiet + worth);
        let elapsed = started.elapsed();
        let settled = seen.unsettled == 0 || elapsed > SETTLES_WITHIN;
        if quiet >= QUIET && settled || elapsed > within {
            let Seen { refused, closed, unseen, .. } = seen;
            let outrun = quiet < QUIET && unseen.is_none();
            return Remains { refused, closed, unseen, outrun, ..Remains::default() };
        }
        if is_halfway || !settled || seen.unseen.is_some() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Restores the clocks of PEs, the parts of all groups, and the policies of all processes that take turns by
/// the ledger; returns what could not be restored. Threads that have inherited a policy are found by
/// [`restore`], which looks at all threads.
fn restore_shared(ledger: &Ledger, token: &ActToken) -> Vec<String> {
    let clocks = ledger.lowered().iter().map(|lowered| {
        let restored = lowered.restore(Path::new(frequency::SYSTEM), token);
        restored.map_err(|error| format!("the limit on the clock of PE {} ({error})", lowered.pe))
    });
    let groups = ledger.slowed().iter().map(|slowed| {
        let restored = slowed.give_back(token, Path::new("/"));
        restored.map_err(|error| format!("the part of the {} ({error})", slowed.group))
    });
    let policies = ledger.in_turns().map(|process| {
        let restored = sched_policy::make_normal(token, process);
        restored.map_err(|error| format!("the scheduling policy of process {} ({error})", process.id))
    });
    clocks.chain(groups).chain(policies).filter_map(Result::err).collect()
}

/// Makes all threads normal that take turns by the ledger, and what they have started meanwhile, for as long
/// as corewise is stopped. What takes turns when it goes on has its turn soon.
pub fn make_all_normal(ledger: &Ledger, token: &ActToken) {
    // What cannot be done now is tried again soon.
    restore_shared(ledger, token);
    if !ledger.has_handed_out_weights() {
        return;
    }
    // A thread that ends meanwhile needs nothing.
    let _ = ByParentage::new(ledger.members()).look(&mut |tid, _| {
        if let Ok(Some(thread)) = Task::of(tid)
            && ledger.inherited_weight(thread, None)? == Some(WeightChange::Idle)
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
    refused: BTreeSet<u32>,
    closed: BTreeSet<u32>,
    /// Why the pass ended early, if it did.
    unseen: Option<String>,
}

impl Seen {
    /// Returns the value of the pass if it found nothing.
    fn quiet(&self, is_halfway: bool) -> Option<usize> {
        let worth = match (self.missed, is_halfway) {
            (true, _) => MISSED_SOME,
            (false, true) => 0,
            (false, false) => SAW_ALL,
        };
        (self.found == 0 && self.unseen.is_none()).then_some(worth)
    }
}

impl Look<'_> {
    fn take(&mut self, members: &mut dyn Members) -> io::Result<Seen> {
        let mut result = Seen::default();
        self.restore_weights(&mut result)?;
        for bound in self.ledger.all_bound() {
            let tid = bound.thread.id;
            let Ok(mask) = affinity::get(tid) else { continue };
            if !is_still(bound.thread, &mut result)? {
                continue;
            }
            if is_seen_as(&bound.ours, &self.cpuset, &mask) {
                self.give_back(tid, &mask, &bound.original, &mut result)?;
            } else if !is_seen_as(&bound.original, &self.cpuset, &mask) {
                result.unsettled += 1;
            }
        }
        let ledger = self.ledger;
        let as_seen = ledger.handed_out().map(|(ours, original)| (ours, seen(ours, &self.cpuset), original));
        // That of a thread that sleeps on PEs that went offline.
        let offline = ledger.handed_out().find(|(ours, _)| !ours.intersects(&self.cpuset));
        // Where the cpuset overrides our mask, others may have the same mask without us: restoring ours must
        // not narrow theirs.
        let handed_out: HashMap<CpuSet, &CpuSet> = as_seen
            .filter(|(ours, seen, original)| *ours == seen || seen.is_subset(original))
            .map(|(_, seen, original)| (seen, original))
            .chain(offline.map(|(_, original)| (CpuSet::new(), original)))
            .collect();
        let missed = members.look(&mut |tid, belongs| {
            let Ok(mask) = affinity::get(tid) else {
                result.missed = true;
                return Ok(());
            };
            self.restore_inherited_weight(tid, belongs, &mut result)?;
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
    fn restore_weights(&mut self, result: &mut Seen) -> io::Result<()> {
        let ledger = self.ledger;
        for weighed in ledger.all_weighed() {
            let tid = weighed.thread.id;
            if weighed.change.is_in_force(tid) == Ok(true) && is_still(weighed.thread, result)? {
                self.take_changed(tid, weighed.change.undo(self.token, tid), result)?;
            }
        }
        Ok(())
    }

    /// Restores the weight of a thread that has inherited a changed one.
    fn restore_inherited_weight(
        &mut self,
        tid: u32,
        belongs: Membership,
        result: &mut Seen,
    ) -> io::Result<()> {
        // Strangers may be hidden.
        let Some(thread) = unless_short(Task::of(tid))?.flatten() else { return Ok(()) };
        let inherited = self.ledger.inherited_weight(thread, None)?.or_else(|| self.of_run(thread, belongs));
        match inherited {
            Some(inherited) => self.take_changed(tid, inherited.undo(self.token, tid), result)?,
            // Whose it is may show soon.
            None if belongs == Membership::Unknown => {
                result.found += usize::from(!self.ledger.like_inherited(thread).is_empty());
            }
            None => {}
        }
        Ok(())
    }

    /// Returns the change of weight that a thread of the run looks like: what corewise has started has
    /// inherited it, even if its parents have ended.
    fn of_run(&self, thread: Task, belongs: Membership) -> Option<WeightChange> {
        let like = (belongs == Membership::Yes).then(|| self.ledger.like_inherited(thread))?;
        let of_corewise = like.iter().find(|weight| matches!(weight.source, Source::Corewise(_)));
        of_corewise.map(|weight| weight.change)
    }

    /// Takes in the result of restoring a thread's policy or weight.
    fn take_changed(&mut self, tid: u32, changed: Result<(), Errno>, result: &mut Seen) -> io::Result<()> {
        match changed {
            Ok(()) => {
                note_given(self.given, tid)?;
                result.found += 1;
            }
            Err(Errno::ESRCH) => result.missed = true,
            Err(_) => _ = result.refused.insert(tid),
        }
        Ok(())
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
                note_given(self.given, tid)?;
                if affinity::get(tid).as_ref() != Ok(ours) {
                    result.found += 1;
                } else {
                    // Nothing visible has changed, so its descendants cannot be identified either.
                    result.missed |= self.given.len() > known;
                }
            }
            Err(Errno::ESRCH) => result.missed = true,
            Err(_) => _ = result.refused.insert(tid),
        }
        Ok(())
    }
}

/// Returns whether this is still the thread with its ID. One that hides what it is cannot be restored.
fn is_still(thread: Task, result: &mut Seen) -> io::Result<bool> {
    let present = unless_short(Task::of(thread.id))?;
    if present.is_none() {
        result.refused.insert(thread.id);
    }
    Ok(present.flatten() == Some(thread))
}

/// One pass over the words that were written to, and those of processes that were forked meanwhile.
fn look_at_words(ledger: &Ledger, memories: &Memories, given: &mut Given) -> io::Result<Seen> {
    let mut result = Seen::default();
    let Some(since) = ledger.words().iter().map(|word| word.process.start).min() else { return Ok(result) };
    for word in ledger.words().iter() {
        take_restored(word, word.restore(memories.of(word.process)), given, &mut result)?;
    }
    for pid in Proc::own().processes()? {
        // What cannot be read has ended, or is somebody else's.
        let process = unless_short(Task::of(pid))?.flatten().filter(|process| process.start >= since);
        let Some(process) = process else { continue };
        for word in ledger.words().in_fork(process)? {
            take_restored(&word, word.restore(None), given, &mut result)?;
        }
    }
    Ok(result)
}

fn take_restored(
    word: &Word,
    restored: Result<bool, WriteError>,
    given: &mut Given,
    result: &mut Seen,
) -> io::Result<()> {
    match restored {
        Ok(true) => {
            result.found += 1;
            // Each of its threads may be about to fork, with what stood there before.
            let threads = unless_short(Proc::own().threads(word.process.id))?.flatten().unwrap_or_default();
            threads.into_iter().try_for_each(|tid| note_given(given, tid))?;
        }
        Err(WriteError::Refused(_)) => _ = result.closed.insert(word.process.id),
        Ok(false) | Err(WriteError::Gone | WriteError::NotOurs) => {}
    }
    Ok(())
}

/// Notes that a thread was restored.
fn note_given(given: &mut Given, tid: u32) -> io::Result<()> {
    if let Some(thread) = unless_short(Task::of(tid))?.flatten() {
        given.entry(thread).or_default();
    }
    Ok(())
}

/// Returns whether a restored thread may be in the middle of creating a thread with the old mask: one
/// that is ready to run and has not run since this was last denied.
fn is_halfway(given: &mut Given) -> bool {
    // If the run time is not available, there is nothing to wait for. (For lack of descriptors the pass does
    // not count anyway.)
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
