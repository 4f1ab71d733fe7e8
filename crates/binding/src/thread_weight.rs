//! The weight of a thread, its share of a PE that others want, too: changed by its nice level or its policy.
//!
//! Each nice level is a factor of 1.25 (sched(7)). A thread that is `SCHED_IDLE` gets what all others leave
//! over.

use super::act_token::ActToken;
use super::sched_policy::{self, NORMAL};
use corewise_sys::niceness;
use corewise_sys::privileged;
use corewise_sys::proc::Proc;
use nix::errno::Errno;
use std::fmt;
use std::ptr;

/// The nice levels with the largest and the smallest share.
const MOST: i32 = -20;
const LEAST: i32 = 19;

/// The factor of a nice level.
const FACTOR: f64 = 1.25;

/// How a thread's weight is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightChange {
    /// Another nice level.
    Nice {
        /// Its level before corewise changed it.
        original: i32,
        /// The level that it gets.
        ours: i32,
    },
    /// `SCHED_IDLE` instead of the normal policy.
    Idle,
}

/// What a thread has of a weight now.
#[derive(Debug, Clone, Copy)]
pub struct Present {
    level: i32,
    policy: i32,
}

impl Present {
    /// Returns that of a thread.
    pub fn of(tid: u32) -> Result<Present, Errno> {
        Ok(Present { level: niceness::level_of(tid)?, policy: sched_policy::of(tid)? })
    }
}

impl WeightChange {
    /// Returns the change that gives a thread of this nice level so many percent of its weight.
    pub fn percent(original: i32, percent: u32) -> WeightChange {
        let levels = (f64::from(percent) / 100.0).ln() / FACTOR.ln();
        let ours = (f64::from(original) - levels).round().clamp(f64::from(MOST), f64::from(LEAST)) as i32;
        WeightChange::Nice { original, ours }
    }

    /// Returns whether a thread is as this change makes it.
    pub fn is_in_force(&self, tid: u32) -> Result<bool, Errno> {
        Present::of(tid).map(|present| self.is_in_force_at(present))
    }

    /// The same of a thread that has this.
    pub fn is_in_force_at(&self, present: Present) -> bool {
        match *self {
            WeightChange::Nice { ours, .. } => present.level == ours,
            WeightChange::Idle => present.policy == libc::SCHED_IDLE,
        }
    }

    /// Returns whether this process may undo the change of a thread of this nice level. To lower a level, and
    /// to end `SCHED_IDLE`, takes CAP_SYS_NICE, or a limit of the thread (RLIMIT_NICE) that allows its level.
    pub fn can_be_undone(&self, tid: u32, is_capable: bool) -> bool {
        let level = match *self {
            WeightChange::Nice { original, ours } if original >= ours => return true,
            WeightChange::Nice { original, .. } => original,
            WeightChange::Idle => niceness::level_of(tid).unwrap_or(MOST),
        };
        is_capable || nice_limit(tid).is_some_and(|limit| permits(limit, level))
    }

    /// Makes the change.
    pub fn make(&self, token: &ActToken, tid: u32) -> Result<(), Errno> {
        match *self {
            WeightChange::Nice { ours, .. } => set_nice(tid, ours),
            WeightChange::Idle => sched_policy::set(token, tid, libc::SCHED_IDLE),
        }
    }

    /// Undoes the change.
    pub fn undo(&self, token: &ActToken, tid: u32) -> Result<(), Errno> {
        match *self {
            WeightChange::Nice { original, .. } => set_nice(tid, original),
            WeightChange::Idle => sched_policy::set(token, tid, NORMAL),
        }
    }
}

/// Returns whether this process may lower all nice levels.
pub fn may_lower_all() -> bool {
    // The kernel also asks whether the capability holds outside of this user namespace: a thread tries it.
    let can_lower = || std::thread::spawn(|| set_nice(0, MOST).is_ok()).join().unwrap_or(false);
    privileged::effective(&Proc::own()) & privileged::SYS_NICE != 0 && can_lower()
}

fn set_nice(tid: u32, level: i32) -> Result<(), Errno> {
    // SAFETY: the call takes no pointer.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, level) }).map(drop)
}

/// Returns whether an RLIMIT_NICE permits a level: 1 stands for the level 19, 40 for -20 (getrlimit(2)).
fn permits(limit: libc::rlim_t, level: i32) -> bool {
    limit >= (LEAST + 1 - level) as libc::rlim_t
}

/// Returns a thread's RLIMIT_NICE; `None` if it cannot be read.
fn nice_limit(tid: u32) -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to the limit, which lives through the call, and reads none.
    let result = unsafe { libc::prlimit(tid as libc::pid_t, libc::RLIMIT_NICE, ptr::null(), &mut limit) };
    Errno::result(result).ok().map(|_| limit.rlim_cur)
}

impl fmt::Display for WeightChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WeightChange::Nice { original, ours } => write!(f, "nice {original} {ours}"),
            WeightChange::Idle => f.write_str("idle"),
        }
    }
}

impl WeightChange {
    /// Parses the output of [`Display`](fmt::Display), word by word.
    pub fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<WeightChange> {
        match words.next()? {
            "nice" => {
                let mut level = || words.next()?.parse().ok().filter(|level| (MOST..=LEAST).contains(level));
                Some(WeightChange::Nice { original: level()?, ours: level()? })
            }
            "idle" => Some(WeightChange::Idle),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_the_nearest_nice_level() {
        let level = |original, percent| match WeightChange::percent(original, percent) {
            WeightChange::Nice { ours, .. } => ours,
            WeightChange::Idle => unreachable!("a percentage is no policy"),
        };
        assert_eq!(
            [100, 125, 200, 2842, 80, 50, 7].map(|percent| level(0, percent)),
            [0, -1, -3, -15, 1, 3, 12]
        );
        assert_eq!((level(5, 200), level(5, 100)), (2, 5), "its user has chosen the level that is 100 %");
        assert_eq!((level(-19, 200), level(0, 0), level(0, u32::MAX)), (MOST, LEAST, MOST));
    }

    #[test]
    fn a_limit_permits_the_levels_from_its_own_up() {
        assert_eq!([1, 20, 21, 40].map(|limit| permits(limit, 0)), [false, true, true, true]);
        assert!(permits(1, LEAST) && !permits(0, LEAST) && permits(40, MOST) && !permits(39, MOST));
    }

    #[test]
    fn a_change_is_as_it_was_after_the_journal() {
        for change in [WeightChange::Idle, WeightChange::Nice { original: 19, ours: -20 }] {
            assert_eq!(WeightChange::parse(change.to_string().split(' ')), Some(change));
        }
        for text in ["", "nice", "nice 0", "nice 0 20", "nice -21 0", "batch"] {
            assert_eq!(WeightChange::parse(text.split(' ')), None, "{text}");
        }
    }
}
