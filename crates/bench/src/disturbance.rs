//! Times in which a thread was kept from running.
//!
//! There are three sources, none of which is complete. The thread's own clock falls behind the wall clock
//! whenever something else runs on its PE: another thread and, if the kernel accounts for interrupts and
//! steal time, also these. `schedstat` contains the part of it in which the thread waited in the queue.
//! `/proc/stat` contains the steal time of the PE, in steps of 10 ms.

use corewise_sys::proc::{Proc, SchedstatFile};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Watches the times of the thread that opened it.
pub(super) struct Watch {
    schedstat: Option<SchedstatFile>,
}

/// A thread's cumulative times.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    /// Time on a PE.
    on_pe: Duration,
    /// Time runnable in the queue; `None` on a kernel without `schedstat`.
    queued: Option<Duration>,
}

impl Watch {
    /// Watches the calling thread. The file stays open, as opening it takes longer than reading it.
    pub fn open() -> Watch {
        Watch { schedstat: Proc::own().own_schedstat() }
    }

    pub fn read(&self) -> Reading {
        let times = self.schedstat.as_ref().and_then(|file| file.read().ok().flatten());
        // The calling thread's own clock is always available.
        let on_pe = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
        Reading { on_pe, queued: times.map(|times| Duration::from_nanos(times.wait_ns)) }
    }
}

/// The thread's absence while the wall clock advanced by `elapsed`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Absence {
    /// Wall-clock time without progress of the thread's clock.
    off_pe: Duration,
    /// The part of it in the queue; zero if the kernel does not report it.
    queued: Duration,
}

impl Absence {
    pub fn between(before: Reading, after: Reading, elapsed: Duration) -> Absence {
        let queued = after.queued.zip(before.queued);
        Absence {
            off_pe: elapsed.saturating_sub(after.on_pe.saturating_sub(before.on_pe)),
            queued: queued.map_or(Duration::ZERO, |(after, before)| after.saturating_sub(before)),
        }
    }

    /// Returns the lost time, at most `elapsed`. Kernels differ in whether a thread's own clock advances
    /// while a hypervisor has the PE. If it stops, `off_pe` contains everything; if it advances, the loss is
    /// the sum of queueing and steal time. The larger of both is correct in either case, and counts nothing
    /// twice.
    pub fn lost(&self, steal: Duration, elapsed: Duration) -> Duration {
        self.off_pe.max(self.queued + steal).min(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_twice() {
        let ms = Duration::from_millis;
        let check = |off_pe, queued, steal, expected| {
            let absence = Absence { off_pe: ms(off_pe), queued: ms(queued) };
            assert_eq!(absence.lost(ms(steal), ms(20)), ms(expected), "{absence:?}, steal {steal}");
        };
        check(0, 0, 0, 0);
        check(5, 4, 0, 5); // An interrupt took 1 ms.
        check(3, 0, 3, 3); // The thread's clock stopped for the hypervisor.
        check(0, 0, 3, 3); // It went on.
        check(4, 4, 3, 7);
        check(15, 15, 10, 20); // Steps of 10 ms may say more than there was.
    }

    #[test]
    fn a_sleep_is_an_absence() {
        let watch = Watch::open();
        let (begin, before) = (std::time::Instant::now(), watch.read());
        std::thread::sleep(Duration::from_millis(5));
        let elapsed = begin.elapsed();
        let absence = Absence::between(before, watch.read(), elapsed);
        assert!(absence.off_pe > Duration::from_millis(4), "{absence:?} in {elapsed:?}");
    }
}
