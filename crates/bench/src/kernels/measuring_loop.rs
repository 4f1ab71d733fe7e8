//! What a measuring loop is, what is known of it, and why there may be none.

use corewise_core::kernels::Kernel;
use std::sync::atomic::AtomicBool;

/// A kernel that is ready to run on the thread that prepared it: its memory is allocated and touched.
pub trait Loop {
    /// Works for 5 to 50 µs (one pass over a large region may take longer, but no chunk longer than 1 ms) and
    /// returns the units of work done. A synchronisation kernel returns early, permanently, once `stop` is
    /// set, so that no thread waits for a partner that has left.
    fn chunk(&mut self, stop: &AtomicBool) -> f64;
}

/// Why a kernel cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// There is no code for this architecture.
    #[error("no measuring loops for {0}: there are some for x86_64 and aarch64")]
    Architecture(&'static str),
    /// The processor lacks an execution unit.
    #[error("{} needs {unit}, which this processor lacks: leave it out", .kernel.name())]
    Unit {
        /// The kernel.
        kernel: Kernel,
        /// The missing unit.
        unit: &'static str,
    },
    /// A memory kernel was given a region of unusable size.
    #[error("{} cannot work on {bytes} bytes: give a positive multiple of 4096", .kernel.name())]
    RegionSize {
        /// The kernel.
        kernel: Kernel,
        /// The requested size.
        bytes: u64,
    },
    /// There is not enough memory.
    #[error("no memory for {bytes} bytes: {source}; leave out the largest regions or free some")]
    Memory {
        /// The requested size.
        bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel has no loop yet.
    #[error("there is no measuring loop for {}: this corewise is incomplete", .0.name())]
    Unwritten(Kernel),
    /// The kernel needs two threads, but there is only one.
    #[error("{} needs two threads: give both the same shared lines", .0.name())]
    Partner(Kernel),
}

/// A prepared kernel, or the error. Within a family: `None` for other kernels.
pub type Made = Result<Box<dyn Loop>, KernelError>;

/// What one unit of a kernel's work does, apart from counting and addressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The kernel.
    pub kernel: Kernel,
    /// Bytes that are loaded.
    pub bytes_read: u32,
    /// Bytes that are stored.
    pub bytes_written: u32,
    /// Arithmetic operations, conversions or decisions.
    pub operations: u32,
}
