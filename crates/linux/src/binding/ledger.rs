//! The book of what corewise changed, and how it is given back.
//!
//! Problem: a bound thread must get its own mask back whatever happens, threads that it created meanwhile
//! have inherited the narrow mask without being in the book, and a mask that somebody else set since must
//! be kept. Approach: the book holds each bound thread with both masks, the processes that were followed,
//! and every mask that was ever handed out. To give back, each bound thread is restored if its mask is
//! still the one we set; then every thread of the followed processes and of their descendants that carries
//! a mask we handed out, and did not set it itself, is restored as well. A process whose parent has ended
//! says in its environment whose it is. When a cpuset shrinks, the kernel overrides a mask but remembers it
//! for the time when it grows again: what it made of our mask counts as our mask ([`seen`]). The entries
//! have a line form, so that the guardian process keeps the same book from a pipe. Limits: a thread that
//! pins itself to just the PEs we had given to its creator, within one interval before the end, is taken
//! for an heir; an orphan that cleared its environment is not found.

use super::affinity::{self, ActToken};
use crate::environment::{parent_of, started_by};
use corewise_core::cpuset::CpuSet;
use nix::errno::Errno;
use std::collections::{HashMap, HashSet};

/// One line of the book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A process belongs to the application; or is corewise, to which its orphans belong.
    Member(u32),
    /// A process has ended: its number may be given to another.
    Left(u32),
    /// A thread is about to be bound.
    Bind {
        /// The thread.
        tid: u32,
        /// Its mask before corewise touched it.
        original: CpuSet,
        /// The mask that it gets.
        ours: CpuSet,
    },
    /// A thread has its own mask again, or is somebody else's now.
    Free(u32),
    /// A thread is nobody's special case any more: it has ended (its number may be given to another), or
    /// has undone its own pinning.
    Forget(u32),
    /// A thread pinned itself.
    Pinned(u32),
    /// Everything was given back.
    Done,
}

/// The book.
#[derive(Debug, Default)]
pub struct Ledger {
    members: HashSet<u32>,
    bound: HashMap<u32, Bound>,
    pinned: HashSet<u32>,
    /// Every mask that was handed out, with the mask to give back for it.
    handed_out: HashMap<CpuSet, CpuSet>,
    done: bool,
}

/// A bound thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its mask before corewise touched it.
    pub original: CpuSet,
    /// The mask that corewise set.
    pub ours: CpuSet,
}

impl Entry {
    /// The line, with its end.
    pub fn to_line(&self) -> String {
        match self {
            Entry::Member(pid) => format!("member {pid}\n"),
            Entry::Bind { tid, original, ours } => format!("bind {tid} {original} {ours}\n"),
            Entry::Left(pid) => format!("left {pid}\n"),
            Entry::Free(tid) => format!("free {tid}\n"),
            Entry::Forget(tid) => format!("forget {tid}\n"),
            Entry::Pinned(tid) => format!("pinned {tid}\n"),
            Entry::Done => "done\n".to_owned(),
        }
    }

    /// Reads a line; `None` if it is cut off or not one of ours.
    pub fn parse(line: &str) -> Option<Entry> {
        let mut words = line.split_ascii_whitespace();
        let entry = match words.next()? {
            "member" => Entry::Member(words.next()?.parse().ok()?),
            "bind" => Entry::Bind {
                tid: words.next()?.parse().ok()?,
                original: words.next()?.parse().ok()?,
                ours: words.next()?.parse().ok()?,
            },
            "left" => Entry::Left(words.next()?.parse().ok()?),
            "free" => Entry::Free(words.next()?.parse().ok()?),
            "forget" => Entry::Forget(words.next()?.parse().ok()?),
            "pinned" => Entry::Pinned(words.next()?.parse().ok()?),
            "done" => Entry::Done,
            _ => return None,
        };
        words.next().is_none().then_some(entry)
    }
}

