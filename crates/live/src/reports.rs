//! What programs report of themselves: hints about their threads, and the work that these have done.

use crate::wakes::{Name, Wakes};
use corewise_core::ids::AppId;
use corewise_core::observe::{Hints, ProgressReading, ProgressSource};
use corewise_counters::reports::ProgramReports;
use corewise_discovery::ThreadFacts;
use std::collections::HashSet;

/// The reports, and the applications that report progress.
#[derive(Default)]
pub struct Reports {
    /// The reports themselves.
    pub of_programs: ProgramReports,
    reporting: HashSet<AppId>,
}

impl Reports {
    /// Returns the progress that a thread's program reports; `None` if its application reports none, so that
    /// its progress is measured otherwise: the units must be the same for all threads of an application.
    pub fn progress(&mut self, of: &ThreadFacts) -> Option<Option<ProgressReading>> {
        let work = self.of_programs.work(of.pid, of.tid);
        if work.is_some() {
            self.reporting.insert(of.app);
        }
        let reading = |work| ProgressReading { work, source: ProgressSource::Heartbeat };
        self.reporting.contains(&of.app).then(|| work.map(reading))
    }

    /// Returns what has been reported of threads since the last call, with their processes.
    pub fn look(&mut self) -> Vec<(u32, u32, Hints)> {
        self.of_programs.look()
    }

    /// Enters what wakes them.
    pub fn enter(&self, wakes: &mut Wakes<'_>) {
        wakes.due(Name::Reports, self.of_programs.due_within());
    }
}
