//! Threads by polling `/proc`: works for every user on every kernel, with estimates where BPF has facts.
//!
//! Problem: find new threads soon, read the times of 10,000 threads within a tenth of a second, and use
//! hardly any CPU time while nothing happens.
//!
//! Approach:
//! - *New threads.* `/proc/loadavg` contains the last thread ID that the kernel assigned. While it does not
//!   change, nothing was created, which one small read confirms. Otherwise `/proc` and the task directories
//!   of the followed processes are listed, and only new entries are read. A process is followed if it is a
//!   root, if its parent is followed, or if it is a child of corewise. As corewise is a child subreaper, this
//!   includes daemons whose parent ended before we looked. A followed process stays followed. The process
//!   lists of control groups are read at the same times.
//! - *Programs.* The command line of a new process is read, once more at the next poll, as it may not have
//!   executed its program yet, and when it has another stack, or its first thread another name.
//! - *Times* come from `schedstat`, whose descriptors are kept open while enough are available. `stat` is
//!   only read for threads whose times have changed: the others still wait or sleep as before.
//! - *Parallelism.* The runnable times (running and waiting) of all threads add up to the exact integral of
//!   the number of runnable threads, except for threads that ended between two polls. How much of an interval
//!   had none or exactly one runnable thread is estimated over [`WINDOW`] or more: the state at its end
//!   stands for the interval, corrected to lie within the bounds that the threads' times give (see
//!   [`estimate`]).
//! - *When.* The last ID is read every [`GLANCE`], and a new one triggers a full poll. Otherwise full polls
//!   come [`INTERVAL_MIN`] after a change, then at growing intervals up to [`INTERVAL_MAX`]. Both are limited
//!   so that polling costs at most [`SHARE_CHANGING`] or [`SHARE_QUIET`] of one CPU.
//! - *Changes of TLP*, if requested: the known threads are read every [`TLP_INTERVAL`], less often if that
//!   would cost more than [`SHARE_TLP`] of one CPU, and those that are runnable at that instant are counted.
//!
//! Limits: threads that live between two polls are not seen, and the last interval of an ended one is lost. A
//! change of TLP is reported late by up to the time between two counts, and a shorter one is missed. The
//! kernel updates `schedstat` of a running thread at its clock tick, and that of a waiting thread when the
//! wait ends. Kernels without `schedstat` provide only the ticks of `stat` and no waiting times.

use super::applications::{Applications, ExecutedProgram};
use super::error::{DiscoveryError, FollowError};
use super::estimate::estimate;
use super::facts::{NewThread, News, Parallelism, ThreadFacts};
use super::groups::Groups;
use super::options::{Options, Root};
use super::others::Others;
use super::polled::{Before, Thread};
use super::source::Discovery;
use corewise_core::backoff::Doubling;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::RunnableThreads;
use corewise_sys::proc::{Proc, SchedstatFile};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How often the last ID is read.
const GLANCE: Duration = Duration::from_millis(25);
/// The interval after a change, and the longest one, unless polling costs too much.
const INTERVAL_MIN: Duration = Duration::from_millis(5);
const INTERVAL_MAX: Duration = Duration::from_millis(250);
/// The longest interval, regardless of the cost of polling.
const INTERVAL_LIMIT: Duration = Duration::from_secs(1);
/// The maximum time between two listings, as the last ID does not cover every creation (`clone3` with
/// `set_tid`).
const LISTED_WITHIN: Duration = Duration::from_secs(1);
/// The shortest interval for which parallelism is estimated: many ticks of the kernel's clock, at which the
/// times of running threads are updated.
const WINDOW: Duration = Duration::from_millis(50);
/// The shortest interval between two counts of runnable threads: a scheduling tick of the PA paper (§2.1).
const TLP_INTERVAL: Duration = Duration::from_millis(10);
/// Share of one CPU that counting runnable threads may cost.
const SHARE_TLP: f64 = 0.01;
/// Share of one CPU that polling may cost while threads come and go.
const SHARE_CHANGING: f64 = 0.02;
/// Share of one CPU that polling may cost while nothing happens.
const SHARE_QUIET: f64 = 0.002;

