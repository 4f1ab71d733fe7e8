//! What a process may be short of while it looks at others: descriptors and memory.
//!
//! Problem: somebody lowers corewise's limits, or the whole machine has no descriptor left. A look that fails
//! for that reason shows nothing about what was looked at, but is easily taken for "it is not there".
//! Approach: such errors are distinguished from all others, by which a process is gone or keeps strangers
//! out, and are passed on. A process that must restore something raises its own limits first.
//!
//! Limit: an allocation that fails ends the process, whose guardian continues.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// How many descriptors restoring takes at a time, generously: most processes may have 1,024.
const DESCRIPTORS: u64 = 1024;

/// Returns whether a call failed because this process, or the machine, is short of descriptors or memory.
pub fn is_shortage(error: &io::Error) -> bool {
    // An error about a file has the system's error as its source.
    let source = error.get_ref().and_then(|about| about.source()?.downcast_ref::<io::Error>());
    let errno = source.unwrap_or(error).raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
}

/// Returns `None` for what is not there, or not for this process to read; an error only if that was not to be
/// seen.
pub fn unless_short<T>(result: Result<T, impl Into<io::Error>>) -> io::Result<Option<T>> {
    match result.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Raises the limits of this process on descriptors and memory as far as that is permitted. What it starts
/// inherits them.
pub fn raise_limits() {
    for (resource, least) in [
        (Resource::RLIMIT_NOFILE, DESCRIPTORS),
        (Resource::RLIMIT_AS, u64::MAX),
        (Resource::RLIMIT_DATA, u64::MAX),
    ] {
        let Ok((_, hard)) = getrlimit(resource) else { continue };
        let most = hard.max(least);
        // Only root may raise a hard limit.
        let _ = setrlimit(resource, most, most).or_else(|_| setrlimit(resource, hard, hard));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::{Proc, ProcError};
    use std::path::Path;

    #[test]
    fn a_shortage_is_not_taken_for_what_is_not_there_also_within_an_error_about_a_file() {
        let short = || io::Error::from_raw_os_error(libc::EMFILE);
        let of_file = ProcError { path: "/proc/7/stat".to_owned(), source: short() };
        assert!(is_shortage(&short()) && is_shortage(&io::Error::from(of_file)));
        assert!(unless_short(Err::<(), _>(short())).is_err());
        let gone = std::fs::read(Path::new("/proc/4000000000/stat"));
        assert!(matches!(unless_short(gone), Ok(None)));
        assert!(matches!(unless_short(Proc::own().task(std::process::id())), Ok(Some(Some(_)))));
    }
}
