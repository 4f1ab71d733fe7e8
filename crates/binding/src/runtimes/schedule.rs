//! When the runtime libraries of a process are searched.
//!
//! Problem: a program of Python's maps 200 files, and a search takes 10 ms of CPU time. A team that has just
//! begun needs all PEs, so a search at that moment harms the program most. Approach: a search follows as soon
//! as the size of the process's code has changed, which tells that something was loaded and costs next to
//! nothing to look at. Python loads its libraries one after the other, mostly before the first team. A
//! library's variable has its value only after its constructor has run; so one more search follows, and
//! another one as soon as a variable that was 0 is set. While threads are delayed there are more searches,
//! rarely, where nothing was found or long ago: a process may have become another program of the same size.
//! Where nothing is found, the time between two of them doubles, as in [`corewise_core::backoff`].

use corewise_core::backoff::Doubling;
use std::time::{Duration, Instant};

/// Time between two searches of the same process: at first, and at most, as it doubles each time.
const AFTER: Doubling = Doubling::new(Duration::from_millis(50), Duration::from_millis(200));

/// Time after which threads that are delayed are reason enough for another search, at most.
const ANYWAY_AFTER: Duration = Duration::from_secs(5);

/// Why a search may be due although the code has not changed since the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressing {
    /// A variable was set that was 0.
    IsSetNow,
    /// Threads are delayed, and nothing was found.
    NothingFound,
    /// Threads are delayed, and it is long ago.
    Delayed,
}

/// See the module's text.
#[derive(Debug)]
pub struct Schedule {
    /// When to check next whether a search is due.
    at: Instant,
    after: Doubling,
    /// The size of the process's code at the last search.
    code: Option<u64>,
    /// Whether the code had that size at the search before, too.
    is_settled: bool,
    searched_at: Option<Instant>,
    /// When the code was found to have changed.
    changed_at: Instant,
}

impl Schedule {
    pub fn from(now: Instant) -> Schedule {
        Schedule { at: now, after: AFTER, code: None, is_settled: false, searched_at: None, changed_at: now }
    }

    /// Threads have come, and maybe a library with them.
    pub fn restart(&mut self, now: Instant) {
        (self.at, self.after) = (now, AFTER);
    }

    /// Whether a search is due of code of this size; where it is `pressing`, also of code that has not
    /// changed.
    pub fn is_due(
        &mut self,
        now: Instant,
        code: impl FnOnce() -> Option<u64>,
        pressing: Option<Pressing>,
    ) -> bool {
        if now < self.at {
            return false;
        }
        self.at = now + self.after.take();
        let code = code();
        let is_settled = self.searched_at.is_some() && code == self.code;
        let is_old = |why| {
            self.searched_at.is_none_or(|at| match why {
                Pressing::IsSetNow => true,
                Pressing::NothingFound => {
                    now.duration_since(at) >= at.duration_since(self.changed_at).min(ANYWAY_AFTER)
                }
                Pressing::Delayed => now.duration_since(at) >= ANYWAY_AFTER,
            })
        };
        let is_due = !is_settled || !self.is_settled || pressing.is_some_and(is_old);
        if !is_settled {
            self.changed_at = now;
        }
        if is_due {
            (self.code, self.is_settled, self.searched_at) = (code, is_settled, Some(now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 50 ms at code of these sizes: one letter each, in lower case while threads are delayed.
    /// What is drawn: `S` search, `.` none.
    fn drawn(sizes: &str, has_found: bool) -> String {
        let begin = Instant::now();
        let mut schedule = Schedule::from(begin);
        let look = |(index, size): (usize, char)| {
            let now = begin + Duration::from_millis(50) * index as u32;
            let why = if has_found { Pressing::Delayed } else { Pressing::NothingFound };
            let pressing = size.is_lowercase().then_some(why);
            let code = || Some(u64::from(size.to_ascii_uppercase()));
            if schedule.is_due(now, code, pressing) { 'S' } else { '.' }
        };
        sizes.chars().enumerate().map(look).collect()
    }

    #[test]
    fn each_change_of_the_code_is_followed_by_a_search_and_one_more() {
        assert_eq!(drawn("AAAAABBBBBBBBBBBBBBB", true), "SS.....S...S........");
        assert_eq!(drawn("AABCDEFGHIJKLMNOPQRS", true), "SS.S...S...S...S...S", "soon, but not all the time");
    }

    #[test]
    fn while_threads_are_delayed_it_is_searched_ever_more_rarely_until_something_is_found() {
        assert_eq!(drawn("AAAaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false), "SS.S...S.......S...............S");
        assert_eq!(drawn("AAAaaaaaaaaaaaaaaaaa", true), "SS..................");
        let searches = drawn(&"a".repeat(250), true).matches('S').count();
        assert_eq!(searches, 4, "twice at first, then every {ANYWAY_AFTER:?}");
    }

    #[test]
    fn new_threads_are_reason_to_look_at_once() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut schedule = Schedule::from(begin);
        assert!([0, 50].map(|ms| schedule.is_due(at(ms), || Some(1), None)) == [true; 2]);
        assert!(!schedule.is_due(at(60), || Some(2), None));
        schedule.restart(at(60));
        assert!(schedule.is_due(at(60), || Some(2), None));
    }
}
