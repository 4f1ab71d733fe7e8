//! The threads of a command and its descendants, by the lists of children in `/proc`: a source that costs
//! next to nothing to start.
//!
//! Problem: most commands end before loading kernel programs ([`super::bpf`]) or listing all processes of the
//! machine ([`super::poll`]) pays, but how their threads wait matters from the first moments on. Approach:
//! the kernel lists the children of each process and its threads. They are listed when a thread was created
//! anywhere on the machine: often after a thread was found, rarely while none comes ([`Cadence`]). Times are
//! read only for observations.
//!
//! Limits: a process whose parent ended before it was seen is not found. An end is noticed at the next
//! listing or observation. Parallelism is not measured. All this is left to the source that follows
//! ([`super::continued`]).

use super::error::DiscoveryError;
use super::facts::{NewThread, News, Parallelism, ThreadFacts};
use super::source::Discovery;
use corewise_core::cadence::Cadence;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::time::Time;
use corewise_sys::allowance::Allowance;
use corewise_sys::clock::own_cpu_time;
use corewise_sys::proc::Proc;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The least and the longest time between two looks for new threads.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// The share of a PE that looks may cost in the long run.
const COST_MAX: f64 = 0.01;

/// The source; see the module documentation.
#[derive(Debug)]
pub struct Tree {
    proc: Proc,
    command: u32,
    began: Instant,
    threads: BTreeMap<u32, ThreadFacts>,
    ended: Vec<ThreadFacts>,
    /// The machine's last thread at the last listing.
    last_created: Option<u32>,
    looks: Cadence,
    looked_at: Instant,
    period: Duration,
    allowance: Allowance,
}

impl Tree {
    /// Begins with a command that has just been started.
    pub fn below(command: u32) -> Tree {
        let now = Instant::now();
        Tree {
            proc: Proc::own(),
            command,
            began: now,
            threads: BTreeMap::new(),
            ended: Vec::new(),
            last_created: None,
            looks: Cadence::new(LOOK_MIN, LOOK_MAX, Time(0)),
            looked_at: now,
            period: LOOK_MIN,
            allowance: Allowance::new(COST_MAX),
        }
    }

    fn now(&self) -> Time {
        Time(0) + self.began.elapsed()
    }

    /// Lists the threads, if any was created on the machine since the last listing.
    fn look(&mut self) -> Result<News, DiscoveryError> {
        let last_created = self.proc.last_created();
        if last_created.is_some() && last_created == self.last_created {
            return Ok(News::default());
        }
        self.last_created = last_created;
        let (mut appeared, mut listed, mut processes) = (Vec::new(), BTreeSet::new(), vec![self.command]);
        while let Some(pid) = processes.pop() {
            // What cannot be listed has ended.
            processes.extend(self.proc.children(pid).unwrap_or_default());
            for tid in self.proc.threads(pid)?.unwrap_or_default() {
                listed.insert(tid);
                if !self.threads.contains_key(&tid)
                    && let Some(facts) = self.read(pid, tid)?
                {
                    appeared.push(NewThread {
                        tid,
                        pid,
                        creator_tid: None,
                        generation: facts.generation,
                        created: Instant::now(),
                    });
                    self.threads.insert(tid, facts);
                }
            }
        }
        // A process whose parent has ended is listed nowhere, but lives on.
        let missing: Vec<u32> = self.threads.keys().copied().filter(|tid| !listed.contains(tid)).collect();
        let mut ended = Vec::new();
        for tid in missing {
            ended.extend(self.update(tid)?);
        }
        if !appeared.is_empty() {
            self.looks.note_event(self.now());
        }
        Ok(News { appeared, ended, ..News::default() })
    }

    /// Reads a living thread.
    fn read(&self, pid: u32, tid: u32) -> Result<Option<ThreadFacts>, DiscoveryError> {
        let stat = self.proc.stat(pid, tid)?.filter(|stat| !stat.is_zombie() && !stat.is_kernel_thread());
        let Some(stat) = stat else { return Ok(None) };
        Ok(Some(ThreadFacts {
            tid,
            pid,
            app: AppId(0),
            generation: stat.start_ticks,
            name: stat.name.as_str().into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: stat.state == 'R',
            last_pe: Some(PeId(stat.last_pe)),
            ended: false,
        }))
    }

