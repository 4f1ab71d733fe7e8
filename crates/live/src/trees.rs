//! What an onlooker decides about the processes that are followed.

use crate::{LiveWorld, Parts, Trees};
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind, SettingKind};
use corewise_discovery::{FollowError, NewThread};
use corewise_sys::proc::Proc;
use std::time::Instant;

impl LiveWorld {
    /// Changes nothing any more about how a process waits, and gives back what was changed. To the engine it
    /// is as if the process were gone.
    fn leave_waits(&mut self, pid: u32) {
        let Parts { processes, actuators, discovery, .. } = &mut self.parts;
        processes.iter_mut().for_each(|processes| processes.leave(pid));
        let Some(leader) = discovery.facts(pid).map(|facts| facts.id()) else { return };
        let resets = [SettingKind::SpinCount, SettingKind::Turns].map(|kind| Action {
            thread: leader,
            change: Change::Reset(kind),
            reason: "its waits are left alone now".into(),
        });
        for Outcome { thread, change, .. } in actuators.apply(&resets) {
            self.outcomes.push(Outcome { thread, change, result: OutcomeKind::Gone });
        }
    }

    /// Changes from now on how a process waits, if that helps.
    fn meet_again(&mut self, pid: u32) {
        let Parts { processes: Some(processes), discovery, .. } = &mut self.parts else { return };
        // What has ended has no threads.
        for tid in Proc::own().threads(pid).ok().flatten().unwrap_or_default() {
            let Some(facts) = discovery.facts(tid).filter(|facts| facts.pid == pid) else { continue };
            processes.meet(&NewThread {
                tid,
                pid,
                creator_tid: None,
                generation: facts.generation,
                created: Instant::now(),
            });
        }
    }
}

impl Trees for LiveWorld {
    fn follows(&self, pid: u32) -> bool {
        self.parts.discovery.facts(pid).is_some()
    }

    fn attach(&mut self, pid: u32) -> Result<(), FollowError> {
        self.parts.discovery.attach(pid)
    }

    fn reconsider(&mut self, pids: &[u32]) {
        for &pid in pids {
            let may = self.consent.as_mut().is_none_or(|consent| consent.to_waits(pid));
            let Some(processes) = &self.parts.processes else { return };
            match (may, processes.meter.is_watched(pid)) {
                (true, false) => self.meet_again(pid),
                (false, true) => self.leave_waits(pid),
                (true, true) | (false, false) => {}
            }
        }
    }
}