impl Ledger {
    /// Takes note of an entry.
    pub fn note(&mut self, entry: Entry) {
        match entry {
            Entry::Member(pid) => drop(self.members.insert(pid)),
            Entry::Left(pid) => drop(self.members.remove(&pid)),
            Entry::Bind { tid, original, ours } => {
                // Bound again: what is given back is the mask from before the first time.
                let original = self.bound.get(&tid).map_or(original, |bound| bound.original.clone());
                self.handed_out.insert(ours.clone(), original.clone());
                self.bound.insert(tid, Bound { original, ours });
            }
            Entry::Free(tid) => drop(self.bound.remove(&tid)),
            Entry::Forget(tid) => {
                self.bound.remove(&tid);
                self.pinned.remove(&tid);
            }
            Entry::Pinned(tid) => drop(self.pinned.insert(tid)),
            Entry::Done => self.done = true,
        }
    }

    /// What is noted of a bound thread.
    pub fn bound(&self, tid: u32) -> Option<&Bound> {
        self.bound.get(&tid)
    }

    /// Whether a process is noted as a member.
    pub fn is_member(&self, pid: u32) -> bool {
        self.members.contains(&pid)
    }

    /// Whether a thread is noted as having pinned itself.
    pub fn is_pinned(&self, tid: u32) -> bool {
        self.pinned.contains(&tid)
    }

    /// If the mask is one that corewise handed out: the mask to give back for it.
    pub fn heir_of(&self, mask: &CpuSet) -> Option<&CpuSet> {
        self.handed_out.get(mask)
    }

    /// Gives back every mask that is still ours. `own` is what the cpuset allows. Heirs cannot be looked for
    /// where `/proc` cannot be read (for instance for want of descriptors).
    pub fn restore(&mut self, token: &ActToken, own: &CpuSet) -> std::io::Result<()> {
        if self.done || self.handed_out.is_empty() {
            return Ok(());
        }
        for (tid, bound) in self.bound.drain() {
            give_back(token, tid, &seen(&bound.ours, own), &bound.original);
        }
        let as_seen = self.handed_out.iter().map(|(ours, original)| (ours, seen(ours, own), original));
        // Where the cpuset overrides our mask, others may have the same without us: to them, ours must be
        // no loss.
        let handed_out: HashMap<CpuSet, &CpuSet> = as_seen
            .filter(|(ours, seen, original)| *ours == seen || seen.is_subset(original))
            .map(|(_, seen, original)| (seen, original))
            .collect();
        // Again and again: a thread may create another between our look and our change, and end. Nobody whom
        // we have restored leaves an heir, so the looks come to an end.
        let mut in_vain = 0;
        for _ in 0..LOOKS_MAX {
            let mut found = 0;
            for tid in family(&self.members)?.into_iter().flat_map(threads_of) {
                let Ok(mask) = affinity::get(tid) else { continue };
                if let Some(original) = handed_out.get(&mask).filter(|_| !self.pinned.contains(&tid)) {
                    found += usize::from(give_back(token, tid, &mask, original));
                }
            }
            in_vain = if found == 0 { in_vain + 1 } else { 0 };
            if in_vain == 2 {
                break;
            }
        }
        Ok(())
    }
}

/// The most looks for heirs: a bound on the time at the end.
const LOOKS_MAX: usize = 100;

/// What the kernel makes of a mask where the cpuset allows `own`: what both have in common; if that is
/// nothing, the cpuset's.
pub fn seen(mask: &CpuSet, own: &CpuSet) -> CpuSet {
    let common = mask.intersection(own);
    if common.is_empty() { own.clone() } else { common }
}

/// Sets `original` if the mask is still `ours`; `false` if that changes nothing that can be seen, or the
/// thread has ended.
fn give_back(token: &ActToken, tid: u32, ours: &CpuSet, original: &CpuSet) -> bool {
    let set = |mask: &CpuSet| affinity::set(token, tid, mask);
    affinity::get(tid).as_ref() == Ok(ours)
        && match set(original) {
            // None of the original PEs is left (taken offline, or out of the cpuset): everything is the
            // nearest.
            Err(Errno::EINVAL) => set(&affinity::all_pes()).is_ok(),
            result => result.is_ok(),
        }
        && affinity::get(tid).as_ref() != Ok(ours)
}

/// The processes, and everything that descends from them or was started by them.
fn family(members: &HashSet<u32>) -> std::io::Result<HashSet<u32>> {
    let pids = numbered_entries("/proc")?;
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut all = members.clone();
    let orphans = parents.iter().map(|(pid, _)| *pid);
    all.extend(orphans.filter(|&pid| started_by(pid).is_some_and(|starter| members.contains(&starter))));
    loop {
        let found: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| all.contains(parent) && !all.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if found.is_empty() {
            return Ok(all);
        }
        all.extend(found);
    }
}

