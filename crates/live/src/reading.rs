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
        let within = if comes_or_goes { DRAINED_AT_NEWS_WITHIN } else { DRAINED_WITHIN };
        if self.drained.is_none_or(|at| at.elapsed() >= within) {
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

/// Returns the PEs that this process may use.
pub fn own_mask() -> Result<CpuSet, LiveError> {
    affinity::get(0).map_err(LiveError::of("sched_getaffinity"))
}
