//! Processes whose first thread has ended.
//!
//! Problem: `main` may end its thread alone (pthread_exit(3)), or a runtime may. The process lives as long as
//! one of its threads does, but `/proc/PID` shows its first thread: a zombie, without executable, arguments,
//! memory, mappings and root. Approach: its other threads have all that in common, and the kernel has a
//! folder of each, also where it lists none (`/proc/TID`). Who asks for something of a process reads it
//! there. Limits: the first thread's mask and times stay as they were at its end.

use super::{Proc, ProcError, Stat};
use std::io;
use std::path::PathBuf;

impl Proc {
    /// Returns the thread whose folder shows what a process has: the first one, or if that has ended another
    /// one that lives.
    pub fn shown_by(&self, pid: u32) -> u32 {
        let lives = |tid: u32| matches!(self.stat(pid, tid), Ok(Some(stat)) if !stat.has_ended());
        let has_ended = matches!(self.stat(pid, pid), Ok(Some(stat)) if stat.is_zombie());
        let others = has_ended.then(|| self.threads(pid).ok().flatten()).flatten().unwrap_or_default();
        others.into_iter().find(|tid| *tid != pid && lives(*tid)).unwrap_or(pid)
    }

    /// Returns the `stat` of a process: that of its first thread, but with the state of a living one. `None`
    /// if there is no such process.
    pub fn process(&self, pid: u32) -> Result<Option<Stat>, ProcError> {
        let Some(first) = self.task(pid)? else { return Ok(None) };
        let shown = if first.is_zombie() { self.shown_by(pid) } else { pid };
        let living = if shown == pid { None } else { self.stat(pid, shown)? };
        Ok(Some(match living {
            Some(living) => Stat { name: first.name, start_ticks: first.start_ticks, ..living },
            None => first,
        }))
    }

    /// Returns the folder that shows what a process has.
    pub(super) fn folder(&self, pid: u32) -> PathBuf {
        self.root.join(self.shown_by(pid).to_string())
    }

    /// Reads something of a process, from the first thread unless that has nothing: most processes are shown
    /// by that one, and looking for it costs as much as reading.
    pub(super) fn of_process<T>(
        &self,
        pid: u32,
        is_nothing: impl Fn(&T) -> bool,
        read: impl Fn(u32) -> io::Result<T>,
    ) -> io::Result<T> {
        match read(pid) {
            Ok(found) if !is_nothing(&found) => Ok(found),
            nothing => match self.shown_by(pid) {
                other if other != pid => read(other),
                _ => nothing,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    const PROGRAM: &str = "#include <pthread.h>\n#include <unistd.h>\n\
        static void *other(void *none) { char byte; read(0, &byte, 1); _exit(0); return none; }\n\
        int main(void) { pthread_t t; pthread_create(&t, 0, other, 0); pthread_exit(0); }\n";

    #[test]
    fn a_process_whose_first_thread_has_ended_is_shown_by_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("leader.c"), folder.path().join("leader"));
        std::fs::write(&source, PROGRAM).unwrap();
        let built = Command::new("cc").arg("-pthread").arg("-o").args([&program, &source]).status();
        assert!(built.unwrap().success());
        let mut child = Command::new(&program).arg("one").stdin(Stdio::piped()).spawn().unwrap();
        let (pid, proc) = (child.id(), Proc::own());
        while !proc.task(pid).unwrap().unwrap().is_zombie() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(std::fs::read_link(format!("/proc/{pid}/exe")).ok(), None, "the kernel shows it no more");
        let task = Task::of(pid).unwrap().unwrap();
        let path = program.display().to_string();
        let shown = |proc: &Proc| {
            let mapped = proc.code_mappings(pid).unwrap();
            let at = mapped.iter().find(|mapping| mapping.path == path).unwrap().start;
            let memory = proc.memory(pid, false).unwrap();
            let mut start = [0; 1];
            memory.read(at, &mut start).unwrap();
            assert!(proc.program_number(pid, &memory).is_ok());
            assert!(proc.mapping_at(pid, at).unwrap().is_some());
            assert!(proc.map_file(pid, at, mapped[0].end).parent().unwrap().exists());
        };
        shown(&proc);
        assert_eq!(proc.program(pid).unwrap(), program);
        assert_eq!(proc.program_name(pid).as_deref(), Some("leader"));
        assert!(proc.program_file(pid).is_ok() && proc.path_in_root(pid, "/proc").exists());
        assert!(proc.arguments(pid).unwrap().ends_with(b"one\0"));
        assert!(proc.environment(pid).unwrap().get("PATH").is_some());
        assert!(proc.code_size(pid).is_some_and(|size| size > 0));
        let own = proc.control_groups(std::process::id()).unwrap();
        assert_eq!(proc.control_groups(pid).unwrap(), own);
        let process = proc.process(pid).unwrap().unwrap();
        assert!(!process.has_ended() && process.start_ticks == task.start && process.stack.is_some());
        assert!(task.lives().unwrap());
        drop(child.stdin.take());
        while task.lives().unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(proc.shown_by(pid), pid);
        child.wait().unwrap();
    }
}
