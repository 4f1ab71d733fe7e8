//! The files of `/proc` that tell of processes and threads, below a root directory, so that a recorded or a
//! made-up tree serves as well as the machine's own.
//!
//! Threads end while they are read. That is normal: every reader answers `None` for what is not there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file under `/proc` could not be read for a reason other than the thread's end.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub struct ProcError {
    /// The file.
    pub path: String,
    /// The system's answer.
    pub source: io::Error,
}

/// A `/proc` directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proc {
    root: PathBuf,
}

/// What we use of `/proc/PID/task/TID/stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The thread's name (`comm`).
    pub name: String,
    /// One letter: `R` is runnable, `Z` and `X` have ended.
    pub state: char,
    /// The parent process.
    pub parent: u32,
    /// CPU time in user and kernel mode, clock ticks.
    pub cpu_ticks: u64,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
    /// The PE it ran on last.
    pub last_pe: u32,
}

/// `/proc/PID/task/TID/schedstat`, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a PE.
    pub run_ns: u64,
    /// Time waiting for a PE.
    pub wait_ns: u64,
}

/// The file of one thread's `schedstat`: kept open, or opened anew for every reading.
///
/// A reading from an open descriptor takes a third of the time (`discovery_cost files`), but
/// descriptors are few, so the caller chooses.
#[derive(Debug)]
pub enum SchedstatFile {
    /// Kept open; it never shows a later user of the same thread id.
    Open(File),
    /// Opened at every reading.
    Path(PathBuf),
}

impl Proc {
    /// The `/proc` at `root`; the machine's own is at `/proc`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Proc { root: root.into() }
    }

    /// Every process.
    pub fn processes(&self) -> Result<Vec<u32>, ProcError> {
        Ok(numbers_in(&self.root)?.unwrap_or_default())
    }

    /// The children of a process.
    pub fn children(&self, pid: u32) -> Result<Vec<u32>, ProcError> {
        let of_thread = |tid| std::fs::read_to_string(self.root.join(format!("{pid}/task/{tid}/children")));
        let threads = self.threads(pid)?.unwrap_or_default();
        if let Ok(lists) = threads.into_iter().map(of_thread).collect::<Result<Vec<_>, _>>() {
            let children = lists.iter().flat_map(|list| list.split_ascii_whitespace());
            return Ok(children.filter_map(|child| child.parse().ok()).collect());
        }
        // The kernel lacks CONFIG_PROC_CHILDREN.
        let child = |above| (above == pid).then_some(());
        Ok(self.descendants(&self.processes()?, child, &[])?.into_keys().collect())
    }

    /// The threads of a process; `None` if it has ended.
    pub fn threads(&self, pid: u32) -> Result<Option<Vec<u32>>, ProcError> {
        numbers_in(&self.root.join(format!("{pid}/task")))
    }

    /// A thread's `stat`; `None` if it has ended.
    pub fn stat(&self, pid: u32, tid: u32) -> Result<Option<Stat>, ProcError> {
        let path = self.root.join(format!("{pid}/task/{tid}/stat"));
        let Some(text) = unless_gone(&path, std::fs::read(&path))? else { return Ok(None) };
        parse_stat(&String::from_utf8_lossy(&text)).map(Some).ok_or_else(|| malformed(&path, &text))
    }

    /// A thread's `schedstat`, kept open if `keep`; `None` if there is none.
    pub fn schedstat(&self, pid: u32, tid: u32, keep: bool) -> Result<Option<SchedstatFile>, ProcError> {
        let path = self.root.join(format!("{pid}/task/{tid}/schedstat"));
        if keep {
            return Ok(unless_gone(&path, File::open(&path))?.map(SchedstatFile::Open));
        }
        Ok(path.exists().then_some(SchedstatFile::Path(path)))
    }

    /// The id that was given to a process or thread last (`loadavg`, fifth field): while it stays the same,
    /// nothing new was created. `None` where it is not told.
    pub fn last_created(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.root.join("loadavg")).ok()?;
        text.split_ascii_whitespace().nth(4)?.parse().ok()
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
}

impl SchedstatFile {
    /// The present values; `None` if the thread has ended.
    pub fn read(&self) -> Result<Option<Schedstat>, ProcError> {
        let mut buffer = [0; 96];
        let (path, length) = match self {
            SchedstatFile::Open(file) => (Path::new("schedstat"), file.read_at(&mut buffer, 0)),
            SchedstatFile::Path(path) => {
                (path.as_path(), File::open(path).and_then(|mut file| file.read(&mut buffer)))
            }
        };
        let Some(length) = unless_gone(path, length)? else { return Ok(None) };
        parse_schedstat(&buffer[..length]).map(Some).ok_or_else(|| malformed(path, &buffer[..length]))
    }
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name may hold anything, parentheses and spaces too; the last parenthesis ends it.
    let (head, tail) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    // proc_pid_stat(5) counts from 1 and the state is the third field.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name,
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(4)?).ok()?,
        cpu_ticks: number(14)? + number(15)?,
        start_ticks: number(22)?,
        last_pe: u32::try_from(number(39)?).ok()?,
    })
}

fn parse_schedstat(text: &[u8]) -> Option<Schedstat> {
    let mut fields = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    Some(Schedstat { run_ns: fields.next()?.parse().ok()?, wait_ns: fields.next()?.parse().ok()? })
}

fn numbers_in(directory: &Path) -> Result<Option<Vec<u32>>, ProcError> {
    let Some(entries) = unless_gone(directory, std::fs::read_dir(directory))? else { return Ok(None) };
    let mut numbers = Vec::new();
    for entry in entries {
        let Some(entry) = unless_gone(directory, entry)? else { return Ok(None) };
        numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(Some(numbers))
}

/// `None` for what has ended, and for what another user's process hides (`hidepid`): that is not ours.
fn unless_gone<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, ProcError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
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

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let text = "7 (a) b (c) S 5 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 3 0 9001 1 2 3 4 5 6 7 8 9 0 \
                    0 0 0 0 0 17 3 0 0 0 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.name, "a) b (c");
        assert_eq!(
            (stat.state, stat.parent, stat.cpu_ticks, stat.start_ticks, stat.last_pe),
            ('S', 5, 42, 9001, 3)
        );
    }

    #[test]
    fn broken_files_are_named_with_their_content() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("7/task/7")).unwrap();
        std::fs::write(root.path().join("7/task/7/stat"), "7 (x").unwrap();
        let error = Proc::at(root.path()).stat(7, 7).unwrap_err().to_string();
        assert!(error.contains("7/task/7/stat") && error.contains("7 (x"), "{error}");
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
