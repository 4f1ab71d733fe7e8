//! The ledger: what corewise has changed and must restore.
//!
//! It contains each bound thread with its original mask and ours, the processes that were followed, every
//! mask and weight that was ever handed out, each thread with another weight, every word of a program that
//! was written to, which programs take turns, and every clock that was limited: everything that
//! [`super::restore`] needs. Entries have a line format for storage in a file ([`super::journal`]). Limit: a
//! thread that inherited a mask which we gave to two threads with different original masks gets the PEs of
//! both.

use super::descent::{self, HandedOutWeight, Source};
use super::frequency::Lowered;
use super::group::Slowed;
use super::thread_weight::{Present, WeightChange};
use super::word::Word;
use super::words::Words;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_sys::task::Task;
use std::collections::HashMap;
use std::io;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The guardian of the run.
    Guardian(Task),
    /// A process belongs to the application, or is corewise, which adopts orphans.
    Member(Task),
    /// A process has ended: its ID may be reused.
    Left(u32),
    /// A thread is about to be bound.
    Bind {
        /// The thread.
        thread: Task,
        /// Its mask before corewise changed it.
        original: CpuSet,
        /// The mask that it gets.
        ours: CpuSet,
    },
    /// A mask was handed out; `original` is restored for threads that inherited it.
    HandedOut {
        /// The mask to restore.
        original: CpuSet,
        /// The mask that was handed out.
        ours: CpuSet,
    },
    /// A thread has its own mask again, or somebody else decides about it now.
    Free(u32),
    /// A thread needs no special treatment any more: it has ended (its ID may be reused), or has undone its
    /// own pinning.
    Forget(u32),
    /// A thread pinned itself.
    Pinned(Task),
    /// A word of a program is about to be written to.
    Word(Word),
    /// The threads of a process are about to take turns: some may be `SCHED_IDLE` at times.
    InTurns(Task),
    /// The threads of a process do not take turns any more.
    NoTurns(u32),
    /// A thread is about to get another weight.
    Weighed(Weighed),
    /// A thread has its own weight again, or somebody else decides about it now, or it has ended.
    OwnWeight(u32),
    /// A weight is about to be given to a thread: threads that are created from now on may inherit it.
    WeightHandedOut(HandedOutWeight),
    /// A process group's share of the PEs is about to be changed.
    Slowed(Slowed),
    /// The clock of a PE is about to be limited.
    Lowered(Lowered),
    /// From here to `Complete` the whole journal is written once more.
    Anew,
    /// Everything before `Anew` is obsolete.
    Complete,
    /// Everything was restored.
    Done,
}

/// The changes that are to be restored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    guardian: Option<Task>,
    /// Processes, with their start times.
    members: HashMap<u32, u64>,
    bound: HashMap<u32, Bound>,
    /// Threads, with their start times.
    pinned: HashMap<u32, u64>,
    /// Every mask that was handed out, with the mask to restore for it.
    handed_out: HashMap<CpuSet, CpuSet>,
    /// Processes whose threads take turns, with their start times.
    in_turns: HashMap<u32, u64>,
    weighed: HashMap<u32, Weighed>,
    /// By the process that they are known by.
    weights_handed_out: HashMap<u32, Vec<HandedOutWeight>>,
    words: Words,
    slowed: Vec<Slowed>,
    lowered: Vec<Lowered>,
    done: bool,
}

/// A thread with another weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weighed {
    /// The thread.
    pub thread: Task,
    /// How its weight was changed.
    pub change: WeightChange,
}

/// A bound thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The thread.
    pub thread: Task,
    /// Its mask before corewise changed it.
    pub original: CpuSet,
    /// The mask that corewise set.
    pub ours: CpuSet,
}

