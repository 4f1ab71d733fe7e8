//! `/proc` below a root directory, so that a recorded or made-up tree works like the machine's own. No other
//! module reads it: this one has the listings, and [`formats`] the contents of files.
//!
//! Threads end while they are read. This is normal: functions that return an option return `None` then. What
//! only a process itself has (its environment, its memory) is read as a plain file, and failures are errors.

mod formats;
pub mod idle;
mod leader;
pub mod mappings;
mod memory;
mod own;
pub mod pe_times;

pub use formats::{Autogroup, ControlGroups, EXITING, Environment, KERNELS, Schedstat, Stat, Status};
pub use memory::Memory;
pub use own::{DESCRIPTORS, PROGRAM, descriptor, holds};

use crate::shortage::unless_short;
use corewise_core::ids::PeId;
use corewise_core::program;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use pe_times::PeTimes;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the machine's own `/proc` is mounted.
pub const ROOT: &str = "/proc";

/// A file under `/proc` could not be read, and not because the thread has ended.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub struct ProcError {
    /// The file.
    pub path: String,
    /// The system's error.
    pub source: io::Error,
}

impl From<ProcError> for io::Error {
    fn from(error: ProcError) -> io::Error {
        io::Error::new(error.source.kind(), error)
    }
}

/// A `/proc` directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proc {
    root: PathBuf,
}

/// The file of one thread's `schedstat`: kept open, or opened for every reading.
///
/// Reading from an open descriptor takes a third of the time (`discovery_cost files`), but descriptors are
/// few, so the caller chooses.
#[derive(Debug)]
pub enum SchedstatFile {
    /// Kept open; it never shows a later thread with the same ID.
    Open(File),
    /// Opened at every reading.
    Path(PathBuf),
}

impl Proc {
    /// Returns the machine's own.
    pub fn own() -> Self {
        Proc::at(ROOT)
    }

