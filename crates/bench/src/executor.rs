//! The real machine as the calibration's executor.
//!
//! It leaves no lasting changes: only its own threads are bound or made real-time, and they end with it.

use super::conditions::{self, Conditions, Refusal};
use super::kernels::{Role, SharedLines};
use super::memory;
use super::nas::{self, NasError, npb};
use super::workers::{Assignment, Failure, Meeting, PRIORITY, Part, Partnership, Worker};
use corewise_core::calibrate::{Executor, ExecutorError, NasRun, Repetition, Task, TaskRun};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::kernels::{Kernel, Nas, ProblemClass};
use corewise_core::time::Time;
use corewise_sys::proc::Proc;
use corewise_sys::proc::pe_times::{PeTimes, TICK};
use corewise_sys::real_time::RealTime;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A user's binary that runs longer has hung, or its problem is too large to be repeated.
const NPB_LIMIT: Duration = Duration::from_secs(600);

/// How long the threads of a repetition may take beyond its windows, mostly to prepare regions.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to measure.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The PEs to measure; `None`: all usable ones.
    pub pes: Option<CpuSet>,
    /// Measure the machine as it is, even with other load or a control group's quota.
    pub under_load: bool,
    /// Measure with real-time scheduling, so that ordinary threads do not disturb.
    pub realtime: bool,
    /// A directory of the user's own NPB binaries, which replace the built-in benchmarks.
    pub npb: Option<PathBuf>,
    /// Set when the user wants to stop; see [`corewise_sys::signals::asked_to_end`].
    pub interrupted: Arc<AtomicBool>,
}

/// This machine.
pub struct LiveExecutor {
    started: Instant,
    options: Options,
    conditions: Conditions,
    workers: BTreeMap<PeId, Worker>,
}

impl LiveExecutor {
    /// Examines the machine for [`conditions::WATCH`] and refuses one whose figures would be wrong.
    pub fn open(options: Options) -> Result<LiveExecutor, Refusal> {
        let mut conditions = conditions::examine(Path::new("/"), conditions::WATCH)?;
        if let Some(pes) = &options.pes {
            conditions.limit_to(pes)?;
        }
        if !options.under_load {
            conditions.check_load()?;
        }
        // Try it out on the calling thread.
        if options.realtime && RealTime::enter(PRIORITY + 1).is_err() {
            return Err(Refusal::RealTime);
        }
        Ok(LiveExecutor { started: Instant::now(), options, conditions, workers: BTreeMap::new() })
    }

    /// Returns the conditions before the start.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Rejects tasks that cannot run, before anything is changed.
    fn check(&mut self, tasks: &[Task]) -> Result<(), ExecutorError> {
        for task in tasks {
            if !self.conditions.usable.contains(task.pe) {
                let why = "it is offline, not allowed, or not among those to be measured".to_owned();
                return Err(ExecutorError::Pe { pe: task.pe, why });
            }
        }
        // A worker frees its old region before it allocates a new one. If memory is short, free all idle
        // regions before refusing.
        let keeps = |worker: &Worker, task: &Task| worker.kept == Some((task.kernel, task.region_bytes));
        let is_new = |task: &&Task| !self.workers.get(&task.pe).is_some_and(|worker| keeps(worker, task));
        let needed: u64 = tasks.iter().filter(is_new).map(|task| task.region_bytes).sum();
        let fits =
            |needed: u64| memory::allowance(Path::new("/")).is_none_or(|allowance| needed <= allowance);
        if fits(needed) {
            return Ok(());
        }
        self.renew_memory();
        let needed: u64 = tasks.iter().map(|task| task.region_bytes).sum();
        if fits(needed) {
            return Ok(());
        }
        Err(ExecutorError::Unavailable {
            what: format!("{} MiB of memory", needed >> 20),
            why: "so much is not available on the machine or in this control group: leave out the largest \
                  regions, or free some"
                .to_owned(),
        })
    }

