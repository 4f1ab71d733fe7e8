//! What programs report of their threads through `libcorewise` ([`corewise::page`]), read from outside.
//!
//! Problem. A program that links the library writes into its own memory which of its threads only wait, which
//! one is the master, which phase has begun, and how much is done. It can be loaded at any time, and the
//! process can fork or become another program. Approach. New processes are searched for files with the
//! library's note, again at growing distances when the size of their code has changed; where one is found its
//! memory is read every [`PERIOD`], or more rarely: all of this takes a bounded part of a PE's time
//! ([`SHARE`]), whatever processes have mapped. Reading copies bytes of a stranger, which may be anything:
//! only what a process reports of its own threads counts, and work only grows.
//!
//! Limits. The library must be able to name its threads: what a program in a PID namespace of its own
//! reports is not read. A process that may not be looked into (setuid) reports nothing, and one whose first
//! thread has ended nothing more. Processes with long reports, or many of them, delay those of others.

use corewise::page::{self, NOTE_SECTION, SLOT, ThreadState};
use corewise_code::elf::ElfFile;
use corewise_code::library::{self, Library};
use corewise_code::space::FileKey;
use corewise_core::backoff::Doubling;
use corewise_core::observe::Hints;
use corewise_sys::allowance::Allowance;
use corewise_sys::clock;
use corewise_sys::proc::{Memory, Proc};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// Time between two looks at what processes report.
pub const PERIOD: Duration = Duration::from_millis(10);

/// The share of a PE that looks and searches take on average, and what they may take at once.
const SHARE: f64 = 0.01;
const BURST: Duration = Duration::from_millis(250);

/// Copies of the library in a process that are read.
const PAGES_MAX: usize = 4;

/// How long it is waited between two searches of the same process: at first, and at most, as it doubles with
/// every one: a library that is loaded late is found within as long as the process has lived by then. A
/// search costs some 100 µs, and there may be thousands of processes.
const SEARCH_AFTER: Doubling = Doubling::new(Duration::from_millis(20), Duration::from_secs(30));

/// Bytes of the note section that are read: it has one note, or one for each copy of a function.
const NOTE_MAX: u64 = 64;

/// What the watched processes report.
#[derive(Debug)]
pub struct ProgramReports {
    processes: BTreeMap<u32, Process>,
    /// The processes that are read, at most, and whether there were more.
    most: usize,
    are_too_many: bool,
    allowance: Allowance,
    /// When the next look may be.
    from: Instant,
    /// Files without the note.
    others: HashSet<FileKey>,
    looked_at: Option<Instant>,
    /// A process with more threads than can report, and how many more.
    lossy: Option<(u32, u32)>,
}

impl Default for ProgramReports {
    fn default() -> ProgramReports {
        ProgramReports {
            processes: BTreeMap::new(),
            most: Memory::kept_max(),
            are_too_many: false,
            allowance: Allowance::with_burst(SHARE, BURST),
            from: Instant::now(),
            others: HashSet::new(),
            looked_at: None,
            lossy: None,
        }
    }
}

#[derive(Debug)]
struct Process {
    /// Its memory, if it has copies of the library, and where those report.
    memory: Option<Memory>,
    pages: Vec<u64>,
    threads: HashMap<u32, (Hints, Option<u64>)>,
    search_at: Instant,
    search_after: Doubling,
    /// The size of its code at the last search; `None`: it is searched anyway.
    code: Option<u64>,
}

impl ProgramReports {
    /// Takes note of a thread's process.
    pub fn watch(&mut self, pid: u32) {
        let now = Instant::now();
        self.processes.entry(pid).or_insert_with(|| {
            let mut search_after = SEARCH_AFTER;
            Process {
                memory: None,
                pages: Vec::new(),
                threads: HashMap::new(),
                // Most processes of a build live no longer.
                search_at: now + search_after.take(),
                search_after,
                code: None,
            }
        });
    }

    /// A thread with this number has ended; with the first one its process is over.
    pub fn forget(&mut self, tid: u32) {
        // The first thread of a process may end before the others.
        let lives = || matches!(Proc::own().process(tid), Ok(Some(stat)) if !stat.has_ended());
        if self.processes.contains_key(&tid) && !lives() {
            self.processes.remove(&tid);
        }
    }

    /// These are the processes that live.
    pub fn retain(&mut self, living: &HashSet<u32>) {
        self.processes.retain(|pid, _| living.contains(pid));
    }

    /// Until when the next look is due; `None` if there is nothing to look at.
    pub fn due_within(&self) -> Option<Duration> {
        let look = self.looked_at.filter(|_| self.read_count() > 0).map(|at| at + PERIOD);
        let searches = self.processes.values().map(|process| process.search_at);
        let next = searches.chain(look).min()?;
        Some(next.max(self.from).saturating_duration_since(Instant::now()))
    }

    /// Looks, if a look is due. The threads, with their processes, that report something else than before.
    pub fn look(&mut self) -> Vec<(u32, u32, Hints)> {
        if self.due_within().is_none_or(|within| !within.is_zero()) {
            return Vec::new();
        }
        self.looked_at = Some(Instant::now());
        self.search();
        let began = clock::own_cpu_time();
        let mut changed = Vec::new();
        for (&pid, process) in &mut self.processes {
            let (news, lost) = process.read(pid);
            changed.extend(news.into_iter().map(|(tid, hints)| (pid, tid, hints)));
            self.lossy = self.lossy.or((lost > 0).then_some((pid, lost)));
        }
        self.spend_since(began);
        changed
    }

