//! The threads of a run, which may have inherited a mask or a scheduling policy from corewise.
//!
//! There are two sources: the kernel's list, if BPF programs follow every fork
//! ([`corewise_discovery::followed`]), and otherwise the parents in `/proc`. A process whose parent has ended
//! has a variable in its environment that names its run. The environment is missing while a process executes
//! another program, and when it ends: its membership is unknown then, and it is checked again at the next
//! pass. Limit of the second source: an orphan that has cleared its environment and was not met before is
//! missed.

use corewise_discovery::followed::Followed;
use corewise_sys::environment::started_by;
use corewise_sys::proc::{Proc, Stat};
use corewise_sys::shortage::unless_short;
use std::collections::{HashMap, HashSet};
use std::io;

/// A source of the threads of a run.
pub trait Members {
    /// Calls `see` for every thread that lives now, the latest first and each as soon as it is known, to
    /// catch the end of a chain of processes that each start the next and end. Returns whether a thread ended
    /// before it was seen, which may have left another one behind.
    fn look(&mut self, see: &mut dyn FnMut(u32, Membership) -> io::Result<()>) -> io::Result<bool>;
}

/// Whether a thread belongs to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// It belongs to the run.
    Yes,
    /// It cannot be determined now.
    Unknown,
}

/// Returns the processes that live now and descend from these or were started by them.
pub fn living(members: &HashMap<u32, u64>) -> Vec<u32> {
    let mut by_parentage = ByParentage::new(members);
    let pids = by_parentage.proc.processes().unwrap_or_default();
    let lives =
        |pid: &u32| Proc::own().process(*pid).is_ok_and(|stat| stat.is_some_and(|stat| !stat.has_ended()));
    let belongs = |pid: &u32| matches!(by_parentage.belongs(*pid), Ok(Some(true)));
    pids.into_iter().filter(lives).filter(belongs).collect()
}

/// Members found by parents and environments in `/proc`.
pub struct ByParentage<'a> {
    proc: Proc,
    /// Known members, with their start times.
    members: &'a HashMap<u32, u64>,
    /// The membership of other processes, where it was determined.
    known: HashMap<u32, bool>,
    /// Processes that had ended when they were met.
    ended: HashSet<(u32, u64)>,
}

impl<'a> ByParentage<'a> {
    /// Searches the members, everything that descends from them, and everything that was started by them.
    pub fn new(members: &'a HashMap<u32, u64>) -> Self {
        Self::at(Proc::own(), members)
    }

    fn at(proc: Proc, members: &'a HashMap<u32, u64>) -> Self {
        Self { proc, members, known: HashMap::new(), ended: HashSet::new() }
    }

    /// Returns whether a process belongs to the run; `None` if this cannot be determined, because it has
    /// ended or has no environment at present. Environments are read last: they are memory of foreign
    /// programs, which can delay that.
    fn belongs(&mut self, pid: u32) -> io::Result<Option<bool>> {
        let mut line: Vec<(u32, Stat)> = Vec::new();
        let mut above = pid;
        let by_parents = loop {
            if let Some(&known) = self.known.get(&above) {
                break known;
            }
            let stat = match self.proc.process(above) {
                Ok(Some(stat)) => stat,
                Ok(None) => return Ok(None),
                // Hidden, as another user's process: it is not ours, except for programs with another user's
                // rights.
                Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => break false,
                Err(error) => return Err(error.into()),
            };
            let (is_member, parent) = (self.members.get(&above) == Some(&stat.start_ticks), stat.parent);
            line.push((above, stat));
            if is_member || parent == 0 || line.iter().any(|(known, _)| *known == parent) {
                break is_member;
            }
            above = parent;
        };
        let (mut belongs, mut unknown) = (by_parents, false);
        for (pid, stat) in &line {
            belongs = belongs || self.is_started_by_member(*pid, stat)?;
        }
        // Each is asked, as that an ended one was seen is noted.
        for (pid, stat) in line.iter().filter(|_| !belongs) {
            unknown |= self.lacks_environment(*pid, stat)?;
        }
        if unknown {
            return Ok(None);
        }
        self.known.extend(line.into_iter().map(|(pid, _)| (pid, belongs)));
        Ok(Some(belongs))
    }

    fn is_started_by_member(&self, pid: u32, stat: &Stat) -> io::Result<bool> {
        let by = started_by(&self.proc, pid)?.and_then(|by| self.members.get(&by));
        Ok(by.is_some_and(|&start| start <= stat.start_ticks))
    }

    /// Returns whether the environment is missing rather than without our variable: the process is executing
    /// another program (it then has no arguments either), or has ended. For an ended process `true` is
    /// returned only once, as it does not change.
    fn lacks_environment(&mut self, pid: u32, stat: &Stat) -> io::Result<bool> {
        if stat.has_ended() {
            return Ok(self.ended.insert((pid, stat.start_ticks)));
        }
        let arguments = unless_short(self.proc.arguments(pid))?;
        Ok(!stat.is_kernel_thread() && arguments.is_some_and(|arguments| arguments.is_empty()))
    }
}

