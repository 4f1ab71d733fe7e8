//! Threads and processes identified by ID and start time, so that a reused ID is not mistaken for the earlier
//! thread.

use crate::proc::{Proc, ProcError, Stat};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io;
use std::str::FromStr;

/// One thread or process for all time: the kernel reuses IDs, but not with the same start time. (Its clock
/// for that ticks a hundred times a second; IDs do not wrap around within a tick.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Task {
    /// The ID of the thread or process.
    pub id: u32,
    /// Its start time, in the kernel's clock ticks since boot.
    pub start: u64,
}

impl Task {
    /// Returns the task that has this ID now; `None` if there is none.
    pub fn of(id: u32) -> Result<Option<Task>, ProcError> {
        Ok(Proc::own().task(id)?.map(|stat| Task { id, start: stat.start_ticks }))
    }

    /// Returns this process.
    pub fn own() -> io::Result<Task> {
        Task::of(std::process::id())?.ok_or_else(|| io::Error::other("/proc does not show this process"))
    }

    /// Returns whether it has not ended: of a process, whether any of its threads lives. One that only waits
    /// for its parent to read its status has ended.
    pub fn lives(self) -> Result<bool, ProcError> {
        let is_it = |stat: &Stat| stat.start_ticks == self.start && !stat.is_zombie();
        Ok(Proc::own().process(self.id)?.is_some_and(|stat| is_it(&stat)))
    }

    /// Returns its state; `None` if it has ended.
    pub fn state(self) -> Result<Option<char>, ProcError> {
        let is_it = |stat: &Stat| stat.start_ticks == self.start && !stat.is_zombie();
        Ok(Proc::own().task(self.id)?.filter(is_it).map(|stat| stat.state))
    }

    /// Returns whether it lives but has been killed: on a busy machine it takes a while to end.
    pub fn is_dying(self) -> Result<bool, ProcError> {
        let proc = Proc::own();
        let Some(stat) = proc.task(self.id)?.filter(|stat| stat.start_ticks == self.start) else {
            return Ok(false);
        };
        let Some(status) = proc.status(self.id)? else { return Ok(false) };
        let pending = ["SigPnd", "ShdPnd"].into_iter().filter_map(|name| status.bits(name));
        let is_killed = pending.fold(0, |all, set| all | set) >> (Signal::SIGKILL as u32 - 1) & 1 != 0;
        Ok(!stat.is_zombie() && (is_killed || stat.has_ended()))
    }
}

/// Returns the present as a start time.
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
    fn a_task_is_identified_by_its_start() {
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
    fn a_killed_process_is_dying_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let task = Task::of(child.id()).unwrap().unwrap();
        assert!(!task.is_dying().unwrap() && task.lives().unwrap());
        child.kill().unwrap();
        while task.is_dying().unwrap() {
            std::thread::yield_now();
        }
        assert!(!task.lives().unwrap());
        child.wait().unwrap();
        assert!(!Task { start: task.start + 1, ..task }.is_dying().unwrap());
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let task = Task::of(child.id()).unwrap().unwrap();
        while Proc::own().task(child.id()).unwrap().is_some_and(|stat| !stat.is_zombie()) {
            std::thread::yield_now();
        }
        assert!(!task.lives().unwrap());
        child.wait().unwrap();
    }
}
