//! Readings that are put together from several sources.

use crate::LiveWorld;
use corewise_core::ids::AppId;
use corewise_core::observe::{
    ApplicationReading, CounterReading, ProgressReading, ProgressSource, ThreadReading,
};
use corewise_core::world::World;
use corewise_discovery::ThreadFacts;
use std::collections::HashSet;

impl LiveWorld {
    /// Returns a thread's progress: as reported by its program, else by instructions, else by points of its
    /// code.
    pub(super) fn progress(
        &mut self,
        of: &ThreadFacts,
        counters: Option<&CounterReading>,
    ) -> Option<ProgressReading> {
        let reported = self.reports.work(of.pid, of.tid);
        if reported.is_some() {
            self.reporting.insert(of.app);
        }
        // The units must be the same for all threads of an application.
        if self.reporting.contains(&of.app) {
            return reported.map(|work| ProgressReading { work, source: ProgressSource::Heartbeat });
        }
        let work = self.parts.work.as_mut()?;
        if let Some(CounterReading::Pmu(pmu)) = counters
            && let Some(instructions) = pmu.instructions
        {
            return Some(ProgressReading { work: instructions, source: ProgressSource::Instructions });
        }
        Some(ProgressReading { work: work.read(of.tid)?, source: ProgressSource::Points })
    }

    pub(super) fn applications(&mut self, threads: &[ThreadReading]) -> Vec<ApplicationReading> {
        let now = self.now();
        let mut processes: Vec<HashSet<u32>> = vec![HashSet::new(); self.parts.applications.len()];
        let mut living = vec![0; self.parts.applications.len()];
        for thread in threads.iter().filter(|thread| !thread.ended) {
            processes[thread.app.0 as usize].insert(thread.pid);
            living[thread.app.0 as usize] += 1;
        }
        let mut readings = Vec::new();
        for (index, application) in self.parts.applications.iter_mut().enumerate() {
            application.ended = if living[index] == 0 { application.ended.or(Some(now)) } else { None };
            let first = threads.iter().find(|thread| thread.thread.tid == application.first && !thread.ended);
            application.allowed = first.map(|first| first.permitted.clone()).or(application.allowed.take());
            let app = AppId(index as u32);
            let parallelism = self.parts.discovery.parallelism(app);
            readings.push(ApplicationReading {
                app,
                target: application.target.clone(),
                name: application.name.clone(),
                allowed: application.allowed.as_deref().cloned(),
                processes: processes[index].len() as u32,
                threads: living[index],
                began: application.began,
                ended: application.ended,
                runnable_thread_ns: parallelism.runnable_thread_ns,
                active_ns: parallelism.active_ns,
                sequential_ns: parallelism.sequential_ns,
                runnable_max: parallelism.runnable_max,
                exact: parallelism.exact,
            });
        }
        readings
    }
}
