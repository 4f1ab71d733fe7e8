//! What the BPF programs keep of each application, in memory that they share with us.
//!
//! An array of structures is mapped, so that to look at it is no system call. Words are written by the kernel
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
    /// Of an application that is followed from this time of CLOCK_MONOTONIC on.
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

impl Apps {
    const BYTES: NonZeroUsize = NonZeroUsize::new(APPS_MAX * size_of::<RawApp>()).expect("neither is 0");

    /// Maps the array, whose values must have the size of [`RawApp`].
    pub fn map(apps: &MapHandle) -> io::Result<Apps> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the place, so nothing else is mapped over.
        let first = unsafe { mmap(None, Self::BYTES, access, MapFlags::MAP_SHARED, apps.as_fd(), 0) }?;
        Ok(Apps { first: first.cast() })
    }

    /// What is kept of an application. The words may be of before and after a change: twice the same is of
    /// one time; where it never is, changes are frequent, and what one of them makes wrong is short.
    pub fn read(&self, index: usize) -> RawApp {
        let place = self.place(index);
        // SAFETY: the place is within the mapping (see `place`), and every value of its bytes is a RawApp.
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

    /// From now on changes of the application's number of runnable threads are reported.
    pub fn ask(&mut self, index: usize) {
        // SAFETY: as above; the kernel only reads this word.
        unsafe { addr_of_mut!((*self.place(index)).asked).write_volatile(1) };
    }

    /// Whether nobody looks at switches and wake-ups of the application's threads from now on.
    pub fn leave_unwatched(&mut self, index: usize, unwatched: bool) {
        // SAFETY: as above; the kernel only reads this word.
        unsafe { addr_of_mut!((*self.place(index)).unwatched).write_volatile(unwatched.into()) };
    }

    /// The number of runnable threads was looked at and reported at this time.
    pub fn note_reported(&mut self, index: usize, count: u32, at: u64) {
        let place = self.place(index);
        // SAFETY: as above; the kernel may write both words at this moment, and either value is good: what it
        // tells too early or too late is looked at anyway.
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
        // SAFETY: it was mapped with this size, and no reference into it is ever given out.
        let _ = unsafe { munmap(self.first.cast::<c_void>(), Self::BYTES.get()) };
    }
}
