//! The measuring loops, one family of kernels per file, ready to run.
//!
//! A kernel must stress one resource and little else, and must not change over time. Its loop is therefore
//! written in assembly, for x86-64 and for aarch64, so that no compiler reorders, widens or removes any of
//! it. Each file documents what its kernels execute and the unit of their work; its tests prove from the
//! results that the work was done and how much of it.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod branches;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod computation;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod convert;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod memory;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod power;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod region;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod sync;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use corewise_core::kernels::Focus;
use corewise_core::kernels::Kernel;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

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

/// A variable alone in its cache line, and in the neighbouring lines that a prefetcher might fetch with it.
#[derive(Debug, Default)]
#[repr(align(256))]
struct Line(AtomicU64);

/// The memory shared by two threads. Use a new one for each pair of loops.
#[derive(Debug, Default)]
pub struct SharedLines {
    /// Written by the first thread; Alternate and FetchAdd use it for both.
    first: Line,
    /// Written by the second thread.
    second: Line,
}

/// Which of the two threads a loop is for. Each pair needs one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its number is 0, and it hands over first.
    First,
    /// Its number is 1; it answers.
    Second,
}

/// A prepared kernel, or the error. Within a family: `None` for other kernels.
type Made = Result<Box<dyn Loop>, KernelError>;

/// Prepares a kernel. Must be called on the thread that will run it, after that thread was pinned, so that
/// memory is first touched there and lies near the PE.
///
/// `region_bytes` is used by kernels with [`Kernel::needs_region`] only, `shared` by those with
/// [`Kernel::needs_partner`] only. The work that a synchronisation kernel returns is this thread's part; the
/// unit of its work counts both parts, so add them up.
pub fn prepare(kernel: Kernel, region_bytes: u64, shared: Option<(Arc<SharedLines>, Role)>) -> Made {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    match kernel.focus() {
        Focus::Synchronisation => {
            let (lines, role) = shared.ok_or(KernelError::Partner(kernel))?;
            sync::prepare(kernel, lines, role)
        }
        Focus::Memory => memory::prepare(kernel, region_bytes),
        Focus::Computation => [computation::prepare, convert::prepare, branches::prepare, power::prepare]
            .into_iter()
            .find_map(|family: fn(Kernel) -> Option<Made>| family(kernel))
            .unwrap_or(Err(KernelError::Unwritten(kernel))),
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (kernel, region_bytes, shared);
        Err(KernelError::Architecture(std::env::consts::ARCH))
    }
}

/// Returns the name of the vector unit that kernels use on this processor: `AVX-512`, `NEON`. `None` on an
/// architecture without kernels.
pub fn vector_unit() -> Option<&'static str> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let name = Some(vector::Vector::widest().name());
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let name = None;
    name
}

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

/// Returns the facts of all existing kernels, in the order of [`Kernel::ALL`].
pub fn facts() -> Vec<Facts> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let all = [sync::FACTS, memory::FACTS, computation::FACTS, convert::FACTS, branches::FACTS, power::FACTS];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let all: [&[Facts]; 0] = [];
    all.concat()
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_gets_ready_and_works() {
        for kernel in Kernel::ALL {
            let shared = kernel.needs_partner().then(|| (Arc::default(), Role::Second));
            let region_bytes = if kernel.needs_region() { 4096 } else { 0 };
            let mut made = match prepare(kernel, region_bytes, shared) {
                Err(KernelError::Unit { .. }) if kernel == Kernel::WideFma => continue,
                made => made.unwrap(),
            };
            // There is no partner here, so stop those that would wait.
            let stop = AtomicBool::new(kernel.needs_partner() && kernel != Kernel::FetchAdd);
            let works = made.chunk(&stop) > 0.0;
            assert_eq!(works, !stop.into_inner(), "{kernel:?}");
        }
    }

    #[test]
    fn a_pair_without_shared_lines_is_refused() {
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.needs_partner()) {
            assert!(
                matches!(prepare(kernel, 0, None), Err(KernelError::Partner(refused)) if refused == kernel)
            );
        }
    }

    #[test]
    fn every_kernel_has_its_facts() {
        assert!(facts().iter().map(|facts| facts.kernel).eq(Kernel::ALL));
    }
}
