//! What an onlooker decides about the processes that are followed.

use crate::{LiveWorld, Parts, Trees};
use corewise_discovery::{FollowError, NewThread};
use corewise_sys::proc::Proc;
use std::time::Instant;

impl LiveWorld {
    /// Reads all threads of a process from now on. Of one that began without that only the first is known.
    pub(super) fn meet_again(&mut self, pid: u32) {
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
        self.parts.discovery.facts(Proc::own().shown_by(pid)).is_some()
    }

    fn attach(&mut self, pid: u32) -> Result<(), FollowError> {
        self.parts.discovery.attach(pid)
    }

    fn reconsider(&mut self, pids: &[u32]) {
        pids.iter().for_each(|pid| self.treat_anew(*pid));
    }
}
