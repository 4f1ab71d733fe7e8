//! A thread that takes a share of one PE's time.
//!
//! It has a real-time policy, so that everything ordinary on the PE gets the rest. In each period it works
//! until its CPU time is the share of all the time since its start. If one period took too little or too much
//! (a late wake-up, an interrupt), the next ones compensate, and the share holds over time.

use super::error::{PRIORITY, SlowError};
use corewise_core::ids::PeId;
use corewise_sys::affinity;
use corewise_sys::real_time::RealTime;
use nix::errno::Errno;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A late thread takes at most half a share more in one period, so that others are not delayed for long.
const CATCH_UP: f64 = 1.5;

/// The thread; it ends on drop.
#[derive(Debug)]
pub struct DutyCycle {
    pe: PeId,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    is_on: AtomicBool,
    /// The CPU time taken since it was last switched on, and the elapsed time.
    taken_ns: AtomicU64,
    passed_ns: AtomicU64,
}

impl DutyCycle {
    /// Starts a thread that takes the share (0 to 1) of each period, once it is switched on.
    pub fn start(pe: PeId, share: f64, period: Duration) -> Result<DutyCycle, SlowError> {
        let shared = Arc::new(Shared::default());
        let (ready, is_ready) = channel();
        let theirs = Arc::clone(&shared);
        let work = move || take(pe, share, period, &theirs, ready);
        let named = std::thread::Builder::new().name(format!("slow {pe}"));
        let thread = named.spawn(work).map_err(SlowError::Thread)?;
        let duty = DutyCycle { pe, shared, thread: Some(thread) };
        // It cannot end without an answer.
        is_ready.recv().unwrap_or(Ok(()))?;
        Ok(duty)
    }

    /// Returns the PE.
    pub fn pe(&self) -> PeId {
        self.pe
    }

    /// Sets whether it takes its share, from the next period on.
    pub fn set(&self, on: bool) {
        self.shared.is_on.store(on, Ordering::Relaxed);
    }

    /// Returns the share taken since it was switched on; `None` if it has not begun.
    pub fn taken_share(&self) -> Option<f64> {
        let seconds = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed)).as_secs_f64();
        let (taken, passed) = (seconds(&self.shared.taken_ns), seconds(&self.shared.passed_ns));
        (passed > 0.0).then(|| taken / passed)
    }
}

impl Drop for DutyCycle {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // It does not panic, and if it did, it would take nothing any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the share of a PE's time that the kernel permits to real-time threads.
pub(super) fn share_max(root: &Path) -> f64 {
    let read = |name: &str| -> Option<f64> {
        let text = std::fs::read_to_string(root.join("proc/sys/kernel").join(name)).ok()?;
        text.trim().parse().ok()
    };
    // A runtime of -1 means no limit, as does a kernel without these files.
    match (read("sched_rt_runtime_us"), read("sched_rt_period_us")) {
        (Some(runtime), Some(period)) if runtime >= 0.0 && period > 0.0 => runtime / period,
        _ => 1.0,
    }
}

/// Binds the calling thread to one PE with a real-time priority.
pub(super) fn settle(pe: PeId, priority: libc::c_int) -> Result<RealTime, SlowError> {
    affinity::bind_self(pe).map_err(|errno| SlowError::Pe { pe, errno })?;
    RealTime::enter(priority).map_err(|_| SlowError::RealTime)
}

fn take(pe: PeId, share: f64, period: Duration, shared: &Shared, ready: Sender<Result<(), SlowError>>) {
    let (answer, settled) = match settle(pe, PRIORITY) {
        Ok(settled) => (Ok(()), Some(settled)),
        Err(error) => (Err(error), None),
    };
    // The starter waits for this.
    let _ = ready.send(answer);
    if settled.is_some() {
        // These clocks exist on every Linux.
        let _ = hold(share, period, shared);
    }
}

fn hold(share: f64, period: Duration, shared: &Shared) -> Result<(), Errno> {
    let mut since = (monotonic()?, cpu_time()?);
    let mut wake = since.0;
    while !shared.stop.load(Ordering::Relaxed) {
        if shared.is_on.load(Ordering::Relaxed) {
            work(share, period, since)?;
            let (passed, taken) = (monotonic()? - since.0, cpu_time()? - since.1);
            shared.passed_ns.store(passed.as_nanos() as u64, Ordering::Relaxed);
            shared.taken_ns.store(taken.as_nanos() as u64, Ordering::Relaxed);
        } else {
            since = (monotonic()?, cpu_time()?);
        }
        // At fixed instants, so that a late wake-up does not shift later ones; and never in the past.
        wake = (wake + period).max(monotonic()?);
        clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &wake.into())?;
    }
    Ok(())
}

/// Works until the share of the time `since`, and of the period that begins now, is taken.
fn work(share: f64, period: Duration, since: (Duration, Duration)) -> Result<(), Errno> {
    let begin = cpu_time()?;
    let due = (monotonic()? - since.0 + period).mul_f64(share);
    let missing = due.saturating_sub(begin - since.1);
    let until = begin + missing.min(period.mul_f64(share * CATCH_UP));
    while cpu_time()? < until {
        for _ in 0..8 {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

fn monotonic() -> Result<Duration, Errno> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?))
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Result<Duration, Errno> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?))
}
