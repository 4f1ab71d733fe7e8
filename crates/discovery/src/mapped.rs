//! Arrays of BPF programs in shared memory: reading them takes no system call. The kernel may write words
//! while they are read here.

use libbpf_rs::MapHandle;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// A mapped array.
#[derive(Debug)]
pub(super) struct Mapped<Value> {
    first: NonNull<Value>,
    count: usize,
}

// SAFETY: the mapping belongs to the process and is used through this value only.
unsafe impl<Value> Send for Mapped<Value> {}

impl<Value: Copy + PartialEq> Mapped<Value> {
    /// Maps an array of that many values, which must have this size.
    pub fn map(array: &MapHandle, count: usize) -> io::Result<Mapped<Value>> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let first =
            unsafe { mmap(None, Self::bytes(count), access, MapFlags::MAP_SHARED, array.as_fd(), 0) }?;
        Ok(Mapped { first: first.cast(), count })
    }

    fn bytes(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count * size_of::<Value>()).expect("neither is 0")
    }

    /// Returns a value. A read may mix words from before and after a change, so it is repeated until two
    /// reads agree. If they never do, changes are so frequent that the error of a single change is
    /// short-lived.
    pub fn read(&self, index: usize) -> Value {
        let place = self.place(index);
        // SAFETY: the address is within the mapping (see `place`), and all bytes of it are a Value.
        let once = || unsafe { place.read_volatile() };
        let mut value = once();
        for _ in 0..4 {
            let again = once();
            if again == value {
                break;
            }
            value = again;
        }
        value
    }

    /// Returns the address of a value.
    pub fn place(&self, index: usize) -> *mut Value {
        assert!(index < self.count, "there is no value {index}");
        // SAFETY: the mapping holds `count` values.
        unsafe { self.first.as_ptr().add(index) }
    }
}

impl<Value> Drop for Mapped<Value> {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this size, and no reference into it was ever handed out.
        let _ = unsafe { munmap(self.first.cast::<c_void>(), self.count * size_of::<Value>()) };
    }
}
