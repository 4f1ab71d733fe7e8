//! Threads and processes by number and time of start, so that nobody is taken for an earlier owner of a
//! number.

use nix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

/// One thread or process for all time: the kernel gives numbers out again, but not with the same start. (Its
/// clock for that ticks a hundred times a second; in less a number does not come round.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    /// The thread's or process's id.
    pub id: u32,
    /// When it started, in the kernel's clock ticks since boot.
    pub start: u64,
}

/// What `/proc` says of a thread or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// One letter, as in proc_pid_stat(5).
    pub state: char,
    /// The parent process.
    pub parent: u32,
    /// Whether it is a thread of the kernel's.
    pub is_kernels: bool,
    /// Whether it has ended, or has given its memory back to end.
    pub has_ended: bool,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// `PF_EXITING` of the kernel's `sched.h`, a flag of tasks that end.
pub const EXITING: u32 = 0x4;
/// `PF_KTHREAD` of the kernel's `sched.h`, a flag of its own threads.
pub const KERNELS: u32 = 0x0020_0000;

/// What `/proc` says of a thread or process; `None` if it has ended.
pub fn facts(id: u32) -> io::Result<Option<Facts>> {
    facts_in(Path::new("/proc"), id)
}

/// The same, where `/proc` is `proc`.
pub fn facts_in(proc: &Path, id: u32) -> io::Result<Option<Facts>> {
    let path = proc.join(format!("{id}/stat"));
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("{} is malformed", path.display()));
    parse(&String::from_utf8_lossy(&text)).map(Some).ok_or_else(malformed)
}

fn parse(stat: &str) -> Option<Facts> {
    // The name may hold spaces and parentheses; the fields after the last parenthesis are plain.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // proc_pid_stat(5) counts from 1 and the parent is the fourth field.
    let flags: u32 = fields.nth(9 - 5)?.parse().ok()?;
    Some(Facts {
        state,
        parent,
        is_kernels: flags & KERNELS != 0,
        has_ended: matches!(state, 'Z' | 'X') || flags & EXITING != 0,
        start: fields.nth(22 - 10)?.parse().ok()?,
    })
}

impl Task {
    /// Who has this number now; `None` if nobody.
    pub fn of(id: u32) -> io::Result<Option<Task>> {
        Ok(facts(id)?.map(|facts| Task { id, start: facts.start }))
    }

    /// This process.
    pub fn own() -> io::Result<Task> {
        Task::of(std::process::id())?.ok_or_else(|| io::Error::other("/proc does not show this process"))
    }

    /// Whether it has not ended. A process that only waits to be asked for its status has.
    pub fn lives(self) -> io::Result<bool> {
        Ok(self.state()?.is_some())
    }

    /// Its state; `None` if it has ended.
    pub fn state(self) -> io::Result<Option<char>> {
        let facts = facts(self.id)?.filter(|facts| facts.start == self.start);
        Ok(facts.map(|facts| facts.state).filter(|state| !matches!(state, 'Z' | 'X')))
    }
}

/// The present as a time of start.
pub fn now() -> u64 {
    let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux has CLOCK_BOOTTIME");
    let ticks_per_second =
        nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    (std::time::Duration::from(since_boot).as_nanos() * ticks_per_second as u128 / 1_000_000_000) as u64
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.start)
    }
}

impl FromStr for Task {
    type Err = ();

    fn from_str(text: &str) -> Result<Task, ()> {
        let (id, start) = text.split_once('@').ok_or(())?;
        Ok(Task { id: id.parse().map_err(drop)?, start: start.parse().map_err(drop)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_told_by_its_start() {
        let own = Task::own().unwrap();
        assert!(own.lives().unwrap() && own.start <= now());
        assert!(!Task { start: own.start + 1, ..own }.lives().unwrap());
        assert_eq!(Task::of(u32::MAX / 2).unwrap(), None);
        assert_eq!(own.to_string().parse(), Ok(own));
        for cut in ["", "8", "8@", "@9", "x@9"] {
            assert_eq!(cut.parse::<Task>(), Err(()), "{cut}");
        }
    }

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let stat = "7 (a) b (c) T 5 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 3 0 9001 1 2 3";
        let facts = Facts { state: 'T', parent: 5, is_kernels: false, has_ended: false, start: 9001 };
        assert_eq!(parse(stat), Some(facts));
        assert_eq!(parse("7 (x"), None);
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let task = Task::of(child.id()).unwrap().unwrap();
        while facts(child.id()).unwrap().is_some_and(|facts| facts.state != 'Z') {
            std::thread::yield_now();
        }
        assert!(!task.lives().unwrap());
        child.wait().unwrap();
    }
}
