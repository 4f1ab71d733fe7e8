//! Processes that are followed although they descend from nothing that a run began with.
//!
//! Problem: a daemon follows what runs when it begins, and what that starts. Another login of its user, or a
//! shell that a container's manager starts inside, descends from neither, and a user may name a process
//! later. Approach: all of these belong to one root (`Root::Others`). What comes from elsewhere is found by a
//! rare look at the processes that are not followed, as the kernel tells nobody. It is left out while the
//! machine creates no process, and the kernel's link to the program of each, which only those may read who
//! may look into it, leaves few to be read further.
//!
//! Limits: what comes from elsewhere runs for up to [`LOOKED_WITHIN`] before it is followed.

use crate::attach::{self, AttachError};
use corewise_core::ids::AppId;
use corewise_sys::proc::{Proc, ProcError};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The interval at which processes from elsewhere are looked for: soon for a person who has just logged in,
/// and a thousandth of a PE where there are hundreds of processes.
const LOOKED_WITHIN: Duration = Duration::from_secs(5);

/// The processes from elsewhere.
#[derive(Debug)]
pub(super) struct Others {
    pub proc: Proc,
    /// Processes that are never followed.
    pub excluded: Vec<u32>,
    /// `None`: there is no such root.
    app: Option<AppId>,
    /// Whether they are looked for.
    all: bool,
    last_created: Option<u32>,
    looked_at: Instant,
}

impl Others {
    /// Those of this application, if there is one; with `all` they are looked for. What runs now is no news.
    pub fn new(proc: Proc, root: Option<(AppId, bool)>, excluded: Vec<u32>) -> Others {
        let (app, all) = (root.map(|(app, _)| app), root.is_some_and(|(_, all)| all));
        Others { last_created: proc.last_created(), proc, excluded, app, all, looked_at: Instant::now() }
    }

    /// Returns the time until the next look; `None` if nobody wants one.
    pub fn due_within(&self) -> Option<Duration> {
        self.all.then(|| LOOKED_WITHIN.saturating_sub(self.looked_at.elapsed()))
    }

    /// Returns the processes to be followed from now on, if a look is due.
    pub fn look(&mut self, is_followed: impl Fn(u32) -> bool) -> Result<HashMap<u32, AppId>, ProcError> {
        let Some(app) = self.app.filter(|_| self.due_within().is_some_and(|within| within.is_zero())) else {
            return Ok(HashMap::new());
        };
        self.looked_at = Instant::now();
        let created = self.proc.last_created();
        if created.is_some() && std::mem::replace(&mut self.last_created, created) == created {
            return Ok(HashMap::new());
        }
        let mut processes = self.proc.processes()?;
        processes.retain(|&pid| {
            !is_followed(pid)
                && self.proc.program(pid).is_ok()
                && attach::check_in(&self.proc, pid, &self.excluded).is_ok()
        });
        Ok(processes.into_iter().map(|pid| (pid, app)).collect())
    }

    /// Returns the application to which a process belongs that is named now; `None` if there is none.
    pub fn check(&self, pid: u32) -> Result<Option<AppId>, AttachError> {
        attach::check_in(&self.proc, pid, &self.excluded)?;
        Ok(self.app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(all: bool) -> Others {
        Others::new(Proc::own(), Some((AppId(1), all)), Vec::new())
    }

    #[test]
    fn other_processes_are_found_when_a_look_is_due_and_something_was_created() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut others = others(true);
        assert_eq!(others.look(|_| false).unwrap(), HashMap::new(), "it is not due");
        let due = |others: &mut Others, created: Option<u32>| {
            others.looked_at = Instant::now().checked_sub(LOOKED_WITHIN).unwrap();
            others.last_created = created;
        };
        due(&mut others, None);
        assert_eq!(others.look(|_| false).unwrap().get(&sleeper.id()), Some(&AppId(1)));
        due(&mut others, None);
        assert_eq!(others.look(|_| true).unwrap(), HashMap::new(), "all are followed");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn without_that_wish_nobody_is_looked_for() {
        assert_eq!(others(false).due_within(), None);
        assert!(others(false).check(u32::MAX / 2).is_err());
        assert_eq!(others(false).check(std::process::id()), Ok(Some(AppId(1))));
    }
}
