//! Why a daemon cannot be reached by others.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a daemon cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket, or what is locked beside it, cannot be created.
    #[error("cannot create {}: check that its directory exists and may be written", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another daemon has the socket.
    #[error("another daemon has {}: `corewise status` asks it", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The socket that an earlier daemon has left cannot be removed.
    #[error("cannot replace {}", path.display())]
    Replace {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something else has the name.
    #[error("{} is no socket: name another file", path.display())]
    NoSocket {
        /// The file.
        path: PathBuf,
    },
    /// Others cannot be given access to the socket.
    #[error("cannot open {} to others", path.display())]
    Open {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The address for metrics cannot be used.
    #[error("cannot serve metrics at {address}: name another address or port")]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The file for metrics has a name that its reader ignores.
    #[error("{} must end in .prom: the node exporter reads no other file", path.display())]
    NoProm {
        /// The file.
        path: PathBuf,
    },
    /// The file for metrics is a directory, a link or the like.
    #[error("{} is no plain file: name another one", path.display())]
    NoPlainFile {
        /// The file.
        path: PathBuf,
    },
    /// The file for metrics cannot be written.
    #[error("cannot write {}: check that its directory exists and may be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses to watch what was opened.
    #[error("cannot watch the sockets of the daemon")]
    Watch(#[from] io::Error),
}

impl From<nix::errno::Errno> for ServeError {
    fn from(errno: nix::errno::Errno) -> Self {
        ServeError::Watch(errno.into())
    }
}