impl Entry {
    /// Returns the entry as a line, including the line end.
    pub fn to_line(&self) -> String {
        match self {
            Entry::Guardian(process) => format!("guardian {process}\n"),
            Entry::Member(process) => format!("member {process}\n"),
            Entry::Bind { thread, original, ours } => format!("bind {thread} {original} {ours}\n"),
            Entry::HandedOut { original, ours } => format!("handed_out {original} {ours}\n"),
            Entry::Left(pid) => format!("left {pid}\n"),
            Entry::Free(tid) => format!("free {tid}\n"),
            Entry::Forget(tid) => format!("forget {tid}\n"),
            Entry::Pinned(thread) => format!("pinned {thread}\n"),
            Entry::Word(word) => format!("word {word}\n"),
            Entry::InTurns(process) => format!("in_turns {process}\n"),
            Entry::NoTurns(pid) => format!("no_turns {pid}\n"),
            Entry::Weighed(Weighed { thread, change }) => format!("weighed {thread} {change}\n"),
            Entry::OwnWeight(tid) => format!("own_weight {tid}\n"),
            Entry::WeightHandedOut(HandedOutWeight { source, change, since }) => {
                format!("weight_handed_out {since} {source} {change}\n")
            }
            Entry::Slowed(slowed) => format!("slowed {slowed}\n"),
            Entry::Lowered(Lowered { pe, original_khz, ours_khz }) => {
                format!("lowered {pe} {original_khz} {ours_khz}\n")
            }
            Entry::Anew => "anew\n".to_owned(),
            Entry::Complete => "complete\n".to_owned(),
            Entry::Done => "done\n".to_owned(),
        }
    }

    /// Returns whether it is about something to be restored, and not about something that was.
    pub fn is_change(&self) -> bool {
        use Entry::{Bind, HandedOut, InTurns, Lowered, Slowed, Weighed, WeightHandedOut, Word};
        matches!(
            self,
            Bind { .. }
                | HandedOut { .. }
                | InTurns(_)
                | Lowered(_)
                | Slowed(_)
                | Weighed(_)
                | WeightHandedOut(_)
                | Word(_)
        )
    }

    /// Parses a line; `None` if it is incomplete or invalid.
    pub fn parse(line: &str) -> Option<Entry> {
        let mut words = line.split_ascii_whitespace();
        let entry = match words.next()? {
            "guardian" => Entry::Guardian(words.next()?.parse().ok()?),
            "member" => Entry::Member(words.next()?.parse().ok()?),
            "bind" => Entry::Bind {
                thread: words.next()?.parse().ok()?,
                original: words.next()?.parse().ok()?,
                ours: words.next()?.parse().ok()?,
            },
            "handed_out" => {
                Entry::HandedOut { original: words.next()?.parse().ok()?, ours: words.next()?.parse().ok()? }
            }
            "left" => Entry::Left(words.next()?.parse().ok()?),
            "free" => Entry::Free(words.next()?.parse().ok()?),
            "forget" => Entry::Forget(words.next()?.parse().ok()?),
            "pinned" => Entry::Pinned(words.next()?.parse().ok()?),
            "word" => Entry::Word(Word::parse(&mut words)?),
            "in_turns" => Entry::InTurns(words.next()?.parse().ok()?),
            "no_turns" => Entry::NoTurns(words.next()?.parse().ok()?),
            "weighed" => Entry::Weighed(Weighed {
                thread: words.next()?.parse().ok()?,
                change: WeightChange::parse(&mut words)?,
            }),
            "own_weight" => Entry::OwnWeight(words.next()?.parse().ok()?),
            "weight_handed_out" => Entry::WeightHandedOut(HandedOutWeight {
                since: words.next()?.parse().ok()?,
                source: Source::parse(&mut words)?,
                change: WeightChange::parse(&mut words)?,
            }),
            "slowed" => Entry::Slowed(Slowed::parse(&mut words)?),
            "lowered" => Entry::Lowered(Lowered {
                pe: PeId(words.next()?.parse().ok()?),
                original_khz: words.next()?.parse().ok()?,
                ours_khz: words.next()?.parse().ok()?,
            }),
            "anew" => Entry::Anew,
            "complete" => Entry::Complete,
            "done" => Entry::Done,
            _ => return None,
        };
        words.next().is_none().then_some(entry)
    }
}

