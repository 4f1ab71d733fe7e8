//! Who belongs to a run: the threads that may have inherited a mask of corewise's.
//!
//! Two sources: the kernel's own list, where the BPF programs follow every fork
//! ([`crate::discovery::followed`]), and, for everybody, parentage in `/proc`. A process whose parent has
//! ended says in its environment whose it is. Limit of the second source: an orphan that has cleared its
//! environment and was not met before.

use super::task;
use crate::environment::started_by;
use std::collections::{HashMap, HashSet};
use std::io;

/// A source of the threads of a run.
pub trait Kin {
    /// All that live now.
    fn roll(&mut self) -> io::Result<Roll>;
}

/// The threads of a run at one moment.
#[derive(Debug, Default)]
pub struct Roll {
    /// Their numbers, the latest first: a chain of processes that each start the next and end is caught at
    /// its end.
    pub threads: Vec<u32>,
    /// Whether a process ended before it was known whose it was. It may have left another behind.
    pub missed: bool,
}

/// By parents and environments in `/proc`.
pub struct ByParentage<'a> {
    /// Processes that are known to belong to it, with their starts.
    members: &'a HashMap<u32, u64>,
    /// What was found out of other processes.
    known: HashMap<u32, bool>,
    /// Processes that had ended when they were met, and wait to be asked for their status.
    dead: HashSet<(u32, u64)>,
}

impl<'a> ByParentage<'a> {
    /// The members and everything that descends from them or was started by them.
    pub fn new(members: &'a HashMap<u32, u64>) -> Self {
        Self { members, known: HashMap::new(), dead: HashSet::new() }
    }

    /// Whether a process belongs to the run; `None` if it has ended.
    fn belongs(&mut self, pid: u32) -> io::Result<Option<bool>> {
        let mut line = Vec::new();
        let mut above = pid;
        let answer = loop {
            if let Some(&known) = self.known.get(&above) {
                break Some(known);
            }
            let facts = match task::facts(above) {
                Ok(Some(facts)) => facts,
                Ok(None) => break None,
                // Hidden, as another user's: a process of ours is not, but for what it has become.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break Some(false),
                Err(error) => return Err(error),
            };
            // An ended orphan has no environment any more that would say whose it was, and may have left a
            // child that is in no list yet: missed, once.
            let is_dead_orphan = above == pid && facts.parent == 1 && matches!(facts.state, 'Z' | 'X');
            if is_dead_orphan && self.dead.insert((pid, facts.start)) {
                break None;
            }
            line.push(above);
            let is_member = |id: u32, start: u64| self.members.get(&id) == Some(&start);
            let started_by_member =
                |by: u32| self.members.get(&by).is_some_and(|&start| start <= facts.start);
            if is_member(above, facts.start) || started_by(above).is_some_and(started_by_member) {
                break Some(true);
            }
            if facts.parent == 0 || line.contains(&facts.parent) {
                break Some(false);
            }
            above = facts.parent;
        };
        if let Some(answer) = answer {
            self.known.extend(line.into_iter().map(|pid| (pid, answer)));
        }
        Ok(answer)
    }
}

impl Kin for ByParentage<'_> {
    fn roll(&mut self) -> io::Result<Roll> {
        let mut pids: Vec<u32> = numbers_in("/proc")?.unwrap_or_default();
        pids.sort_unstable_by(|a, b| b.cmp(a));
        let listed: HashSet<u32> = pids.iter().copied().collect();
        self.known.retain(|pid, _| listed.contains(pid));
        let mut roll = Roll::default();
        for pid in pids {
            match self.belongs(pid)? {
                Some(true) => match numbers_in(&format!("/proc/{pid}/task"))? {
                    Some(threads) => roll.threads.extend(threads.into_iter().rev()),
                    None => roll.missed = true,
                },
                Some(false) => {}
                None => roll.missed = true,
            }
        }
        Ok(roll)
    }
}

/// `None` for the directory of a process that has ended, or is hidden.
fn numbers_in(directory: &str) -> io::Result<Option<Vec<u32>>> {
    let gone = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
            || error.raw_os_error() == Some(libc::ESRCH)
    };
    let mut numbers = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    for entry in entries {
        match entry {
            Ok(entry) => numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())),
            Err(error) if gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(numbers))
}

#[cfg(test)]
mod tests {
    use super::super::task::Task;
    use super::*;
    use std::process::Command;

    fn belongs(members: &[Task], pid: u32) -> bool {
        let members = members.iter().map(|task| (task.id, task.start)).collect();
        ByParentage::new(&members).roll().unwrap().threads.contains(&pid)
    }

    #[test]
    fn a_run_is_what_descends_from_its_members_and_not_from_later_owners_of_their_numbers() {
        let own = Task::own().unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(belongs(&[own], pid) && belongs(&[own], own.id));
        assert!(!belongs(&[Task { start: own.start - 1, ..own }], pid), "an earlier owner of our number");
        assert!(!belongs(&[], pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_orphan_is_known_by_its_environment_if_it_started_after_its_corewise() {
        let ended = Task { id: u32::MAX / 2, start: task::now() };
        let mut child =
            Command::new("sleep").arg("60").env("COREWISE_PID", ended.id.to_string()).spawn().unwrap();
        let pid = child.id();
        // Until it has become `sleep`, it has our environment.
        while started_by(pid) != Some(ended.id) {
            std::thread::yield_now();
        }
        assert!(belongs(&[ended], pid));
        assert!(!belongs(&[Task { start: ended.start + 1_000, ..ended }], pid), "an earlier run's orphan");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
