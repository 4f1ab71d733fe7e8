//! Nice levels: of any thread, and of corewise's own threads for work that must take hardly any time from
//! others on the PE.

use nix::errno::Errno;
use nix::unistd::gettid;

const LOWEST: i32 = 19;

/// The nice level of a thread, which can be lowered and raised again.
#[derive(Debug, Clone, Copy)]
pub struct Niceness {
    tid: i32,
    own: i32,
}

impl Niceness {
    /// Returns that of this thread; `None` if it could not be raised again (no CAP_SYS_NICE, and no limit
    /// that permits it), which is tried in another thread.
    pub fn of_this_thread() -> Option<Niceness> {
        let tid = gettid().as_raw();
        let own = level_of(tid as u32).ok()?;
        let returns = move || set(0, LOWEST).and_then(|()| set(0, own)).is_ok();
        let returns = std::thread::Builder::new().spawn(returns).ok()?.join().unwrap_or(false);
        returns.then_some(Niceness { tid, own })
    }

    /// Sets the lowest priority.
    pub fn lower(&self) {
        // A failure is harmless.
        let _ = set(self.tid, LOWEST);
    }

    /// Restores the original level.
    pub fn raise(&self) {
        let _ = set(self.tid, self.own);
    }
}

/// Returns the nice level of a thread.
pub fn level_of(tid: u32) -> Result<i32, Errno> {
    Errno::clear();
    // SAFETY: the call takes no pointer.
    match (unsafe { libc::getpriority(libc::PRIO_PROCESS, tid as libc::id_t) }, Errno::last()) {
        // -1 is also a valid level.
        (-1, errno) if errno != Errno::from_raw(0) => Err(errno),
        (level, _) => Ok(level),
    }
}

fn set(tid: i32, level: i32) -> Result<(), Errno> {
    // SAFETY: the call takes no pointer.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, level) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileged::{SYS_NICE, effective};
    use crate::proc::Proc;

    #[test]
    fn a_thread_is_raised_to_where_it_was_and_is_not_lowered_where_it_could_not_be() {
        let found = std::thread::spawn(|| {
            let own = level_of(0).unwrap();
            let niceness = Niceness::of_this_thread();
            let levels = niceness.map(|niceness| {
                niceness.lower();
                let lowered = level_of(0).unwrap();
                std::thread::spawn(move || niceness.raise()).join().unwrap();
                (lowered, level_of(0).unwrap())
            });
            (own, levels)
        });
        let (own, levels) = found.join().unwrap();
        if effective(&Proc::own()) & SYS_NICE != 0 {
            assert!(levels.is_some(), "a process that may raise may lower");
        }
        assert_eq!(levels.unwrap_or((LOWEST, own)), (LOWEST, own));
    }
}