    /// Ensures that each task's PE has a worker.
    fn start_workers(&mut self, tasks: &[Task]) -> Result<(), ExecutorError> {
        for task in tasks {
            if let Entry::Vacant(vacant) = self.workers.entry(task.pe) {
                let why = |error| format!("no thread can be started for it: {error}");
                let worker = Worker::start(task.pe);
                vacant.insert(worker.map_err(|e| ExecutorError::Pe { pe: task.pe, why: why(e) })?);
            }
        }
        Ok(())
    }

    /// Runs all tasks at the same time.
    fn meet(&mut self, tasks: &[Task], window: Duration) -> Result<Vec<Part>, ExecutorError> {
        let partnerships = pair_up(tasks)?;
        self.start_workers(tasks)?;
        let meeting = Meeting::of(tasks.len());
        // Above the workers, so that this thread can end a repetition in which one of them spins.
        let realtime = self.options.realtime.then(|| RealTime::enter(PRIORITY + 1)).transpose();
        let _realtime = realtime.map_err(|errno| never_met(tasks, &errno.to_string()))?;
        let deadline = Instant::now() + PATIENCE + window * 4;
        for (&task, partnership) in tasks.iter().zip(partnerships) {
            let (realtime, meeting) = (self.options.realtime, Arc::clone(&meeting));
            self.worker(task.pe).order(Assignment { task, partnership, window, realtime, meeting });
        }
        let answers: Vec<_> =
            tasks.iter().map(|task| self.worker(task.pe).answer(&meeting, deadline)).collect();
        let mut parts = Vec::new();
        let mut abandoned = false;
        for answer in answers {
            match answer {
                Ok(part) => parts.push(part),
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Abandoned) => abandoned = true,
            }
        }
        let why = format!("they did not all get to run within {PATIENCE:?}: does another program hold one?");
        if abandoned { Err(never_met(tasks, &why)) } else { Ok(parts) }
    }

    fn worker(&mut self, pe: PeId) -> &mut Worker {
        self.workers.get_mut(&pe).expect("the workers of all tasks were started")
    }

    /// Returns each PE's steal time so far; empty on a bare machine, which saves reading a file that is long
    /// there.
    fn pe_times(&self) -> BTreeMap<PeId, PeTimes> {
        if !self.conditions.is_virtual {
            return BTreeMap::new();
        }
        Proc::own().pe_times()
    }
}

impl Executor for LiveExecutor {
    fn now(&self) -> Time {
        Time::default() + self.started.elapsed()
    }

    fn interrupted(&self) -> bool {
        self.options.interrupted.load(Ordering::Relaxed)
    }

    fn run(&mut self, tasks: &[Task], window: Duration) -> Result<Repetition, ExecutorError> {
        self.check(tasks)?;
        let begin = Instant::now();
        let before = self.pe_times();
        let parts = self.meet(tasks, window).inspect_err(|_| self.workers.clear())?;
        let after = self.pe_times();
        if self.options.realtime {
            // The kernel takes PEs away from real-time threads that leave less than 5 % of a second to
            // others.
            std::thread::sleep(begin.elapsed() / 9);
        }
        let run = |(task, part): (&Task, &Part)| {
            let elapsed = part.end - part.begin;
            let times = |of: &BTreeMap<PeId, PeTimes>| of.get(&task.pe).copied().unwrap_or_default();
            let steal = TICK * times(&after).since(&times(&before)).steal as u32;
            let lost = part.absence.lost(steal, elapsed);
            TaskRun { work: part.work, elapsed, lost, clock_ghz: part.clock_ghz }
        };
        Ok(Repetition { runs: tasks.iter().zip(&parts).map(run).collect() })
    }

    /// A worker's memory is freed with it; the next repetition starts new ones.
    fn renew_memory(&mut self) {
        self.workers.clear();
    }

    fn run_nas(&mut self, nas: Nas, class: ProblemClass, pes: &[PeId]) -> Result<NasRun, ExecutorError> {
        self.renew_memory();
        let unavailable = |why: String| {
            let what = format!("{} {class:?}", nas.name());
            ExecutorError::Unavailable { what, why }
        };
        match &self.options.npb {
            Some(directory) => npb::run(directory, nas, class, pes, NPB_LIMIT)
                .map_err(|error| unavailable(error.to_string())),
            None => nas::run(nas, class, pes).map_err(|error| match error {
                NasError::Bind { pe, errno } => {
                    ExecutorError::Pe { pe, why: format!("a thread cannot be bound to it: {errno}") }
                }
                other => unavailable(other.to_string()),
            }),
        }
    }
}

