//! Why a benchmark did not run.

use corewise_core::ids::PeId;
use corewise_core::kernels::{Nas, ProblemClass};
use nix::errno::Errno;

/// Why a benchmark did not run.
#[derive(Debug, thiserror::Error)]
pub enum NasError {
    /// The benchmark, or this size of it, is not built in.
    #[error("{} {class:?} is not built in: give a directory with your own NPB binaries", nas.name())]
    NotBuiltIn {
        /// The benchmark.
        nas: Nas,
        /// Its size.
        class: ProblemClass,
    },
    /// There are no PEs to run on.
    #[error("a benchmark needs at least one PE")]
    NoPes,
    /// A thread could not be bound.
    #[error("cannot run on PE {pe}: {errno}: is it online, and within the cpuset of this process?")]
    Bind {
        /// The PE.
        pe: PeId,
        /// The system's error.
        errno: Errno,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}: raise the limit on processes (ulimit -u), or use fewer PEs")]
    Thread(std::io::Error),
    /// The problem does not fit.
    #[error(
        "{} {class:?} needs {} MiB of memory, and {} MiB may be taken: take a smaller class, or stop what \
         else runs", nas.name(), needed >> 20, available >> 20
    )]
    Memory {
        /// The benchmark.
        nas: Nas,
        /// Its size.
        class: ProblemClass,
        /// The required memory, in bytes.
        needed: u64,
        /// The available memory, in bytes.
        available: u64,
    },
}
