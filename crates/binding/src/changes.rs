//! The record of what corewise changes.
//!
//! Problem: everything must be restored, whichever process dies. Approach: each change is recorded here
//! before: in the [`journal`](super::journal), which outlives this process, and with the guardian
//! ([`super::guardian`]), which is sent what a journal cannot hold. A change that cannot be recorded, or that
//! nothing would restore, must not be made: so none is made either once the guardian has taken everything
//! ([`super::heartbeat`]).

use super::descent::{HandedOutWeight, Source};
use super::heartbeat::{Heartbeat, Still};
use super::journal::Journal;
use super::ledger::{Entry, Ledger};
use super::thread_weight::WeightChange;
use super::word::Word;
use corewise_discovery::NewThread;
use corewise_discovery::followed::Followed;
use corewise_sys::proc::Memory;
use corewise_sys::shortage::unless_short;
use corewise_sys::task::{self, Task};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The record of what corewise changes, shared by all of its parts that change something.
#[derive(Debug, Clone)]
pub struct Changes(Arc<Mutex<Record>>);

#[derive(Debug)]
struct Record {
    guardian: Task,
    socket: OwnedFd,
    journal: Journal,
    heartbeat: Heartbeat,
    /// How often the guardian has given everything back while corewise was stopped.
    stopped: u64,
    /// Why changes would not be restored after a crash: nothing more may be changed then.
    failure: Option<String>,
    is_there: bool,
    /// The process whose memory was handed over last, with the number of its program.
    handed_over: Option<(Task, u64)>,
    /// How many words there may be before it is looked which are outlived.
    words_max: usize,
    /// Whether a change was refused because the journal was full.
    was_full: bool,
    /// Why a new thread could not be looked at: what it may have inherited is not known.
    unmet: Option<String>,
}

/// How many words are too few to look which are outlived.
const WORDS_MIN: usize = 64;

/// Why nothing more is changed for now.
const FULL: &str = "the journal of changes is full";

/// Why nothing is changed before the loop has come round.
const TAKEN: &str = "corewise was stopped, and its guardian has given everything back";

/// Why nothing is changed any more.
const HUNG: &str = "corewise hung for some seconds, and its guardian has given everything back";

/// What the guardian is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// The followed threads, with the descriptors of their programs.
    Followed,
    /// The memory of a process, with its descriptors.
    Memory(Task),
    /// Whether programs take turns from now on.
    Turns(bool),
}

