//! The measuring threads, one per PE and bound to it, and how they work at the same time.
//!
//! A repetition must measure what a task does *while the others work*. Threads neither start nor end at the
//! same instant, so each has a window of its own: it works, uncounted, until all others work, too; then
//! counts until its window has passed; then continues, uncounted, until the windows of all have passed.
//! Before that, each traverses its region once alone, and all work together for a short while, so that caches
//! and clocks settle.
//!
//! Before the window, and again after it, a short series of dependent additions measures the clock.
//!
//! Limits: a thread that waits (a duty below 1) polls the time with the processor's pause instruction, which
//! on an SMT sibling still takes some issue slots.

use super::disturbance::{Absence, Reading, Watch};
use super::kernels::{self, Loop, Role, SharedLines};
use corewise_core::calibrate::{ExecutorError, Task};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::kernels::Kernel;
use corewise_sys::affinity;
use corewise_sys::real_time::RealTime;
use nix::errno::Errno;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long additions are timed to measure the clock.
const CLOCK_SPELL: Duration = Duration::from_micros(100);

/// Limits of the time that all work together before they count; in between it is a tenth of the window.
const SETTLING: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));

/// The lowest real-time priority: above all ordinary threads, below other real-time threads.
pub(super) const PRIORITY: i32 = 1;

/// The minimum duty: with less, a task would hardly do anything within a window.
const DUTY_MIN: f64 = 0.01;

/// The maximum time of a chunk. A chunk that seems longer was interrupted, and is not followed by a longer
/// rest.
const CHUNK_MAX: Duration = Duration::from_millis(1);

/// What two tasks with one kernel need: shared memory, and the role of each.
pub(super) type Partnership = (Arc<SharedLines>, Role);

/// The work of one worker in a repetition.
pub(super) struct Assignment {
    pub task: Task,
    pub partnership: Option<Partnership>,
    pub window: Duration,
    pub realtime: bool,
    pub meeting: Arc<Meeting>,
}

/// The result of one worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub work: f64,
    pub begin: Instant,
    pub end: Instant,
    pub absence: Absence,
    pub clock_ghz: Option<f64>,
}

/// Why a worker did no work.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another task of the repetition failed.
    Abandoned,
    /// The worker's own error.
    Error(ExecutorError),
}

/// A thread bound to one PE. On drop it ends and frees its memory.
pub(super) struct Worker {
    /// The kernel and the region that it keeps ready.
    pub kept: Option<(Kernel, u64)>,
    /// `None` only during drop.
    orders: Option<Sender<Assignment>>,
    answers: Receiver<Result<Part, Failure>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn start(pe: PeId) -> std::io::Result<Worker> {
        let (orders, to_do) = channel::<Assignment>();
        let (answer, answers) = channel();
        let work = move || {
            let mut bench = Bench::new(pe);
            for assignment in to_do {
                let leaving = Leaving(Arc::clone(&assignment.meeting));
                let result = bench.run(&assignment);
                drop(leaving);
                if answer.send(result).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("bench-{pe}")).spawn(work)?;
        Ok(Worker { kept: None, orders: Some(orders), answers, thread: Some(thread) })
    }

    /// Assigns work. [`Worker::answer`] must follow.
    pub fn order(&mut self, assignment: Assignment) {
        self.kept = Some((assignment.task.kernel, assignment.task.region_bytes));
        // A worker that is gone gives no answer either, and `answer` reports that.
        let _ = self.orders.as_ref().map(|orders| orders.send(assignment));
    }

    /// Waits until the work is done. From the deadline on no worker of the meeting waits for others: a thread
    /// that another program keeps from its PE must not make the others spin forever.
    pub fn answer(&mut self, meeting: &Meeting, deadline: Instant) -> Result<Part, Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Ok(answer) = self.answers.recv_timeout(left) {
            return answer;
        }
        meeting.abandon();
        self.answers.recv().unwrap_or_else(|_| match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => resume_unwind(panic),
            _ => Err(Failure::Abandoned),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic is reported by `answer`.
            let _ = thread.join();
        }
    }
}

