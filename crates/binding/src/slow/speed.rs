//! Measures the speed of PEs: dependent additions per wall-clock time, with a real-time priority below that
//! of a [`DutyCycle`](super::duty::DutyCycle), so that the duty cycle has its effect and ordinary threads
//! have none.

use super::duty;
use super::error::{PRIORITY, SlowError};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Periods per window, so that the phase at its start does not matter.
const PERIODS: u32 = 10;

/// Additions between two reads of the clock: some microseconds.
const BATCH: u64 = 4096;

/// Returns the speed of each PE, in additions per second, all measured at the same time.
pub(super) fn measure(pes: &CpuSet, period: Duration) -> Result<Vec<f64>, SlowError> {
    std::thread::scope(|scope| {
        let start = |pe| {
            let named = std::thread::Builder::new().name(format!("speed {pe}"));
            named.spawn_scoped(scope, move || of_one(pe, period)).map_err(SlowError::Thread)
        };
        let threads = pes.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        threads.into_iter().map(|thread| thread.join().expect("to measure does not panic")).collect()
    })
}

fn of_one(pe: PeId, period: Duration) -> Result<f64, SlowError> {
    let _real_time = duty::settle(pe, PRIORITY - 1)?;
    Ok(rate(period * PERIODS))
}

fn rate(window: Duration) -> f64 {
    let begin = Instant::now();
    let mut done = 0;
    loop {
        let mut sum = black_box(0u64);
        for term in 0..BATCH {
            sum = black_box(sum.wrapping_add(term));
        }
        done += BATCH;
        let elapsed = begin.elapsed();
        if elapsed >= window {
            return done as f64 / elapsed.as_secs_f64();
        }
    }
}