impl Ledger {
    /// Applies the entries of a journal.
    pub fn of(entries: impl Iterator<Item = Entry>) -> Ledger {
        let mut ledger = Ledger::default();
        let mut anew = None;
        for entry in entries {
            match entry {
                Entry::Anew => anew = Some(Ledger::default()),
                Entry::Complete => ledger = anew.take().unwrap_or(ledger),
                entry => anew.as_mut().unwrap_or(&mut ledger).note(entry),
            }
        }
        ledger
    }

    /// Returns a journal with the same content, which replaces everything written so far.
    pub fn to_lines(&self) -> String {
        let task = |(&id, &start): (&u32, &u64)| Task { id, start };
        let bind = |bound: &Bound| {
            let Bound { thread, original, ours } = bound.clone();
            Entry::Bind { thread, original, ours }
        };
        let handed_out = |(ours, original): (&CpuSet, &CpuSet)| Entry::HandedOut {
            original: original.clone(),
            ours: ours.clone(),
        };
        std::iter::once(Entry::Anew)
            .chain(self.guardian.map(Entry::Guardian))
            .chain(self.members.iter().map(task).map(Entry::Member))
            .chain(self.pinned.iter().map(task).map(Entry::Pinned))
            .chain(self.bound.values().map(bind))
            .chain(self.handed_out.iter().map(handed_out))
            .chain(self.words.iter().cloned().map(Entry::Word))
            .chain(self.in_turns.iter().map(task).map(Entry::InTurns))
            .chain(self.weighed.values().copied().map(Entry::Weighed))
            .chain(self.weights_handed_out.values().flatten().copied().map(Entry::WeightHandedOut))
            .chain(self.slowed.iter().cloned().map(Entry::Slowed))
            .chain(self.lowered.iter().copied().map(Entry::Lowered))
            .chain(self.done.then_some(Entry::Done))
            .chain([Entry::Complete])
            .map(|entry| entry.to_line())
            .collect()
    }

    /// Applies an entry.
    pub fn note(&mut self, entry: Entry) {
        match entry {
            Entry::Guardian(process) => self.guardian = Some(process),
            Entry::Member(process) => drop(self.members.insert(process.id, process.start)),
            Entry::Left(pid) => {
                self.members.remove(&pid);
                // What descends from it cannot be known any more.
                self.weights_handed_out.remove(&pid);
            }
            Entry::Bind { thread, original, ours } => {
                // If bound again, the mask to restore is the one from before the first time.
                let original = self.bound(thread).map_or(original, |bound| bound.original.clone());
                self.hand_out(&original, &ours);
                self.bound.insert(thread.id, Bound { thread, original, ours });
            }
            Entry::HandedOut { original, ours } => self.hand_out(&original, &ours),
            Entry::Free(tid) => drop(self.bound.remove(&tid)),
            Entry::Forget(tid) => {
                self.bound.remove(&tid);
                self.pinned.remove(&tid);
            }
            Entry::Pinned(thread) => drop(self.pinned.insert(thread.id, thread.start)),
            Entry::Word(word) => self.words.note(word),
            Entry::InTurns(process) => drop(self.in_turns.insert(process.id, process.start)),
            Entry::NoTurns(pid) => drop(self.in_turns.remove(&pid)),
            Entry::Weighed(weighed) => drop(self.weighed.insert(weighed.thread.id, weighed)),
            Entry::OwnWeight(tid) => drop(self.weighed.remove(&tid)),
            Entry::WeightHandedOut(weight) => self.hand_out_weight(weight),
            Entry::Slowed(slowed) if self.slowed.contains(&slowed) => {}
            Entry::Slowed(slowed) => self.slowed.push(slowed),
            Entry::Lowered(lowered) => self.lowered.push(lowered),
            Entry::Anew | Entry::Complete => {}
            Entry::Done => self.done = true,
        }
    }

    fn hand_out(&mut self, original: &CpuSet, ours: &CpuSet) {
        let known = self.handed_out.entry(ours.clone()).or_default();
        *known = known.union(original);
    }

