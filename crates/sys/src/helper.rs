//! Helper processes of corewise: the witness and the guardian.
//!
//! They are forked without executing a program, as starting this one again takes longer than many commands.
//! They are created without an exit signal, so that no `waitpid` for any child reports them. (An `exec` would
//! give them one.)

use crate::proc::Proc;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::ffi::CStr;

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

/// Ends a helper.
pub fn end() -> ! {
    // SAFETY: `_exit` ends the process at once and runs none of the parent's exit handlers.
    unsafe { libc::_exit(0) }
}
