//! The limit of open descriptors: counting takes some per thread, and the usual soft limit is 1,024.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The limit as it was found, and as it is now.
///
/// Programs that corewise starts must get back what was found ([`DescriptorLimit::restore`] between fork and
/// exec): some break when they meet descriptors above 1,023.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    soft_before: u64,
    /// Descriptors that this process may hold now: the hard limit.
    pub now: u64,
}

impl DescriptorLimit {
    /// Raises the soft limit to the hard one.
    pub fn raise() -> nix::Result<Self> {
        let (soft_before, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        Ok(Self { soft_before, now: hard })
    }

    /// Sets the soft limit back. A single system call: it may be made between fork and exec.
    pub fn restore(&self) -> nix::Result<()> {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft_before, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_is_undone_by_restoring() {
        let found = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let lower = found.1.min(4_096) - 1;
        setrlimit(Resource::RLIMIT_NOFILE, lower, found.1).unwrap();
        let limit = DescriptorLimit::raise().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (found.1, found.1));
        assert_eq!(limit.now, found.1);
        limit.restore().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (lower, found.1));
        setrlimit(Resource::RLIMIT_NOFILE, found.0, found.1).unwrap();
    }
}