/// Where the workers of one repetition wait for each other.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    tasks: usize,
    gathered: AtomicUsize,
    abandoned: AtomicBool,
    settling: Stage,
    measuring: Stage,
}

/// A period in which all work.
#[derive(Debug, Default)]
struct Stage {
    working: AtomicUsize,
    finished: AtomicUsize,
    /// All windows have passed, or a worker has left.
    over: AtomicBool,
}

impl Meeting {
    pub fn of(tasks: usize) -> Arc<Meeting> {
        Arc::new(Meeting { tasks, ..Meeting::default() })
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.settling.over.store(true, Ordering::Release);
        self.measuring.over.store(true, Ordering::Release);
    }

    /// Waits until every worker is ready; returns `false` if one will never be.
    fn gather(&self) -> bool {
        self.gathered.fetch_add(1, Ordering::AcqRel);
        while self.gathered.load(Ordering::Acquire) < self.tasks {
            if self.abandoned.load(Ordering::Acquire) {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }
}

/// Releases all others when a worker leaves a meeting, whether at its end or by an error or a panic.
struct Leaving(Arc<Meeting>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A loop that works for a share of the time and rests otherwise.
struct DutyCycle<'a> {
    looping: &'a mut dyn Loop,
    /// Rest time per unit of working time.
    rest: f64,
}

impl DutyCycle<'_> {
    /// Runs one chunk of work and the rest that follows. Returns the work and when it ended.
    fn once(&mut self, begin: Instant, over: &AtomicBool) -> (f64, Instant) {
        let work = self.looping.chunk(over);
        let mut now = Instant::now();
        if self.rest > 0.0 {
            let until = now + (now - begin).min(CHUNK_MAX).mul_f64(self.rest);
            while now < until && !over.load(Ordering::Relaxed) {
                for _ in 0..8 {
                    std::hint::spin_loop();
                }
                now = Instant::now();
            }
        }
        (work, now)
    }
}

/// The counted window of one worker.
struct Counted {
    work: f64,
    begin: Instant,
    end: Instant,
    before: Reading,
    after: Reading,
}

impl Stage {
    /// Works with all others; returns `None` if one has left.
    fn work(
        &self,
        tasks: usize,
        duty_cycle: &mut DutyCycle,
        length: Duration,
        watch: &Watch,
    ) -> Option<Counted> {
        let (_, mut now) = duty_cycle.once(Instant::now(), &self.over);
        self.working.fetch_add(1, Ordering::AcqRel);
        while self.working.load(Ordering::Acquire) < tasks && !self.over.load(Ordering::Acquire) {
            (_, now) = duty_cycle.once(now, &self.over);
        }
        let before = watch.read();
        let begin = Instant::now();
        let until = begin + length;
        let (mut work, mut end) = (0.0, begin);
        while end < until && !self.over.load(Ordering::Acquire) {
            let (done, now) = duty_cycle.once(end, &self.over);
            (work, end) = (work + done, now);
        }
        let after = watch.read();
        if end < until {
            return None;
        }
        if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == tasks {
            self.over.store(true, Ordering::Release);
        }
        let mut now = Instant::now();
        while !self.over.load(Ordering::Acquire) {
            (_, now) = duty_cycle.once(now, &self.over);
        }
        Some(Counted { work, begin, end, before, after })
    }
}

/// The state that a worker keeps on its own thread.
struct Bench {
    pe: PeId,
    watch: Watch,
    /// Measures the clock; `None` if there is no such kernel.
    additions: Option<Box<dyn Loop>>,
    ready: Option<(Kernel, u64, Box<dyn Loop>)>,
}

impl Bench {
    fn new(pe: PeId) -> Bench {
        let additions = kernels::prepare(Kernel::IntAddChain, 0, None).ok();
        Bench { pe, watch: Watch::open(), additions, ready: None }
    }

