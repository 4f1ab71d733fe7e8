//! Why PEs cannot be slowed down.

use crate::frequency::{FrequencyError, SYSTEM};
use corewise_core::ids::PeId;
use nix::errno::Errno;
use std::io;

/// The priority of threads that take time: above the measuring threads, and above those that must only run
/// before all ordinary threads.
pub const PRIORITY: libc::c_int = 10;

/// Other load, or a hypervisor, may disturb a measurement, but hardly this many.
pub const TRIES: u32 = 5;

/// Why PEs cannot be slowed down.
#[derive(Debug, thiserror::Error)]
pub enum SlowError {
    /// There is no such PE.
    #[error("PE {pe} does not exist ({SYSTEM}/cpu{pe}: {error})")]
    NoPe {
        /// The PE.
        pe: PeId,
        /// The system's error.
        error: io::Error,
    },
    /// Another emulation holds the PE.
    #[error("PE {pe} is already slowed down by another `corewise emulate-slow`: end that one first")]
    Taken {
        /// The PE.
        pe: PeId,
    },
    /// The clock cannot be slowed that much.
    #[error(transparent)]
    Frequency(#[from] FrequencyError),
    /// The clock could not be limited.
    #[error("the clock cannot be limited: {0}; this needs root, unlike real-time threads (`--by threads`)")]
    Limit(#[source] io::Error),
    /// The kernel stops real-time threads before they have taken their share.
    #[error(
        "the kernel lets real-time threads run for {allowed:.2} of the time and {share:.2} are to be taken: \
         raise kernel.sched_rt_runtime_us, or choose a speed of {} at least",
        .speed_min
    )]
    Throttled {
        /// The share that the kernel permits.
        allowed: f64,
        /// The share that is needed.
        share: f64,
        /// The lowest speed that the limit permits.
        speed_min: f64,
    },
    /// Real-time scheduling is not permitted.
    #[error(
        "real-time scheduling is not permitted: raise the limit (`ulimit -r {priority}`, RLIMIT_RTPRIO) or \
         give CAP_SYS_NICE; in a control group of a kernel with CONFIG_RT_GROUP_SCHED also cpu.rt_runtime_us",
        priority = PRIORITY
    )]
    RealTime,
    /// A thread cannot run on the PE.
    #[error("PE {pe} cannot be used: {errno} (is it offline, or not allowed to this process?)")]
    Pe {
        /// The PE.
        pe: PeId,
        /// The system's error.
        errno: Errno,
    },
    /// No thread can be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The measured speed differs from the requested one.
    #[error(
        "PE {pe} runs at {measured:.2} of its speed, not at {wanted:.2}, by {TRIES} measurements: other \
         real-time threads, a hypervisor or the governor of its clock are in the way"
    )]
    Missed {
        /// The PE with the largest deviation.
        pe: PeId,
        /// Its measured share of its own speed.
        measured: f64,
        /// The requested share.
        wanted: f64,
    },
}

impl SlowError {
    /// Returns whether the error is more than a machine without any means to limit its clocks.
    pub fn is_news(&self) -> bool {
        !matches!(self, SlowError::Frequency(FrequencyError::None { .. }))
    }
}
