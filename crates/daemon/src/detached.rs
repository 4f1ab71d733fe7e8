//! The processes that clients have detached, and those that they have attached again.
//!
//! What a process starts is treated as it is at that moment, so that a whole tree stays detached when its
//! first process has ended. Each decision is kept with the start time of its process: the kernel uses IDs
//! again.

use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use std::collections::HashMap;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Detached {
    /// By process: its start time, and whether it is detached.
    decided: HashMap<u32, (u64, bool)>,
}

impl Detached {
    /// Decides about processes, whatever was decided before.
    pub fn decide(&mut self, processes: &[Task], is_detached: bool) {
        let start_of = |pid| Task::of(pid).ok().flatten().map(|task| task.start);
        self.decided.retain(|pid, (start, _)| start_of(*pid) == Some(*start));
        self.decided.extend(processes.iter().map(|task| (task.id, (task.start, is_detached))));
    }

    /// Returns whether a process is detached. What is asked for the first time is treated as the nearest
    /// process above it of which that is known.
    pub fn has(&mut self, pid: u32) -> bool {
        if self.decided.is_empty() {
            return false;
        }
        let proc = Proc::own();
        let Ok(Some(stat)) = proc.stat(pid, pid) else { return false };
        let (mut id, mut start, mut parent) = (pid, stat.start_ticks, stat.parent);
        let is_detached = loop {
            if let Some((known, is_detached)) = self.decided.get(&id)
                && *known == start
            {
                break *is_detached;
            }
            // Nothing is above the first process.
            let Ok(Some(above)) = proc.stat(parent, parent) else { break false };
            (id, start, parent) = (parent, above.start_ticks, above.parent);
        };
        self.decided.insert(pid, (stat.start_ticks, is_detached));
        is_detached
    }

    /// Forgets a process if it has ended. (Its first thread may have ended before the others.)
    pub fn forget(&mut self, pid: u32) {
        let has_threads = || Proc::own().threads(pid).ok().flatten().is_some_and(|threads| threads.len() > 1);
        let lives = || Task::of(pid).ok().flatten().is_some_and(|task| task.lives().unwrap_or(false));
        if self.decided.contains_key(&pid) && !lives() && !has_threads() {
            self.decided.remove(&pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> (Child, Task) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let task = Task::of(child.id()).unwrap().unwrap();
        (child, task)
    }

    #[test]
    fn a_process_is_detached_with_what_is_above_it_although_its_parent_was_never_asked_for() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let below: u32 = line.trim().parse().unwrap();
        let mut detached = Detached::default();
        detached.decide(&[Task::own().unwrap()], true);
        let is_detached = detached.has(below);
        kill(Pid::from_raw(below as i32), Signal::SIGKILL).unwrap();
        shell.wait().unwrap();
        assert!(is_detached);
    }

    #[test]
    fn a_process_is_treated_as_its_parent_until_it_is_named_itself_and_is_forgotten_at_its_end() {
        let mut detached = Detached::default();
        let own = Task::own().unwrap();
        let (mut child, task) = sleeper();
        assert!(!detached.has(task.id));
        detached.decide(&[own], true);
        assert!(detached.has(own.id) && detached.has(task.id));
        detached.decide(&[task], false);
        assert!(detached.has(own.id) && !detached.has(task.id), "it is named itself");
        detached.forget(task.id);
        assert!(!detached.has(task.id), "it has executed another program, and still is who it was");
        child.kill().unwrap();
        child.wait().unwrap();
        detached.forget(task.id);
        assert_eq!(detached.decided.keys().collect::<Vec<_>>(), [&own.id]);
        detached.decided.insert(own.id, (own.start + 1, true));
        assert!(!detached.has(own.id), "that was another process");
    }
}
