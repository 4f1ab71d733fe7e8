//! Which runtime libraries a process has whose waits or teams can be changed.

use super::loaded::Loaded;
use super::variable::Variable;
use super::{Idling, Process, Runtime, Wanted, libgomp, openmpi, teams};
use crate::guardian::Words;
use corewise_code::names;
use corewise_sys::environment;
use std::fmt::Display;
use std::io;

/// See [`Process::advice`].
pub(super) const OF_LIBOMP: &str = "threads of LLVM's or Intel's OpenMP waited for PEs, and their waits \
                                    cannot be changed: fewer threads would help (OMP_NUM_THREADS)";
const OF_OPENBLAS: &str = "threads of a program with OpenBLAS waited for PEs, and how long they spin cannot \
                           be changed: smaller teams would help (--adapt-team, or OPENBLAS_NUM_THREADS)";

impl Process {
    /// Looks for runtime libraries that were not there yet; what a user should know of it.
    pub(super) fn search(&mut self, pid: u32, wanted: Wanted, guardian: Option<&Words>) -> Vec<String> {
        let loaded = match Loaded::in_process(pid, &mut self.others) {
            Ok(loaded) => loaded,
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                return vec![format!("waits are not changed: cannot look into process {pid}: {error}")];
            }
        };
        let of_waits =
            if wanted.spin { self.search_waits(&loaded, wanted.planted, guardian) } else { Vec::new() };
        let of_teams = if wanted.teams { self.search_teams(&loaded, guardian) } else { None };
        let is_alone = self.copies.is_empty() && self.teams.is_empty();
        self.gives_way = is_alone && loaded.defining(names::GIVES_WAY).next().is_some();
        self.advice = self.advice(&loaded, wanted);
        of_waits.into_iter().chain(of_teams).collect()
    }

    /// Which setting would help if its threads are delayed and nothing can be changed.
    fn advice(&self, loaded: &Loaded, wanted: Wanted) -> Option<&'static str> {
        let can_change = !self.copies.is_empty() || !self.teams.is_empty() || self.wish.is_some();
        let has_openblas = loaded.defining(teams::OPENBLAS).next().is_some();
        match (can_change, self.gives_way) {
            (true, _) => None,
            (false, true) => Some(OF_LIBOMP),
            (false, false) => (has_openblas && !wanted.teams).then_some(OF_OPENBLAS),
        }
    }

    fn search_waits(
        &mut self,
        loaded: &Loaded,
        planted: Option<u64>,
        guardian: Option<&Words>,
    ) -> Vec<String> {
        let (of_libgomp, said) = match planted.map(|planted| libgomp::find(loaded, planted)) {
            Some(Ok(found)) => (found, Vec::new()),
            Some(Err(error)) => return vec![format!("waits are not changed: {error}")],
            None => self.search_by_code(loaded),
        };
        let all = of_libgomp.into_iter().map(|variable| (variable, Runtime::Libgomp));
        let all = all.chain(openmpi::find(loaded).into_iter().map(|variable| (variable, Runtime::OpenMpi)));
        for (variable, runtime) in all {
            if !self.knows(&variable) {
                self.copies.push(Idling { variable, runtime });
            }
        }
        if let (Some(guardian), Some(_)) = (guardian, self.wanted) {
            self.write(guardian);
        }
        said
    }

    /// The spin counts that may be changed in a program that ran already, and why others stay.
    fn search_by_code(&self, loaded: &Loaded) -> (Vec<Variable>, Vec<String>) {
        let (pid, mut may_be_changed, mut said) = (loaded.pid, Vec::new(), Vec::new());
        let stays = |why: &dyn Display| format!("waits are not changed in process {pid}: {why}");
        let wish = environment::first_set(pid, &libgomp::WISHES);
        for found in libgomp::find_by_code(loaded) {
            match (found, wish) {
                (_, Some(wish)) => said.push(stays(&format_args!("{wish} sets how idle threads wait"))),
                (Err(not_shown), _) => said.push(stays(&not_shown)),
                // What stands there may be ours.
                (Ok(variable), _) if self.knows(&variable) => {}
                (Ok(variable), _) if variable.own() == libgomp::DEFAULT => may_be_changed.push(variable),
                (Ok(variable), _) => {
                    let (library, count) = (variable.library(), variable.own());
                    let why = format_args!("the spin count of `{library}` is {count}, not the default");
                    said.push(stays(&why));
                }
            }
        }
        (may_be_changed, said)
    }

    fn knows(&self, variable: &Variable) -> bool {
        self.copies.iter().any(|known| known.variable.is_same(variable))
    }

    fn search_teams(&mut self, loaded: &Loaded, guardian: Option<&Words>) -> Option<String> {
        self.wish = environment::first_set(loaded.pid, &teams::WISHES);
        if let Some(wish) = self.wish {
            return Some(format!("teams stay as they are: {wish} says of how many threads they are"));
        }
        let is_new = |size: &Variable| !self.teams.iter().any(|known| known.is_same(size));
        let new: Vec<Variable> = teams::find(loaded).into_iter().filter(is_new).collect();
        self.teams.extend(new);
        if let (Some(guardian), Some(_)) = (guardian, self.team_size) {
            self.write_teams(guardian);
        }
        None
    }
}
