//! The applications of a run: those that the user named, the programs that they have executed, and which
//! program each process runs.

use crate::application::Application;
use crate::programs::Programs;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::AppId;
use corewise_core::observe::{ApplicationReading, ThreadReading};
use corewise_core::time::Time;
use corewise_discovery::{Discovery, ThreadFacts};
use corewise_sys::proc::Proc;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// The applications.
pub struct Applications {
    /// What the user named, in order of [`AppId`]s.
    named: Vec<Application>,
    /// Programs that are applications.
    executed: BTreeMap<AppId, Application>,
    /// The processes of each at the last observation, for threads that only the counters know.
    members: HashMap<u32, AppId>,
    /// The programs of processes.
    pub programs: Programs,
}

impl Applications {
    /// Those that the user named.
    pub fn new(named: Vec<Application>) -> Applications {
        let programs = Programs::new(Proc::own());
        Applications { named, executed: BTreeMap::new(), members: HashMap::new(), programs }
    }

    /// Takes in which process belongs to which.
    pub fn take_members(&mut self, facts: &[ThreadFacts]) {
        self.members = facts.iter().map(|facts| (facts.pid, facts.app)).collect();
    }

    /// Returns that of a process.
    pub fn of_process(&self, pid: u32) -> AppId {
        self.members.get(&pid).copied().unwrap_or_default()
    }

    /// Watching them begins now.
    pub fn begin_at(&mut self, now: Time) {
        self.named.iter_mut().for_each(|application| application.began = now);
    }

    /// Reads the programs of all living processes, as far as they are not known.
    pub fn look_at_programs(&mut self, threads: &[ThreadReading], processes: &HashSet<u32>) {
        self.programs.retain(processes);
        let is_leader = |reading: &&ThreadReading| !reading.ended && reading.thread.tid == reading.pid;
        for leader in threads.iter().filter(is_leader) {
            self.programs.look(leader.thread, &leader.name);
        }
    }

    /// Returns the readings of all, from those of their threads. The run started then, and it is now so late.
    pub fn read(
        &mut self,
        threads: &[ThreadReading],
        discovery: &mut dyn Discovery,
        (started, now): (Instant, Time),
    ) -> Vec<ApplicationReading> {
        let mut alive: HashMap<AppId, (HashSet<u32>, u32)> = HashMap::new();
        for thread in threads.iter().filter(|thread| !thread.ended) {
            let (processes, count) = alive.entry(thread.app).or_default();
            processes.insert(thread.pid);
            *count += 1;
        }
        let mut permitted: HashMap<u32, &Arc<CpuSet>> = HashMap::new();
        permitted.extend(threads.iter().filter(|of| !of.ended).map(|of| (of.thread.tid, &of.permitted)));
        self.meet_programs(discovery, started);
        let roots = (0..).map(AppId).zip(&mut self.named);
        let executed = self.executed.iter_mut().map(|(app, application)| (*app, application));
        let mut readings = Vec::new();
        for (app, application) in roots.chain(executed) {
            let (processes, threads) = alive.remove(&app).unwrap_or_default();
            application.ended = if threads == 0 { application.ended.or(Some(now)) } else { None };
            let first = permitted.get(&application.first).map(|permitted| Arc::clone(permitted));
            application.allowed = first.or(application.allowed.take());
            let parallelism = discovery.parallelism(app);
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
    fn meet_programs(&mut self, discovery: &mut dyn Discovery, started: Instant) {
        let programs = discovery.programs();
        let known: HashSet<AppId> = programs.iter().map(|program| program.app).collect();
        self.executed.retain(|app, _| known.contains(app));
        for program in programs {
            let Some(root) = self.named.get(program.root.0 as usize) else { continue };
            let began = Time(program.since.saturating_duration_since(started).as_nanos() as u64);
            let application = || Application::of_program(root, &program, began);
            self.executed.entry(program.app).or_insert_with(application);
        }
    }
}
