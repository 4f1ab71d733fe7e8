//! The state that the BPF programs keep for each application, in shared memory.
//!
//! The array of structures is mapped, so that reading it takes no system call. The kernel may write words
//! while they are read here.

use libbpf_rs::MapHandle;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::{NonNull, addr_of_mut};

/// `struct app` of `discovery.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RawApp {
    pub present: u64,
    pub start: u64,
    pub runnable_xor: u64,
    pub runnable_thread_ns: u64,
    pub active_ns: u64,
    pub sequential_ns: u64,
    pub threads_lost: u64,
    pub events_lost: u64,
    woken: u64,
    told: u64,
    pub told_runnable: u32,
    asked: u32,
    pub runnable_max: u32,
    pub changes: u32,
    unwatched: u32,
    reserved: u32,
}

impl RawApp {
    /// Returns the state of an application that is followed from this time of CLOCK_MONOTONIC on.
    pub fn since(start: u64) -> RawApp {
        RawApp { start, ..RawApp::default() }
    }
}

/// `APPS_MAX` of `discovery.bpf.c`.
pub(super) const APPS_MAX: usize = 64;

/// The mapped array.
#[derive(Debug)]
pub(super) struct Apps {
    first: NonNull<RawApp>,
}

// SAFETY: the mapping belongs to the process and is used through this value only.
unsafe impl Send for Apps {}

impl Apps {
    const BYTES: NonZeroUsize = NonZeroUsize::new(APPS_MAX * size_of::<RawApp>()).expect("neither is 0");

    /// Maps the array, whose values must have the size of [`RawApp`].
    pub fn map(apps: &MapHandle) -> io::Result<Apps> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let first = unsafe { mmap(None, Self::BYTES, access, MapFlags::MAP_SHARED, apps.as_fd(), 0) }?;
        Ok(Apps { first: first.cast() })
    }

    /// Returns the state of an application. A read may mix words from before and after a change, so it is
    /// repeated until two reads agree. If they never do, changes are so frequent that the error of a single
    /// change is short-lived.
    pub fn read(&self, index: usize) -> RawApp {
        let place = self.place(index);
        // SAFETY: the address is within the mapping (see `place`), and every value of its bytes is a RawApp.
        let once = || unsafe { place.read_volatile() };
        let mut app = once();
        for _ in 0..4 {
            let again = once();
            if again == app {
                break;
            }
            app = again;
        }
        app
    }

    /// Enables reports of changes of the application's number of runnable threads.
    pub fn ask(&mut self, index: usize) {
        // SAFETY: as above; the kernel only reads this word.
        unsafe { addr_of_mut!((*self.place(index)).asked).write_volatile(1) };
    }

    /// Sets whether switches and wake-ups of the application's threads are left unwatched.
    pub fn leave_unwatched(&mut self, index: usize, unwatched: bool) {
        // SAFETY: as above; the kernel only reads this word.
        unsafe { addr_of_mut!((*self.place(index)).unwatched).write_volatile(unwatched.into()) };
    }

    /// Records that the number of runnable threads was read and reported at this time.
    pub fn note_reported(&mut self, index: usize, count: u32, at: u64) {
        let place = self.place(index);
        // SAFETY: as above. The kernel may write both words concurrently, and either value is valid: a report
        // that is too early or too late only leads to an additional read.
        unsafe {
            addr_of_mut!((*place).told_runnable).write_volatile(count);
            addr_of_mut!((*place).told).write_volatile(at);
        }
    }

    fn place(&self, index: usize) -> *mut RawApp {
        assert!(index < APPS_MAX, "there is no application {index}");
        // SAFETY: the mapping holds APPS_MAX values.
        unsafe { self.first.as_ptr().add(index) }
    }
}

impl Drop for Apps {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this size, and no reference into it was ever handed out.
        let _ = unsafe { munmap(self.first.cast::<c_void>(), Self::BYTES.get()) };
    }
}