    fn run(&mut self, assignment: &Assignment) -> Result<Part, Failure> {
        let Assignment { task, window, meeting, .. } = assignment;
        self.bind()?;
        let mut looping = self.prepare(assignment)?;
        warm_up(task, looping.as_mut(), *window);
        if !meeting.gather() {
            return Err(Failure::Abandoned);
        }
        let realtime = assignment.realtime.then(|| RealTime::enter(PRIORITY)).transpose();
        let realtime =
            realtime.map_err(|errno| self.unusable(format!("no real-time scheduling: {errno}")))?;
        let mut duty_cycle =
            DutyCycle { looping: looping.as_mut(), rest: 1.0 / task.duty.clamp(DUTY_MIN, 1.0) - 1.0 };
        let settling = (*window / 10).clamp(SETTLING.0, SETTLING.1);
        let settled = meeting.settling.work(meeting.tasks, &mut duty_cycle, settling, &self.watch);
        settled.ok_or(Failure::Abandoned)?;
        let clock_before = self.clock_ghz();
        let counted = meeting.measuring.work(meeting.tasks, &mut duty_cycle, *window, &self.watch);
        let counted = counted.ok_or(Failure::Abandoned)?;
        let clock_after = self.clock_ghz();
        drop(realtime);
        self.check_still_bound()?;
        self.ready = Some((task.kernel, task.region_bytes, looping));
        Ok(Part {
            work: counted.work,
            begin: counted.begin,
            end: counted.end,
            absence: Absence::between(counted.before, counted.after, counted.end - counted.begin),
            clock_ghz: clock_before.zip(clock_after).map(|(before, after)| (before + after) / 2.0),
        })
    }

    fn unusable(&self, why: String) -> Failure {
        Failure::Error(ExecutorError::Pe { pe: self.pe, why })
    }

    /// Binds this thread to its PE, unless it is bound. The kernel resets the mask when the PE goes offline.
    fn bind(&self) -> Result<(), Failure> {
        let mask = CpuSet::single(self.pe);
        if affinity::get(0).as_ref() == Ok(&mask) {
            return Ok(());
        }
        affinity::bind_self(self.pe).map_err(|errno| {
            self.unusable(match errno {
                Errno::EINVAL => "it is offline, or this process's cpuset does not hold it".to_owned(),
                errno => format!("a thread cannot be bound to it: {errno}"),
            })
        })
    }

    fn check_still_bound(&self) -> Result<(), Failure> {
        match affinity::get(0) {
            Ok(mask) if mask == CpuSet::single(self.pe) => Ok(()),
            _ => Err(self.unusable(
                "while it was measured it went offline, or somebody changed the mask or cpuset of the \
                 thread on it"
                    .to_owned(),
            )),
        }
    }

    /// Returns the loop of the repetition before, if it is the same. Synchronisation loops are always new, as
    /// they must begin together.
    fn prepare(&mut self, assignment: &Assignment) -> Result<Box<dyn Loop>, Failure> {
        let Task { kernel, region_bytes, .. } = assignment.task;
        // Taken out, so that its memory is freed before new memory is allocated.
        match self.ready.take() {
            Some((same, bytes, looping))
                if (same, bytes) == (kernel, region_bytes) && !kernel.needs_partner() =>
            {
                return Ok(looping);
            }
            other => drop(other),
        }
        kernels::prepare(kernel, region_bytes, assignment.partnership.clone()).map_err(|error| {
            let what = match region_bytes {
                0 => kernel.name().to_owned(),
                bytes => format!("{} on {bytes} bytes", kernel.name()),
            };
            Failure::Error(ExecutorError::Unavailable { what, why: error.to_string() })
        })
    }

