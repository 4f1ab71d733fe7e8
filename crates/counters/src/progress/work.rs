//! How much the threads of a process have done, for whoever asks now and then and cannot wait.
//!
//! Problem. The guard compares the progress of short epochs, of a program that runs, in a loop that must not
//! be held up for the seconds that the search for points takes. Approach. The search runs beside the loop, in
//! a thread that ends with it. Of each thread the point that is passed most often is counted; its passes
//! are weighted with the CPU time that one took at first, so that those of several threads add up. A point
//! that has become too dear is no longer counted; what its thread does is unknown from then on.
//!
//! Limits. One process, its busiest threads; where these do something else later, the point may no longer be
//! passed.

use super::{Meter, MeterError};
use corewise_core::cpuset::CpuSet;
use corewise_core::progress::most_passed;
use std::thread::JoinHandle;

/// Slices that are counted to see which point is passed most often: steady it need not be, as epochs are
/// compared in pairs; and until there is one, a placement is in force unguarded.
const SLICES: usize = 10;

/// The meter of one process.
#[derive(Default)]
pub struct WorkMeter {
    state: State,
}

#[derive(Default)]
enum State {
    /// Nobody has asked for a process yet.
    #[default]
    Idle,
    Searching(JoinHandle<Result<Vec<Counted>, MeterError>>),
    Counting(Vec<Counted>),
    Failed(String),
}

/// A thread whose passes are counted.
struct Counted {
    meter: Meter,
    /// CPU time from pass to pass, at first.
    ns_per_pass: f64,
    passes: u64,
}

impl WorkMeter {
    /// Looks for what to count in a process that runs on these PEs, unless it has looked before.
    pub fn begin(&mut self, pid: u32, pes: &CpuSet) {
        if matches!(self.state, State::Idle) {
            let pes = pes.clone();
            self.state = State::Searching(std::thread::spawn(move || search(pid, &pes)));
        }
    }

    /// The work of a thread so far, as CPU time at its first speed in nanoseconds; `None` where it is not
    /// known.
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
        // That nothing is counted any more does not mean that nothing is done.
        if !thread.meter.counts() {
            return None;
        }
        Some((thread.passes as f64 * thread.ns_per_pass) as u64)
    }

    /// Why nothing is known, if that is for ever.
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
