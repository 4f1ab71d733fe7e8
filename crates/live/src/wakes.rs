//! The one place where the world sleeps: until something happens, or something of its own is due.
//!
//! Problem: many parts of the world have something to do by the clock, or a descriptor that shows when
//! something has happened. Approach: before each sleep every part enters, under its [`Name`], what is to
//! wake it. The world sleeps until the earliest of these, and learns by name which descriptors are
//! readable. While events are left alone (`rest`), whatever only watches programs has time until the rest
//! is over; who asked for the run, and who looks on, does not wait. Source: ours. Limits: an entry holds
//! for one sleep.

use crate::error::LiveError;
use corewise_binding::heartbeat;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What wakes the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// A signal, or the end of the command.
    Signals,
    /// The time at which the run ends.
    End,
    /// Somebody who looks on.
    Onlooker,
    /// Messages that nobody has taken yet.
    Messages,
    /// Threads that come and go.
    Threads,
    /// The counters' buffers.
    Counters,
    /// What programs report of themselves.
    Reports,
    /// The times of the processes.
    Processes,
    /// Changes that are due by the clock, such as the next turn.
    Changes,
    /// The PEs that may be used.
    Allowed,
    /// The heavier sources.
    Upgrade,
}

impl Name {
    /// Returns whether it has time until events are taken in again.
    fn rests(self) -> bool {
        match self {
            Name::Signals | Name::End | Name::Onlooker | Name::Messages => false,
            Name::Threads | Name::Counters | Name::Reports | Name::Processes => true,
            Name::Changes | Name::Allowed | Name::Upgrade => true,
        }
    }
}

/// What ends the next sleep.
pub struct Wakes<'a> {
    nap: Duration,
    rest: Duration,
    descriptors: Vec<(Name, BorrowedFd<'a>)>,
}

impl<'a> Wakes<'a> {
    /// Sleeps so long at most; `rest` is how long events are left alone.
    pub fn within(most: Duration, rest: Duration) -> Wakes<'a> {
        Wakes { nap: most, rest, descriptors: Vec::new() }
    }

    /// Returns whether events are left alone for now.
    pub fn are_left_alone(&self) -> bool {
        !self.rest.is_zero()
    }

    /// Wakes when this is due, if it ever is.
    pub fn due(&mut self, name: Name, within: impl IntoIterator<Item = Duration>) {
        let rest = if name.rests() { self.rest } else { Duration::ZERO };
        self.nap = within.into_iter().map(|within| within.max(rest)).fold(self.nap, Duration::min);
    }

    /// Wakes when one of these descriptors is readable.
    pub fn readable(&mut self, name: Name, descriptors: impl IntoIterator<Item = BorrowedFd<'a>>) {
        self.descriptors.extend(descriptors.into_iter().map(|descriptor| (name, descriptor)));
    }

    /// Sleeps. Returns whose descriptors are readable.
    pub fn sleep(self) -> Result<Vec<Name>, LiveError> {
        let fds = self.descriptors.iter().map(|(_, fd)| PollFd::new(*fd, PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        heartbeat::promise(self.nap);
        match ppoll(&mut fds, Some(self.nap.into()), None) {
            Ok(_) => {}
            // Nothing is readable as far as is known.
            Err(Errno::EINTR) => return Ok(Vec::new()),
            Err(errno) => return Err(LiveError::of("ppoll")(errno)),
        }
        let named = self.descriptors.iter().map(|(name, _)| *name).zip(&fds);
        Ok(named.filter(|(_, fd)| fd.any() == Some(true)).map(|(name, _)| name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const LONG: Duration = Duration::from_secs(1000);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_sleep_lasts_until_the_earliest_is_due() {
        let mut wakes = Wakes::within(LONG, Duration::ZERO);
        wakes.due(Name::Reports, None);
        assert_eq!(wakes.nap, LONG);
        wakes.due(Name::Threads, Some(ms(30)));
        wakes.due(Name::Processes, Some(ms(50)));
        assert_eq!(wakes.nap, ms(30));
    }

    #[test]
    fn what_watches_programs_waits_for_the_end_of_a_rest_and_nothing_else_does() {
        let mut wakes = Wakes::within(LONG, ms(200));
        wakes.due(Name::Threads, Some(ms(30)));
        assert_eq!(wakes.nap, ms(200));
        wakes.due(Name::Changes, Some(ms(300)));
        wakes.due(Name::Onlooker, Some(ms(70)));
        assert_eq!(wakes.nap, ms(70));
        let mut wakes = Wakes::within(ms(100), ms(200));
        wakes.due(Name::Threads, Some(ms(30)));
        assert_eq!(wakes.nap, ms(100), "the look that is due does not wait");
    }

    #[test]
    fn a_readable_descriptor_ends_a_sleep_and_is_known_by_its_name() {
        let (quiet, _other) = UnixStream::pair().unwrap();
        let (readable, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(b"1").unwrap();
        let mut wakes = Wakes::within(LONG, Duration::ZERO);
        wakes.readable(Name::Signals, [quiet.as_fd()]);
        wakes.readable(Name::Counters, [readable.as_fd()]);
        wakes.readable(Name::Threads, [quiet.as_fd()]);
        assert_eq!(wakes.sleep().unwrap(), [Name::Counters]);
    }

    #[test]
    fn a_sleep_in_which_nothing_happens_ends_in_time() {
        let (quiet, _other) = UnixStream::pair().unwrap();
        let mut wakes = Wakes::within(ms(1), Duration::ZERO);
        wakes.readable(Name::Signals, [quiet.as_fd()]);
        assert_eq!(wakes.sleep().unwrap(), []);
    }
}