    /// Returns the clock, from the fastest of a few chunks of additions: an interrupt makes a chunk slower,
    /// nothing makes one faster.
    fn clock_ghz(&mut self) -> Option<f64> {
        let additions = self.additions.as_mut()?;
        let never = AtomicBool::new(false);
        let mut fastest: f64 = 0.0;
        let mut now = Instant::now();
        let until = now + CLOCK_SPELL;
        while now < until {
            let work = additions.chunk(&never);
            let end = Instant::now();
            fastest = fastest.max(work / (end - now).as_nanos().max(1) as f64);
            now = end;
        }
        Some(fastest)
    }
}

/// Traverses a region once, but for no longer than the window. A synchronisation kernel would wait for its
/// partner.
fn warm_up(task: &Task, looping: &mut dyn Loop, window: Duration) {
    /// The size of a cache line; a chain of loads has at most one element per line.
    const LINE_BYTES: f64 = 64.0;
    let pass = match task.kernel {
        Kernel::LoadLatency => task.region_bytes as f64 / LINE_BYTES,
        kernel if kernel.needs_partner() => return,
        _ => task.region_bytes as f64,
    };
    let never = AtomicBool::new(false);
    let until = Instant::now() + window;
    let mut work = 0.0;
    while work < pass && Instant::now() < until {
        work += looping.chunk(&never);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records when it worked.
    #[derive(Default)]
    struct Noting(Vec<(Instant, Instant)>);

    impl Loop for Noting {
        fn chunk(&mut self, _: &AtomicBool) -> f64 {
            let begin = Instant::now();
            std::thread::sleep(Duration::from_micros(200));
            self.0.push((begin, Instant::now()));
            1.0
        }
    }

    #[test]
    fn every_window_lies_within_the_work_of_all_others() {
        let stage = Stage::default();
        let member = |delay_ms, length_ms| {
            let stage = &stage;
            move || {
                std::thread::sleep(Duration::from_millis(delay_ms));
                let mut looping = Noting::default();
                let mut duty_cycle = DutyCycle { looping: &mut looping, rest: 0.0 };
                let length = Duration::from_millis(length_ms);
                let window = stage.work(3, &mut duty_cycle, length, &Watch::open()).unwrap();
                let (left, looping) = (Instant::now(), looping.0);
                let counted =
                    |&&(begin, end): &&(Instant, Instant)| begin >= window.begin && end <= window.end;
                assert_eq!(window.work, looping.iter().filter(counted).count() as f64);
                (window, looping[0].0, left)
            }
        };
        let members = std::thread::scope(|scope| {
            let threads = [member(0, 3), member(8, 6), member(4, 12)].map(|member| scope.spawn(member));
            threads.map(|thread| thread.join().unwrap())
        });
        for (window, ..) in &members {
            for (_, entered, left) in &members {
                assert!(*entered < window.begin && *left > window.end);
            }
        }
    }

    #[test]
    fn no_worker_waits_for_one_that_has_left() {
        let meeting = Meeting::of(2);
        drop(Leaving(Arc::clone(&meeting)));
        assert!(!meeting.gather());
        let mut looping = Noting::default();
        let mut duty_cycle = DutyCycle { looping: &mut looping, rest: 0.0 };
        assert!(meeting.measuring.work(2, &mut duty_cycle, Duration::from_secs(9), &Watch::open()).is_none());
    }

    #[test]
    fn an_interrupted_chunk_calls_for_no_longer_rest() {
        struct Interrupted;
        impl Loop for Interrupted {
            fn chunk(&mut self, _: &AtomicBool) -> f64 {
                std::thread::sleep(Duration::from_millis(30));
                1.0
            }
        }
        let mut duty_cycle = DutyCycle { looping: &mut Interrupted, rest: 99.0 };
        let begin = Instant::now();
        let (_, end) = duty_cycle.once(begin, &AtomicBool::new(false));
        assert!(end - begin >= Duration::from_millis(30) + CHUNK_MAX * 99);
        assert!(end - begin < Duration::from_millis(30 * 99), "{:?}", end - begin);
    }
}
