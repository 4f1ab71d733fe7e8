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

/// The limits, and what restoring wants of each: as many descriptors as most processes may have, and all
/// memory.
const WANTED: [(Resource, u64); 3] = [
    (Resource::RLIMIT_NOFILE, 1024),
    (Resource::RLIMIT_AS, nix::libc::RLIM_INFINITY),
    (Resource::RLIMIT_DATA, nix::libc::RLIM_INFINITY),
];

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

/// The limits of this process on descriptors and memory, raised as far as that is permitted. Dropped, they
/// are as before: what this process starts is to have what it was started with.
#[must_use]
#[derive(Debug)]
pub struct Raised(Vec<(Resource, u64, u64)>);

/// Raises the limits until the result is dropped.
pub fn raise_limits() -> Raised {
    let before = |resource| getrlimit(resource).ok().map(|(soft, hard)| (resource, soft, hard));
    let raised = Raised(WANTED.into_iter().filter_map(|(resource, _)| before(resource)).collect());
    raised.renew();
    raised
}

impl Raised {
    /// Raises them again, as somebody may have lowered them meanwhile.
    pub fn renew(&self) {
        for (resource, least) in WANTED {
            let Ok((_, hard)) = getrlimit(resource) else { continue };
            let most = hard.max(least);
            // Only root may raise a hard limit.
            let _ = setrlimit(resource, most, most).or_else(|_| setrlimit(resource, hard, hard));
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        for (resource, soft, hard) in self.0.drain(..) {
            let _ = setrlimit(resource, soft, hard);
        }
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

    #[test]
    fn limits_are_raised_for_a_while() {
        let all = || {
            [Resource::RLIMIT_NOFILE, Resource::RLIMIT_AS, Resource::RLIMIT_DATA]
                .map(|resource| getrlimit(resource).unwrap())
        };
        let before = all();
        let raised = raise_limits();
        assert!(all().iter().all(|(soft, hard)| soft == hard));
        drop(raised);
        assert_eq!(all(), before);
    }
}
