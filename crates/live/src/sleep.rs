//! How the world sleeps: until something happens, or something of its own is due.

use crate::{ALLOWED_WITHIN, Ends, LiveError, LiveWorld, Onlooker, Processes};
use corewise_binding::heartbeat;
use corewise_core::world::World;
use corewise_sys::standard_error;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use std::time::Duration;

impl LiveWorld {
    /// Returns how long events are still to be left alone.
    pub(crate) fn rests_for(&self) -> Duration {
        self.refreshed.map_or(Duration::ZERO, |at| self.rest.saturating_sub(at.elapsed()))
    }

    /// Returns whether looking for threads is better left to the rarer looks for everything else.
    fn is_interruption_harmful(&self) -> bool {
        let processes = self.parts.processes.as_ref().filter(|_| self.parts.deferred.is_some());
        processes.is_some_and(|processes| processes.meter.is_any_interruption_harmful())
    }

    /// Sleeps for this time at most.
    pub(crate) fn sleep(&mut self, left: Duration) -> Result<(), LiveError> {
        let mut nap = left;
        let onlooker = self.onlooker.as_deref();
        let keys = onlooker.and_then(Onlooker::wake_fd);
        let mut descriptors: Vec<PollFd<'_>> = [self.parts.signals.fd()]
            .into_iter()
            .chain(keys)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        if self.watching {
            let refresh = self.parts.discovery.refresh_within().filter(|_| !self.is_interruption_harmful());
            nap = refresh.map_or(left, |within| within.min(left));
            let look = self.parts.processes.as_ref().and_then(Processes::due_within);
            let due = look.into_iter().chain(self.parts.actuators.due_within());
            let due = due.chain(self.reports.due_within()).min();
            nap = due.map_or(nap, |within| within.min(nap));
            if let Some(deferred) = &self.parts.deferred {
                nap = nap.min(deferred.due_within());
                descriptors.extend(deferred.wake_fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            }
            nap = if self.hears_of_allowed() { nap.min(ALLOWED_WITHIN) } else { nap };
            let rest = self.rests_for();
            nap = nap.max(rest).min(left);
            let news = if rest.is_zero() { self.parts.discovery.wake_fds() } else { Vec::new() };
            // A buffer that is half full does not wait.
            let wakers = news.into_iter().chain(self.parts.counters.wake_fd());
            descriptors.extend(wakers.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        }
        if let Ends::WithTargets { at: Some(at) } = self.parts.ends {
            nap = nap.min(at.since(self.now()));
        }
        let unsaid = standard_error::due_within().into_iter();
        nap =
            unsaid.chain(onlooker.and_then(Onlooker::due_within)).min().map_or(nap, |within| within.min(nap));
        heartbeat::promise(nap);
        match ppoll(&mut descriptors, Some(nap.into()), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Self::system("ppoll")(errno)),
        }
        // The counters' descriptor is the last one.
        let counters =
            descriptors.last().filter(|_| self.watching && self.parts.counters.wake_fd().is_some());
        if counters.and_then(PollFd::any) == Some(true) {
            self.drained = None;
        }
        Ok(())
    }
}