/// The polling source; see the module documentation.
pub struct Poll {
    proc: Proc,
    roots: Vec<Root>,
    groups: Groups,
    others: Others,
    /// Running processes to be followed from the next listing on.
    named: HashMap<u32, AppId>,
    /// Every process of the machine at the last listing.
    listed: HashSet<u32>,
    /// The followed processes and their applications.
    members: HashMap<u32, AppId>,
    applications: Applications,
    /// The first threads of processes that have executed another program since the last refresh.
    executed: Vec<ThreadId>,
    /// Processes that may have executed a program since they were looked at.
    unsettled: Vec<u32>,
    threads: BTreeMap<u32, Thread>,
    /// The parents of the processes that were met since the last refresh.
    starters: Vec<u32>,
    ended: Vec<ThreadFacts>,
    last_created: Option<u32>,
    listed_at: Option<Instant>,
    sampled_at: Instant,
    interval: Doubling,
    /// The earliest time of the next full poll if something was created.
    earliest: Instant,
    /// The time of the next full poll if nothing was created.
    due: Instant,
    estimated_at: Instant,
    tallies: BTreeMap<AppId, Tally>,
    /// For each application its runnable threads as last reported, and when they are counted next; `None` if
    /// nobody has asked.
    reported: Option<(BTreeMap<AppId, RunnableThreads>, Instant)>,
    /// The number of further `schedstat` files that may be kept open.
    descriptors_left: usize,
    ns_per_tick: u64,
}

/// Sums of an application.
#[derive(Debug, Clone)]
struct Tally {
    began: Instant,
    parallelism: Parallelism,
    /// Runnable time of ended threads that is not yet part of the estimate.
    left_over_ns: Vec<u64>,
}

impl Poll {
    /// Starts following the descendants of `options.roots`. Half of this process's descriptors (its soft
    /// limit) are used to keep files open.
    pub fn open(options: &Options) -> Result<Self, DiscoveryError> {
        let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        let descriptors = limit.map_or(0, |(soft, _)| soft / 2) as usize;
        Poll::with_descriptors(options, descriptors, Instant::now())
    }

    fn with_descriptors(options: &Options, descriptors: usize, now: Instant) -> Result<Self, DiscoveryError> {
        let running = |(app, root): (AppId, &Root)| match *root {
            Root::Process(pid) => Some((pid, app)),
            Root::ChildrenOf(_) | Root::Group(_) | Root::Others { .. } => None,
        };
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        Ok(Poll {
            proc: options.proc.clone(),
            listed: HashSet::new(),
            groups: options.groups(),
            others: options.others(),
            named: HashMap::new(),
            members: options.roots().filter_map(running).collect(),
            applications: Applications::new(options.extent, &options.proc, options.named_roots()),
            executed: Vec::new(),
            unsettled: Vec::new(),
            tallies: BTreeMap::new(),
            reported: None,
            roots: options.roots.clone(),
            threads: BTreeMap::new(),
            starters: Vec::new(),
            ended: Vec::new(),
            last_created: None,
            listed_at: None,
            sampled_at: now,
            interval: Doubling::new(INTERVAL_MIN, INTERVAL_MAX),
            earliest: now,
            due: now,
            estimated_at: now,
            descriptors_left: descriptors,
            ns_per_tick: 1_000_000_000 / ticks.max(1) as u64,
        })
    }

    /// Does what is due at `now`: a poll, a count of the runnable threads, or nothing.
    fn refresh_at(&mut self, now: Instant) -> Result<News, DiscoveryError> {
        let reported_ends = self.ended.len();
        let wanted = now >= self.due || self.proc.last_created() != self.last_created;
        let appeared = if wanted && now >= self.earliest {
            self.poll(now)?
        } else if self.reported.as_ref().is_some_and(|(_, due)| now >= *due) {
            self.sample(now)?;
            Vec::new()
        } else {
            return Ok(News::default());
        };
        let runnable = self.tlp_changes(now, now.elapsed());
        let ended = self.ended[reported_ends..].iter().map(ThreadFacts::id).collect();
        let starters = std::mem::take(&mut self.starters);
        let executed = std::mem::take(&mut self.executed);
        Ok(News { appeared, starters, executed, ended, runnable, ..News::default() })
    }

    /// Polls once at `now`.
    fn poll(&mut self, now: Instant) -> Result<Vec<NewThread>, DiscoveryError> {
        let created = self.proc.last_created();
        let stale = self.listed_at.is_none_or(|at| now.duration_since(at) >= LISTED_WITHIN);
        let mut appeared = Vec::new();
        if stale || created.is_none() || created != self.last_created {
            appeared = self.list(now)?;
            self.last_created = created;
            self.listed_at = Some(now);
        } else {
            self.settle_all(now)?;
        }
        let ended_before = self.ended.len();
        self.sample(now)?;
        let changed = !appeared.is_empty() || self.ended.len() != ended_before;
        self.schedule(now, changed, now.elapsed());
        Ok(appeared)
    }