    /// Returns the one at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Proc { root: root.into() }
    }

    /// Returns that of a machine whose directories, including `proc` and `sys`, are at `root`.
    pub fn of_machine(root: &Path) -> Self {
        Proc::at(root.join("proc"))
    }

    /// Returns every process.
    pub fn processes(&self) -> Result<Vec<u32>, ProcError> {
        Ok(numbers_in(&self.root)?.unwrap_or_default())
    }

    /// Returns every process, the latest first: process IDs wrap around.
    pub fn latest_first(&self) -> Result<Vec<u32>, ProcError> {
        let mut pids = self.processes()?;
        let latest = self.last_created().unwrap_or(0);
        pids.sort_unstable_by_key(|&pid| latest.wrapping_sub(pid));
        Ok(pids)
    }

    /// Returns the children of a process.
    pub fn children(&self, pid: u32) -> Result<Vec<u32>, ProcError> {
        let of_thread = |tid| self.text(&format!("{pid}/task/{tid}/children"));
        let threads = self.threads(pid)?.unwrap_or_default();
        if let Ok(lists) = threads.into_iter().map(of_thread).collect::<Result<Vec<_>, _>>() {
            let children = lists.iter().flat_map(|list| list.split_ascii_whitespace());
            return Ok(children.filter_map(|child| child.parse().ok()).collect());
        }
        // The kernel lacks CONFIG_PROC_CHILDREN.
        let child = |above| (above == pid).then_some(());
        Ok(self.descendants(&self.processes()?, child, &[])?.into_keys().collect())
    }

    /// Returns whether a process runs of which this `/proc` shows nothing: it was mounted with `hidepid`, and
    /// the process belongs to another user.
    pub fn hides(&self, pid: u32) -> bool {
        // Number 0 would mean the caller's process group.
        let exists = || pid != 0 && kill(Pid::from_raw(pid as i32), None) != Err(Errno::ESRCH);
        self.root == Path::new("/proc") && !self.root.join(pid.to_string()).exists() && exists()
    }

    /// Returns the threads of a process; `None` if it has ended.
    pub fn threads(&self, pid: u32) -> Result<Option<Vec<u32>>, ProcError> {
        numbers_in(&self.root.join(format!("{pid}/task")))
    }

    /// Returns a thread's `stat`; `None` if it has ended.
    pub fn stat(&self, pid: u32, tid: u32) -> Result<Option<Stat>, ProcError> {
        let path = self.root.join(format!("{pid}/task/{tid}/stat"));
        let Some(text) = unless_hidden(&path, text(&path))? else { return Ok(None) };
        Stat::parse(&text).map(Some).ok_or_else(|| malformed(&path, text.as_bytes()))
    }

    /// Returns the `stat` of any thread, of whatever process; `None` if it has ended. If other users'
    /// processes are hidden (`hidepid`), that is an error.
    pub fn task(&self, id: u32) -> Result<Option<Stat>, ProcError> {
        // The other `stat` of a process sums up the times of all its threads.
        let path = self.root.join(format!("{id}/task/{id}/stat"));
        let Some(text) = unless_gone(&path, text(&path))? else { return Ok(None) };
        Stat::parse(&text).map(Some).ok_or_else(|| malformed(&path, text.as_bytes()))
    }

    /// Returns the `status` of a process or thread; `None` if it has ended.
    pub fn status(&self, id: u32) -> Result<Option<Status>, ProcError> {
        let path = self.root.join(format!("{id}/status"));
        Ok(unless_gone(&path, text(&path))?.map(Status::new))
    }

    /// Returns the size of the code that a process has mapped, in bytes; loading a library changes it.
    /// `None` if it has ended or is hidden.
    pub fn code_size(&self, pid: u32) -> Option<u64> {
        let size = |id| {
            let status = self.status(id).ok()??;
            Some(status.bytes("VmExe")? + status.bytes("VmLib")?)
        };
        self.of_process(pid, Option::is_none, |id| Ok(size(id))).ok()?
    }

    /// Returns a thread's `schedstat`, kept open if `keep`; `None` if there is none.
    pub fn schedstat(&self, pid: u32, tid: u32, keep: bool) -> Result<Option<SchedstatFile>, ProcError> {
        let path = self.root.join(format!("{pid}/task/{tid}/schedstat"));
        if keep {
            return Ok(unless_hidden(&path, File::open(&path))?.map(SchedstatFile::Open));
        }
        Ok(path.exists().then_some(SchedstatFile::Path(path)))
    }

    /// Returns the variables that a process was started with, as far as that many are permitted by default.
    pub fn environment(&self, pid: u32) -> io::Result<Environment> {
        self.strings(pid, "environ", Proc::STRINGS_MAX).map(Environment::new)
    }

    /// Returns the arguments that a process was started with, each followed by a zero byte, as far as that
    /// many are permitted by default.
    pub fn arguments(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.strings(pid, "cmdline", Proc::STRINGS_MAX)
    }

    /// Returns the name of the script or executable that a process runs, by its command line; `None` if it
    /// has none, as in a kernel thread, or has ended.
    pub fn program_name(&self, pid: u32) -> Option<String> {
        /// The rest of a long command line does not change the name.
        const LENGTH_MAX: u64 = 4_096;
        program::name_of_line(&self.strings(pid, "cmdline", LENGTH_MAX).ok()?)
    }

    /// Returns whether a process is a fork of another one that has not executed a program since: the
    /// addresses that the kernel has given the program are the same. If they cannot be read, it is taken for
    /// none.
    pub fn is_fork(&self, pid: u32, of: u32) -> bool {
        let addresses = |pid: u32| self.auxiliary_vector(pid).unwrap_or_default();
        let own = addresses(pid);
        !own.is_empty() && own == addresses(of)
    }

    /// Returns where a thread waits in the kernel, as far as that is known.
    pub fn waits_in(&self, tid: u32) -> Option<String> {
        self.text(&format!("{tid}/wchan")).ok().filter(|place| place.len() > 1)
    }

    /// Returns the path by which an open file of this process can be opened anew.
    pub fn own_file(&self, descriptor: RawFd) -> PathBuf {
        self.root.join(format!("self/fd/{descriptor}"))
    }

    /// Returns the name of a process's first thread.
    pub fn name(&self, pid: u32) -> io::Result<String> {
        Ok(self.text(&format!("{pid}/comm"))?.trim_end_matches('\n').to_owned())
    }

    /// Returns the ID of a process's user.
    pub fn owner(&self, pid: u32) -> io::Result<u32> {
        Ok(std::fs::metadata(self.root.join(pid.to_string()))?.uid())
    }

    /// Returns the path of the program that a process runs, as the kernel reports it.
    pub fn program(&self, pid: u32) -> io::Result<PathBuf> {
        self.of_process(pid, |_| false, |id| std::fs::read_link(self.root.join(format!("{id}/exe"))))
    }

    /// Returns the path of the file that a process runs, without the kernel's mark of one that was replaced
    /// or deleted meanwhile. A file may have that mark in its name.
    pub fn executable(&self, pid: u32) -> io::Result<PathBuf> {
        let path = self.program(pid)?;
        let text = path.to_string_lossy();
        let Some(unmarked) = text.strip_suffix(" (deleted)") else { return Ok(path) };
        let file = |found: io::Result<Metadata>| found.map(|file| (file.dev(), file.ino())).ok();
        let there = file(std::fs::metadata(self.path_in_root(pid, &text)));
        let is_its_name = there.is_some() && there == file(self.program_file(pid));
        Ok(if is_its_name { path.clone() } else { unmarked.into() })
    }

    /// Opens the file of the program that a process runs.
    pub fn program_file(&self, pid: u32) -> io::Result<Metadata> {
        std::fs::metadata(self.program_link(pid))
    }

    /// Returns the path of the kernel's link to the program that a process runs. It leads to that file also
    /// when another one, or none, stands at its path by now.
    pub fn program_link(&self, pid: u32) -> PathBuf {
        self.folder(pid).join("exe")
    }

    /// Returns what the kernel gave the program that a process runs (getauxval(3)).
    fn auxiliary_vector(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.of_process(pid, Vec::is_empty, |id| std::fs::read(self.root.join(format!("{id}/auxv"))))
    }

    /// Returns the number that the kernel gave the program that a process executes, by chance (`AT_RANDOM`,
    /// getauxval(3)). Forks have it, too; what they execute has another one. `memory` is the process's.
    pub fn program_number(&self, pid: u32, memory: &Memory) -> io::Result<u64> {
        let words = self.auxiliary_vector(pid)?;
        let mut words =
            words.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        while let (Some(kind), Some(address)) = (words.next(), words.next()) {
            if kind == libc::AT_RANDOM {
                let mut number = [0; 8];
                memory.read(address, &mut number)?;
                return Ok(u64::from_ne_bytes(number));
            }
        }
        // It has ended, or the kernel has started it.
        Err(io::ErrorKind::NotFound.into())
    }

    /// Returns the path of the kernel's link to the file that is mapped between these addresses.
    pub fn map_file(&self, pid: u32, start: u64, end: u64) -> PathBuf {
        self.folder(pid).join(format!("map_files/{start:x}-{end:x}"))
    }

    /// Returns a path that a process uses, as seen from outside of its mount namespace.
    pub fn path_in_root(&self, pid: u32, path: &str) -> PathBuf {
        self.folder(pid).join("root").join(path.trim_start_matches('/'))
    }

    /// Returns the control groups of a process.
    pub fn control_groups(&self, pid: u32) -> io::Result<ControlGroups> {
        // In version 1 a thread that has ended is in the root group.
        text(&self.folder(pid).join("cgroup")).map(|text| ControlGroups::new(&text))
    }

    /// Returns the session group of a process; `None` if the kernel has none, or the process has ended.
    pub fn autogroup(&self, pid: u32) -> io::Result<Option<Autogroup>> {
        let text = unless_short(self.text(&format!("{pid}/autogroup")))?;
        Ok(text.and_then(|text| Autogroup::parse(&text)))
    }

    /// Sets the nice level of a process's session group.
    pub fn set_autogroup(&self, pid: u32, nice: i64) -> io::Result<()> {
        std::fs::write(self.root.join(format!("{pid}/autogroup")), nice.to_string())
    }

    /// Returns the times of each PE; empty if not available.
    pub fn pe_times(&self) -> BTreeMap<PeId, PeTimes> {
        self.text("stat").map(|text| pe_times::parse(&text)).unwrap_or_default()
    }

    /// Returns the words of `loadavg`; empty if not available.
    fn load(&self) -> Vec<String> {
        let text = self.text("loadavg").unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// Returns the mean number of runnable threads in the last minute.
    pub fn load_of_a_minute(&self) -> Option<f64> {
        self.load().first()?.parse().ok()
    }

    /// Returns how many threads want a PE now on the whole machine, the caller among them (`loadavg`, fourth
    /// field); `None` if not available.
    pub fn runnable(&self) -> Option<u64> {
        self.load().get(3)?.split_once('/')?.0.parse().ok()
    }

    /// Returns the last ID that was assigned to a process or thread (`loadavg`, fifth field): while it stays
    /// the same, nothing new was created. `None` if not available.
    pub fn last_created(&self) -> Option<u32> {
        self.load().get(4)?.parse().ok()
    }

    /// The processes among `candidates` that descend from one whose application is `known`, with that
    /// application. Processes that end meanwhile are left out; so are `excluded` ones and what descends from
    /// them.
    pub fn descendants<App: Copy>(
        &self,
        candidates: &[u32],
        known: impl Fn(u32) -> Option<App>,
        excluded: &[u32],
    ) -> Result<HashMap<u32, App>, ProcError> {
        let mut parent_of = HashMap::new();
        for &pid in candidates.iter().filter(|pid| !excluded.contains(pid)) {
            if let Some(stat) = self.stat(pid, pid)? {
                parent_of.insert(pid, stat.parent);
            }
        }
        let mut found = HashMap::new();
        loop {
            let before = found.len();
            for (&pid, &above) in &parent_of {
                if let Some(app) = known(above).or_else(|| found.get(&above).copied()) {
                    found.insert(pid, app);
                }
            }
            if found.len() == before {
                return Ok(found);
            }
        }
    }

    fn text(&self, file: &str) -> io::Result<String> {
        text(&self.root.join(file))
    }
}

