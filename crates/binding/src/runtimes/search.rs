//! Which runtime libraries a process has whose waits can be changed, and when it is looked for them.
//!
//! Problem: a program of Python's maps 200 files, and a search takes 10 ms of CPU time. A team that has just
//! begun needs all PEs, so a search at that moment harms the program most. Approach: a search follows as soon
//! as the size of the process's code has changed, which tells that something was loaded and costs next to
//! nothing to look at. Python loads its libraries one after the other, mostly before the first team. A
//! library's variable has its value only after its constructor has run; so one more search follows, and
//! another one as soon as a variable that was 0 is set. While threads are delayed there are more searches,
//! rarely, where nothing was found or long ago: a process may have become another program of the same size.

use super::loaded::Loaded;
use super::variable::Variable;
use super::{Idling, Process, Runtime, libgomp, openmpi};
use crate::changes::Changes;
use corewise_code::names;
use corewise_code::space::FileKey;
use corewise_sys::environment;
use corewise_sys::proc::Proc;
use std::collections::HashSet;
use std::fmt::Display;
use std::io;
use std::time::{Duration, Instant};

/// See [`Process::advice`].
pub(super) const OF_LIBOMP: &str = "threads of LLVM's or Intel's OpenMP waited for PEs, and their waits \
                                    cannot be changed: fewer threads would help (OMP_NUM_THREADS)";
const OF_OPENBLAS: &str = "threads of a program with OpenBLAS waited for PEs, and how long they spin cannot \
                           be changed: smaller teams would help (--adapt-team, or OPENBLAS_NUM_THREADS)";

/// What OpenBLAS exports, in wheels, too, whatever the prefix of their functions.
pub(super) const OPENBLAS: &str = "blas_cpu_number";

/// The variables by which the size of its teams is chosen, by the user or by corewise.
const SIZES: [&str; 2] = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"];

/// Time between two searches of the same process: at first, and at most, as it doubles each time.
const AFTER: Duration = Duration::from_millis(50);
const AFTER_MAX: Duration = Duration::from_millis(200);

/// Time after which threads that are delayed are reason enough for another search.
const ANYWAY_AFTER: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Schedule {
    /// When it is looked next whether a search is due.
    at: Instant,
    after: Duration,
    /// The size of the process's code at the last search.
    code: Option<u64>,
    /// Whether the code had that size at the search before, too.
    is_settled: bool,
    searched_at: Option<Instant>,
}

impl Schedule {
    pub(super) fn from(now: Instant) -> Schedule {
        Schedule { at: now, after: AFTER, code: None, is_settled: false, searched_at: None }
    }

    /// Threads have come, and maybe a library with them.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.at, self.after) = (now, AFTER);
    }

    /// Whether a search is due of code of this size; with `pressing` also if the last one is that old.
    fn is_due(
        &mut self,
        now: Instant,
        code: impl FnOnce() -> Option<u64>,
        pressing: Option<Duration>,
    ) -> bool {
        if now < self.at {
            return false;
        }
        (self.at, self.after) = (now + self.after, (2 * self.after).min(AFTER_MAX));
        let code = code();
        let is_settled = self.searched_at.is_some() && code == self.code;
        let is_old = |limit| self.searched_at.is_none_or(|at| now.duration_since(at) >= limit);
        let is_due = !is_settled || !self.is_settled || pressing.is_some_and(is_old);
        if is_due {
            (self.code, self.is_settled, self.searched_at) = (code, is_settled, Some(now));
        }
        is_due
    }
}

impl Process {
    /// Whether it is to be looked for runtime libraries now. A process of one thread has no team, so its
    /// libraries matter only when it is delayed.
    pub(super) fn is_search_due(&mut self, pid: u32, now: Instant, threads: usize, is_delayed: bool) -> bool {
        if !is_delayed && threads < 2 {
            return false;
        }
        let has_found = !self.copies.is_empty();
        let is_set_now = self.unset.iter().any(|variable| variable.word() != Some(0));
        let pressing = match (is_set_now, is_delayed, has_found) {
            (true, ..) | (_, true, false) => Some(Duration::ZERO),
            (_, true, true) => Some(ANYWAY_AFTER),
            (_, false, _) => None,
        };
        self.schedule.is_due(now, || Proc::own().code_size(pid), pressing)
    }