/// None of a process that has ended.
fn threads_of(pid: u32) -> Vec<u32> {
    numbered_entries(&format!("/proc/{pid}/task")).map(Iterator::collect).unwrap_or_default()
}

fn numbered_entries(directory: &str) -> std::io::Result<impl Iterator<Item = u32> + use<>> {
    let entries = std::fs::read_dir(directory)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn entries_survive_the_pipe_and_a_cut_line_is_no_entry() {
        for entry in [
            Entry::Member(7),
            Entry::Bind { tid: 8, original: set("0-3,8"), ours: set("2") },
            Entry::Free(8),
            Entry::Forget(8),
            Entry::Left(7),
            Entry::Pinned(9),
            Entry::Done,
        ] {
            assert_eq!(Entry::parse(&entry.to_line()), Some(entry));
        }
        for cut in ["", "bind 8", "bind 8 0-3", "member x", "done 1", "nonsense"] {
            assert_eq!(Entry::parse(cut), None, "{cut}");
        }
    }

    #[test]
    fn a_thread_bound_twice_is_given_back_its_first_mask() {
        let mut ledger = Ledger::default();
        ledger.note(Entry::Bind { tid: 8, original: set("0-3"), ours: set("2") });
        ledger.note(Entry::Bind { tid: 8, original: set("2"), ours: set("3") });
        assert_eq!(ledger.bound(8), Some(&Bound { original: set("0-3"), ours: set("3") }));
        assert_eq!(ledger.heir_of(&set("2")), Some(&set("0-3")));
    }

    #[test]
    fn the_number_of_an_ended_thread_or_process_says_nothing_of_its_next_owner() {
        let mut ledger = Ledger::default();
        ledger.note(Entry::Member(7));
        ledger.note(Entry::Bind { tid: 8, original: set("0-3"), ours: set("2") });
        ledger.note(Entry::Pinned(9));
        for entry in [Entry::Left(7), Entry::Forget(8), Entry::Forget(9)] {
            ledger.note(entry);
        }
        assert!(!ledger.is_member(7) && ledger.bound(8).is_none() && !ledger.is_pinned(9));
    }

    #[test]
    fn a_cpuset_leaves_of_a_mask_what_both_allow_or_overrides_it() {
        assert_eq!(seen(&set("2"), &set("0-3")), set("2"));
        assert_eq!(seen(&set("2-5"), &set("0-3")), set("2-3"));
        assert_eq!(seen(&set("5"), &set("0-3")), set("0-3"));
    }

    /// In a thread of its own: binds it, calls `then`, restores, and returns the masks before and after.
    fn restore_after(then: impl FnOnce(&mut Ledger, &ActToken, u32) + Send + 'static) -> (CpuSet, CpuSet) {
        std::thread::spawn(move || {
            let token = ActToken::mint();
            let tid = nix::unistd::gettid().as_raw() as u32;
            let original = affinity::get(0).unwrap();
            let ours = CpuSet::single(original.last().unwrap());
            let mut ledger = Ledger::default();
            ledger.note(Entry::Bind { tid, original: original.clone(), ours: ours.clone() });
            affinity::set(&token, 0, &ours).unwrap();
            then(&mut ledger, &token, tid);
            ledger.restore(&token, &original).unwrap();
            let after = affinity::get(0).unwrap();
            affinity::set(&token, 0, &original).unwrap();
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
            let first = CpuSet::single(affinity::get(1).unwrap().first().unwrap());
            affinity::set(token, 0, &first).unwrap();
        });
        assert!(before.len() < 2 || after.len() == 1, "{before} became {after}");
    }

    #[test]
    fn after_done_nothing_is_touched() {
        let (before, after) = restore_after(|ledger, _, _| ledger.note(Entry::Done));
        assert!(before.len() < 2 || after.len() == 1);
    }

    #[test]
    fn an_heir_that_is_not_in_the_book_is_restored_too() {
        let (before, after) = restore_after(|ledger, _, tid| {
            ledger.note(Entry::Member(std::process::id()));
            ledger.note(Entry::Free(tid));
        });
        assert_eq!(before, after);
    }
}
