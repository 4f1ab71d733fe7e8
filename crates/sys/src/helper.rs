//! Helper processes of corewise: the witness, the attendant and the guardian.
//!
//! They are forked without executing a program, as starting this one again takes longer than many commands.
//! They are created without an exit signal, so that no `waitpid` for any child reports them. (An `exec` would
//! give them one.)

use crate::proc::Proc;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Forks a helper: returns `None` in the helper, its process ID in corewise. This process must have only one
/// thread.
pub fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: without flags this is a `fork` whose child has no exit signal; this process has one thread, so
    // the child may run any code.
    let pid = Errno::result(unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) })?;
    Ok((pid != 0).then(|| Pid::from_raw(pid as i32)))
}

/// Renames a helper and leaves the directory: it keeps no directory in use, and `pkill corewise` does not
/// match it.
pub fn take_name(name: &CStr) {
    // Failures are harmless.
    let _ = nix::unistd::chdir("/");
    let _ = nix::sys::prctl::set_name(name);
    overwrite_arguments();
}

/// Overwrites the process's arguments with zeros, where the kernel reports their location.
fn overwrite_arguments() {
    let Some(range) = Proc::own().own_arguments() else { return };
    let start = std::ptr::with_exposed_provenance_mut::<u8>(range.start);
    // SAFETY: the range is the part of this process's own stack that holds its arguments, which it no longer
    // reads.
    unsafe { std::ptr::write_bytes(start, 0, range.len()) };
}

/// Closes all descriptors but the helper's line to corewise, so that it keeps no file or pipe in use.
pub fn close_all_but(line: &UnixStream) {
    let own = line.as_raw_fd() as u32;
    for (first, last) in [(0, own - 1), (own + 1, u32::MAX)] {
        // SAFETY: the call takes no pointer; this process uses no descriptor other than its line.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Kills a helper of this process. Leaves nothing of it behind, not even a zombie for another process to
/// reap.
pub fn kill_and_reap(helper: Pid) {
    let wait = |flags| {
        // SAFETY: the status is not requested.
        unsafe { libc::waitpid(helper.as_raw(), std::ptr::null_mut(), libc::__WALL | flags) }
    };
    // Only if it is still there, and still ours.
    if wait(libc::WNOHANG) == 0 && kill(helper, Signal::SIGKILL).is_ok() {
        wait(0);
    }
}

/// Returns whether a process is stopped.
pub fn is_stopped(pid: Pid) -> bool {
    matches!(Proc::own().task(pid.as_raw() as u32), Ok(Some(stat)) if stat.state == 'T')
}

/// Ends a helper.
pub fn end() -> ! {
    // SAFETY: `_exit` ends the process at once and runs none of the parent's exit handlers.
    unsafe { libc::_exit(0) }
}