    fn hand_out_weight(&mut self, weight: HandedOutWeight) {
        use WeightChange::{Idle, Nice};
        let all = self.weights_handed_out.entry(weight.source.process().id).or_default();
        // Its number may have been another's.
        all.retain(|known| known.source == weight.source);
        for known in all.iter_mut() {
            match (&mut known.change, weight.change) {
                (Nice { original, ours }, Nice { original: other, ours: same }) if *ours == same => {
                    // A level that is too low can be raised by its user, but not the other way round.
                    *original = (*original).min(other);
                    return;
                }
                (Idle, Idle) => return,
                _ => {}
            }
        }
        all.push(weight);
    }

    /// Returns the guardian.
    pub fn guardian(&self) -> Option<Task> {
        self.guardian
    }

    /// Returns the processes that belong to the run, with their start times.
    pub fn members(&self) -> &HashMap<u32, u64> {
        &self.members
    }

    /// Returns the record of a bound thread.
    pub fn bound(&self, thread: Task) -> Option<&Bound> {
        self.bound.get(&thread.id).filter(|bound| bound.thread == thread)
    }

    /// Returns the record of the thread that had this ID when it was bound.
    pub fn bound_as(&self, tid: u32) -> Option<&Bound> {
        self.bound.get(&tid)
    }

    /// Returns whether the thread that had this ID when it was recorded has pinned itself.
    pub fn is_pinned(&self, tid: u32) -> bool {
        self.pinned.contains_key(&tid)
    }

    /// Returns the mask to restore if `mask` is one that corewise handed out.
    pub fn original_of(&self, mask: &CpuSet) -> Option<&CpuSet> {
        self.handed_out.get(mask)
    }

    /// Returns every bound thread.
    pub fn all_bound(&self) -> impl Iterator<Item = &Bound> {
        self.bound.values()
    }

    /// Returns the start time of the thread that had this ID when it pinned itself.
    pub fn pinned_start(&self, tid: u32) -> Option<u64> {
        self.pinned.get(&tid).copied()
    }

    /// Returns every mask that was handed out, with the mask to restore for threads that inherited it.
    pub fn handed_out(&self) -> impl Iterator<Item = (&CpuSet, &CpuSet)> {
        self.handed_out.iter()
    }

    /// Returns the words that were written to.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Drops the words that no living process can have.
    pub fn drop_outlived_words(&mut self) {
        self.words.drop_outlived();
    }

    /// Returns the processes whose threads take turns.
    pub fn in_turns(&self) -> impl Iterator<Item = Task> {
        self.in_turns.iter().map(|(&id, &start)| Task { id, start })
    }

    /// Returns the record of a thread with another weight.
    pub fn weighed(&self, thread: Task) -> Option<&Weighed> {
        self.weighed.get(&thread.id).filter(|weighed| weighed.thread == thread)
    }

    /// Returns every thread with another weight.
    pub fn all_weighed(&self) -> impl Iterator<Item = &Weighed> {
        self.weighed.values()
    }

    /// Returns whether threads may have inherited a weight.
    pub fn has_handed_out_weights(&self) -> bool {
        !self.weights_handed_out.is_empty()
    }

    /// Returns every weight that was handed out.
    pub fn weights_handed_out(&self) -> impl Iterator<Item = &HandedOutWeight> {
        self.weights_handed_out.values().flatten()
    }

    /// Returns the weights that a thread may have inherited as far as it shows: they are in force, were first
    /// given before it was created, and are not its own.
    pub fn like_inherited(&self, thread: Task) -> Vec<HandedOutWeight> {
        if !self.has_handed_out_weights() || self.weighed(thread).is_some() {
            return Vec::new();
        }
        let Ok(present) = Present::of(thread.id) else { return Vec::new() };
        let is_like =
            |weight: &&HandedOutWeight| thread.start >= weight.since && weight.change.is_in_force_at(present);
        self.weights_handed_out().filter(is_like).copied().collect()
    }

    /// Returns the change of weight that a thread has inherited. `creator` is the thread that has created it,
    /// if that is known.
    pub fn inherited_weight(&self, thread: Task, creator: Option<u32>) -> io::Result<Option<WeightChange>> {
        let like = self.like_inherited(thread);
        let nearest = if like.is_empty() { None } else { descent::nearest(&like, thread, creator)? };
        Ok(nearest.map(|weight| weight.change))
    }