    fn schedule(&mut self, now: Instant, changed: bool, cost: Duration) {
        changed.then(|| self.interval.restart());
        let share = if changed { SHARE_CHANGING } else { SHARE_QUIET };
        let affordable = cost.div_f64(share).min(INTERVAL_LIMIT);
        self.earliest = now + INTERVAL_MIN.max(affordable);
        self.due = now + self.interval.take().max(affordable);
    }

    /// Finds processes and threads that are new since the last listing.
    fn list(&mut self, now: Instant) -> Result<Vec<NewThread>, DiscoveryError> {
        let processes = self.proc.processes()?;
        // What started one of these has executed its own program by now.
        self.settle_all(now)?;
        let unlisted: Vec<u32> = processes.iter().copied().filter(|pid| !self.listed.contains(pid)).collect();
        let parent_of = |pid: u32| {
            let root = self.roots.iter().position(|root| *root == Root::ChildrenOf(pid))?;
            Some(AppId(root as u32))
        };
        let first = self.listed_at.is_none();
        let app_of = |pid: u32| self.members.get(&pid).copied().or_else(|| parent_of(pid));
        let joined = self.proc.descendants(&unlisted, app_of, &self.others.excluded)?;
        let mut arrived = self.groups.look()?;
        arrived.extend(self.others.look(|pid| self.members.contains_key(&pid))?);
        arrived.extend(std::mem::take(&mut self.named));
        // A process started there has been followed from its start.
        arrived.retain(|pid, _| !joined.contains_key(pid) && !self.members.contains_key(pid));
        let mut new: HashMap<u32, AppId> = joined.into_iter().chain(arrived.clone()).collect();
        // A process that is a root keeps its application.
        new.retain(|pid, _| !self.members.contains_key(pid));
        self.unsettled.extend(new.keys());
        let known = |pid: u32| self.members.get(&pid).copied();
        let found = self.applications.found(&self.proc, &new, known)?;
        self.members.extend(found);
        self.listed = processes.into_iter().collect();
        let mut appeared = Vec::new();
        for (pid, app) in self.members.clone() {
            let Some(tids) = self.proc.threads(pid)? else {
                self.members.remove(&pid);
                continue;
            };
            for tid in tids {
                if !self.threads.contains_key(&tid)
                    && let Some(thread) = self.meet(app, (pid, tid), first, arrived.contains_key(&pid))?
                {
                    appeared.push(NewThread {
                        tid,
                        pid,
                        creator_tid: None,
                        generation: thread.facts.generation,
                        created: now,
                    });
                    self.applications.enter(app);
                    self.threads.insert(tid, thread);
                }
            }
        }
        Ok(appeared)
    }

    /// Finds out what processes have executed that were new at the last poll.
    fn settle_all(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        std::mem::take(&mut self.unsettled).into_iter().try_for_each(|pid| self.settle(pid, now))
    }

    /// Finds out whether a process has executed a program, and moves it to the application of that.
    fn settle(&mut self, pid: u32, now: Instant) -> Result<(), DiscoveryError> {
        let Some(&before) = self.members.get(&pid) else { return Ok(()) };
        let Some(stat) = self.proc.stat(pid, pid)? else { return Ok(()) };
        let starter = self.members.get(&stat.parent).copied().unwrap_or(before);
        let app = self.applications.seen(&self.proc, (before, starter), (pid, stat.parent), now);
        if app == before {
            return Ok(());
        }
        self.members.insert(pid, app);
        for thread in self.threads.values_mut().filter(|of| of.facts.pid == pid && !of.facts.ended) {
            thread.facts.app = app;
            self.applications.leave(before, now);
            self.applications.enter(app);
        }
        for forgotten in self.applications.take_forgotten() {
            self.tallies.remove(&forgotten);
            if let Some((reported, _)) = &mut self.reported {
                reported.remove(&forgotten);
            }
        }
        Ok(())
    }