    /// Looks for runtime libraries that were not there yet, leaving out files that hold none; what a user
    /// should know of it.
    pub(super) fn search(
        &mut self,
        pid: u32,
        spin: bool,
        others: &mut HashSet<FileKey>,
        changes: Option<&Changes>,
    ) -> Vec<String> {
        let loaded = match Loaded::in_process(pid, others) {
            Ok(loaded) => loaded,
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                return vec![format!("waits are not changed: cannot look into process {pid}: {error}")];
            }
        };
        let of_waits = if spin { self.search_waits(&loaded, changes) } else { Vec::new() };
        self.yields = self.copies.is_empty() && loaded.defining(names::GIVES_WAY).next().is_some();
        self.advice = self.advice(&loaded);
        of_waits
    }

    /// Which setting would help if its threads are delayed and nothing can be changed.
    fn advice(&self, loaded: &Loaded) -> Option<&'static str> {
        let is_chosen = || environment::first_set(loaded.pid, &SIZES).is_some();
        let has_openblas = || loaded.defining(OPENBLAS).next().is_some() && !is_chosen();
        match (self.copies.is_empty(), self.yields) {
            (false, _) => None,
            (true, true) => Some(OF_LIBOMP),
            (true, false) => has_openblas().then_some(OF_OPENBLAS),
        }
    }

    fn search_waits(&mut self, loaded: &Loaded, changes: Option<&Changes>) -> Vec<String> {
        let (of_libgomp, notes) = self.spin_counts(loaded);
        let all = of_libgomp.into_iter().map(|variable| (variable, Runtime::Libgomp));
        let all = all.chain(openmpi::find(loaded).into_iter().map(|variable| (variable, Runtime::OpenMpi)));
        for (variable, runtime) in all {
            if !self.knows(&variable) {
                self.copies.push(Idling { variable, runtime });
            }
        }
        if let (Some(changes), Some(_)) = (changes, self.wanted) {
            self.write(changes);
        }
        notes
    }

    /// The spin counts that may be changed, and why others stay.
    fn spin_counts(&mut self, loaded: &Loaded) -> (Vec<Variable>, Vec<String>) {
        self.unset.clear();
        let (mut may_be_changed, mut notes) = (Vec::new(), Vec::new());
        let stays = |why: &dyn Display| {
            let name = Proc::own().program_name(loaded.pid).unwrap_or_else(|| loaded.pid.to_string());
            format!("waits are not changed in `{name}`: {why}")
        };
        for found in libgomp::find(loaded) {
            match (found, libgomp::wish(loaded.pid)) {
                // What stands there may be ours.
                (Ok(variable), _) if self.knows(&variable) => {}
                (_, Some(wish)) => notes.push(stays(&format_args!("{wish} sets how idle threads wait"))),
                (Err(not_found), _) => notes.push(stays(&not_found)),
                (Ok(variable), _) => match variable.own() {
                    libgomp::UNDECIDED => may_be_changed.push(variable),
                    // Not set yet, or idle threads do not spin anyway.
                    0 => self.unset.push(variable),
                    count => {
                        let library = variable.library();
                        let why = format_args!("the spin count of `{library}` is {count}, not the default");
                        notes.push(stays(&why));
                    }
                },
            }
        }
        (may_be_changed, notes)
    }

    fn knows(&self, variable: &Variable) -> bool {
        self.copies.iter().any(|known| known.variable.is_same(variable))
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
            let limit = if has_found { ANYWAY_AFTER } else { Duration::ZERO };
            let pressing = size.is_lowercase().then_some(limit);
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
    fn while_threads_are_delayed_it_is_searched_until_something_is_found() {
        assert_eq!(drawn("AAAaaaaaaaaaaaaaaaaa", false), "SS.S...S...S...S...S");
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
