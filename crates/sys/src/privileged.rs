//! Privileges: those of corewise, and programs that gain some when they are executed, which only root can
//! inspect.

use crate::proc::Proc;
use nix::unistd::{getegid, geteuid};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the privileges that a command gains over its user: `setuid`, `setgid` or `file capabilities`.
/// `None` for a command that gains nothing, and for root, which has everything.
pub fn gained(command: &OsStr) -> Option<&'static str> {
    if geteuid().is_root() {
        return None;
    }
    let path = file_of(command)?;
    let file = path.metadata().ok()?;
    match file.mode() {
        mode if mode & libc::S_ISUID != 0 && file.uid() != geteuid().as_raw() => Some("setuid"),
        mode if mode & libc::S_ISGID != 0 && file.gid() != getegid().as_raw() => Some("setgid"),
        _ => has_capabilities(&path).then_some("file capabilities"),
    }
}

/// `CAP_SYS_ADMIN` among the [effective] capabilities.
pub const SYS_ADMIN: u64 = 1 << 21;

/// `CAP_SYS_NICE` among the [effective] capabilities.
pub const SYS_NICE: u64 = 1 << 23;

/// `CAP_PERFMON` and `CAP_BPF` among the [effective] capabilities.
pub const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;

/// `CAP_SYS_PTRACE` among the [effective] capabilities.
pub const SYS_PTRACE: u64 = 1 << 19;

/// The capabilities of which corewise makes use, by number.
const USED: [(u32, &str); 7] = [
    (2, "CAP_DAC_READ_SEARCH"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
    (24, "CAP_SYS_RESOURCE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

/// Returns the names of those capabilities of which corewise makes use.
pub fn names(capabilities: u64) -> Vec<&'static str> {
    USED.iter().filter(|(bit, _)| capabilities >> bit & 1 == 1).map(|(_, name)| *name).collect()
}

/// Returns the capabilities of this process, one bit each; none if `proc` cannot be read.
pub fn effective(proc: &Proc) -> u64 {
    proc.own_status().bits("CapEff").unwrap_or(0)
}

/// Returns the file that a command executes.
pub fn file_of(command: &OsStr) -> Option<PathBuf> {
    find(command, std::env::var_os("PATH")?.as_os_str())
}

/// Returns the file that `execvp(3)` executes.
fn find(command: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    std::env::split_paths(path).map(|directory| directory.join(command)).find(|file| file.is_file())
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end with a zero byte; with a size of 0 the kernel writes nothing.
    let size =
        unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    size > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_their_names() {
        assert_eq!(names(SYS_NICE | SYS_PTRACE | 1), ["CAP_SYS_PTRACE", "CAP_SYS_NICE"]);
        assert_eq!(names(PERFMON_AND_BPF), ["CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(names(SYS_ADMIN), ["CAP_SYS_ADMIN"]);
    }

    #[test]
    fn commands_are_found_as_the_system_finds_them() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let path = std::env::join_paths([Path::new("/nowhere"), directory.path()]).unwrap();
        assert_eq!(find(OsStr::new("tool"), &path), Some(file));
        assert_eq!(find(OsStr::new("./tool"), &path), Some(PathBuf::from("./tool")));
        assert_eq!(find(OsStr::new("another"), &path), None);
    }
}