    /// Reads a thread for the first time. Its times before the first listing, or before it `arrived` from
    /// elsewhere, do not count towards parallelism.
    fn meet(
        &mut self,
        app: AppId,
        (pid, tid): (u32, u32),
        first: bool,
        arrived: bool,
    ) -> Result<Option<Thread>, DiscoveryError> {
        // Nor is what the kernel runs in a process's name a part of what it computes.
        let stat = self.proc.stat(pid, tid)?.filter(|stat| !stat.is_kernel_thread());
        let Some(stat) = stat else { return Ok(None) };
        let keep = self.descriptors_left > 0;
        let file = self.proc.schedstat(pid, tid, keep)?;
        self.descriptors_left -= usize::from(matches!(file, Some(SchedstatFile::Open(_))));
        let times = match (&file, first || arrived) {
            (Some(file), true) => file.read()?,
            _ => None,
        };
        let ran_before = arrived
            || (first && matches!(self.roots[self.applications.root(app).0 as usize], Root::Process(_)));
        let before = match (ran_before, times) {
            (false, _) => Before::default(),
            (true, times) => Before {
                run_ns: times.map_or(0, |times| times.run_ns),
                runnable_ns: times.map_or(0, |times| times.run_ns + times.wait_ns),
                cpu_ticks: stat.cpu_ticks,
            },
        };
        let facts = ThreadFacts {
            tid,
            pid,
            app,
            generation: stat.start_ticks,
            name: stat.name.as_str().into(),
            cpu_ns: if first { (stat.cpu_ticks - before.cpu_ticks) * self.ns_per_tick } else { 0 },
            runnable_ns: None,
            runnable: stat.state == 'R',
            last_pe: Some(PeId(stat.last_pe)),
            ended: false,
        };
        if tid == pid {
            self.starters.push(stat.parent);
        }
        let stack = stat.stack;
        Ok(Some(Thread { facts, file, times, before, unestimated_ns: 0, is_zombie: false, stack }))
    }

    /// Reads every thread.
    fn sample(&mut self, now: Instant) -> Result<(), DiscoveryError> {
        let elapsed_ns = now.duration_since(self.sampled_at).as_nanos() as u64;
        self.sampled_at = now;
        let (mut vanished, mut renamed, ended_before) = (Vec::new(), Vec::new(), self.ended.len());
        for (&tid, thread) in &mut self.threads {
            let Some(reading) = thread.read(&self.proc)? else {
                vanished.push(tid);
                continue;
            };
            let (name, leads) = (thread.facts.name.clone(), tid == thread.facts.pid);
            let has_executed = leads && thread.has_executed(&reading);
            self.executed.extend(has_executed.then(|| thread.facts.id()));
            let added_ns = thread.take_in(reading, elapsed_ns, self.ns_per_tick);
            renamed.extend((has_executed || leads && name != thread.facts.name).then_some(tid));
            let tally = self.tallies.entry(thread.facts.app).or_insert_with(|| Tally::since(now));
            tally.parallelism.runnable_thread_ns += added_ns;
            if thread.is_zombie {
                self.descriptors_left += thread.end(&mut self.ended);
            }
        }
        for tid in vanished {
            if let Some(mut thread) = self.threads.remove(&tid) {
                self.descriptors_left += thread.end(&mut self.ended);
                let tally = self.tallies.get_mut(&thread.facts.app);
                tally.into_iter().for_each(|tally| tally.left_over_ns.push(thread.unestimated_ns));
            }
            // Its ID may be in use again already: force a listing at the next poll.
            self.last_created = None;
        }
        if now.duration_since(self.estimated_at) >= WINDOW {
            let window_ns = now.duration_since(self.estimated_at).as_nanos() as u64;
            self.estimated_at = now;
            self.estimate(window_ns, now);
        }
        let ended = &self.ended[ended_before..];
        ended.iter().for_each(|facts| self.applications.leave(facts.app, now));
        renamed.into_iter().try_for_each(|pid| self.settle(pid, now))
    }

    /// Returns the applications whose runnable threads differ from the last report. `cost` is the time that
    /// reading the threads took.
    fn tlp_changes(&mut self, now: Instant, cost: Duration) -> Vec<RunnableThreads> {
        let Some((reported, due)) = &mut self.reported else { return Vec::new() };
        *due = now + cost.div_f64(SHARE_TLP).clamp(TLP_INTERVAL, INTERVAL_LIMIT);
        let none = |app| (app, RunnableThreads { app, count: 0, only: None });
        let mut present: BTreeMap<_, _> = self.applications.ids().map(none).collect();
        for thread in self.threads.values().filter(|thread| thread.facts.runnable) {
            let Some(app) = present.get_mut(&thread.facts.app) else { continue };
            app.count += 1;
            app.only = (app.count == 1).then(|| thread.facts.id());
        }
        let before = |app: &AppId| reported.get(app).copied().unwrap_or(none(*app).1);
        let changed = present.iter().filter(|(app, present)| **present != before(app));
        let changed = changed.map(|(_, present)| *present).collect();
        *reported = present;
        changed
    }

