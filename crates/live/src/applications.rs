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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::Scripted;
    use corewise_core::ids::{PeId, ThreadId};
    use corewise_core::observe::{Hints, Sizing, Standing, Target};
    use corewise_discovery::{ExecutedProgram, Parallelism};

    fn reading(tid: u32, pid: u32, app: u32, ended: bool) -> ThreadReading {
        ThreadReading {
            thread: ThreadId { tid, generation: 0 },
            pid,
            app: AppId(app),
            name: "t".into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: true,
            last_pe: None,
            standing: Standing::Free,
            permitted: Arc::new(CpuSet::single(PeId(tid % 4))),
            counters: None,
            progress: None,
            hints: Hints::default(),
            sizing: Sizing::default(),
            ended,
        }
    }

    fn named() -> Applications {
        Applications::new(vec![Application::new(Target::Command, "sh", 4)])
    }

    #[test]
    fn an_application_has_its_threads_and_ends_without_one() {
        let mut applications = named();
        let mut source = Scripted::new("scripted", Vec::new());
        source.parallelism = Parallelism { active_ns: 5, exact: true, ..Parallelism::default() };
        let mut read = |threads: &[ThreadReading], now| {
            applications.read(threads, &mut source, (Instant::now(), Time(now))).remove(0)
        };
        let threads = [reading(4, 4, 0, false), reading(5, 4, 0, false), reading(6, 6, 0, false)];
        let all = read(&threads, 1);
        assert_eq!((all.processes, all.threads, all.ended), (2, 3, None));
        assert_eq!((all.active_ns, all.exact), (5, true));
        assert_eq!(all.allowed, Some(CpuSet::single(PeId(0))), "what its first process may use");
        let last = read(&[reading(6, 6, 0, false), reading(4, 4, 0, true)], 2);
        assert_eq!((last.processes, last.threads), (1, 1));
        assert_eq!(last.allowed, Some(CpuSet::single(PeId(0))), "it is kept after that has ended");
        assert_eq!(read(&[reading(6, 6, 0, true)], 3).ended, Some(Time(3)));
        assert_eq!(read(&[], 4).ended, Some(Time(3)));
        assert_eq!(read(&[reading(7, 7, 0, false)], 5).ended, None, "it goes on");
    }

    #[test]
    fn a_program_is_an_application_while_its_source_knows_it() {
        let (mut applications, started) = (named(), Instant::now());
        let mut source = Scripted::new("scripted", Vec::new());
        source.programs = [(64, 0, "hmmer"), (65, 9, "of an unknown root")]
            .map(|(app, root, name)| ExecutedProgram {
                app: AppId(app),
                executed_by: AppId(root),
                root: AppId(root),
                name: name.into(),
                first: 8,
                since: started,
            })
            .to_vec();
        let threads = [reading(4, 4, 0, false), reading(8, 8, 64, false)];
        let readings = applications.read(&threads, &mut source, (started, Time(1)));
        let names: Vec<(&str, u32)> = readings.iter().map(|of| (&*of.name, of.threads)).collect();
        assert_eq!(names, [("sh", 1), ("hmmer", 1)]);
        assert_eq!((readings[1].executed_by, readings[1].began), (Some(AppId(0)), Time(0)));
        source.programs.clear();
        assert_eq!(applications.read(&threads, &mut source, (started, Time(2))).len(), 1);
    }

    #[test]
    fn a_thread_that_only_the_counters_know_belongs_to_the_application_of_its_process() {
        let mut applications = named();
        let facts = ThreadFacts {
            tid: 5,
            pid: 4,
            app: AppId(3),
            generation: 0,
            name: "t".into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: false,
            last_pe: None,
            ended: false,
        };
        applications.take_members(&[facts]);
        assert_eq!((applications.of_process(4), applications.of_process(9)), (AppId(3), AppId(0)));
    }
}
