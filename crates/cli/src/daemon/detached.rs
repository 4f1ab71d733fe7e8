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
        let known = |task: Task| self.decided.get(&task.id).is_some_and(|(start, _)| *start == task.start);
        let kept: Vec<u32> = self
            .decided
            .keys()
            .copied()
            .filter(|pid| Task::of(*pid).ok().flatten().is_some_and(known))
            .collect();
        self.decided.retain(|pid, _| kept.contains(pid));
        self.decided.extend(processes.iter().map(|task| (task.id, (task.start, is_detached))));
    }

    /// Returns whether a process is detached. What is asked for the first time is treated as its parent.
    pub fn has(&mut self, pid: u32) -> bool {
        if self.decided.is_empty() {
            return false;
        }
        let Ok(Some(stat)) = Proc::own().stat(pid, pid) else { return false };
        if let Some((start, is_detached)) = self.decided.get(&pid)
            && *start == stat.start_ticks
        {
            return *is_detached;
        }
        let parent = Task::of(stat.parent).ok().flatten();
        let inherits = parent.and_then(|parent| Some((parent, self.decided.get(&parent.id)?)));
        let is_detached = inherits.is_some_and(|(parent, (start, is))| *start == parent.start && *is);
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
    use std::process::{Child, Command};

    fn sleeper() -> (Child, Task) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let task = Task::of(child.id()).unwrap().unwrap();
        (child, task)
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
