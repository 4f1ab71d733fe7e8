//! The interface for C. `include/corewise.h` is made of this file.

/// The calling thread begins to wait busily: from now on it does nothing useful.
#[unsafe(no_mangle)]
pub extern "C" fn corewise_spin_begin() {
    crate::spin_begin();
}

/// The calling thread no longer waits busily.
#[unsafe(no_mangle)]
pub extern "C" fn corewise_spin_end() {
    crate::spin_end();
}

/// From now on the calling thread does the serial parts of its process, and no other.
#[unsafe(no_mangle)]
pub extern "C" fn corewise_master_thread() {
    crate::master_thread();
}

/// The calling thread begins a phase of its work. Equal numbers are phases of the same kind.
#[unsafe(no_mangle)]
pub extern "C" fn corewise_phase(number: u32) {
    crate::phase(number);
}

/// Adds to the work that the calling thread has done, in a unit that is the same for all threads of the
/// program.
#[unsafe(no_mangle)]
pub extern "C" fn corewise_heartbeat(progress: u64) {
    crate::heartbeat(progress);
}
