//! Per-thread counter readings from one of three sources: hardware counters ([`pmu`]), clock samples of the
//! instruction pointer ([`sample`]), or none.

pub mod descriptors;
pub mod none;
pub mod pmu;
pub mod sample;

use crate::discovery::NewThread;
use corewise_core::observe::CounterReading;
use std::os::fd::BorrowedFd;

/// Which source of counters to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The best that works here.
    #[default]
    Auto,
    /// Clock samples.
    Sample,
    /// None.
    None,
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "sample" => Ok(Choice::Sample),
            "none" => Ok(Choice::None),
            _ => Err(format!("`{text}` is none of auto, pmu, sample, none")),
        }
    }
}

/// x
pub fn open(
    choice: Choice,
    pid: u32,
    pes: &corewise_core::cpuset::CpuSet,
) -> Result<(Box<dyn CounterSource>, Vec<String>), sample::events::SampleError> {
    let _ = choice;
    Ok((Box::new(sample::SampleSource::new(pid, pes, sample::RATE_HZ)?), vec![]))
}

/// A source of counter readings for the threads of one process tree.
pub trait CounterSource {
    /// The name for reports: `pmu amd_fam15h`, `sample`, `none`.
    fn name(&self) -> String;

    /// Descriptors that become readable when buffers should be drained.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Begins to watch a thread. Failure is noted in [`CounterSource::troubles`]: the thread then has no reading.
    fn watch(&mut self, thread: &NewThread);

    /// Empties the kernel's buffers into the tallies. Cheap; called at every wake-up and before readings.
    fn drain(&mut self);

    /// The cumulative reading of a thread, `None` if it is not watched or has nothing yet.
    fn read(&mut self, tid: u32) -> Option<CounterReading>;

    /// Forgets an ended thread after its last reading.
    fn forget(&mut self, tid: u32);

    /// What went wrong so far, in words with counts: lost samples, refused events.
    fn troubles(&self) -> Vec<String>;
}
