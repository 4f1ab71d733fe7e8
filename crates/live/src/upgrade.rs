//! The heavier sources of a run that begins with light ones.
//!
//! Problem: reading the topology, loading the BPF programs and opening the clocks takes about 40 ms of CPU
//! time, more than many commands run; scripts that run thousands of short commands wait for it every time.
//! Approach: a run begins with sources that cost next to nothing. The others are prepared while it goes on,
//! in a thread of their own, and take the place of the light ones when they are ready. Preparing waits for an
//! idle PE, because threads that wait for each other all wait for the one whose PE it takes. It takes a busy
//! PE only after [`PATIENT_FOR`], or when the engine needs samples; and it stops at the next step when the
//! run has ended. Limits: threads that ended before are not in the readings of the heavier sources.

use corewise_binding::actuators::Actuators;
use corewise_binding::shared::board::SharedBoard;
use corewise_core::machine_model::MachineModel;
use corewise_counters::CounterSource;
use corewise_counters::progress::WorkMeter;
use corewise_discovery::{Discovery, NewThread};
use corewise_sys::niceness::Niceness;
use corewise_sys::proc::Proc;
use corewise_sys::proc::idle::IdleTime;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a command runs before the heavier sources are prepared.
const LIGHT_FOR: Duration = Duration::from_millis(300);

/// How long after the start preparing waits for an idle PE: the CPU time that it takes must be next to
/// nothing of the time that the command has run.
const PATIENT_FOR: Duration = Duration::from_secs(4);

/// Time between two looks whether preparing is due.
const LOOK: Duration = Duration::from_millis(100);

/// How much of a PE must have been idle lately.
const IDLE_PES_MIN: f64 = 0.5;

/// The heavier sources, and what is known with them.
pub struct Upgrade {
    /// The source of threads.
    pub discovery: Box<dyn Discovery>,
    /// The threads that it has reported.
    pub appeared: Vec<NewThread>,
    /// The source of counters.
    pub counters: Box<dyn CounterSource>,
    /// The model of the machine.
    pub machine: MachineModel,
    /// Measures progress, if that is needed.
    pub work: Option<WorkMeter>,
    /// What all runs of the user share, if changes of waits are guarded.
    pub board: Option<SharedBoard>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Prepares an upgrade, or returns why that is not possible. The flag tells that the run has ended.
pub type Prepare = Box<dyn FnOnce(&AtomicBool) -> Result<Upgrade, String> + Send>;

/// Starts what restores everything if corewise dies, and lets the actuators change threads from then on, or
/// returns why that is not possible.
pub type Arm = Box<dyn FnOnce(&mut Actuators) -> Result<(), String>>;

/// What a run has yet to get; see the module documentation.
pub struct Deferred {
    /// Is called when the first process has several threads, or before preparing. `None`: nothing may be
    /// changed.
    pub arm: Option<Arm>,
    /// Returns what prepares the heavier sources.
    pub prepare: Option<Box<dyn FnOnce() -> Prepare>>,
    /// Whether the engine waits for samples.
    pub is_urgent: Rc<Cell<bool>>,
    began: Instant,
    /// The idle time of the PEs that the command may use.
    idle: IdleTime,
    preparing: Option<Preparing>,
}

/// The thread that prepares.
struct Preparing {
    thread: Option<JoinHandle<Result<Upgrade, String>>>,
    /// Becomes readable at the end of the thread.
    end: UnixStream,
    has_ended: Arc<AtomicBool>,
    /// Its nice level, once it is lowered.
    niceness: Arc<OnceLock<Niceness>>,
}

impl Deferred {
    /// Begins with the start of a command.
    pub fn new(
        command: u32,
        arm: Option<Arm>,
        prepare: Box<dyn FnOnce() -> Prepare>,
        is_urgent: Rc<Cell<bool>>,
    ) -> Deferred {
        let idle = IdleTime::begin(&Proc::own(), [command].into_iter());
        Deferred { arm, prepare: Some(prepare), is_urgent, began: Instant::now(), idle, preparing: None }
    }

    /// Returns whether preparing is due.
    pub fn is_due(&mut self) -> bool {
        self.prepare.is_some() && self.is_due_after(self.began.elapsed(), &Proc::own())
    }

    fn is_due_after(&mut self, elapsed: Duration, proc: &Proc) -> bool {
        if self.is_urgent.get() || elapsed >= PATIENT_FOR {
            return true;
        }
        let has_room = self.idle.take(proc).is_some_and(|pes| pes >= IDLE_PES_MIN);
        elapsed >= LIGHT_FOR && has_room
    }

