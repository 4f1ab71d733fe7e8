//! What programs report of their threads through `libcorewise` ([`corewise::page`]), read from outside.
//!
//! Problem. A program that links the library writes into its own memory which of its threads only wait, which
//! one is the master, which phase has begun, and how much is done. It can be loaded at any time, and the
//! process can fork or become another program. Approach. New processes are searched for files with the
//! library's note, again at growing distances when the size of their code has changed; where one is found its
//! memory is read every [`PERIOD`]. Reading copies bytes of a stranger, which may be anything: only what a
//! process reports of its own threads counts, and work only grows.
//!
//! Limits. The library must be able to name its threads: what a program in a PID namespace of its own
//! reports is not read. A process that may not be looked into (setuid) reports nothing, and one whose first
//! thread has ended nothing more.

use corewise::page::{self, NOTE_SECTION, SLOT, ThreadState};
use corewise_code::elf::ElfFile;
use corewise_code::library;
use corewise_code::space::FileKey;
use corewise_core::observe::Hints;
use corewise_sys::proc::Proc;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time between two looks at what processes report.
pub const PERIOD: Duration = Duration::from_millis(10);

/// How long it is waited between two searches of the same process: at first, and at most, as it doubles with
/// every one: a library that is loaded late is found within as long as the process has lived by then. A
/// search costs some 100 µs, and there may be thousands of processes.
const SEARCH_AFTER: Duration = Duration::from_millis(20);
const SEARCH_AFTER_MAX: Duration = Duration::from_secs(30);

/// Files without the note that are remembered; beyond, all are forgotten.
const OTHERS_MAX: usize = 1 << 12;

/// Bytes of the note section that are read: it has one note, or one for each copy of a function.
const NOTE_MAX: u64 = 64;

/// What the watched processes report.
#[derive(Debug, Default)]
pub struct ProgramReports {
    processes: BTreeMap<u32, Process>,
    /// Files without the note.
    others: HashSet<FileKey>,
    looked_at: Option<Instant>,
    /// A process with more threads than can report, and how many more.
    lossy: Option<(u32, u32)>,
}

#[derive(Debug)]
struct Process {
    pages: Vec<Page>,
    threads: HashMap<u32, (Hints, Option<u64>)>,
    search_at: Instant,
    search_after: Duration,
    /// The size of its code at the last search; `None`: it is searched anyway.
    code: Option<u64>,
}

/// One copy of the library.
#[derive(Debug)]
struct Page {
    memory: File,
    address: u64,
}

impl ProgramReports {
    /// Takes note of a thread's process.
    pub fn watch(&mut self, pid: u32) {
        let now = Instant::now();
        self.processes.entry(pid).or_insert_with(|| Process {
            pages: Vec::new(),
            threads: HashMap::new(),
            // Most processes of a build live no longer.
            search_at: now + SEARCH_AFTER,
            search_after: SEARCH_AFTER,
            code: None,
        });
    }

    /// A thread with this number has ended; with the first one its process is over.
    pub fn forget(&mut self, tid: u32) {
        self.processes.remove(&tid);
    }

    /// These are the processes that live.
    pub fn retain(&mut self, living: &HashSet<u32>) {
        // Builds make ever new files.
        if self.others.len() > OTHERS_MAX {
            self.others.clear();
        }
        self.processes.retain(|pid, _| living.contains(pid));
    }

    /// Until when the next look is due; `None` if there is nothing to look at.
    pub fn due_within(&self) -> Option<Duration> {
        let reports = self.processes.values().any(|process| !process.pages.is_empty());
        let look = self.looked_at.filter(|_| reports).map(|at| PERIOD.saturating_sub(at.elapsed()));
        let now = Instant::now();
        let searches =
            self.processes.values().map(|process| process.search_at.saturating_duration_since(now));
        searches.chain(look).min()
    }

    /// Looks, if a look is due. The threads, with their processes, that report something else than before.
    pub fn look(&mut self) -> Vec<(u32, u32, Hints)> {
        if self.due_within().is_none_or(|within| !within.is_zero()) {
            return Vec::new();
        }
        let now = Instant::now();
        let mut changed = Vec::new();
        for (&pid, process) in &mut self.processes {
            if process.search_at <= now {
                process.search(pid, now, &mut self.others);
            }
            let (news, lost) = process.read(pid);
            changed.extend(news.into_iter().map(|(tid, hints)| (pid, tid, hints)));
            self.lossy = self.lossy.or((lost > 0).then_some((pid, lost)));
        }
        self.looked_at = Some(now);
        changed
    }

    /// What a thread of a process reported last.
    pub fn hints(&self, pid: u32, tid: u32) -> Hints {
        self.of_thread(pid, tid).map_or(Hints::default(), |(hints, _)| *hints)
    }

    /// How much a thread of a process has done, if it reported that.
    pub fn work(&self, pid: u32, tid: u32) -> Option<u64> {
        self.of_thread(pid, tid)?.1
    }