    /// Returns the groups whose part may have been changed.
    pub fn slowed(&self) -> &[Slowed] {
        &self.slowed
    }

    /// Returns the limits on clocks.
    pub fn lowered(&self) -> &[Lowered] {
        &self.lowered
    }

    /// Returns whether there is nothing to restore.
    pub fn is_settled(&self) -> bool {
        let nothing_lowered = self.slowed.is_empty() && self.lowered.is_empty();
        self.done || (nothing_lowered && !self.may_be_inherited())
    }

    /// Returns whether there may be changes that descendants have inherited.
    pub fn may_be_inherited(&self) -> bool {
        !self.words.is_empty() || self.threads_may_have_inherited()
    }

    /// Returns whether there may be changes of threads that others have inherited.
    pub fn threads_may_have_inherited(&self) -> bool {
        !self.handed_out.is_empty()
            || !self.in_turns.is_empty()
            || !self.weighed.is_empty()
            || !self.weights_handed_out.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::Group;
    use super::super::word::Region;
    use super::*;

    const NICE: WeightChange = WeightChange::Nice { original: 0, ours: -15 };

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn task(id: u32) -> Task {
        Task { id, start: 100 }
    }

    fn word(process: u32, ours: &[u64]) -> Word {
        let library = Region { start: 0x7f00_1234_5000, offset: 0x3000, device: (253, 1), inode: 77 };
        let mapping = Region { start: 0x7f00_1238_0000, offset: 0, device: (0, 0), inode: 0 };
        let (process, ours) = (task(process), ours.iter().copied().collect());
        let (program, stack, address) = (u64::MAX, 0x7ff0, 0x7f00_1238_0008);
        Word { process, program, stack, address, width: 8, own: 300_123, ours, library, mapping }
    }

    fn parse(lines: &str) -> Ledger {
        Ledger::of(lines.lines().filter_map(Entry::parse))
    }

    fn handed_out(source: Source, change: WeightChange, since: u64) -> Entry {
        Entry::WeightHandedOut(HandedOutWeight { source, change, since })
    }

    fn entries() -> Vec<Entry> {
        vec![
            Entry::Guardian(task(6)),
            Entry::Member(task(7)),
            Entry::Bind { thread: task(8), original: set("0-3,8"), ours: set("2") },
            Entry::HandedOut { original: set("0-3"), ours: set("2-3") },
            Entry::Pinned(task(9)),
            Entry::Word(word(7, &[200])),
            Entry::Word(word(7, &[50, 300])),
            Entry::InTurns(task(7)),
            Entry::NoTurns(19),
            Entry::Weighed(Weighed { thread: task(8), change: NICE }),
            Entry::Weighed(Weighed { thread: task(9), change: WeightChange::Idle }),
            Entry::OwnWeight(10),
            handed_out(Source::Process(task(7)), NICE, 98),
            handed_out(Source::Corewise(task(6)), WeightChange::Idle, 99),
            Entry::Slowed(Slowed { group: Group::Session(25), original: -3 }),
            Entry::Slowed(Slowed { group: Group::Cgroup("/sys/fs/cgroup/a.slice".into()), original: 100 }),
            Entry::Lowered(Lowered { pe: PeId(1), original_khz: 4_000_000, ours_khz: 2_000_000 }),
            Entry::Free(18),
            Entry::Forget(18),
            Entry::Left(17),
        ]
    }

    #[test]
    fn entries_survive_the_file_and_a_cut_line_is_no_entry() {
        for entry in entries().into_iter().chain([Entry::Anew, Entry::Complete, Entry::Done]) {
            assert_eq!(Entry::parse(&entry.to_line()), Some(entry));
        }
        for cut in [
            "",
            "bind 8@1",
            "bind 8@1 0-3",
            "bind 8 0-3 2",
            "member 7",
            "weighed 8@100 nice 0",
            "weighed 8 idle",
            "weight_handed_out 1 idle",
            "weight_handed_out 1 process idle",
            "weight_handed_out 1 user 7@1 idle",
            "member x@1",
            "done 1",
            "nonsense",
            "word 7@1 1f 7f 8 8 5 0+0@0:0:0 0+0@0:0:0",
            "word 7@1 1f 7f 8 16 5 0+0@0:0:0 0+0@0:0:0 6",
            "word 7@1 1f 7f 8 8 5 0+0@0:0:0 0+0@0:0 6",
        ] {
            assert_eq!(Entry::parse(cut), None, "{cut}");
        }
    }

    #[test]
    fn a_journal_that_is_written_anew_counts_once_it_is_complete() {
        let before: String = entries().iter().map(Entry::to_line).collect();
        let ledger = parse(&before);
        assert_eq!(ledger.words().iter().collect::<Vec<_>>(), [&word(7, &[50, 200, 300])]);
        let anew = ledger.to_lines();
        assert_eq!(parse(&anew), ledger);
        let mut later = ledger.clone();
        later.note(Entry::Free(8));
        assert_eq!(parse(&format!("{before}{anew}free 8\n")), later);
        for cut in 0..anew.len() - "complete\n".len() {
            assert_eq!(parse(&format!("{before}{}", &anew[..cut])), ledger, "cut at {cut}");
        }
    }

    #[test]
    fn a_thread_bound_twice_is_given_back_its_first_mask() {
        let mut ledger = Ledger::default();
        ledger.note(Entry::Bind { thread: task(8), original: set("0-3"), ours: set("2") });
        ledger.note(Entry::Bind { thread: task(8), original: set("2"), ours: set("3") });
        let bound = Bound { thread: task(8), original: set("0-3"), ours: set("3") };
        assert_eq!(ledger.bound(task(8)), Some(&bound));
        assert_eq!(ledger.original_of(&set("2")), Some(&set("0-3")));
    }

    #[test]
    fn a_thread_that_inherits_from_two_others_is_left_with_too_many_pes_rather_than_too_few() {
        let mut ledger = Ledger::default();
        ledger.note(Entry::Bind { thread: task(8), original: set("0-7"), ours: set("2") });
        ledger.note(Entry::Bind { thread: task(9), original: set("2-3"), ours: set("2") });
        assert_eq!(ledger.original_of(&set("2")), Some(&set("0-7")));
    }

    #[test]
    fn a_thread_that_inherits_from_two_others_gets_the_nice_level_that_its_user_can_raise() {
        let mut ledger = Ledger::default();
        let nice = |original| WeightChange::Nice { original, ours: -15 };
        for (pid, original, since) in [(7, 5, 100), (7, 2, 200), (7, 7, 300), (8, 1, 400)] {
            ledger.note(handed_out(Source::Process(task(pid)), nice(original), since));
        }
        let mut all: Vec<_> =
            ledger.weights_handed_out().map(|weight| (weight.change, weight.since)).collect();
        all.sort_by_key(|(_, since)| *since);
        assert_eq!(all, [(nice(2), 100), (nice(1), 400)], "what others were given says nothing of its own");
        ledger.note(handed_out(Source::Process(Task { id: 7, start: 101 }), nice(0), 500));
        ledger.note(Entry::Left(8));
        assert_eq!(ledger.weights_handed_out().count(), 1);
    }

    #[test]
    fn the_number_of_an_ended_thread_or_process_says_nothing_of_its_next_owner() {
        let mut ledger = Ledger::default();
        ledger.note(Entry::Member(task(7)));
        ledger.note(Entry::Bind { thread: task(8), original: set("0-3"), ours: set("2") });
        ledger.note(Entry::Pinned(task(9)));
        let later = Task { id: 8, start: 101 };
        assert_eq!(ledger.bound(later), None);
        ledger.note(Entry::Bind { thread: later, original: set("2-3"), ours: set("2") });
        assert_eq!(ledger.bound(later).unwrap().original, set("2-3"));
        for entry in [Entry::Left(7), Entry::Forget(8), Entry::Forget(9)] {
            ledger.note(entry);
        }
        assert!(ledger.members().is_empty() && ledger.bound_as(8).is_none() && !ledger.is_pinned(9));
    }
}
