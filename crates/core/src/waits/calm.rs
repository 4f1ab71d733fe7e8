//! When a process counts as calm: held up no longer.

use super::{CALM_BELOW, CALM_MIN};
use crate::observe::{ProcessDelay, share};
use std::time::Duration;

/// For how long a process has hardly been held up, judged by stretches of [`CALM_MIN`]: another thread that
/// takes a PE for a moment dominates a single look, but not a stretch.
#[derive(Debug, Default)]
pub(super) struct Calm {
    /// The length of all calm stretches since the last one that was not calm.
    lasted: Duration,
    /// The length of the present stretch, and how long threads have run and waited for a PE in it.
    stretch: Duration,
    run_ns: u64,
    wait_ns: u64,
}

impl Calm {
    /// Takes in a look, and returns for how long the process has been calm.
    pub fn take(&mut self, delay: &ProcessDelay) -> Duration {
        self.stretch += Duration::from_nanos(delay.elapsed_ns);
        self.run_ns += delay.run_ns;
        self.wait_ns += delay.wait_ns;
        if self.stretch >= CALM_MIN {
            let is_calm = share(self.wait_ns, self.run_ns) < CALM_BELOW;
            let lasted = if is_calm { self.lasted + self.stretch } else { Duration::ZERO };
            *self = Calm { lasted, ..Calm::default() };
        }
        self.lasted
    }
}
