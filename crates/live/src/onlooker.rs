//! Somebody who looks on while the world waits, such as a display with its keyboard.

use corewise_discovery::FollowError;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// An onlooker. It is served between the world's own work, in the loop's only thread.
pub trait Onlooker {
    /// Returns a descriptor that is readable when the onlooker wants to be served.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the time within which it wants to be served anyway.
    fn due_within(&self) -> Option<Duration>;

    /// Returns the CPU time that it has used so far and that is no cost of watching and placing.
    fn spent(&self) -> Duration {
        Duration::ZERO
    }

    /// Lets it look, and do what it has to do. Returns whether the world is to end.
    fn serve(&mut self, trees: &mut dyn Trees) -> bool;
}

/// The processes that a world follows, as far as an onlooker decides about them.
pub trait Trees {
    /// Returns whether a process is followed.
    fn follows(&self, pid: u32) -> bool;

    /// Follows a running process with its descendants from now on.
    fn attach(&mut self, pid: u32) -> Result<(), FollowError>;

    /// Asks again [how these processes are treated](crate::MakeTreatments), and reports it if that is
    /// different, so that what is not permitted any more is given back at once.
    fn reconsider(&mut self, pids: &[u32]);
}
