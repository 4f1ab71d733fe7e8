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
        let Parts { processes, actuators, .. } = &mut self.parts;
        // Its first thread may have ended before the others.
        let Some(leader) = processes.as_mut().and_then(|processes| processes.leave(pid)) else { return };
        let (_, are_changed) = actuators.waits(pid);
        let resets = [SettingKind::SpinCount, SettingKind::Turns].map(|kind| Action {
            thread: leader,
            change: Change::Reset(kind),
            reason: "its waits are left alone now".into(),
        });
        for outcome in actuators.apply(&resets) {
            let (thread, change) = (outcome.thread, outcome.change.clone());
            let is_refused = are_changed && matches!(outcome.result, OutcomeKind::Refused(_));
            self.outcomes.extend(is_refused.then_some(outcome));
            self.outcomes.push(Outcome { thread, change, result: OutcomeKind::Gone });
        }
    }

    /// Changes from now on how a process waits, if that helps.
    fn meet_again(&mut self, pid: u32) {
        let Parts { processes: Some(processes), discovery, .. } = &mut self.parts else { return };
        processes.leave(pid);
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
            match (may, processes.meter.threads(pid)) {
                // Of a process that began without consent only the first thread is known.
                (true, ..2) => self.meet_again(pid),
                (true, 2..) => {}
                (false, _) => self.leave_waits(pid),
            }
        }
    }
}