    /// Searches the processes of which that is due, one after the other for as long as there is time for it.
    fn search(&mut self) {
        let now = Instant::now();
        let due = self.processes.iter().filter(|(_, process)| process.search_at <= now);
        let mut due: Vec<_> = due.map(|(&pid, process)| (process.search_at, pid)).collect();
        due.sort_unstable();
        for (_, pid) in due {
            let (began, has_room) = (clock::own_cpu_time(), self.read_count() < self.most);
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            process.search(pid, now, &mut self.others);
            match (process.pages.is_empty(), &process.memory) {
                (true, _) => process.memory = None,
                (false, None) if has_room => process.memory = Proc::own().memory(pid, false).ok(),
                (false, None) => self.are_too_many = true,
                (false, Some(_)) => {}
            }
            self.spend_since(began);
            if self.from > now {
                break;
            }
        }
    }

    fn spend_since(&mut self, began: Duration) {
        let pause = self.allowance.spend(clock::own_cpu_time().saturating_sub(began));
        self.from = Instant::now() + pause;
    }

    /// The number of processes that are read.
    fn read_count(&self) -> usize {
        self.processes.values().filter(|process| process.memory.is_some()).count()
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
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let most = page::THREADS_MAX;
        let lossy = self.lossy.map(|(pid, lost)| {
            format!("process {pid} reports of {most} threads at a time; {lost} more could report nothing")
        });
        let most = self.most;
        let too_many = self
            .are_too_many
            .then(|| format!("what processes report is read of {most} at a time; there were more of them"));
        lossy.into_iter().chain(too_many)
    }

    fn of_thread(&self, pid: u32, tid: u32) -> Option<&(Hints, Option<u64>)> {
        self.processes.get(&pid)?.threads.get(&tid)
    }
}

impl Process {
    fn search(&mut self, pid: u32, now: Instant, others: &mut HashSet<FileKey>) {
        self.search_at = now + self.search_after.take();
        let code = Proc::own().code_size(pid);
        if code.is_some() && code == self.code {
            return;
        }
        self.code = code;
        // A process that has ended, or may not be looked into, reports nothing.
        let libraries = library::libraries(pid, others, PAGES_MAX, |elf| page_of(elf).is_some());
        let address = |library: &Library| page_of(&library.elf).map(|linked| library.loaded(linked));
        self.pages = libraries.unwrap_or_default().iter().filter_map(address).collect();
    }

    /// Reads what is reported now. The threads that report something else than before, and for how many there
    /// was no room.
    fn read(&mut self, pid: u32) -> (Vec<(u32, Hints)>, u32) {
        let mut now: HashMap<u32, (Hints, Option<u64>)> = HashMap::new();
        let mut lost = 0u32;
        for &page in &self.pages {
            let Some(memory) = &self.memory else { break };
            let Ok(state) = read(memory, page, pid) else {
                // The program has ended, or is another one.
                (self.memory, self.code) = (None, None);
                break;
            };
            for ThreadState { thread, spins, phase, work } in state.threads {
                let hints = Hints { spinning: spins, master: state.master == Some(thread), phase };
                let before = self.threads.get(&thread).and_then(|(_, work)| *work);
                now.insert(thread, (hints, work.max(before)));
            }
            lost = state.lost.saturating_add(lost);
        }
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

/// What is reported at an address; fails if nothing can be read there any more.
fn read(memory: &Memory, address: u64, pid: u32) -> io::Result<page::State> {
    let mut bytes = vec![0; SLOT];
    match memory.read(address, &mut bytes) {
        // The program has not written there yet.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        result => result?,
    }
    bytes.resize(page::length(&bytes).max(SLOT), 0);
    memory.read_what_is_there(address.saturating_add(SLOT as u64), &mut bytes[SLOT..]);
    // Nothing was reported yet, or by the process that this one was forked from.
    Ok(page::read(&bytes, pid).unwrap_or_default())
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

    /// Looks until the first search is over.
    fn search(reports: &mut ProgramReports) {
        let pid = std::process::id();
        reports.watch(pid);
        while reports.processes[&pid].code.is_none() {
            reports.look();
        }
    }

    #[test]
    fn of_more_processes_than_there_are_descriptors_for_nothing_is_read() {
        let mut reports = ProgramReports { most: 1, ..ProgramReports::default() };
        search(&mut reports);
        assert_eq!((reports.read_count(), reports.notes().count()), (1, 0));
        let mut reports = ProgramReports { most: 0, ..ProgramReports::default() };
        search(&mut reports);
        let expected = "what processes report is read of 0 at a time; there were more of them";
        assert_eq!((reports.read_count(), reports.notes().collect()), (0, vec![expected.to_owned()]));
    }

    #[test]
    fn looks_become_rarer_when_they_have_taken_more_than_their_share() {
        let mut reports = ProgramReports::default();
        search(&mut reports);
        assert!(reports.due_within().is_some_and(|within| within <= PERIOD));
        reports.allowance.spend(BURST + Duration::from_secs(1));
        next_look(&mut reports);
        // A second at a share of one hundredth.
        assert!(reports.due_within().is_some_and(|within| within > Duration::from_secs(90)));
    }

    fn next_look(reports: &mut ProgramReports) {
        let last = reports.looked_at;
        while reports.looked_at == last {
            reports.look();
        }
    }
}
