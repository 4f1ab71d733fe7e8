//! Processes of corewise's own: the witness and the guardian.
//!
//! They are forked off and execute no program: to start this one anew takes longer than many a command. No
//! `waitpid` for any child hears of them, as they are made without an exit signal. (An `exec` would give them
//! one.)

use crate::proc::Proc;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::ffi::CStr;

/// Forks a helper off: in itself `None`, its process id in corewise. This process must have one thread.
pub fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: without flags this is a `fork` whose child has no exit signal; this process has one thread, so
    // the child may run any code.
    let pid = Errno::result(unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) })?;
    Ok((pid != 0).then(|| Pid::from_raw(pid as i32)))
}

/// In a helper: it keeps no directory in use, and is not taken for corewise by `pkill corewise`.
pub fn go_by_the_name(name: &CStr) {
    // Neither matters enough to do without a helper.
    let _ = nix::unistd::chdir("/");
    let _ = nix::sys::prctl::set_name(name);
    overwrite_arguments();
}

/// Where the kernel says that the arguments lie, zeros are put.
fn overwrite_arguments() {
    let Some(range) = Proc::own().own_arguments() else { return };
    let start = std::ptr::with_exposed_provenance_mut::<u8>(range.start);
    // SAFETY: the range is the part of this process's own stack that holds its arguments, which it reads no
    // more.
    unsafe { std::ptr::write_bytes(start, 0, range.len()) };
}

/// Ends a helper.
pub fn end() -> ! {
    // SAFETY: `_exit` ends the process at once and runs none of the parent's exit handlers.
    unsafe { libc::_exit(0) }
}
