//! Sources with a script, for tests of the world and of its parts.

use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::CounterReading;
use corewise_core::policy::Reading;
use corewise_counters::CounterSource;
use corewise_discovery::{
    Discovery, DiscoveryError, ExecutedProgram, NewThread, News, Parallelism, ThreadFacts,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A source of threads with a script: what each refresh shows.
pub struct Scripted {
    name: &'static str,
    news: VecDeque<News>,
    alive: Vec<ThreadFacts>,
    ended: Vec<ThreadFacts>,
    /// The programs that are applications.
    pub programs: Vec<ExecutedProgram>,
    /// The same of every application.
    pub parallelism: Parallelism,
}

impl Scripted {
    pub fn new(name: &'static str, news: Vec<News>) -> Scripted {
        let (programs, parallelism) = (Vec::new(), Parallelism::default());
        Scripted { name, news: news.into(), alive: Vec::new(), ended: Vec::new(), programs, parallelism }
    }

    fn meet(&mut self, thread: &NewThread) {
        self.alive.push(ThreadFacts {
            tid: thread.tid,
            pid: thread.pid,
            app: AppId(0),
            generation: thread.generation,
            name: self.name.into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: false,
            last_pe: None,
            ended: false,
        });
    }
}

impl Discovery for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn refresh_within(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn refresh(&mut self) -> Result<News, DiscoveryError> {
        let news = self.news.pop_front().unwrap_or_default();
        news.appeared.iter().for_each(|thread| self.meet(thread));
        let (ended, alive) = std::mem::take(&mut self.alive)
            .into_iter()
            .partition(|facts| news.ended.iter().any(|ended| *ended == facts.id()));
        self.alive = alive;
        self.ended.extend(ended.into_iter().map(|facts: ThreadFacts| ThreadFacts { ended: true, ..facts }));
        Ok(news)
    }

    fn report_tlp(&mut self) {}

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        Ok(std::mem::take(&mut self.ended).into_iter().chain(self.alive.iter().cloned()).collect())
    }

    fn facts(&self, tid: u32) -> Option<ThreadFacts> {
        self.alive.iter().find(|facts| facts.tid == tid).cloned()
    }

    fn is_idle(&self) -> bool {
        false
    }

    fn parallelism(&mut self, _: AppId) -> Parallelism {
        self.parallelism
    }

    fn programs(&mut self) -> Vec<ExecutedProgram> {
        self.programs.clone()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Counters that note which threads they are to watch.
#[derive(Default)]
pub struct Watched {
    /// These threads.
    pub threads: Arc<Mutex<Vec<ThreadId>>>,
    /// How often they were drained.
    pub drains: Arc<Mutex<u32>>,
    /// What they read of threads, also after their ends.
    pub readings: HashMap<u32, CounterReading>,
    /// Threads that only they have seen.
    pub unclaimed: Vec<ThreadFacts>,
}

impl CounterSource for Watched {
    fn name(&self) -> String {
        "watched".to_owned()
    }

    fn gives(&self, _: Reading) -> bool {
        false
    }

    fn watch(&mut self, thread: &NewThread) {
        let thread = ThreadId { tid: thread.tid, generation: thread.generation };
        self.threads.lock().unwrap().push(thread);
    }

    fn drain(&mut self) {
        *self.drains.lock().unwrap() += 1;
    }

    fn read(&mut self, tid: u32) -> Option<CounterReading> {
        self.readings.get(&tid).cloned()
    }

    fn last(&mut self, tid: u32) -> Option<CounterReading> {
        self.readings.get(&tid).cloned()
    }

    fn unclaimed(&mut self, _: &HashSet<u32>) -> Vec<(ThreadFacts, CounterReading)> {
        let seen = std::mem::take(&mut self.unclaimed);
        seen.into_iter().map(|facts| (facts.clone(), self.readings[&facts.tid].clone())).collect()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
