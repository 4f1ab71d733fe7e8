//! Threads that run with the mask of a bound thread, reported by the BPF programs before they run.
//!
//! The process that binds threads enters them here with two numbers for its own use (which mask it has set,
//! and which one is to be restored), and waits in a thread of its own for those that inherit the mask.

use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBufferBuilder};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to wait before it is checked whether the waiting is to end.
const WAIT: Duration = Duration::from_millis(500);

/// `struct bound` of `discovery.bpf.c`.
#[repr(C)]
struct RawBound {
    freed: u64,
    ours: u32,
    original: u32,
}

/// A thread that runs with the mask of a bound thread: one that it has created, or itself with another
/// program. `struct heir` of `discovery.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heir {
    /// The thread.
    pub tid: u32,
    /// The number of the mask that was set.
    pub ours: u32,
    /// The number of the mask that is to be restored.
    pub original: u32,
}

/// The list of bound threads in the kernel; see the module documentation.
#[derive(Debug)]
pub struct Heirs {
    bound: MapHandle,
    heirs: MapHandle,
}

impl Heirs {
    pub(super) const BOUND_SIZE: usize = size_of::<RawBound>();

    pub(super) fn new(bound: MapHandle, heirs: MapHandle) -> Heirs {
        Heirs { bound, heirs }
    }

    /// Returns the map of bound threads.
    pub(super) fn bound(&self) -> &MapHandle {
        &self.bound
    }

    /// Returns a second handle.
    pub fn try_clone(&self) -> io::Result<Heirs> {
        let clone = |map: &MapHandle| MapHandle::try_from(map).map_err(io::Error::other);
        Ok(Heirs { bound: clone(&self.bound)?, heirs: clone(&self.heirs)? })
    }

    /// Enters a thread that is about to be bound, or was moved: then both masks are the same.
    pub fn enter(&self, tid: u32, ours: u32, original: u32) -> io::Result<()> {
        self.update(tid, &RawBound { freed: 0, ours, original }, MapFlags::ANY)
    }

    /// Removes a thread that has its own mask again. For a moment it still counts: it may be in the middle of
    /// creating another one with the old mask.
    pub fn remove(&self, tid: u32) {
        let known = self.bound.lookup(&tid.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let Some(known) = known.filter(|bytes| bytes.len() == Heirs::BOUND_SIZE) else { return };
        // SAFETY: RawBound is plain data and `known` has its size.
        let known = unsafe { known.as_ptr().cast::<RawBound>().read_unaligned() };
        // It may have ended meanwhile.
        let _ = self.update(tid, &RawBound { freed: corewise_bpf::monotonic_ns(), ..known }, MapFlags::EXIST);
    }

    fn update(&self, tid: u32, bound: &RawBound, flags: MapFlags) -> io::Result<()> {
        // SAFETY: the structure is `repr(C)` and has no padding; every byte of it is initialised.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(bound).cast(), Heirs::BOUND_SIZE) };
        self.bound.update(&tid.to_ne_bytes(), bytes, flags).map_err(io::Error::other)
    }

    /// Calls `see` for each heir, as soon as there is one, until `ends`.
    pub fn wait(&self, ends: &AtomicBool, mut see: impl FnMut(Heir)) -> io::Result<()> {
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            assert_eq!(bytes.len(), size_of::<Heir>(), "discovery.bpf.c and heirs.rs disagree on heirs");
            // SAFETY: Heir is plain data and `bytes` has its size.
            see(unsafe { bytes.as_ptr().cast::<Heir>().read_unaligned() });
            0
        };
        builder.add(&self.heirs, take).map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        while !ends.load(Ordering::Relaxed) {
            match ring.poll(WAIT) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                    return Err(io::Error::other(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}
