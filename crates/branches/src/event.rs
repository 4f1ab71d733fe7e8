//! The clock that stops a thread for a sample.
//!
//! A `cpu-clock` event of the thread signals the thread itself, and its tracer sees the signal first. The
//! obvious signal is the event's own (`sigtrap`, since Linux 5.13), whose default is to kill: if the tracer
//! were killed while the thread is stopped with it, the kernel would deliver it (ptrace(2): a tracee that is
//! left in a signal-delivery-stop gets the signal) and the thread would die, too. So the event signals like a
//! descriptor (`F_SETSIG`, `F_SETOWN_EX`), with a signal whose default is to do nothing and for which the
//! program has no handler. The overflow's interrupt comes while the thread runs in user mode, and the signal
//! is delivered when it returns there.

use corewise_core::random::Random;
use corewise_sys::proc::Status;
use nix::errno::Errno;
use perf_event_open_sys::bindings as sys;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Signals that have no effect on a program that does not handle them.
pub const SIGNALS: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];

/// Returns one of [`SIGNALS`] that a process does not handle, by its status; the first if it handles all.
pub fn signal_for(status: &Status) -> i32 {
    let caught = status.bits("SigCgt").unwrap_or(0);
    SIGNALS.into_iter().find(|signal| caught >> (signal - 1) & 1 == 0).unwrap_or(SIGNALS[0])
}

/// The event of one thread.
#[derive(Debug)]
pub struct ThreadClock {
    event: OwnedFd,
}

impl ThreadClock {
    /// Starts it.
    pub fn open(tid: i32, signal: i32, period: Duration) -> Result<ThreadClock, Errno> {
        let mut attr = sys::perf_event_attr::default();
        attr.type_ = sys::PERF_TYPE_SOFTWARE;
        attr.size = size_of::<sys::perf_event_attr>() as u32;
        attr.config = sys::PERF_COUNT_SW_CPU_CLOCK.into();
        attr.__bindgen_anon_1.sample_period = nanoseconds(period);
        attr.set_disabled(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        let flags = sys::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: `attr` is a whole perf_event_attr that carries its own size; the kernel keeps no reference
        // to it.
        let fd = unsafe { perf_event_open_sys::perf_event_open(&mut attr, tid, -1, -1, flags) };
        let fd = Errno::result(fd)?;
        // SAFETY: the call has just made this descriptor, and nothing else uses it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let clock = ThreadClock { event };
        clock.set_signal(signal)?;
        clock.set_owner(tid)?;
        clock.control(libc::F_SETFL, libc::O_ASYNC)?;
        // SAFETY: ENABLE takes no pointer.
        Errno::result(unsafe { perf_event_open_sys::ioctls::ENABLE(fd, 0) })?;
        Ok(clock)
    }

    /// Returns its descriptor, which identifies its signals.
    pub fn descriptor(&self) -> i32 {
        self.event.as_raw_fd()
    }

    /// Uses this signal from now on.
    pub fn set_signal(&self, signal: i32) -> Result<(), Errno> {
        const F_SETSIG: i32 = 10;
        self.control(F_SETSIG, signal)
    }

    /// Starts the next period, from now.
    pub fn set_period(&self, period: Duration) -> Result<(), Errno> {
        let mut period = nanoseconds(period);
        // SAFETY: PERIOD reads the number that the pointer points to.
        let answer = unsafe { libc::ioctl(self.descriptor(), sys::PERIOD.into(), &raw mut period) };
        Errno::result(answer).map(|_| ())
    }

    fn set_owner(&self, tid: i32) -> Result<(), Errno> {
        const F_SETOWN_EX: i32 = 15;
        const F_OWNER_TID: i32 = 0;
        // struct f_owner_ex: the kind of owner and its number.
        let owner = [F_OWNER_TID, tid];
        // SAFETY: the kernel reads the two numbers that the pointer points to.
        let answer = unsafe { libc::fcntl(self.descriptor(), F_SETOWN_EX, owner.as_ptr()) };
        Errno::result(answer).map(|_| ())
    }

    fn control(&self, command: i32, value: i32) -> Result<(), Errno> {
        // SAFETY: the commands that come here take a number.
        Errno::result(unsafe { libc::fcntl(self.descriptor(), command, value) }).map(|_| ())
    }
}

fn nanoseconds(period: Duration) -> u64 {
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

/// The times between samples: uniform in ±50 % around their mean, so that no loop of the program keeps in
/// step with them.
#[derive(Debug)]
pub struct Periods {
    mean: Duration,
    random: Random,
}

impl Periods {
    /// Makes periods with this mean.
    pub fn new(mean: Duration, seed: u64) -> Periods {
        Periods { mean, random: Random::new(seed, 0) }
    }

    /// Returns the next period.
    pub fn next(&mut self) -> Duration {
        self.mean.mul_f64(0.5 + self.random.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_is_one_that_the_process_does_not_handle() {
        let mask = |signals: &[i32]| {
            let bits: u64 = signals.iter().map(|signal| 1u64 << (signal - 1)).sum();
            Status::new(format!("Name:\tx\nSigCgt:\t{bits:016x}\nCapInh:\t0000000000000000\n"))
        };
        assert_eq!(signal_for(&mask(&[])), libc::SIGURG);
        assert_eq!(signal_for(&mask(&[libc::SIGURG, libc::SIGINT])), libc::SIGWINCH);
        assert_eq!(signal_for(&mask(&[libc::SIGWINCH])), libc::SIGURG);
        assert_eq!(signal_for(&Status::default()), libc::SIGURG);
    }

    #[test]
    fn periods_spread_around_their_mean() {
        let mut periods = Periods::new(Duration::from_nanos(1000), 1);
        let drawn: Vec<u64> = (0..4000).map(|_| nanoseconds(periods.next())).collect();
        assert!(drawn.iter().all(|period| (500..=1500).contains(period)));
        let mean = drawn.iter().sum::<u64>() / 4000;
        assert!((980..1020).contains(&mean), "{mean}");
        assert!(drawn.iter().any(|&period| period < 550) && drawn.iter().any(|&period| period > 1450));
    }
}
