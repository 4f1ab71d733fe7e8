//! Which runtime libraries a process has whose waits or teams can be changed.

use super::loaded::Loaded;
use super::variable::Variable;
use super::{Idling, Process, Runtime, Wanted, libgomp, openmpi, teams};
use crate::guardian::Words;
use corewise_code::names;
use corewise_sys::environment;
use std::io;

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
        let of_waits = if wanted.spin { self.search_waits(&loaded, wanted.planted, guardian) } else { None };
        let of_teams = if wanted.teams { self.search_teams(&loaded, guardian) } else { None };
        let is_alone = self.copies.is_empty() && self.teams.is_empty();
        self.gives_way = is_alone && loaded.defining(names::GIVES_WAY).next().is_some();
        of_waits.into_iter().chain(of_teams).collect()
    }

    fn search_waits(
        &mut self,
        loaded: &Loaded,
        planted: Option<u64>,
        guardian: Option<&Words>,
    ) -> Option<String> {
        let of_libgomp = match planted.map_or(Ok(Vec::new()), |planted| libgomp::find(loaded, planted)) {
            Ok(found) => found,
            Err(error) => return Some(format!("waits are not changed: {error}")),
        };
        let all = of_libgomp.into_iter().map(|variable| (variable, Runtime::Libgomp));
        let all = all.chain(openmpi::find(loaded).into_iter().map(|variable| (variable, Runtime::OpenMpi)));
        for (variable, runtime) in all {
            if !self.copies.iter().any(|known| known.variable.is_same(&variable)) {
                self.copies.push(Idling { variable, runtime });
            }
        }
        if let (Some(guardian), Some(_)) = (guardian, self.wanted) {
            self.write(guardian);
        }
        None
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
