//! Why threads cannot be discovered, or a process not followed.

use super::attach;
use corewise_sys::cgroup::GroupError;
use corewise_sys::proc::ProcError;

/// Why a process is not followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It may not, or should not.
    #[error(transparent)]
    Attach(#[from] attach::AttachError),
    /// Nobody can be followed any more.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The source was opened without [`Root::Others`](super::Root::Others).
    #[error("only what was named at the start is followed")]
    Fixed,
}

impl From<ProcError> for FollowError {
    fn from(error: ProcError) -> FollowError {
        FollowError::Discovery(error.into())
    }
}

/// Why threads cannot be discovered.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A file under `/proc` could not be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// A control group could not be read.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// BPF is not permitted, or the kernel lacks something.
    #[error("BPF cannot be used: {reason}")]
    Bpf {
        /// What was refused, and what would help.
        reason: String,
    },
    /// The source does not see which processes run beside which.
    #[error("which programs run beside which is only seen with BPF (`--discovery bpf`)")]
    Unseen,
}

impl DiscoveryError {
    pub(super) fn bpf(error: std::io::Error) -> DiscoveryError {
        DiscoveryError::Bpf { reason: error.to_string() }
    }
}

pub(super) fn bpf_error(error: libbpf_rs::Error) -> DiscoveryError {
    refused(corewise_bpf::reason(error))
}

pub(super) fn refused(reason: String) -> DiscoveryError {
    DiscoveryError::Bpf { reason }
}