fn never_met(tasks: &[Task], why: &str) -> ExecutorError {
    let pes: CpuSet = tasks.iter().map(|task| task.pe).collect();
    ExecutorError::Unavailable { what: format!("PEs {pes} at the same time"), why: why.to_owned() }
}

/// Allocates memory for the tasks that need a partner: the first two of a kernel share some, then the next
/// two.
fn pair_up(tasks: &[Task]) -> Result<Vec<Option<Partnership>>, ExecutorError> {
    let mut waiting: BTreeMap<Kernel, Arc<SharedLines>> = BTreeMap::new();
    let mut shared = Vec::new();
    for task in tasks {
        shared.push(task.kernel.needs_partner().then(|| match waiting.remove(&task.kernel) {
            Some(lines) => (lines, Role::Second),
            None => {
                let lines = Arc::new(SharedLines::default());
                waiting.insert(task.kernel, Arc::clone(&lines));
                (lines, Role::First)
            }
        }));
    }
    match waiting.keys().next() {
        None => Ok(shared),
        Some(kernel) => Err(ExecutorError::Unavailable {
            what: kernel.name().to_owned(),
            why: "it needs two threads, on two PEs".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_sys::affinity;
    use corewise_testing::{Capability, needs, or_skip};

    fn executor(options: Options) -> LiveExecutor {
        // Other tests run at the same time.
        LiveExecutor::open(Options { under_load: true, ..options }).unwrap()
    }

    /// Returns the first usable PEs.
    fn usable<const N: usize>(executor: &LiveExecutor) -> [PeId; N] {
        let pes: Vec<PeId> = executor.conditions().usable.iter().take(N).collect();
        pes.try_into().expect("there are so many")
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn all_kernels_of_two_threads_work_together_and_leave_masks_alone() {
        needs!(TwoPes);
        let before = affinity::get(0);
        let mut executor = executor(Options::default());
        let [a, b] = usable(&executor);
        for kernel in [Kernel::Alternate, Kernel::FetchAdd, Kernel::HandOver, Kernel::IntAdd] {
            let tasks = [Task::new(a, kernel, 0), Task::new(b, kernel, 0)];
            let runs = executor.run(&tasks, ms(5)).unwrap().runs;
            assert_eq!(runs.len(), 2);
            for run in runs {
                assert!(
                    run.work > 0.0 && run.elapsed >= ms(5) && run.lost <= run.elapsed,
                    "{kernel:?} {run:?}"
                );
                assert!(run.clock_ghz.is_some_and(|ghz| ghz > 0.1 && ghz < 10.0), "{run:?}");
            }
        }
        drop(executor);
        assert_eq!(affinity::get(0), before);
    }

    #[test]
    fn one_pe_is_enough_for_what_one_thread_does() {
        let mut executor = executor(Options::default());
        let [pe] = usable(&executor);
        for region in [1 << 20, 1 << 20, 1 << 21] {
            let run = executor.run(&[Task::new(pe, Kernel::Read, region)], ms(5)).unwrap().runs[0];
            assert!(run.rate() > 1e6, "{run:?}");
        }
        executor.renew_memory();
        assert!(executor.run(&[Task::new(pe, Kernel::IntAdd, 0)], ms(5)).is_ok());
    }

    #[test]
    fn a_task_with_half_the_duty_does_half_the_work() {
        let mut executor = executor(Options::default());
        let [pe] = usable(&executor);
        let mut work = |duty| {
            let task = Task { duty, ..Task::new(pe, Kernel::IntAdd, 0) };
            let run = executor.run(&[task], ms(10)).unwrap().runs[0];
            run.work / run.elapsed.saturating_sub(run.lost).as_secs_f64()
        };
        let mut shares: Vec<f64> = (0..15).map(|_| work(0.5) / work(1.0)).collect();
        shares.sort_by(f64::total_cmp);
        assert!((0.3..0.7).contains(&shares[7]), "{shares:?}");
    }

    #[test]
    fn what_another_thread_takes_is_lost() {
        let mut executor = executor(Options::default());
        let [pe] = usable(&executor);
        let stop = AtomicBool::new(false);
        let lost_share = std::thread::scope(|scope| {
            scope.spawn(|| {
                affinity::bind_self(pe).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let run = executor.run(&[Task::new(pe, Kernel::IntAdd, 0)], ms(200));
            stop.store(true, Ordering::Relaxed);
            let run = run.unwrap().runs[0];
            run.lost.as_secs_f64() / run.elapsed.as_secs_f64()
        });
        // Half of it, and more with the other tests.
        assert!(lost_share > 0.25, "{lost_share}");
    }

    #[test]
    fn a_pe_that_is_taken_away_is_reported_and_taken_back_later() {
        needs!(TwoPes);
        let mut executor = executor(Options::default());
        let [a, b] = usable(&executor);
        let tasks = [Task::new(a, Kernel::FpAdd, 0), Task::new(b, Kernel::FpAdd, 0)];
        executor.run(&tasks, ms(1)).unwrap();
        // What the kernel does to the mask of a thread whose PE goes offline.
        let name = format!("bench-{b}\n");
        let of_name = |entry: &std::fs::DirEntry| {
            std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm == name)
        };
        let move_away = || {
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            for entry in threads.filter(of_name) {
                let tid = entry.file_name().to_str().unwrap().parse().unwrap();
                let mut mask = nix::sched::CpuSet::new();
                mask.set(a.0 as usize).unwrap();
                nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(tid), &mask).unwrap();
            }
        };
        // Repeatedly, as it may have happened between two runs, or before the worker's start.
        let is_over = AtomicBool::new(false);
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(ms(50));
                    move_away();
                }
            });
            let error = (0..100).find_map(|_| executor.run(&tasks, ms(300)).err());
            is_over.store(true, Ordering::Relaxed);
            error.expect("the PE was taken away")
        });
        assert!(matches!(&error, ExecutorError::Pe { pe, .. } if *pe == b), "{error}");
        assert!(executor.run(&tasks, ms(1)).is_ok());
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let mut executor = executor(Options::default());
        let [pe] = usable(&executor);
        let mut check = |task, expected: &str| {
            let error = executor.run(&[task], ms(1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(Task::new(PeId(99_999), Kernel::IntAdd, 0), "PE 99999 cannot be used: it is offline");
        check(Task::new(pe, Kernel::Read, 1 << 50), "1073741824 MiB of memory: so much is not available");
        check(Task::new(pe, Kernel::HandOver, 0), "hand-over: it needs two threads");
        check(Task::new(pe, Kernel::Read, 4097), "read on 4097 bytes: ");
        let none = LiveExecutor::open(Options { pes: Some(CpuSet::new()), ..Options::default() });
        assert_eq!(none.err(), Some(Refusal::NoPe));
        assert!(matches!(
            executor.run_nas(Nas::Bt, ProblemClass::S, &[pe]),
            Err(ExecutorError::Unavailable { .. })
        ));
        assert!(executor.run_nas(Nas::Ep, ProblemClass::S, &[pe]).unwrap().verified);
    }

    #[test]
    fn real_time_is_for_the_workers_only() {
        let options = Options { realtime: true, under_load: true, ..Options::default() };
        let missing = |refusal: &Refusal| (*refusal == Refusal::RealTime).then_some(Capability::RealTime);
        let mut executor = or_skip!(LiveExecutor::open(options), missing);
        let [pe] = usable(&executor);
        assert!(executor.run(&[Task::new(pe, Kernel::IntAdd, 0)], ms(5)).is_ok());
        // SAFETY: the call takes no pointer; 0 is the calling thread.
        assert_ne!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_RR);
    }

    #[test]
    fn a_wish_to_stop_is_heard() {
        let options = Options::default();
        let executor = executor(options.clone());
        assert!(!executor.interrupted());
        options.interrupted.store(true, Ordering::Relaxed);
        assert!(executor.interrupted());
    }
}
