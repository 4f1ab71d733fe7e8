//! Which runtime libraries a process has whose waits can be changed. When they are searched:
//! [`super::schedule`].

use super::loaded::{Files, Loaded};
use super::process::{COPIES_MAX, Idling, Process, Runtime, TOO_MANY};
use super::schedule::Pressing;
use super::variable::Variable;
use super::{exported, libgomp, openmpi};
use crate::changes::Changes;
use corewise_code::library::Library;
use corewise_code::names;
use corewise_core::observe::IdleWait;
use corewise_sys::environment;
use corewise_sys::proc::Proc;
use std::fmt::Display;
use std::io;
use std::time::Instant;

/// See [`Process::advice`].
pub(super) const OF_LIBOMP: &str = "threads of LLVM's or Intel's OpenMP waited for PEs, and their waits \
                                    cannot be changed: fewer threads would help (OMP_NUM_THREADS)";
const OF_OPENBLAS: &str = "threads of a program with OpenBLAS waited for PEs, and how long they spin cannot \
                           be changed: smaller teams would help (--adapt-team, or OPENBLAS_NUM_THREADS)";

/// The variables by which the size of its teams is chosen, by the user or by corewise.
const SIZES: [&str; 2] = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"];

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
            (true, ..) => Some(Pressing::IsSetNow),
            (_, true, false) => Some(Pressing::NothingFound),
            (_, true, true) => Some(Pressing::Delayed),
            (_, false, _) => None,
        };
        self.schedule.is_due(now, || Proc::own().code_size(pid), pressing)
    }

    /// Looks for runtime libraries that were not there yet; what a user should know of it.
    pub(super) fn search(
        &mut self,
        pid: u32,
        spin: bool,
        files: &mut Files,
        changes: Option<&Changes>,
    ) -> Vec<String> {
        let loaded = match Loaded::in_process(pid, files) {
            Ok(loaded) => loaded,
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                return vec![format!("waits are not changed: cannot look into process {pid}: {error}")];
            }
        };
        let of_waits = if spin { self.search_waits(&loaded, files, changes) } else { Vec::new() };
        let has = |symbol| loaded.defining(symbol).next().is_some();
        let is_own =
            |copy: &Library| !copy.elf.imports().iter().any(|name| exported::is_team_of_openmp(name));
        let has_openblas = loaded.defining(exported::OPENBLAS).any(|(copy, _)| is_own(copy));
        let fixed = [(has(names::YIELDS), IdleWait::Yield), (has_openblas, IdleWait::Fixed)];
        self.fixed = fixed.into_iter().filter_map(|(has, waits)| has.then_some(waits)).collect();
        self.advice = self.advice(loaded.pid);
        of_waits
    }

    /// Which settings would help if its threads are delayed and waits cannot be changed.
    fn advice(&self, pid: u32) -> Vec<&'static str> {
        let is_chosen = || environment::first_set(pid, &SIZES).is_some();
        let of = self.fixed.iter().map(|waits| match waits {
            IdleWait::Yield => Some(OF_LIBOMP),
            _ => (!is_chosen()).then_some(OF_OPENBLAS),
        });
        of.flatten().collect()
    }

    fn search_waits(&mut self, loaded: &Loaded, files: &mut Files, changes: Option<&Changes>) -> Vec<String> {
        let (of_libgomp, mut notes) = self.spin_counts(loaded, files);
        let all = of_libgomp.into_iter().map(|variable| (variable, Runtime::Libgomp));
        let all = all.chain(openmpi::find(loaded).into_iter().map(|variable| (variable, Runtime::OpenMpi)));
        for (variable, runtime) in all {
            if self.knows(&variable) {
                continue;
            }
            if self.found == COPIES_MAX {
                notes.push(TOO_MANY.to_owned());
                break;
            }
            self.found += 1;
            self.copies.push(Idling { variable, runtime });
        }
        if let (Some(changes), Some(_)) = (changes, self.wanted) {
            self.write(changes);
        }
        notes
    }

    /// The spin counts that may be changed, and why others stay.
    fn spin_counts(&mut self, loaded: &Loaded, files: &mut Files) -> (Vec<Variable>, Vec<String>) {
        self.unset.clear();
        let (mut may_be_changed, mut notes) = (Vec::new(), Vec::new());
        let stays = |why: &dyn Display| {
            let name = Proc::own().program_name(loaded.pid).unwrap_or_else(|| loaded.pid.to_string());
            format!("waits are not changed in `{name}`: {why}")
        };
        for (index, found) in libgomp::find(loaded, files).into_iter().enumerate() {
            if index == COPIES_MAX {
                notes.push(TOO_MANY.to_owned());
                break;
            }
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
}
