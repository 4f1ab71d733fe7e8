//! The programs that processes run, read once for each, and again after the process has executed another one.

use corewise_core::ids::ThreadId;
use corewise_core::observe::Program;
use corewise_sys::proc::Proc;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The programs of processes that are known, and those that are to be reported.
#[derive(Debug)]
pub struct Programs {
    proc: Proc,
    /// The name that the first thread of each process had when its program was read, and the program: sources
    /// that do not see what is executed show that by the name, but a program may also give itself another
    /// one.
    read_as: HashMap<ThreadId, (Arc<str>, Option<Arc<str>>)>,
    news: Vec<Program>,
}

impl Programs {
    /// Knows no process yet.
    pub fn new(proc: Proc) -> Programs {
        Programs { proc, read_as: HashMap::new(), news: Vec::new() }
    }

    /// Reads the program of a living process whose first thread has this name, unless that was done before.
    pub fn look(&mut self, leader: ThreadId, name: &Arc<str>) {
        if self.read_as.get(&leader).is_some_and(|(read_as, _)| read_as == name) {
            return;
        }
        let program = self.proc.program_name(leader.tid).map(Arc::from);
        let before = self.read_as.insert(leader, (name.clone(), program.clone())).and_then(|(_, of)| of);
        let is_new = program.filter(|program| Some(program) != before.as_ref());
        self.news.extend(is_new.map(|name| Program { leader, name }));
    }

    /// Reads the program of a process again when it is looked at next, as it has executed another one.
    pub fn forget(&mut self, pid: u32) {
        self.read_as.retain(|leader, _| leader.tid != pid);
    }

    /// Forgets all other processes than these.
    pub fn retain(&mut self, processes: &HashSet<u32>) {
        self.read_as.retain(|leader, _| processes.contains(&leader.tid));
    }

    /// Returns what was read since the last call.
    pub fn take(&mut self) -> Vec<Program> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_once_until_the_process_executes_another() {
        let root = tempfile::tempdir().unwrap();
        let write = |line: &str| {
            std::fs::create_dir_all(root.path().join("7")).unwrap();
            std::fs::write(root.path().join("7/cmdline"), line).unwrap();
        };
        let mut programs = Programs::new(Proc::at(root.path()));
        let leader = ThreadId { tid: 7, generation: 0 };
        let mut look = |name: &str| {
            programs.look(leader, &name.into());
            programs.take().into_iter().map(|program| program.name.to_string()).collect::<Vec<_>>()
        };
        write("sh\0job.sh\0");
        assert_eq!(look("sh"), ["job.sh"]);
        assert!(look("sh").is_empty());
        write("python3\0train.py\0");
        assert_eq!(look("python3"), ["train.py"]);
        assert!(look("a name of its own").is_empty(), "it is the same program");
        write("python3\0eval.py\0");
        programs.forget(7);
        let mut look = |name: &str| {
            programs.look(leader, &name.into());
            programs.take().into_iter().map(|program| program.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(look("a name of its own"), ["eval.py"], "of the same interpreter");
        write("");
        assert!(look("other").is_empty(), "it has ended");
    }
}
