//! The sources of a run, and readings of threads that are put together from several of them.

use crate::applications::Applications;
use crate::changing::Changing;
use crate::error::LiveError;
use crate::reports::Reports;
use crate::wakes::{Name, Wakes};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::ThreadId;
use corewise_core::observe::{CounterReading, ProgressReading, ProgressSource, Standing, ThreadReading};
use corewise_core::report::Sources;
use corewise_counters::CounterSource;
use corewise_counters::progress::WorkMeter;
use corewise_discovery::{Discovery, NewThread, ThreadFacts};
use corewise_sys::affinity;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum time between two drains of the counters' buffers. A buffer that is half full wakes earlier,
/// and threads that start or end cause a drain sooner, as the code of an ended thread is no longer available.
const DRAINED_WITHIN: Duration = Duration::from_millis(100);
const DRAINED_AT_NEWS_WITHIN: Duration = Duration::from_millis(10);

/// What is read.
pub struct Reading {
    /// The source of threads.
    pub discovery: Box<dyn Discovery>,
    /// The source of counters.
    pub counters: Box<dyn CounterSource>,
    /// Measures progress if the counters do not; `None` if progress is not needed.
    pub work: Option<WorkMeter>,
    /// What programs report.
    pub reports: Reports,
    /// The PEs that corewise itself may use: those that user and cpuset allow for the whole application.
    pub baseline: Arc<CpuSet>,
    /// When the counters' buffers were last drained.
    drained: Option<Instant>,
}

impl Reading {
    /// Begins to read.
    pub fn of(
        discovery: Box<dyn Discovery>,
        counters: Box<dyn CounterSource>,
        work: Option<WorkMeter>,
    ) -> Result<Reading, LiveError> {
        let (reports, baseline) = (Reports::default(), Arc::new(own_mask()?));
        Ok(Reading { discovery, counters, work, reports, baseline, drained: None })
    }

    /// Registers a thread that has appeared.
    pub fn meet(&mut self, thread: &NewThread) {
        self.counters.watch(thread);
        self.reports.of_programs.watch(thread.pid);
    }

    /// Reads again which PEs may be used.
    pub fn look_at_allowed(&mut self) -> Result<(), LiveError> {
        self.baseline = Arc::new(own_mask()?);
        Ok(())
    }

    /// Drains the counters' buffers if the last drain is long ago; they hold more than that.
    pub fn drain_in_time(&mut self, comes_or_goes: bool) {
        if is_drain_due(self.drained.map(|at| at.elapsed()), comes_or_goes) {
            self.counters.drain();
            self.drained = Some(Instant::now());
        }
    }

    /// A buffer is half full: it is drained at the next look.
    pub fn drain_soon(&mut self) {
        self.drained = None;
    }

    /// Reads all threads, and those that have ended since the last time.
    pub fn all(
        &mut self,
        facts: Vec<ThreadFacts>,
        changing: &mut Changing,
        applications: &Applications,
    ) -> Vec<ThreadReading> {
        // The counters of ended threads are complete now.
        self.counters.drain();
        let living: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.tid).collect();
        let mut threads: Vec<ThreadReading> =
            facts.into_iter().map(|facts| self.thread(facts, changing)).collect();
        for (mut facts, reading) in self.counters.unclaimed(&living) {
            // Counters do not know applications: a thread that came and went unseen belongs to that of its
            // process.
            facts.app = applications.of_process(facts.pid);
            threads.push(self.thread_with(facts, Some(reading), changing));
        }
        threads
    }

    /// Reads one thread.
    pub fn thread(&mut self, facts: ThreadFacts, changing: &mut Changing) -> ThreadReading {
        let counters = match facts.ended {
            true => self.counters.last(facts.tid),
            false => self.counters.read(facts.tid),
        };
        self.thread_with(facts, counters, changing)
    }

    fn thread_with(
        &mut self,
        facts: ThreadFacts,
        counters: Option<CounterReading>,
        changing: &mut Changing,
    ) -> ThreadReading {
        let (standing, permitted) = if facts.ended {
            changing.actuators.forget(facts.id());
            (Standing::Free, self.baseline.clone())
        } else {
            changing.actuators.standing(&facts)
        };
        let progress = self.progress(&facts, counters.as_ref());
        ThreadReading {
            thread: ThreadId { tid: facts.tid, generation: facts.generation },
            pid: facts.pid,
            app: facts.app,
            name: facts.name,
            cpu_ns: facts.cpu_ns,
            runnable_ns: facts.runnable_ns,
            runnable: facts.runnable,
            last_pe: facts.last_pe,
            standing,
            permitted,
            counters,
            hints: self.reports.of_programs.hints(facts.pid, facts.tid),
            progress,
            sizing: changing.actuators.sizing(facts.pid),
            ended: facts.ended,
        }
    }

    /// Returns a thread's progress: as reported by its program, else by instructions, else by points of its
    /// code.
    fn progress(&mut self, of: &ThreadFacts, counters: Option<&CounterReading>) -> Option<ProgressReading> {
        if let Some(reported) = self.reports.progress(of) {
            return reported;
        }
        let work = self.work.as_mut()?;
        if let Some(CounterReading::Pmu(pmu)) = counters
            && let Some(instructions) = pmu.instructions
        {
            return Some(ProgressReading { work: instructions, source: ProgressSource::Instructions });
        }
        Some(ProgressReading { work: work.read(of.tid)?, source: ProgressSource::Points })
    }

    /// Measures the progress of a thread's process from now on.
    pub fn measure(&mut self, of: ThreadId) {
        if let (Some(work), Some(facts)) = (&mut self.work, self.discovery.facts(of.tid)) {
            work.begin(facts.pid, &self.baseline);
        }
    }

    /// Returns the sources in use.
    pub fn sources(&self) -> Sources {
        Sources { discovery: self.discovery.name().to_owned(), counters: self.counters.name() }
    }

    /// Returns what the sources could not see, in words.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let unknown = self.work.as_ref().and_then(WorkMeter::failure);
        let unknown = unknown.map(|why| format!("what the placement gains is not known: {why}"));
        let sources = self.discovery.notes().into_iter().chain(self.counters.notes());
        sources.chain(self.reports.of_programs.notes()).chain(unknown)
    }

    /// Enters what wakes the sources. `looks`: whether threads are looked for in between.
    pub fn enter<'a>(&'a self, wakes: &mut Wakes<'a>, looks: bool) {
        wakes.due(Name::Threads, self.discovery.refresh_within().filter(|_| looks));
        if !wakes.are_left_alone() {
            wakes.readable(Name::Threads, self.discovery.wake_fds());
        }
        // A buffer that is half full does not wait.
        wakes.readable(Name::Counters, self.counters.wake_fd());
        self.reports.enter(wakes);
    }
}

