//! Somebody who looks on while the world waits, such as a display with its keyboard.

use std::os::fd::BorrowedFd;
use std::time::Duration;

/// An onlooker. It has its turn between the world's own work, in the loop's only thread.
pub trait Onlooker {
    /// Returns a descriptor that is readable when the onlooker wants a turn.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the time within which it wants a turn anyway.
    fn due_within(&self) -> Option<Duration>;

    /// Gives it a turn. Returns whether the world is to end.
    fn take_turn(&mut self) -> bool;
}