impl SchedstatFile {
    /// Returns the present values; `None` if the thread has ended.
    pub fn read(&self) -> Result<Option<Schedstat>, ProcError> {
        let mut buffer = [0; 96];
        let (path, length) = match self {
            SchedstatFile::Open(file) => (Path::new("schedstat"), file.read_at(&mut buffer, 0)),
            SchedstatFile::Path(path) => {
                (path.as_path(), File::open(path).and_then(|mut file| file.read(&mut buffer)))
            }
        };
        let Some(length) = unless_hidden(path, length)? else { return Ok(None) };
        Schedstat::parse(&buffer[..length]).map(Some).ok_or_else(|| malformed(path, &buffer[..length]))
    }
}

/// Returns the text of a file. Threads, control groups and files may have names that are not valid UTF-8:
/// none of them hides the rest of the text.
fn text(path: &Path) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the entries of a directory that are numbers; `None` if it is gone or hidden.
fn numbers_in(directory: &Path) -> Result<Option<Vec<u32>>, ProcError> {
    let Some(entries) = unless_hidden(directory, std::fs::read_dir(directory))? else { return Ok(None) };
    let mut numbers = Vec::new();
    for entry in entries {
        let Some(entry) = unless_hidden(directory, entry)? else { return Ok(None) };
        numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(Some(numbers))
}

/// Returns `None` for what has ended, and for what another user's process hides (`hidepid`), which is not
/// ours.
fn unless_hidden<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, ProcError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        result => unless_gone(path, result),
    }
}

