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
mod measuring_loop;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod memory;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod power;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod region;
mod shared_lines;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod sync;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

pub use measuring_loop::{Facts, KernelError, Loop};
pub use shared_lines::{Role, SharedLines};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use corewise_core::kernels::Focus;
use corewise_core::kernels::Kernel;
use measuring_loop::Made;
use std::sync::Arc;

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
    use std::sync::atomic::AtomicBool;

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