impl Members for ByParentage<'_> {
    fn look(&mut self, see: &mut dyn FnMut(u32, Membership) -> io::Result<()>) -> io::Result<bool> {
        let pids = self.proc.latest_first()?;
        let listed: HashSet<u32> = pids.iter().copied().collect();
        self.known.retain(|pid, _| listed.contains(pid));
        let mut missed = false;
        for pid in pids {
            let belongs = match self.belongs(pid)? {
                Some(true) => Membership::Yes,
                Some(false) => continue,
                None => Membership::Unknown,
            };
            match self.proc.threads(pid)? {
                Some(threads) => threads.into_iter().rev().try_for_each(|tid| see(tid, belongs))?,
                None => missed = true,
            }
        }
        Ok(missed)
    }
}

impl Members for Followed {
    fn look(&mut self, see: &mut dyn FnMut(u32, Membership) -> io::Result<()>) -> io::Result<bool> {
        self.living()?.into_iter().try_for_each(|tid| see(tid, Membership::Yes)).map(|()| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_sys::proc::{EXITING, KERNELS};
    use corewise_sys::task::{self, Task};
    use std::process::Command;

    fn seen(members: &mut ByParentage) -> (Vec<(u32, Membership)>, bool) {
        let mut seen = Vec::new();
        let see = &mut |tid, belongs| {
            seen.push((tid, belongs));
            Ok(())
        };
        let missed = members.look(see).unwrap();
        (seen, missed)
    }

    fn belongs(members: &[Task], pid: u32) -> bool {
        let members = members.iter().map(|task| (task.id, task.start)).collect();
        seen(&mut ByParentage::new(&members)).0.contains(&(pid, Membership::Yes))
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
        while started_by(&Proc::own(), pid).unwrap() != Some(ended.id) {
            std::thread::yield_now();
        }
        assert!(belongs(&[ended], pid));
        assert!(!belongs(&[Task { start: ended.start + 1_000, ..ended }], pid), "an earlier run's orphan");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A `/proc` of the test's own.
    struct Made(tempfile::TempDir);

    impl Made {
        fn new() -> Made {
            let made = Made(tempfile::tempdir().unwrap());
            std::fs::write(made.0.path().join("loadavg"), "0.1 0.1 0.1 1/99 50\n").unwrap();
            made.process(1, 'S', 0, 0, "init", "HOME=/");
            made
        }

        fn process(&self, pid: u32, state: char, parent: u32, flags: u32, arguments: &str, environ: &str) {
            let directory = self.0.path().join(pid.to_string());
            std::fs::create_dir_all(directory.join(format!("task/{pid}"))).unwrap();
            let zeros = "0 ".repeat(17);
            let stat =
                format!("{pid} (x) {state} {parent} 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 9 {zeros}");
            let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
            write(&format!("task/{pid}/stat"), &stat);
            write("cmdline", arguments);
            write("environ", environ);
        }
    }

    /// corewise, which was killed, has the ID 7. Its orphan was met while it executed another program.
    #[test]
    fn an_orphan_without_environment_is_asked_again() {
        let proc = Made::new();
        let members = HashMap::from([(7, 5)]);
        let mut members = ByParentage::at(Proc::at(proc.0.path()), &members);
        proc.process(40, 'R', 1, 0, "", "");
        for _ in 0..2 {
            assert_eq!(seen(&mut members), (vec![(40, Membership::Unknown)], false));
        }
        // So is what it has started meanwhile.
        proc.process(41, 'R', 40, 0, "sh", "");
        assert_eq!(seen(&mut members).0, [(41, Membership::Unknown), (40, Membership::Unknown)]);
        proc.process(40, 'R', 1, 0, "sleep", "COREWISE_PID=7");
        assert_eq!(seen(&mut members).0, [(41, Membership::Yes), (40, Membership::Yes)]);
    }

    #[test]
    fn a_process_that_has_ended_may_have_belonged_and_threads_of_the_kernel_never_do() {
        let proc = Made::new();
        let members = HashMap::from([(7, 5)]);
        let mut members = ByParentage::at(Proc::at(proc.0.path()), &members);
        proc.process(30, 'S', 0, KERNELS, "", "");
        proc.process(40, 'Z', 1, 0, "", "");
        proc.process(41, 'R', 1, EXITING, "", "");
        proc.process(42, 'S', 1, 0, "sleep", "");
        assert_eq!(seen(&mut members), (vec![(41, Membership::Unknown), (40, Membership::Unknown)], false));
        assert_eq!(seen(&mut members), (vec![], false), "once");
        // Gone between the listing and the read.
        std::fs::create_dir(proc.0.path().join("43")).unwrap();
        assert_eq!(seen(&mut members), (vec![], true));
    }

    #[test]
    fn the_latest_come_first_also_where_numbers_have_come_round() {
        let proc = Made::new();
        let members = HashMap::from([(1, 9)]);
        for pid in [49, 50, 51, 30_000] {
            proc.process(pid, 'S', 1, 0, "sleep", "");
        }
        let order: Vec<u32> = seen(&mut ByParentage::at(Proc::at(proc.0.path()), &members))
            .0
            .into_iter()
            .map(|(tid, _)| tid)
            .collect();
        assert_eq!(order, [50, 49, 1, 30_000, 51]);
    }
}
