//! Counting how often a thread passes a place of its code, by a perf event of the thread, without a program
//! in the kernel.
//!
//! There are two ways. A uprobe is a breakpoint in the code of a file: there may be many, but the kernel
//! takes some 50 ms to take one out, one after the other, and until then each pass costs a microsecond or
//! two. An execute breakpoint is a register of the processor: a thread has four, they come and go at once,
//! and nobody sees them in the code. So many points are tried by breakpoints, and the few that are fit
//! counted by uprobes.
//!
//! That microsecond holds where the kernel carries out the instruction under the probe itself: a push, a nop,
//! a jump, a call. Others it steps over one at a time, which takes a debug exception. A hypervisor that looks
//! at these makes them cost 15 times as much (14 µs were measured, and the code after it is slower, too). An
//! execute breakpoint takes the same exception, so what that costs is measured once, and bounds the rate.

use corewise_core::progress::{RATE_MAX, RATE_MIN};
use corewise_sys::proc;
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

/// The kernel's number of the kind of event.
const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// What the kernel answers for an instruction that it cannot probe (`ENOTSUPP`, which is not meant to be seen
/// outside of it).
pub const CANNOT_PROBE: i32 = 524;

/// The most execute breakpoints that a thread can have at once.
pub const WATCHED_MAX: usize = 4;

/// What the kernel wants to be told as the length of an execute breakpoint.
const WATCHED_BYTES: u64 = if cfg!(target_arch = "aarch64") { 4 } else { size_of::<usize>() as u64 };

/// What counting one point may cost, as a share of the time.
const COST_MAX: f64 = 0.005;

/// Passes of a breakpoint whose time is taken together, and how often: the shortest counts.
const TIMED_PASSES: u32 = 16;
const TIMED: usize = 4;

/// How often a second a point may be passed where the kernel has to step over its instruction.
pub fn stepped_rate_max() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| exception_cost().map_or(RATE_MAX, rate_at))
}

fn rate_at(cost: Duration) -> f64 {
    (COST_MAX / cost.as_secs_f64()).clamp(RATE_MIN, RATE_MAX)
}

/// What a debug exception costs here; `None` where it cannot be tried.
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

#[inline(never)]
fn passed() {
    black_box(());
}

/// Counts one point of one thread, from its opening on.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// By an execute breakpoint, which is gone as soon as this is dropped.
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

    /// By a uprobe.
    ///
    /// The file is that of a mapping, the offset one of an instruction's first byte: anywhere else the
    /// program would be damaged.
    pub fn open(tid: u32, file: &File, offset: u64) -> io::Result<Counter> {
        let kind = std::fs::read_to_string(Path::new(TYPE))?;
        // By descriptor: what stands at the path by now may be another file.
        let path = CString::new(proc::descriptor(file).into_os_string().into_vec())?;
        let mut attr = sys::perf_event_attr::default();
        attr.type_ = kind.trim().parse().map_err(io::Error::other)?;
        attr.__bindgen_anon_3.config1 = path.as_ptr() as u64;
        attr.__bindgen_anon_4.config2 = offset;
        Counter::of(attr, tid)
    }

    /// What `attr` points to must live until this has returned.
    fn of(mut attr: sys::perf_event_attr, tid: u32) -> io::Result<Counter> {
        attr.size = size_of::<sys::perf_event_attr>() as u32;
        let flags = sys::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: `attr` is a whole perf_event_attr that carries its own size, and a path that it points to
        // lives until the call has returned; the kernel keeps no reference to either.
        let fd = unsafe { perf_event_open_sys::perf_event_open(&mut attr, tid as i32, -1, -1, flags) };
        if fd < 0 {
            // Not by `Errno`, which knows none of the kernel's own numbers.
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this descriptor, and nobody else knows of it.
        Ok(Counter(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Counts no longer, without waiting for the kernel to take a uprobe out.
    pub fn close(self) {
        // Where there can be no such thread, it is waited for: what was to be moved there is dropped.
        let _ = std::thread::Builder::new().name("closing".to_owned()).spawn(move || drop(self));
    }

    /// How often the thread has passed the point since the counter was opened.
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
