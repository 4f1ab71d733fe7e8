//! What a program may report about its threads: that they only wait, which one does the serial parts, which
//! phase has begun, how much is done. For C it is `libcorewise`, for Rust this crate.
//!
//! Problem. A scheduler sees which threads run, but not which of them only wait, and not whether the program
//! advances. Approach: the runtime extensions of "parallelism-aware scheduling", section 2.2, where a
//! threading library informs the operating system by system calls. Here each call writes a word into the
//! caller's own memory ([`page`]); the scheduler reads it from outside, when it wants to. So a call takes
//! a few nanoseconds, never enters the kernel, cannot fail, and does nothing where nobody reads. Nothing is
//! opened, shared or named: there is nothing to clean up, and only a process that can write to the whole
//! program can write there.
//!
//! After a `fork` the child reports only its own thread ([`thread`]). Limits: only the first
//! [`page::THREADS_MAX`] living threads of a process are reported. The scheduler looks every few
//! milliseconds: what changes to and fro in between is not seen.
//!
//! ```
//! corewise::master_thread();
//! for phase in 0..3 {
//!     corewise::phase(phase);
//!     corewise::heartbeat(1);
//! }
//! ```

mod c;
pub mod page;
mod thread;

/// The calling thread begins to wait busily: from now on it does nothing useful.
#[inline]
pub fn spin_begin() {
    thread::own().spin(true);
}

/// The calling thread no longer waits busily.
#[inline]
pub fn spin_end() {
    thread::own().spin(false);
}

/// Waits busily, and reports it.
#[inline]
pub fn spinning<T>(wait: impl FnOnce() -> T) -> T {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            spin_end();
        }
    }
    spin_begin();
    let _end = End;
    wait()
}

/// From now on the calling thread does the serial parts of its process, and no other.
pub fn master_thread() {
    thread::become_master();
}

/// The calling thread begins a phase of its work. Equal numbers are phases of the same kind.
#[inline]
pub fn phase(number: u32) {
    thread::own().begin_phase(number);
}

/// Adds to the work that the calling thread has done, in a unit that is the same for all threads of the
/// program.
#[inline]
pub fn heartbeat(progress: u64) {
    thread::own().add_work(progress);
}