/// Returns `None` for what has ended.
fn unless_gone<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, ProcError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(source) => Err(ProcError { path: path.display().to_string(), source }),
    }
}

fn malformed(path: &Path, text: &[u8]) -> ProcError {
    let text = String::from_utf8_lossy(text);
    let source = io::Error::new(io::ErrorKind::InvalidData, format!("unexpected content {text:?}"));
    ProcError { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn broken_files_are_named_with_their_content() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("7/task/7")).unwrap();
        std::fs::write(root.path().join("7/task/7/stat"), "7 (x").unwrap();
        let error = Proc::at(root.path()).stat(7, 7).unwrap_err().to_string();
        assert!(error.contains("7/task/7/stat") && error.contains("7 (x"), "{error}");
    }

    #[test]
    fn a_file_that_is_called_like_a_deleted_one_is_not_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let sleep = std::fs::canonicalize("/bin/sh").unwrap();
        for name in ["app (deleted)", "app"] {
            let path = folder.join(name);
            std::fs::copy(&sleep, &path).unwrap();
            let mut child =
                Command::new(&path).args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
            let executable = || Proc::own().executable(child.id()).unwrap();
            assert_eq!(executable(), path);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(executable(), path, "{:?}", Proc::own().program(child.id()));
            child.kill().and_then(|()| child.wait()).unwrap();
        }
    }

    #[test]
    fn what_a_process_was_started_with_is_read_up_to_a_bound() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        for file in ["environ", "cmdline"] {
            let mut file = File::create(root.path().join("7").join(file)).unwrap();
            file.write_all(b"A=1\0B=2\0").unwrap();
            file.set_len(2 * Proc::STRINGS_MAX).unwrap();
            file.write_at(b"LATE=1\0", Proc::STRINGS_MAX).unwrap();
        }
        let proc = Proc::at(root.path());
        let environment = proc.environment(7).unwrap();
        assert_eq!((environment.get("B").as_deref(), environment.get("LATE")), (Some("2"), None));
        assert_eq!(proc.arguments(7).unwrap().len() as u64, Proc::STRINGS_MAX);
    }

    #[test]
    fn a_thread_hides_nothing_by_its_name() {
        let read = || {
            nix::sys::prctl::set_name(c"\xff)\xfe").unwrap();
            let (own, proc) = (nix::unistd::gettid().as_raw() as u32, Proc::own());
            let uid = proc.status(own).unwrap().unwrap().field("Uid").map(str::to_owned);
            (uid, proc.name(own).unwrap(), proc.task(own).unwrap().unwrap().name)
        };
        let (uid, name, named) = std::thread::spawn(read).join().unwrap();
        assert_eq!(uid.as_deref(), Proc::own().own_status().field("Uid"));
        assert_eq!((name.as_str(), named.as_str()), ("\u{fffd})\u{fffd}", "\u{fffd})\u{fffd}"));
    }

    #[test]
    fn a_process_that_executes_a_program_has_one_stack_before_and_another_one_after_that() {
        for _ in 0..20 {
            let script = ["-c", "read line; exec sleep 60"];
            let mut child = Command::new("sh").args(script).stdin(Stdio::piped()).spawn().unwrap();
            let (pid, mut input) = (child.id(), child.stdin.take().unwrap());
            let stack = || Proc::own().stat(pid, pid).unwrap().unwrap().stack;
            let mut seen = Vec::new();
            let mut look_until_there_are = |count| {
                let begin = Instant::now();
                while seen.len() < count {
                    assert!(begin.elapsed() < Duration::from_secs(60), "it executes no program");
                    seen.extend(stack());
                    seen.dedup();
                }
                for _ in 0..1000 {
                    seen.extend(stack());
                }
            };
            look_until_there_are(1);
            input.write_all(b"\n").unwrap();
            look_until_there_are(2);
            seen.dedup();
            child.kill().and_then(|()| child.wait()).unwrap();
            assert_eq!(seen.len(), 2, "{seen:x?}");
        }
    }

    #[test]
    fn descendants_are_found_whatever_the_order_of_their_ids() {
        let root = tempfile::tempdir().unwrap();
        for (pid, parent) in [(900, 10), (20, 900), (21, 20), (30, 10), (31, 30), (40, 1), (41, 40)] {
            let task = root.path().join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            let tail = "0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0";
            std::fs::write(task.join("stat"), format!("{pid} (x) S {parent} 0 {tail}")).unwrap();
        }
        let proc = Proc::at(root.path());
        let found = {
            let known = |pid| (pid == 10).then_some('a').or((pid == 40).then_some('b'));
            proc.descendants(&proc.processes().unwrap(), known, &[10, 30]).unwrap()
        };
        assert_eq!(found, HashMap::from([(900, 'a'), (20, 'a'), (21, 'a'), (41, 'b')]));
    }
}
