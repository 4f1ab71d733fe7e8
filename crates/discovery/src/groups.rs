//! Who has come into the control groups that are followed.
//!
//! The kernel tells nobody in user space that a process has come into a group, so the lists are looked at
//! every [`LOOKED_WITHIN`]. What a followed process starts is followed anyway, and one that has left its
//! group is followed to its end.

use crate::attach;
use corewise_core::ids::AppId;
use corewise_sys::cgroup::{ControlGroup, GroupError};
use corewise_sys::proc::Proc;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How often the lists are looked at.
const LOOKED_WITHIN: Duration = Duration::from_millis(100);

/// The groups that are applications.
#[derive(Debug)]
pub(super) struct Groups {
    proc: Proc,
    groups: Vec<(AppId, ControlGroup)>,
    /// Processes that are none of theirs, wherever they are.
    excluded: Vec<u32>,
    /// Those that were in a group at the last look, also those that cannot be followed.
    listed: HashSet<u32>,
    looked_at: Option<Instant>,
}

impl Groups {
    pub fn new(proc: Proc, groups: Vec<(AppId, ControlGroup)>, excluded: Vec<u32>) -> Groups {
        Groups { proc, groups, excluded, listed: HashSet::new(), looked_at: None }
    }

    /// How long until the next look; `None` if there are no groups.
    pub fn due_within(&self) -> Option<Duration> {
        let passed = self.looked_at.map_or(LOOKED_WITHIN, |at| at.elapsed());
        (!self.groups.is_empty()).then(|| LOOKED_WITHIN.saturating_sub(passed))
    }

    /// The processes that have come since the last look and may be followed, with their applications. A
    /// process that is in several of the groups is of the first.
    pub fn look(&mut self) -> Result<HashMap<u32, AppId>, GroupError> {
        if self.groups.is_empty() {
            return Ok(HashMap::new());
        }
        self.looked_at = Some(Instant::now());
        let mut present = HashMap::new();
        for (app, group) in &self.groups {
            for pid in group.processes()? {
                present.entry(pid).or_insert(*app);
            }
        }
        let listed: HashSet<u32> = present.keys().copied().collect();
        // Of the others, such as those of the kernel, it was said at the beginning why they are left out.
        let may_be_followed = |pid| attach::check_in(&self.proc, pid, &self.excluded).is_ok();
        present.retain(|&pid, _| !self.listed.contains(&pid) && may_be_followed(pid));
        self.listed = listed;
        Ok(present)
    }
}
