//! Counts how often a thread passes a place in its code, by a perf event of the thread, without a program in
//! the kernel.
//!
//! There are two ways. A uprobe is a breakpoint in the code of a file: there may be many, but the kernel
//! takes some 50 ms to remove one, one after the other, and until then each pass costs a microsecond or two.
//! An execute breakpoint is a register of the processor: a thread has four, they come and go at once, and do
//! not change the code. So many points are tried by breakpoints, and the few suitable ones are counted by
//! uprobes.
//!
//! The microsecond applies where the kernel emulates the instruction under the probe: a push, a nop, a jump,
//! a call. It single-steps others, which takes a debug exception. A hypervisor that intercepts these makes
//! them 15 times as expensive (14 µs were measured, and the code after it is slower, too). An execute
//! breakpoint takes the same exception, so its cost is measured once, and limits the rate.

use corewise_core::progress::{RATE_MAX, RATE_MIN};
use corewise_sys::proc::{self, Proc};
use perf_event_open_sys::bindings as sys;
use std::ffi::CString;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The file with the type number of uprobe events.
const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// The kernel's error for an instruction that it cannot probe (`ENOTSUPP`, which is not meant to leave the
/// kernel).
pub const CANNOT_PROBE: i32 = 524;

/// The number of execute breakpoints that a thread can have at once.
pub const WATCHED_MAX: usize = 4;

/// The length of an execute breakpoint that the kernel requires.
const WATCHED_BYTES: u64 = if cfg!(target_arch = "aarch64") { 4 } else { size_of::<usize>() as u64 };

/// The maximum cost of counting one point, as a share of the time.
const COST_MAX: f64 = 0.005;

/// A point is no longer counted if it is passed this many times as often as it may be.
pub const TOO_HIGH: f64 = 2.0;

/// The number of passes that are timed together, and how often: the shortest time counts.
const TIMED_PASSES: u32 = 16;
const TIMED: usize = 4;

/// Returns how often per second a point may be passed if the kernel has to step over its instruction.
pub fn stepped_rate_max() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| exception_cost().map_or(RATE_MAX, rate_at))
}

/// Converts a rate of passes to that of the cheapest passes with the same cost.
pub fn dear(rate: f64, rate_max: f64) -> f64 {
    rate * RATE_MAX / rate_max
}

fn rate_at(cost: Duration) -> f64 {
    (COST_MAX / cost.as_secs_f64()).clamp(RATE_MIN, RATE_MAX)
}

/// Measures the cost of a debug exception; `None` if it cannot be tried.
fn exception_cost() -> Option<Duration> {
    let tid = nix::unistd::gettid().as_raw() as u32;
    let _watched = Counter::watch(tid, passed as fn() as usize as u64).ok()?;
    let once = || {
        let begin = Instant::now();
        (0..TIMED_PASSES).for_each(|_| black_box(passed as fn())());
        begin.elapsed() / TIMED_PASSES
    };
    (0..TIMED).map(|_| once()).min()
}

/// Tries a uprobe on corewise's own code.
pub fn try_uprobe() -> io::Result<()> {
    let address = passed as fn() as usize as u64;
    let mapping = Proc::own().own_mapping_at(address)?.ok_or(io::ErrorKind::NotFound)?;
    let file = File::open(std::env::current_exe()?)?;
    let tid = nix::unistd::gettid().as_raw() as u32;
    Counter::open(tid, &file, address - mapping.start + mapping.offset).map(Counter::close)
}

#[inline(never)]
fn passed() {
    black_box(());
}

/// Counts one point of one thread, from its opening on.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// Counts by an execute breakpoint, which is removed as soon as this is dropped.
    pub fn watch(tid: u32, address: u64) -> io::Result<Counter> {
        let mut attr = sys::perf_event_attr::default();
        attr.type_ = sys::PERF_TYPE_BREAKPOINT;
        attr.bp_type = sys::HW_BREAKPOINT_X;
        attr.__bindgen_anon_3.bp_addr = address;
        attr.__bindgen_anon_4.bp_len = WATCHED_BYTES;
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        Counter::of(attr, tid)
    }

    /// Counts by a uprobe.
    ///
    /// The file must be that of a mapping, and the offset that of an instruction's first byte: anywhere else
    /// the program would be damaged.
    pub fn open(tid: u32, file: &File, offset: u64) -> io::Result<Counter> {
        let kind = std::fs::read_to_string(Path::new(TYPE))?;
        // By descriptor: another file may have taken the path by now.
        let path = CString::new(proc::descriptor(file).into_os_string().into_vec())?;
        let mut attr = sys::perf_event_attr::default();
        attr.type_ = kind.trim().parse().map_err(io::Error::other)?;
        attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
        attr.__bindgen_anon_4.config2 = offset;
        Counter::of(attr, tid)
    }

    /// Everything that `attr` points to must live until this has returned.
    fn of(mut attr: sys::perf_event_attr, tid: u32) -> io::Result<Counter> {
        attr.size = size_of::<sys::perf_event_attr>() as u32;
        let flags = sys::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: `attr` is a whole perf_event_attr that carries its own size, and a path that it points to
        // lives until the call has returned; the kernel keeps no reference to either.
        let fd = unsafe { perf_event_open_sys::perf_event_open(&mut attr, tid as i32, -1, -1, flags) };
        if fd < 0 {
            // Not by `Errno`, which lacks the kernel's internal numbers.
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this descriptor, and nothing else uses it.
        Ok(Counter(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Stops counting, without waiting for the kernel to remove a uprobe.
    pub fn close(self) {
        // If no thread can be started, the closure is dropped here, which waits.
        let _ = std::thread::Builder::new().name("closing".to_owned()).spawn(move || drop(self));
    }

    /// Returns how often the thread has passed the point since the counter was opened.
    pub fn read(&self) -> io::Result<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count)?;
        Ok(u64::from_ne_bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dearer_an_exception_the_fewer_passes() {
        assert_eq!(rate_at(Duration::from_nanos(1)), RATE_MAX);
        assert!((rate_at(Duration::from_micros(10)) - 500.0).abs() < 1e-9);
        assert_eq!(rate_at(Duration::from_secs(1)), RATE_MIN);
    }
}
