//! A small OpenMP program, to show on any machine what happens when several such programs run at once.
//!
//! It is the pattern of solvers and learners: many parallel regions of some 50 µs, after each of which the
//! threads wait for each other. GNU's library is loaded while it runs, so that no compiler is needed; that it
//! then waits as in any other program is the point.

use nix::libc;
use std::ffi::{CStr, c_int, c_uint, c_void};

/// The size of the array that each region goes through.
const N: usize = 16_384;

/// Why the program cannot run.
#[derive(Debug, thiserror::Error)]
pub enum OpenMpError {
    /// The library is not there.
    #[error("GNU's OpenMP library is missing ({0}): apt-get install libgomp1")]
    NoLibrary(String),
    /// It is another library of that name.
    #[error("libgomp.so.1 has no function {0:?}")]
    NoFunction(&'static CStr),
}

/// `GOMP_parallel(function, data, threads, flags)`.
type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);
/// `omp_get_thread_num()` and `omp_get_num_threads()`.
type Number = unsafe extern "C" fn() -> c_int;

struct Library {
    parallel: Parallel,
    thread: Number,
    threads: Number,
}

/// What a region works on.
struct Work<'a> {
    library: &'a Library,
    x: *mut [f64; N],
}

/// Executes so many parallel regions with as many threads as OpenMP chooses; returns a sum over the results,
/// which does not depend on the number of threads.
pub fn regions(count: u64) -> Result<f64, OpenMpError> {
    let library = Library::load()?;
    let mut x = Box::new([0.0; N]);
    let mut sum = 0.0;
    for region in 0..count {
        let mut work = Work { library: &library, x: &raw mut *x };
        // SAFETY: the function has this signature in every version of the library (its ABI is stable), and
        // returns when all threads have finished `share`, so `work` outlives them.
        unsafe { (library.parallel)(share, (&raw mut work).cast(), 0, 0) };
        sum += x[region as usize % N];
    }
    Ok(sum)
}

/// The work of one thread: its part of the array, as `schedule(static)` deals it out.
extern "C" fn share(work: *mut c_void) {
    // SAFETY: `regions` hands over a `Work` that lives until all threads return; nobody changes it.
    let work = unsafe { &*work.cast::<Work<'_>>() };
    // SAFETY: both functions take nothing and return a number, also outside of a region.
    let (thread, threads) = unsafe { ((work.library.thread)(), (work.library.threads)()) };
    let (thread, threads) = (thread.max(0) as usize, threads.max(1) as usize);
    let part = N * thread / threads..N * (thread + 1) / threads;
    for i in part {
        // SAFETY: the parts of the threads do not overlap and lie within the array, which nobody else touches
        // until all have returned.
        let x = unsafe { &mut (*work.x)[i] };
        *x = *x * 0.999 + i as f64 / (1.0 + *x * *x);
    }
}

impl Library {
    fn load() -> Result<Self, OpenMpError> {
        // SAFETY: a constant name; loading the library only runs its own initialisation. It is never closed.
        let handle = unsafe { libc::dlopen(c"libgomp.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: dlerror returns a string, valid until the next such call, or null.
            let why = unsafe { libc::dlerror().as_ref().map(|why| CStr::from_ptr(why)) };
            let why = why.map_or_else(String::new, |why| why.to_string_lossy().into_owned());
            return Err(OpenMpError::NoLibrary(why));
        }
        let function = |name: &'static CStr| {
            // SAFETY: an open handle and a terminated name.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if found.is_null() { Err(OpenMpError::NoFunction(name)) } else { Ok(found) }
        };
        let parallel = function(c"GOMP_parallel")?;
        let numbers = [function(c"omp_get_thread_num")?, function(c"omp_get_num_threads")?];
        // SAFETY: these are the functions of those names, whose signatures OpenMP and the library's ABI fix.
        unsafe {
            Ok(Library {
                parallel: std::mem::transmute::<*mut c_void, Parallel>(parallel),
                thread: std::mem::transmute::<*mut c_void, Number>(numbers[0]),
                threads: std::mem::transmute::<*mut c_void, Number>(numbers[1]),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_one_thread() {
        let mut x = vec![0.0_f64; N];
        let mut expected = 0.0;
        for region in 0..3 {
            for (i, x) in x.iter_mut().enumerate() {
                *x = *x * 0.999 + i as f64 / (1.0 + *x * *x);
            }
            expected += x[region % N];
        }
        match regions(3) {
            Ok(sum) => assert_eq!(sum, expected),
            Err(error) => corewise_testing::skip!(Libgomp, "{error}"),
        }
    }
}
