//! Processes that join the followed control groups.
//!
//! The kernel does not report to user space that a process has joined a group, so the lists are read every
//! [`LOOKED_WITHIN`]. Children of followed processes are followed anyway, and a process that has left its
//! group is followed to its end.

use crate::attach;
use corewise_core::ids::AppId;
use corewise_sys::cgroup::{ControlGroup, GroupError};
use corewise_sys::proc::Proc;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The interval at which the lists are read.
const LOOKED_WITHIN: Duration = Duration::from_millis(100);

/// The groups that are applications.
#[derive(Debug)]
pub(super) struct Groups {
    proc: Proc,
    groups: Vec<(AppId, ControlGroup)>,
    /// Processes that are never followed.
    excluded: Vec<u32>,
    /// The processes found in a group at the last read, including those that cannot be followed.
    listed: HashSet<u32>,
    looked_at: Option<Instant>,
}

impl Groups {
    pub fn new(proc: Proc, groups: Vec<(AppId, ControlGroup)>, excluded: Vec<u32>) -> Groups {
        Groups { proc, groups, excluded, listed: HashSet::new(), looked_at: None }
    }

    /// Returns the time until the next read; `None` if there are no groups.
    pub fn due_within(&self) -> Option<Duration> {
        let passed = self.looked_at.map_or(LOOKED_WITHIN, |at| at.elapsed());
        (!self.groups.is_empty()).then(|| LOOKED_WITHIN.saturating_sub(passed))
    }

    /// Returns the processes that have joined since the last read and may be followed, with their
    /// applications. A process in several of the groups belongs to the first.
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
        // The others, such as kernel threads, were reported at the start with the reason.
        let may_be_followed = |pid| attach::check_in(&self.proc, pid, &self.excluded).is_ok();
        present.retain(|&pid, _| !self.listed.contains(&pid) && may_be_followed(pid));
        self.listed = listed;
        Ok(present)
    }
}