    /// What a user should know, in words.
    pub fn note(&self) -> Option<String> {
        let ((pid, lost), most) = (self.lossy?, page::THREADS_MAX);
        Some(format!("process {pid} reports of {most} threads at a time; {lost} more could report nothing"))
    }

    fn of_thread(&self, pid: u32, tid: u32) -> Option<&(Hints, Option<u64>)> {
        self.processes.get(&pid)?.threads.get(&tid)
    }
}

impl Process {
    fn search(&mut self, pid: u32, now: Instant, others: &mut HashSet<FileKey>) {
        self.search_at = now + self.search_after;
        self.search_after = (2 * self.search_after).min(SEARCH_AFTER_MAX);
        let code = Proc::own().code_size(pid);
        if code.is_some() && code == self.code {
            return;
        }
        self.code = code;
        // A process that has ended, or may not be looked into, reports nothing.
        let Ok(libraries) = library::libraries(pid, others, |elf| page_of(elf).is_some()) else { return };
        for library in libraries {
            let Some(address) = page_of(&library.elf).map(|linked| library.loaded(linked)) else { continue };
            if !self.pages.iter().any(|page| page.address == address)
                && let Ok(memory) = library::memory(pid)
            {
                self.pages.push(Page { memory, address });
            }
        }
    }

    /// Reads what is reported now. The threads that report something else than before, and for how many there
    /// was no room.
    fn read(&mut self, pid: u32) -> (Vec<(u32, Hints)>, u32) {
        let mut now: HashMap<u32, (Hints, Option<u64>)> = HashMap::new();
        let mut lost = 0u32;
        self.pages.retain(|page| {
            // The program has ended, is another one, or has unloaded the library.
            let Some(state) = page.read(pid) else {
                self.code = None;
                return false;
            };
            for ThreadState { thread, spins, phase, work } in state.threads {
                let hints = Hints { spinning: spins, master: state.master == Some(thread), phase };
                let before = self.threads.get(&thread).and_then(|(_, work)| *work);
                now.insert(thread, (hints, work.max(before)));
            }
            lost = state.lost.saturating_add(lost);
            true
        });
        let before = std::mem::replace(&mut self.threads, now);
        let hints = |of: &HashMap<u32, (Hints, Option<u64>)>, tid| {
            of.get(tid).map_or(Hints::default(), |(hints, _)| *hints)
        };
        let silent = before.keys().filter(|tid| !self.threads.contains_key(tid));
        let all = self.threads.keys().chain(silent);
        let changed = all.filter(|tid| hints(&before, *tid) != hints(&self.threads, *tid));
        (changed.map(|tid| (*tid, hints(&self.threads, tid))).collect(), lost)
    }
}

impl Page {
    /// What is reported; `None` if it cannot be read any more, which has ended for good.
    fn read(&self, pid: u32) -> Option<page::State> {
        let mut bytes = vec![0; SLOT];
        self.memory.read_exact_at(&mut bytes, self.address).ok()?;
        let length = page::length(&bytes);
        if length > SLOT {
            bytes.resize(length, 0);
            self.memory.read_exact_at(&mut bytes[SLOT..], self.address.wrapping_add(SLOT as u64)).ok()?;
        }
        // Nothing was reported yet, or by the process that this one was forked from.
        Some(page::read(&bytes, pid).unwrap_or_default())
    }
}

/// The address as linked of the memory of the library, if a file has it.
fn page_of(elf: &ElfFile) -> Option<u64> {
    let (at, note) = elf.section(NOTE_SECTION, NOTE_MAX)?;
    page::address(&note, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_news(reports: &mut ProgramReports) -> Vec<(u32, u32, Hints)> {
        std::iter::repeat_with(|| reports.look()).find(|changed| !changed.is_empty()).unwrap()
    }

    /// This test program has the library linked into it.
    #[test]
    fn what_this_process_reports_is_read_and_nothing_of_strangers() {
        let (pid, mut reports) = (std::process::id(), ProgramReports::default());
        reports.watch(pid);
        let reporter = std::thread::spawn(move || {
            corewise::master_thread();
            corewise::phase(4);
            corewise::heartbeat(30);
            let tid = nix::unistd::gettid().as_raw() as u32;
            let changed = next_news(&mut reports);
            let hints = Hints { spinning: false, master: true, phase: Some(4) };
            assert!(changed.contains(&(pid, tid, hints)), "{changed:?}");
            assert_eq!((reports.hints(pid, tid), reports.work(pid, tid)), (hints, Some(30)));
            assert_eq!((reports.hints(pid + 1, tid), reports.work(1, tid)), (Hints::default(), None));
            (reports, tid)
        });
        let (mut reports, tid) = reporter.join().unwrap();
        let changed = next_news(&mut reports);
        assert!(changed.contains(&(pid, tid, Hints::default())), "it has ended: {changed:?}");
        reports.retain(&HashSet::new());
        assert_eq!(reports.due_within(), None);
    }
}