/// Returns whether buffers are to be drained so long after the last time.
fn is_drain_due(since: Option<Duration>, comes_or_goes: bool) -> bool {
    let within = if comes_or_goes { DRAINED_AT_NEWS_WITHIN } else { DRAINED_WITHIN };
    since.is_none_or(|since| since >= within)
}

/// Returns the PEs that this process may use.
pub fn own_mask() -> Result<CpuSet, LiveError> {
    affinity::get(0).map_err(LiveError::of("sched_getaffinity"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, Watched};
    use corewise_binding::actuators::Actuators;
    use corewise_core::engine::EngineConfig;
    use corewise_core::ids::AppId;
    use corewise_core::observe::PmuReading;
    use corewise_discovery::News;
    use std::collections::HashMap;
    use std::sync::Mutex;

    const PID: u32 = 0x3fff_ff00;

    fn counted() -> CounterReading {
        CounterReading::Pmu(PmuReading {
            events: "test".into(),
            cycles: 9,
            instructions: Some(3),
            fpu_busy_cycles: None,
            vector_busy_cycles: None,
            formula_confidence: 1.0,
            l2_misses: None,
            branches: None,
            branch_misses: None,
            enabled_ns: 1,
            running_ns: 1,
        })
    }

    fn facts(tid: u32, ended: bool) -> ThreadFacts {
        ThreadFacts {
            tid,
            pid: PID,
            app: AppId(0),
            generation: 1,
            name: "t".into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: false,
            last_pe: None,
            ended,
        }
    }

    fn reading(counters: Watched) -> Reading {
        let source = Scripted::new("scripted", vec![News::default()]);
        Reading::of(Box::new(source), Box::new(counters), None).unwrap()
    }

    fn changing() -> Changing {
        Changing::new(Actuators::new(&EngineConfig::default()), None)
    }

    #[test]
    fn a_thread_that_only_the_counters_have_seen_is_read_as_one_of_its_process() {
        let readings = HashMap::from([(PID, counted()), (PID + 1, counted())]);
        let unclaimed = vec![facts(PID + 1, true)];
        let mut reading = reading(Watched { readings, unclaimed, ..Watched::default() });
        let mut applications = Applications::new(Vec::new());
        applications.take_members(&[ThreadFacts { app: AppId(5), ..facts(PID, false) }]);
        let all = reading.all(vec![facts(PID, false)], &mut changing(), &applications);
        let seen: Vec<_> = all.iter().map(|of| (of.thread.tid, of.app, of.ended)).collect();
        assert_eq!(seen, [(PID, AppId(0), false), (PID + 1, AppId(5), true)]);
        assert!(all.iter().all(|of| of.counters == Some(counted())));
    }

    #[test]
    fn buffers_are_drained_sooner_when_threads_come_and_go() {
        let due = |since| [false, true].map(|comes_or_goes| is_drain_due(since, comes_or_goes));
        assert_eq!(due(Some(Duration::ZERO)), [false, false]);
        assert_eq!(due(Some(DRAINED_AT_NEWS_WITHIN)), [false, true]);
        assert_eq!(due(Some(DRAINED_WITHIN)), [true, true]);
    }

    #[test]
    fn buffers_are_drained_at_the_start_and_at_once_when_one_is_half_full() {
        let drains = Arc::new(Mutex::new(0));
        let mut reading = reading(Watched { drains: Arc::clone(&drains), ..Watched::default() });
        reading.drain_in_time(false);
        assert_eq!(*drains.lock().unwrap(), 1);
        reading.drained = Some(Instant::now() + Duration::from_secs(3600));
        reading.drain_in_time(true);
        assert_eq!(*drains.lock().unwrap(), 1);
        reading.drain_soon();
        reading.drain_in_time(false);
        assert_eq!(*drains.lock().unwrap(), 2);
    }

    #[test]
    fn progress_is_not_measured_unless_it_is_wanted() {
        let readings = HashMap::from([(PID, counted())]);
        let mut reading = reading(Watched { readings, ..Watched::default() });
        assert_eq!(reading.thread(facts(PID, false), &mut changing()).progress, None);
        reading.work = Some(WorkMeter::default());
        let progress = reading.thread(facts(PID, false), &mut changing()).progress;
        assert_eq!(progress, Some(ProgressReading { work: 3, source: ProgressSource::Instructions }));
    }
}