    /// Reads the values of a known thread. Returns it if it has ended.
    fn update(&mut self, tid: u32) -> Result<Option<ThreadId>, DiscoveryError> {
        let Some(known) = self.threads.get(&tid) else { return Ok(None) };
        let present = self.read(known.pid, tid)?.filter(|now| now.generation == known.generation);
        let times = self.proc.schedstat(known.pid, tid, false)?;
        let times = times.map(|file| file.read()).transpose()?.flatten();
        match present {
            Some(present) => {
                let cpu_ns = times.map_or(known.cpu_ns, |times| times.run_ns.max(known.cpu_ns));
                let runnable_ns = times.map(|times| times.run_ns + times.wait_ns).max(known.runnable_ns);
                self.threads.insert(tid, ThreadFacts { cpu_ns, runnable_ns, ..present });
                Ok(None)
            }
            None => {
                let ended = ThreadFacts { ended: true, runnable: false, ..known.clone() };
                let thread = ended.id();
                self.threads.remove(&tid);
                self.ended.push(ended);
                Ok(Some(thread))
            }
        }
    }
}

impl Discovery for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn refresh_within(&self) -> Option<Duration> {
        Some(self.period.saturating_sub(self.looked_at.elapsed()))
    }

    fn refresh(&mut self) -> Result<News, DiscoveryError> {
        // Each look interrupts a thread of the program where all PEs are busy: who is awake anyway looks
        // early.
        if self.looked_at.elapsed() < self.period / 2 {
            return Ok(News::default());
        }
        let cpu_before = own_cpu_time();
        let news = self.look()?;
        self.looked_at = Instant::now();
        let affordable = self.allowance.spend(own_cpu_time() - cpu_before);
        self.period = self.looks.within(self.now()).max(affordable);
        Ok(news)
    }

    fn report_tlp(&mut self) {}

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        for tid in self.threads.keys().copied().collect::<Vec<_>>() {
            self.update(tid)?;
        }
        let mut facts = std::mem::take(&mut self.ended);
        facts.extend(self.threads.values().cloned());
        Ok(facts)
    }

    fn facts(&self, tid: u32) -> Option<ThreadFacts> {
        self.threads.get(&tid).cloned()
    }

    fn is_idle(&self) -> bool {
        self.looked_at > self.began && self.threads.is_empty()
    }

    fn parallelism(&mut self, _: AppId) -> Parallelism {
        Parallelism::default()
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_descendants_of_a_command_are_found_and_each_end_is_reported_once() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & read x; kill $!; wait; read x"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut tree = Tree::below(child.id());
        let mut appeared = Vec::new();
        while appeared.len() < 2 {
            std::thread::sleep(tree.refresh_within().unwrap());
            appeared.extend(tree.refresh().unwrap().appeared);
        }
        assert_eq!((appeared[0].pid, appeared[0].tid), (child.id(), child.id()));
        let sleeper = ThreadId { tid: appeared[1].tid, generation: appeared[1].generation };
        assert!(tree.facts(sleeper.tid).is_some_and(|facts| facts.id() == sleeper));
        let alive = tree.threads().unwrap();
        assert_eq!((alive.len(), alive.iter().any(|facts| facts.ended)), (2, false));
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let mut ended = Vec::new();
        while ended.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            ended = tree.threads().unwrap().into_iter().filter(|facts| facts.ended).collect();
        }
        assert_eq!(ended.iter().map(ThreadFacts::id).collect::<Vec<_>>(), [sleeper]);
        assert_eq!(tree.threads().unwrap().iter().filter(|facts| facts.ended).count(), 0);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(tree.threads().unwrap().len(), 1);
        assert!(tree.is_idle());
    }
}
