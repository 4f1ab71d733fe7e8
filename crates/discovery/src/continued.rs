//! A source of threads that takes the place of a lighter one while a run goes on.
//!
//! Problem: who follows the threads of a run knows each by its ID and generation, but every source has
//! generations of its own. Approach: a thread that the first source knew keeps its generation. It is the same
//! one if it has the same ID and the same start time; a thread that cannot be read any more has ended just
//! now, and is taken to be the same. What the first source knew and the second does not has ended between the
//! two, and is reported once. Limits: parallelism counts from the second source on.

use super::asks::Ask;
use super::followed::Followed;
use super::{
    Discovery, DiscoveryError, ExecutedProgram, FollowError, NewThread, News, Parallelism, Start, ThreadFacts,
};
use corewise_core::ids::{AppId, ThreadId};
use corewise_core::observe::BesideReading;
use corewise_core::topology::Topology;
use corewise_sys::proc::Proc;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The source that follows another one; see the module documentation.
pub struct Continued {
    source: Box<dyn Discovery>,
    /// The generation by which a thread is known, by its ID and its generation in the source.
    generations: HashMap<(u32, u64), u64>,
    /// What the first source has left to report.
    left: Vec<ThreadFacts>,
    /// The ends among that which are not yet news.
    news: Vec<ThreadId>,
}

/// A thread that the second source knows, by the generation by which it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The thread.
    pub thread: NewThread,
    /// Whether the first source did not know it.
    pub is_new: bool,
}

impl Continued {
    /// Lets `source` follow `first`. It has reported the threads in `appeared` so far. Returns it with all
    /// threads that it knows.
    pub fn after(
        first: &mut dyn Discovery,
        mut source: Box<dyn Discovery>,
        appeared: Vec<NewThread>,
        proc: &Proc,
    ) -> Result<(Continued, Vec<Taken>), DiscoveryError> {
        let (ended, alive): (Vec<_>, Vec<_>) = first.threads()?.into_iter().partition(|facts| facts.ended);
        let mut alive: HashMap<u32, ThreadFacts> =
            alive.into_iter().map(|facts| (facts.tid, facts)).collect();
        let news = source.refresh()?;
        let (mut generations, mut taken) = (HashMap::new(), Vec::new());
        for thread in appeared.into_iter().chain(news.appeared) {
            let is_same = |known: &ThreadFacts| {
                let start = proc.stat(thread.pid, thread.tid).ok().flatten().map(|stat| stat.start_ticks);
                known.pid == thread.pid && start.is_none_or(|start| start == known.generation)
            };
            match alive.remove(&thread.tid) {
                Some(known) if is_same(&known) => {
                    generations.insert((thread.tid, thread.generation), known.generation);
                    let thread = NewThread { generation: known.generation, ..thread };
                    taken.push(Taken { thread, is_new: false });
                }
                other => {
                    alive.extend(other.map(|known| (known.tid, known)));
                    taken.push(Taken { thread, is_new: true });
                }
            }
        }
        let missing = alive.into_values().map(|facts| ThreadFacts { ended: true, runnable: false, ..facts });
        let mut left = ended;
        let mut ends = Vec::new();
        for facts in missing {
            ends.push(facts.id());
            left.push(facts);
        }
        let mut continued = Continued { source, generations, left, news: Vec::new() };
        ends.extend(news.ended.into_iter().map(|thread| continued.known(thread)));
        continued.news = ends;
        Ok((continued, taken))
    }

    fn known(&self, thread: ThreadId) -> ThreadId {
        let generation = self.generations.get(&(thread.tid, thread.generation));
        ThreadId { generation: generation.copied().unwrap_or(thread.generation), ..thread }
    }

    fn known_facts(&self, facts: ThreadFacts) -> ThreadFacts {
        ThreadFacts { generation: self.known(facts.id()).generation, ..facts }
    }
}

impl Discovery for Continued {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.source.wake_fds()
    }

    fn refresh_within(&self) -> Option<Duration> {
        self.source.refresh_within()
    }

    fn clock_filter(&self) -> Option<BorrowedFd<'_>> {
        self.source.clock_filter()
    }

    fn starts(&mut self) -> Vec<Start> {
        let starts = self.source.starts();
        let known = |start: Start| {
            let thread = ThreadId { tid: start.tid, generation: start.generation };
            Start { generation: self.known(thread).generation, ..start }
        };
        starts.into_iter().map(known).collect()
    }

    fn asks(&mut self) -> Option<Vec<Ask>> {
        self.source.asks()
    }

    fn refresh(&mut self) -> Result<News, DiscoveryError> {
        let mut news = self.source.refresh()?;
        news.ended.iter_mut().for_each(|thread| *thread = self.known(*thread));
        news.ended.append(&mut self.news);
        news.executed.iter_mut().for_each(|thread| *thread = self.known(*thread));
        news.renamed.iter_mut().for_each(|(thread, _)| *thread = self.known(*thread));
        news.runnable.iter_mut().for_each(|app| app.only = app.only.map(|thread| self.known(thread)));
        Ok(news)
    }

    fn attach(&mut self, pid: u32) -> Result<(), FollowError> {
        self.source.attach(pid)
    }

    fn report_tlp(&mut self) {
        self.source.report_tlp();
    }

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        let facts = self.source.threads()?;
        let mut all = std::mem::take(&mut self.left);
        all.extend(facts.into_iter().map(|facts| self.known_facts(facts)));
        Ok(all)
    }

    fn facts(&self, tid: u32) -> Option<ThreadFacts> {
        self.source.facts(tid).map(|facts| self.known_facts(facts))
    }

    fn is_idle(&self) -> bool {
        self.source.is_idle()
    }

    fn parallelism(&mut self, app: AppId) -> Parallelism {
        self.source.parallelism(app)
    }

    fn programs(&mut self) -> Vec<ExecutedProgram> {
        self.source.programs()
    }

    fn followed(&self) -> Option<std::io::Result<Followed>> {
        self.source.followed()
    }

    fn see_neighbours(&mut self, topology: &Topology) -> Result<(), DiscoveryError> {
        self.source.see_neighbours(topology)
    }

    fn beside(&mut self) -> Vec<BesideReading> {
        self.source.beside()
    }

    fn notes(&self) -> Vec<String> {
        self.source.notes()
    }
}