    /// Begins to prepare.
    pub fn begin(&mut self) -> std::io::Result<()> {
        let Some(prepare) = self.prepare.take() else { return Ok(()) };
        let (end, ends) = UnixStream::pair()?;
        let (prepare, has_ended) = (prepare(), Arc::<AtomicBool>::default());
        let niceness = Arc::<OnceLock<Niceness>>::default();
        let (flag, level) = (Arc::clone(&has_ended), Arc::clone(&niceness));
        let work = move || {
            // Closed at the end.
            let _ends = ends;
            if let Some(niceness) = Niceness::of_this_thread() {
                niceness.lower();
                let _ = level.set(niceness);
            }
            prepare(&flag)
        };
        let thread = std::thread::Builder::new().name("sources".to_owned()).spawn(work)?;
        self.preparing = Some(Preparing { thread: Some(thread), end, has_ended, niceness });
        Ok(())
    }

    /// Returns the result of preparing, once there is one.
    pub fn take(&mut self) -> Option<Result<Upgrade, String>> {
        let preparing = self.preparing.as_mut()?;
        if self.is_urgent.get() || self.began.elapsed() >= PATIENT_FOR {
            preparing.niceness.get().into_iter().for_each(Niceness::raise);
        }
        let thread = preparing.thread.take_if(|thread| thread.is_finished())?;
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Returns the time until it is to be looked at again.
    pub fn due_within(&self) -> Duration {
        LOOK
    }

    /// Returns a descriptor that becomes readable when preparing is over.
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.preparing.as_ref().map(|preparing| preparing.end.as_fd())
    }
}

/// The run has ended, and nobody needs the rest.
impl Drop for Preparing {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.niceness.get().into_iter().for_each(Niceness::raise);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;
    use std::fs;

    fn deferred(prepare: impl FnOnce(&AtomicBool) -> Result<Upgrade, String> + Send + 'static) -> Deferred {
        let prepare: Prepare = Box::new(prepare);
        Deferred::new(std::process::id(), None, Box::new(|| prepare), Rc::default())
    }

    #[test]
    fn preparing_waits_for_an_idle_pe_and_not_for_ever() {
        let stat = |idle: u64| format!("cpu0 900 0 0 {idle} 0 0 0 0 0 0\ncpu1 900 0 0 0 0 0 0 0 0 0\n");
        let directory = root(&[("proc/stat", &stat(0))]);
        let proc = Proc::of_machine(directory.path());
        let is_due_after = |elapsed, idle_ticks, is_urgent| {
            fs::write(directory.path().join("proc/stat"), stat(0)).unwrap();
            let mut deferred = deferred(|_| Err(String::new()));
            deferred.idle = IdleTime::begin(&proc, [std::process::id()].into_iter());
            deferred.is_urgent.set(is_urgent);
            fs::write(directory.path().join("proc/stat"), stat(idle_ticks)).unwrap();
            // Idle time is known only after some time.
            std::thread::sleep(LOOK);
            deferred.is_due_after(elapsed, &proc)
        };
        // A day's ticks: as idle as can be, however long this test was kept from its PE.
        const IDLE: u64 = 8_640_000;
        let second = Duration::from_secs(1);
        assert!(!is_due_after(second, 0, false), "no PE is idle");
        assert!(is_due_after(second, IDLE, false));
        assert!(!is_due_after(LIGHT_FOR / 2, IDLE, false));
        assert!(is_due_after(LIGHT_FOR / 2, 0, true), "the engine needs samples");
        assert!(is_due_after(PATIENT_FOR, 0, false));
    }

    #[test]
    fn preparing_is_abandoned_when_the_run_ends() {
        let mut deferred = deferred(|has_ended| {
            while !has_ended.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Err("abandoned".to_owned())
        });
        deferred.begin().unwrap();
        assert!(deferred.take().is_none() && !deferred.is_due());
        drop(deferred);
    }

    #[test]
    fn the_result_wakes_the_waiting_thread() {
        let mut deferred = deferred(|_| Err("refused".to_owned()));
        assert!(deferred.wake_fd().is_none());
        deferred.begin().unwrap();
        let mut fds = [nix::poll::PollFd::new(deferred.wake_fd().unwrap(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
        let result = loop {
            if let Some(result) = deferred.take() {
                break result;
            }
        };
        assert!(result.is_err_and(|why| why == "refused"));
        assert!(deferred.take().is_none());
    }
}