    /// Adds the time since the last estimate to the active and the sequential times of applications.
    fn estimate(&mut self, window_ns: u64, now: Instant) {
        let mut threads: HashMap<AppId, Vec<&mut Thread>> = HashMap::new();
        for thread in self.threads.values_mut() {
            threads.entry(thread.facts.app).or_default().push(thread);
        }
        for (app, tally) in &mut self.tallies {
            tally.estimate(threads.remove(app).unwrap_or_default(), window_ns, now);
        }
    }
}

impl Tally {
    fn since(began: Instant) -> Tally {
        Tally { began, parallelism: Parallelism::default(), left_over_ns: Vec::new() }
    }

    /// Adds the time since the last estimate to the active and the sequential time.
    fn estimate(&mut self, mut threads: Vec<&mut Thread>, window_ns: u64, now: Instant) {
        let passed_ns = now.duration_since(self.began).as_nanos() as u64;
        let inactive_ns = passed_ns.saturating_sub(self.parallelism.active_ns);
        let mut runnable_ns = std::mem::take(&mut self.left_over_ns);
        let times = threads.iter().map(|thread| thread.unestimated_ns);
        let longest_ns = times.chain(runnable_ns.iter().copied()).max().unwrap_or(0);
        // Threads found late, or whose times the kernel updated late, ran for longer than the window. They
        // ran in time that was counted as inactive before, if there is such time.
        let elapsed_ns = longest_ns.clamp(window_ns, inactive_ns.max(window_ns));
        let mut runnable_now = 0;
        for thread in &mut threads {
            let fitting_ns = thread.unestimated_ns.min(elapsed_ns);
            thread.unestimated_ns -= fitting_ns;
            runnable_ns.push(fitting_ns);
            runnable_now += u32::from(thread.facts.runnable);
        }
        let (active_ns, sequential_ns) = estimate(&runnable_ns, runnable_now, elapsed_ns);
        self.parallelism.active_ns += active_ns;
        self.parallelism.sequential_ns += sequential_ns;
        self.parallelism.runnable_max = self.parallelism.runnable_max.max(runnable_now);
    }
}

impl Discovery for Poll {
    fn name(&self) -> &'static str {
        "poll"
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn refresh_within(&self) -> Option<Duration> {
        let now = Instant::now();
        let next = self.earliest.max(self.due.min(now + GLANCE));
        let next = self.reported.iter().map(|(_, due)| *due).fold(next, Instant::min);
        Some(next.saturating_duration_since(now))
    }

    fn refresh(&mut self) -> Result<News, DiscoveryError> {
        self.refresh_at(Instant::now())
    }

    fn attach(&mut self, pid: u32) -> Result<(), FollowError> {
        let app = self.others.check(pid)?.ok_or(FollowError::Fixed)?;
        let below = |above: u32| (above == pid).then_some(app);
        let tree = self.proc.descendants(&self.proc.processes()?, below, &self.others.excluded)?;
        self.named.extend(tree.into_iter().chain([(pid, app)]));
        // They are listed at the next refresh, whatever that costs.
        (self.last_created, self.earliest, self.due) = (None, self.sampled_at, self.sampled_at);
        Ok(())
    }

    fn report_tlp(&mut self) {
        self.reported = Some((BTreeMap::new(), self.sampled_at));
    }

    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError> {
        self.sample(Instant::now())?;
        let mut facts = std::mem::take(&mut self.ended);
        facts.extend(
            self.threads.values().filter(|thread| !thread.facts.ended).map(|thread| thread.facts.clone()),
        );
        Ok(facts)
    }

    fn facts(&self, tid: u32) -> Option<ThreadFacts> {
        self.threads.get(&tid).map(|thread| thread.facts.clone()).filter(|facts| !facts.ended)
    }

    fn is_idle(&self) -> bool {
        self.listed_at.is_some() && self.threads.values().all(|thread| thread.facts.ended)
    }

    fn parallelism(&mut self, app: AppId) -> Parallelism {
        self.tallies.get(&app).map_or_else(Parallelism::default, |tally| tally.parallelism)
    }

    fn programs(&mut self) -> Vec<ExecutedProgram> {
        self.applications.report()
    }

    fn notes(&self) -> Vec<String> {
        let unseen = "threads that live for less than the polling interval (5 to 250 ms) are not seen";
        [unseen.to_owned()].into_iter().chain(self.applications.note()).collect()
    }
}

#[cfg(test)]
#[path = "poll_tests.rs"]
mod tests;