impl Changes {
    /// Begins the record of a run, with its guardian and the socket to it.
    pub(crate) fn new(guardian: Task, socket: OwnedFd, journal: Journal, heartbeat: Heartbeat) -> Changes {
        let (is_there, stopped) = (true, 0);
        let (failure, unmet, handed_over, words_max, was_full) = (None, None, None, WORDS_MIN, false);
        Changes(Arc::new(Mutex::new(Record {
            guardian,
            socket,
            journal,
            heartbeat,
            stopped,
            failure,
            is_there,
            handed_over,
            words_max,
            was_full,
            unmet,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the guardian's process.
    pub fn guardian(&self) -> Task {
        self.lock().guardian
    }

    /// Records a change that is about to be made; says why that is not possible, and it must not be made
    /// then.
    pub fn record(&self, entry: &Entry) -> Result<(), String> {
        self.lock().record(entry)
    }

    /// Returns whether corewise holds what is changed: if not, it must not change anything, whatever it has
    /// recorded before.
    pub fn are_held(&self) -> bool {
        self.lock().heartbeat.is_held()
    }

    /// Returns whether the guardian has given everything back since the last [`Changes::take_up`].
    pub fn were_given_back(&self) -> bool {
        let record = self.lock();
        record.heartbeat.given_back().is_some() && record.failure.is_none()
    }

    /// Goes on after the guardian has given everything back, once nothing is changed any more.
    pub fn take_up(&self) {
        let mut record = self.lock();
        match record.heartbeat.given_back() {
            Some(Still::Stopped) => {
                record.stopped += 1;
                record.heartbeat.take_up();
            }
            Some(Still::Hung) => drop(record.failure.get_or_insert(HUNG.to_owned())),
            None => {}
        }
    }

    /// Returns how often the guardian has given everything back while corewise was stopped.
    pub fn times_stopped(&self) -> u64 {
        self.lock().stopped
    }

    /// Returns everything that was changed.
    pub fn ledger(&self) -> Ledger {
        self.lock().journal.ledger().clone()
    }

    /// Returns whether a process takes turns.
    pub fn takes_turns(&self, pid: u32) -> bool {
        self.lock().journal.ledger().in_turns().any(|process| process.id == pid)
    }

    /// Returns why nothing may be changed any more, if so.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Returns notes for the user.
    pub fn notes(&self) -> Vec<String> {
        let record = self.lock();
        let failure = record.failure.iter().map(|why| format!("{why}: from then on nothing was bound"));
        let full = record.was_full.then(|| format!("{FULL}: at times nothing more was changed"));
        let unmet = record.unmet.iter().map(|why| {
            format!(
                "some new threads could not be looked at ({why}): a nice level that they have inherited is \
                 given back at the end, if it is known then from which program"
            )
        });
        let stopped = record.stopped;
        let stopped = (stopped > 0).then(|| {
            format!("corewise was stopped for long {stopped} times; everything was given back meanwhile")
        });
        failure.chain(full).chain(unmet).chain(stopped).collect()
    }

    /// Checks that the guardian process exists and is not stopped; returns whether it was running so far.
    pub fn guardian_is_there(&self) -> bool {
        let mut record = self.lock();
        record.look();
        record.is_there
    }

    /// Lets the guardian know whether programs take turns.
    pub fn note_turns(&self, are_taken: bool) {
        // A guardian that cannot be reached is gone, which the next look shows.
        let _ = self.lock().send(Message::Turns(are_taken), &[]);
    }

    /// Hands over the kernel's list of the followed threads to the guardian. Without it, the guardian
    /// searches threads that inherited a change by their parents.
    pub fn hand_over(&self, followed: &Followed) {
        let descriptors: Vec<_> = followed.descriptors().map(|fd| fd.as_raw_fd()).collect();
        let mut record = self.lock();
        if let Err(error) = record.send(Message::Followed, &descriptors) {
            let failure = format!("cannot hand the followed threads over to the guardian: {error}");
            record.failure.get_or_insert(failure);
        }
    }

    /// Ends the record after everything was restored: the guardian has nothing to do, and the journal is
    /// deleted.
    pub fn close(&self) {
        let mut record = self.lock();
        record.write(&Entry::Done);
        record.journal.close();
        record.failure.get_or_insert("the run is over".to_owned());
    }

    /// Takes all space from the journal, for tests.
    #[cfg(test)]
    pub fn take_space(&self) {
        self.lock().journal.limit = 0;
    }

    /// Reads what the guardian would read, for tests.
    #[cfg(test)]
    pub fn written(&self) -> Ledger {
        use std::os::fd::AsFd;
        let file = self.lock().journal.descriptor().unwrap();
        super::journal::read(file.as_fd()).unwrap().ledger
    }

    /// Sends a message, for tests.
    #[cfg(test)]
    pub(crate) fn send(&self, message: Message, descriptors: &[RawFd]) -> io::Result<()> {
        self.lock().send(message, descriptors)
    }

    /// Records a word that is about to be written to, with the values that it may have from now on; says why
    /// that is not possible, and it must not be written then. `memory` is its program's.
    pub fn record_word(&self, word: &Word, memory: &Memory) -> Result<(), String> {
        let mut record = self.lock();
        record.look();
        let program = (word.process, word.program);
        if record.failure.is_none() && record.handed_over != Some(program) {
            // Without it the guardian opens the memory itself, which it may not be permitted to.
            let _ = record.send(Message::Memory(word.process), &memory.descriptors());
            record.handed_over = Some(program);
        }
        record.drop_outlived_words();
        record.record(&Entry::Word(word.clone()))
    }

    /// Records that a thread of a process is about to get another weight: from now on threads may inherit it.
    pub fn hand_out_weight(&self, process: Task, change: WeightChange) -> Result<(), String> {
        let source = Source::of(process).map_err(|error| error.to_string())?;
        self.record(&Entry::WeightHandedOut(HandedOutWeight { source, change, since: task::now() }))
    }

    /// Returns the change of weight that a new thread has inherited and that is to be undone, if any. What
    /// the thread has created meanwhile may soon descend from nothing else, so it is recorded, too.
    pub fn meet_heir(&self, new: &NewThread) -> Option<WeightChange> {
        let mut record = self.lock();
        record.meet_heir(new).unwrap_or_else(|why| {
            record.unmet.get_or_insert(why);
            None
        })
    }

    /// Forgets what all processes but the living ones have handed on.
    pub fn retain_processes(&self, living: &HashSet<u32>) {
        let mut record = self.lock();
        let sources = record.journal.ledger().weights_handed_out().map(|weight| weight.source);
        let processes = sources.filter_map(|source| match source {
            Source::Process(process) => Some(process.id),
            Source::Corewise(_) => None,
        });
        let ended: HashSet<u32> = processes.filter(|pid| !living.contains(pid)).collect();
        ended.into_iter().for_each(|pid| record.write(&Entry::Left(pid)));
    }

    /// Restores the words of a new process that was forked while they were changed. Returns whether there was
    /// one.
    pub fn restore_fork(&self, pid: u32) -> bool {
        let record = self.lock();
        let ledger = record.journal.ledger();
        if ledger.words().is_empty() {
            return false;
        }
        // A process that has ended meanwhile needs nothing.
        let Ok(Some(process)) = Task::of(pid) else { return false };
        // What cannot be seen now is looked at again at the end.
        let forked = ledger.words().in_fork(process).unwrap_or_default().into_iter();
        forked.filter(|word| word.restore(None) == Ok(true)).count() > 0
    }
}

impl Record {
    /// See [`Changes::meet_heir`]; an error says why the thread, or what it creates, may keep its weight.
    fn meet_heir(&mut self, new: &NewThread) -> Result<Option<WeightChange>, String> {
        let in_words = |error: io::Error| error.to_string();
        let task_of = |id| unless_short(Task::of(id)).map(Option::flatten).map_err(in_words);
        let ledger = self.journal.ledger();
        if !ledger.has_handed_out_weights() {
            return Ok(None);
        }
        let Some(thread) = task_of(new.tid)? else { return Ok(None) };
        let inherited = ledger.inherited_weight(thread, new.creator_tid).map_err(in_words)?;
        let Some(change) = inherited else { return Ok(None) };
        if change == WeightChange::Idle && ledger.in_turns().any(|process| process.id == new.pid) {
            return Ok(None);
        }
        let Some(process) = task_of(new.pid)? else { return Ok(None) };
        let source = Source::of(process).map_err(in_words)?;
        if ledger.weights_handed_out().all(|known| (known.source, known.change) != (source, change)) {
            // Nothing is changed by it: there is space for that beyond what changes may take.
            let since = thread.start;
            self.write(&Entry::WeightHandedOut(HandedOutWeight { source, change, since }));
        }
        Ok(Some(change))
    }

    fn record(&mut self, entry: &Entry) -> Result<(), String> {
        if entry.is_change() && self.journal.is_full() {
            self.was_full = true;
            return Err(FULL.to_owned());
        }
        if entry.is_change() && !self.heartbeat.is_held() {
            return Err(TAKEN.to_owned());
        }
        self.write(entry);
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Looks which words are outlived whenever there are twice as many as were left the last time.
    fn drop_outlived_words(&mut self) {
        if self.journal.ledger().words().len() < self.words_max {
            return;
        }
        let dropped = self.journal.drop_outlived_words();
        self.take_written(dropped);
        self.words_max = WORDS_MIN.max(2 * self.journal.ledger().words().len());
    }

    fn write(&mut self, entry: &Entry) {
        let written = self.journal.write(entry);
        self.take_written(written);
    }

    fn take_written(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            let path = self.journal.path().unwrap_or(Path::new("the journal of changes")).display();
            self.failure.get_or_insert(format!("cannot write {path}: {error}"));
        }
    }

    fn send(&self, message: Message, descriptors: &[RawFd]) -> io::Result<()> {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let text = message.to_text();
        sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(text.as_bytes())], rights, flags, None)?;
        Ok(())
    }

    fn look(&mut self) {
        let what = match self.guardian.state() {
            Ok(Some('T' | 't')) => "stopped",
            Ok(None) => "gone",
            // If `/proc` cannot be read (for lack of descriptors), nothing is changed either.
            Ok(Some(_)) | Err(_) => return,
        };
        let failure = || format!("the guardian, which restores everything after a crash, is {what}");
        self.failure.get_or_insert_with(failure);
        self.is_there = false;
    }
}

impl Message {
    fn to_text(self) -> String {
        match self {
            Message::Followed => "followed".to_owned(),
            Message::Memory(process) => format!("memory {process}"),
            Message::Turns(are_taken) => format!("turns {are_taken}"),
        }
    }

    /// Parses the text of a message.
    pub(crate) fn parse(text: &str) -> Option<Message> {
        match text.split_once(' ') {
            None => (text == "followed").then_some(Message::Followed),
            Some(("memory", process)) => process.parse().ok().map(Message::Memory),
            Some(("turns", are_taken)) => are_taken.parse().ok().map(Message::Turns),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::guardian::Guardian;
    use super::super::journal;
    use super::super::word::Region;
    use super::*;
    use corewise_core::cpuset::CpuSet;
    use corewise_sys::proc::Proc;
    use std::collections::BTreeSet;
    use std::os::fd::AsFd;

    /// A hostile user may start one process after the other.
    #[test]
    fn words_of_processes_that_have_ended_do_not_add_up() {
        let changes = Guardian::idle().changes();
        let region = Region { start: 4096, offset: 0, device: (8, 1), inode: 77 };
        let memory = Proc::own().memory(std::process::id(), false).unwrap();
        for number in 0..10 * WORDS_MIN as u64 {
            let word = Word {
                process: Task { id: u32::MAX / 2, start: number },
                program: number,
                stack: 4096,
                address: 8192,
                width: 8,
                own: 300_000,
                ours: BTreeSet::from([200]),
                library: region,
                mapping: region,
            };
            changes.record_word(&word, &memory).unwrap();
            let ledger = changes.ledger();
            assert!(ledger.words().iter().any(|known| known.is_same(&word)));
            assert!(ledger.words().len() <= WORDS_MIN);
        }
        let written = journal::read(changes.lock().journal.descriptor().unwrap().as_fd()).unwrap();
        assert_eq!((&written.ledger, written.damage), (&changes.ledger(), None));
    }

    #[test]
    fn what_is_changed_never_grows_the_journal_beyond_what_can_be_read() {
        let changes = Guardian::idle().changes();
        let mask: CpuSet = (0..2048).map(|pe| corewise_core::ids::PeId(2 * pe)).collect();
        let bind = |id| Entry::Bind {
            thread: Task { id, start: 7 },
            original: mask.clone(),
            ours: CpuSet::single(corewise_core::ids::PeId(1)),
        };
        let full = (0..).find(|id| changes.record(&bind(*id)).is_err()).unwrap();
        assert_eq!((changes.failure(), changes.notes().len()), (None, 1), "{:?}", changes.notes());
        let content = || {
            let file = changes.lock().journal.descriptor().unwrap();
            journal::read(file.as_fd()).unwrap()
        };
        assert_eq!((content().ledger.all_bound().count(), content().damage), (full as usize, None));
        for id in (0..full).cycle().take(20_000) {
            changes.record(&Entry::Free(id)).unwrap();
        }
        assert_eq!(content().ledger.all_bound().count(), 0);
        changes.record(&bind(0)).unwrap();
    }
}
