//! A small machine whose true figures are known.

use crate::calibrate::{Executor, ExecutorError, NasRun, Repetition, Task, TaskRun};
use crate::ids::PeId;
use crate::kernels::{Kernel, Nas, ProblemClass};
use crate::random::Random;
use crate::time::Time;
use crate::topology::{DomainKind, Topology};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time of a repetition beyond its window.
pub const OVERHEAD: Duration = Duration::from_millis(2);

/// The machine.
pub struct Model {
    pub topology: Topology,
    pub now: Time,
    pub random: Random,
    /// Standard deviation of the logarithm of each repetition's rate.
    pub noise: f64,
    /// In this share of the repetitions a task is slower by half, without a visible reason.
    pub outliers: f64,
    /// In this share of the repetitions a task loses 40 % of its time, visibly.
    pub stolen: f64,
    /// The machine slows down by this share per minute.
    pub drift_per_minute: f64,
    /// PEs that another thread shares, with the share that is left.
    pub left: BTreeMap<PeId, f64>,
    /// What fails.
    pub failure: fn(&Task) -> Option<ExecutorError>,
    /// When the user interrupts.
    pub interrupt_at: Duration,
    /// Seconds of a NAS run by one thread of class S; larger classes take ten times as long each.
    pub nas_s: f64,
}

impl Model {
    pub fn new(machine: &str, seed: u64) -> Self {
        Self {
            topology: Topology::synthetic(machine).unwrap(),
            now: Time(5_000_000),
            random: Random::new(seed, 99),
            noise: 0.03,
            outliers: 0.0,
            stolen: 0.0,
            drift_per_minute: 0.0,
            left: BTreeMap::new(),
            failure: |_| None,
            interrupt_at: Duration::MAX,
            nas_s: 0.1,
        }
    }

    /// The true slowdown of a task by a neighbour that shares a domain of that kind with it.
    pub fn slowdown(closest: Option<DomainKind>, task: &Task, neighbour: &Task) -> f64 {
        let is_fp = |kernel| matches!(kernel, Kernel::FpAdd | Kernel::FpDiv | Kernel::WideFma);
        let is_large = |task: &Task| task.region_bytes > 1 << 20;
        let loss = match closest {
            Some(DomainKind::Core) if !task.kernel.needs_region() => 0.9,
            Some(DomainKind::Module) if is_fp(task.kernel) && is_fp(neighbour.kernel) => 0.6,
            Some(_) if is_large(task) && is_large(neighbour) => 0.3,
            _ => 0.0,
        };
        1.0 + loss * neighbour.duty
    }

    /// The true rate of a pair's synchronisation.
    pub fn synchronisations_per_s(closest: Option<DomainKind>) -> f64 {
        match closest {
            Some(DomainKind::Core) => 4e7,
            Some(DomainKind::NumaNode | DomainKind::L3 | DomainKind::Module) => 1e7,
            _ => 2e6,
        }
    }

    fn one(&mut self, task: &Task, others: &[Task], window: Duration) -> TaskRun {
        let mut rate = 1e9 * task.duty;
        for other in others.iter().filter(|other| other.pe != task.pe) {
            let closest = self.topology.closest_shared(task.pe, other.pe);
            rate = match task.kernel.needs_partner() {
                true => Self::synchronisations_per_s(closest) / 2.0,
                false => rate / Self::slowdown(closest, task, other),
            };
        }
        rate *= 1.0 - self.drift_per_minute * self.now.as_secs_f64() / 60.0;
        rate *= (self.noise * self.random.normal()).exp();
        if self.random.unit() < self.outliers {
            rate *= 0.5;
        }
        let usual = self.left.get(&task.pe).map_or(1.0, |left| left + 0.2 * (self.random.unit() - 0.5));
        let share = if self.random.unit() < self.stolen { 0.6 * usual } else { usual };
        let seconds = window.as_secs_f64() * (1.0 + 0.02 * self.random.unit());
        TaskRun {
            work: rate * share * seconds,
            elapsed: Duration::from_secs_f64(seconds),
            lost: Duration::from_secs_f64(seconds * (1.0 - share)),
            clock_ghz: None,
        }
    }
}

impl Executor for Model {
    fn now(&self) -> Time {
        self.now
    }

    fn interrupted(&self) -> bool {
        self.now.since(Time(0)) >= self.interrupt_at
    }

    fn run(&mut self, tasks: &[Task], window: Duration) -> Result<Repetition, ExecutorError> {
        for task in tasks {
            assert!(self.topology.allowed.contains(task.pe), "{task:?} is not allowed");
            assert!(tasks.iter().filter(|other| other.pe == task.pe).count() == 1, "{tasks:?}");
            assert!(task.kernel.needs_region() == (task.region_bytes > 0), "{task:?}");
            assert!(!task.kernel.needs_partner() || tasks.len() == 2, "{tasks:?}");
        }
        self.now = self.now + OVERHEAD;
        if let Some(error) = tasks.iter().find_map(self.failure) {
            return Err(error);
        }
        self.now = self.now + window;
        Ok(Repetition { runs: tasks.iter().map(|task| self.one(task, tasks, window)).collect() })
    }

    fn renew_memory(&mut self) {
        self.now = self.now + Duration::from_millis(1);
    }

    fn run_nas(&mut self, nas: Nas, class: ProblemClass, pes: &[PeId]) -> Result<NasRun, ExecutorError> {
        assert!(Nas::OWN.contains(&nas) && !pes.is_empty());
        let alone = self.nas_s * 10f64.powi(class as i32) * (self.noise * self.random.normal()).exp();
        let elapsed = Duration::from_secs_f64(alone / (1.0 + 0.8 * (pes.len() - 1) as f64));
        self.now = self.now + elapsed;
        Ok(NasRun { elapsed, verified: nas != Nas::Is })
    }
}
