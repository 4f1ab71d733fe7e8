//! What fails of the machine as a whole.

use corewise_discovery::DiscoveryError;
use nix::errno::Errno;

/// An error of the machine as a whole.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Threads cannot be discovered any more.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The heavier sources cannot be opened.
    #[error("{0}")]
    Sources(String),
    /// A system call failed that should not.
    #[error("{call} failed: {errno}")]
    System {
        /// The system call.
        call: &'static str,
        /// The system's error.
        errno: Errno,
    },
}

impl LiveError {
    /// This system call failed.
    pub(crate) fn of(call: &'static str) -> impl Fn(Errno) -> LiveError {
        move |errno| LiveError::System { call, errno }
    }
}
