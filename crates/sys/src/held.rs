//! A running process that cannot be mistaken for a later one with its ID.
//!
//! The kernel gives the ID of a process that has ended to another one. A descriptor of the process (`pidfd`)
//! tells whether it still lives; while it does, its ID is its own. So what was read of an ID between two
//! moments at which it lived is true of this process.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

/// See the module documentation.
#[derive(Debug)]
pub struct Held(OwnedFd);

impl Held {
    /// Holds the process with this ID; `ESRCH` if there is none.
    pub fn of(pid: u32) -> Result<Held, Errno> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::ESRCH)?;
        // SAFETY: the call takes no pointer.
        let descriptor = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(Held(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }))
    }

    /// Returns whether it lives.
    pub fn lives(&self) -> bool {
        let mut descriptors = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, PollTimeout::ZERO) == Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_held_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let held = Held::of(child.id()).unwrap();
        assert!(held.lives());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.lives());
        assert_eq!(Held::of(u32::MAX).err(), Some(Errno::ESRCH));
        assert!(Held::of(0).is_err());
    }
}
