//! Where a daemon has its socket.

use std::path::PathBuf;

/// The socket of the machine's daemon, which root runs.
pub const OF_MACHINE: &str = "/run/corewise.socket";

/// The variable that names the socket, for a daemon and for its clients.
const VARIABLE: &str = "COREWISE_SOCKET";

/// Returns the socket that the user names by a variable.
pub fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns where the daemon of this user has its socket: that of root is the machine's.
pub fn of_user() -> Result<PathBuf, String> {
    if let Some(named) = named() {
        return Ok(named);
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(OF_MACHINE.into());
    }
    let directory = corewise_binding::runtime_directory::Directory::to_write()?;
    Ok(directory.path().join("daemon.socket"))
}
