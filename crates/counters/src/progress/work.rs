//! How much the threads of a process have done, for a caller that asks now and then and must not block.
//!
//! Problem. The guard compares the progress of a running program in short epochs, in a loop that must not be
//! delayed by the seconds that the search for points takes. Approach. The search runs beside the loop, in a
//! thread that ends with it. The point that a thread passes most often is counted; its passes are weighted
//! with their initial CPU time, so that those of several threads can be added. A point that has become too
//! expensive is no longer counted; the progress of its thread is unknown from then on.
//!
//! Limits. One process, and its busiest threads; if they do something else later, the point may no longer be
//! passed.

use super::{Meter, MeterError};
use corewise_core::cpuset::CpuSet;
use corewise_core::progress::most_passed;
use std::thread::JoinHandle;

/// The number of slices that decide which point is passed most often. It need not be steady, because epochs
/// are compared in pairs; and until it is known, a placement is in force unguarded.
const SLICES: usize = 10;

/// The meter of one process.
#[derive(Default)]
pub struct WorkMeter {
    state: State,
}

#[derive(Default)]
enum State {
    /// No process has been requested yet.
    #[default]
    Idle,
    Searching(JoinHandle<Result<Vec<Counted>, MeterError>>),
    Counting(Vec<Counted>),
    Failed(String),
}

/// A thread whose passes are counted.
struct Counted {
    meter: Meter,
    /// The initial CPU time from pass to pass.
    ns_per_pass: f64,
    passes: u64,
}

impl WorkMeter {
    /// Starts the search in a process that runs on these PEs, unless there was one before.
    pub fn begin(&mut self, pid: u32, pes: &CpuSet) {
        if matches!(self.state, State::Idle) {
            let pes = pes.clone();
            self.state = State::Searching(std::thread::spawn(move || search(pid, &pes)));
        }
    }

    /// Returns the work of a thread so far, as CPU time at its initial speed in nanoseconds; `None` if it is
    /// unknown.
    pub fn read(&mut self, tid: u32) -> Option<u64> {
        if matches!(&self.state, State::Searching(search) if search.is_finished())
            && let State::Searching(search) = std::mem::take(&mut self.state)
        {
            self.state = match search.join() {
                Ok(Ok(counted)) if counted.is_empty() => State::Failed(
                    "no thread passes a point of its code at a rate that can be counted".to_owned(),
                ),
                Ok(Ok(counted)) => State::Counting(counted),
                Ok(Err(error)) => State::Failed(error.to_string()),
                Err(panic) => std::panic::resume_unwind(panic),
            };
        }
        let State::Counting(threads) = &mut self.state else { return None };
        let thread = threads.iter_mut().find(|thread| thread.meter.tid == tid)?;
        if thread.meter.step() {
            let slices = thread.meter.take_slices();
            thread.passes += slices.iter().filter_map(|slice| slice.passes.first()).sum::<u64>();
        }
        // A point that is no longer counted does not mean that the thread does nothing.
        if !thread.meter.counts() {
            return None;
        }
        Some((thread.passes as f64 * thread.ns_per_pass) as u64)
    }

    /// Returns why the work will never be known, if so.
    pub fn failure(&self) -> Option<&str> {
        match &self.state {
            State::Failed(why) => Some(why),
            State::Idle | State::Searching(_) | State::Counting(_) => None,
        }
    }
}

fn search(pid: u32, pes: &CpuSet) -> Result<Vec<Counted>, MeterError> {
    let meters = Meter::try_out(pid, pes, SLICES)?;
    let chosen = meters.into_iter().filter_map(|mut meter| {
        let (point, ns_per_pass) = most_passed(&meter.take_slices())?;
        meter.keep(&[point]);
        Some(Counted { meter, ns_per_pass, passes: 0 })
    });
    Ok(chosen.collect())
}
