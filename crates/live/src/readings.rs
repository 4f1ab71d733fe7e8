//! Readings that are put together from several sources.

use crate::{Application, LiveWorld, Parts};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::{
    ApplicationReading, CounterReading, ProcessReading, ProgressReading, ProgressSource, ThreadReading,
};
use corewise_core::time::Time;
use corewise_core::world::World;
use corewise_discovery::{News, ThreadFacts};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl LiveWorld {
    /// Forgets what was found out about processes that have begun, have executed another program, or have
    /// ended: whatever a program did, the next one is judged by its own facts.
    pub(super) fn judge_anew(&mut self, news: &News) {
        // A process has the ID of its first thread.
        let begun = news.appeared.iter().filter(|thread| thread.tid == thread.pid).map(|thread| thread.tid);
        // Most programs that are executed have ended by now, and `/proc` has nothing of them.
        let ended: HashSet<ThreadId> = news.ended.iter().copied().collect();
        let executed = news.executed.iter().filter(|thread| !ended.contains(thread)).map(|thread| thread.tid);
        for pid in begun.chain(executed.clone()) {
            self.parts.actuators.note_program(pid);
        }
        executed.clone().for_each(|pid| self.programs.forget(pid));
        // Rules may ask for the name of what has no other.
        let others = news.renamed.iter().map(|(thread, _)| thread).chain(&news.ended).chain(&news.executed);
        let begun = news.appeared.iter().map(|thread| thread.tid);
        self.treated.forget(begun.chain(others.map(|thread| thread.tid)));
        // Others are treated when their beginning is reported.
        executed.for_each(|pid| self.treat_anew(pid));
    }

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

    /// Returns the processes with several threads, as they were last read.
    pub(super) fn processes(&mut self) -> Vec<ProcessReading> {
        let Parts { processes, actuators, .. } = &mut self.parts;
        processes.as_mut().map_or_else(Vec::new, |all| all.last(actuators))
    }

    pub(super) fn applications(&mut self, threads: &[ThreadReading]) -> Vec<ApplicationReading> {
        let now = self.now();
        let mut alive: HashMap<AppId, (HashSet<u32>, u32)> = HashMap::new();
        for thread in threads.iter().filter(|thread| !thread.ended) {
            let (processes, count) = alive.entry(thread.app).or_default();
            processes.insert(thread.pid);
            *count += 1;
        }
        let mut permitted: HashMap<u32, &Arc<CpuSet>> = HashMap::new();
        permitted.extend(threads.iter().filter(|of| !of.ended).map(|of| (of.thread.tid, &of.permitted)));
        self.meet_programs();
        let roots = (0..).map(AppId).zip(&mut self.parts.applications);
        let executed = self.executed.iter_mut().map(|(app, application)| (*app, application));
        let mut readings = Vec::new();
        for (app, application) in roots.chain(executed) {
            let (processes, threads) = alive.remove(&app).unwrap_or_default();
            application.ended = if threads == 0 { application.ended.or(Some(now)) } else { None };
            let first = permitted.get(&application.first).map(|permitted| Arc::clone(permitted));
            application.allowed = first.or(application.allowed.take());
            let parallelism = self.parts.discovery.parallelism(app);
            readings.push(ApplicationReading {
                app,
                target: application.target.clone(),
                executed_by: application.executed_by,
                name: application.name.clone(),
                allowed: application.allowed.as_deref().cloned(),
                processes: processes.len() as u32,
                threads,
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

    /// Takes note of the programs that are applications now.
    fn meet_programs(&mut self) {
        let programs = self.parts.discovery.programs();
        let known: HashSet<AppId> = programs.iter().map(|program| program.app).collect();
        self.executed.retain(|app, _| known.contains(app));
        for program in programs {
            let Some(root) = self.parts.applications.get(program.root.0 as usize) else { continue };
            let began = Time(program.since.saturating_duration_since(self.started).as_nanos() as u64);
            let application = || Application::of_program(root, &program, began);
            self.executed.entry(program.app).or_insert_with(application);
        }
    }
}
