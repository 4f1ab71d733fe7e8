//! The code mappings of a running process, read again from time to time.

use super::trace::Trace;
use corewise_code::AddressSpace;
use corewise_paths::window::End;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Mappings are read again after this time, or earlier when control goes to an unmapped address.
const MAX_AGE: Duration = Duration::from_secs(1);
const MIN_AGE: Duration = Duration::from_millis(10);

/// The mappings at some time.
#[derive(Debug)]
pub struct Mapped {
    space: Arc<AddressSpace>,
    read_at: Instant,
}

impl Mapped {
    /// Reads the present mappings of a process; none if it has ended.
    pub fn of(pid: u32) -> Mapped {
        let space = AddressSpace::of_process(pid).unwrap_or_default();
        Mapped { space: Arc::new(space), read_at: Instant::now() }
    }

    /// Returns the mappings.
    pub fn space(&self) -> Arc<AddressSpace> {
        Arc::clone(&self.space)
    }

    /// Reads them again if they are old, or if this window shows that they are.
    pub fn keep_up(&mut self, pid: u32, trace: &Trace) {
        let age = self.read_at.elapsed();
        let is_lost = trace.ended == End::NoFile;
        // A program that has just started maps its libraries one by one.
        let min_age = if self.space.find(trace.start).is_none() { MIN_AGE } else { 10 * MIN_AGE };
        if age > MAX_AGE || (is_lost && age > min_age) {
            *self = Mapped::of(pid);
        }
    }
}
