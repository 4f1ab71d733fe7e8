//! The order of measurements: passes.
//!
//! Problem: a machine changes while it is measured (temperature, other virtual machines, the location of
//! pages), and an interval from repetitions that were all taken at one moment does not cover that. Approach:
//! a pass visits every unfinished cell once, in random order, and within a cell its arms in random order;
//! then memory is renewed and the next pass begins. The scatter between passes thus includes everything that
//! changes between them. A cell is done when its intervals are narrow enough; the session ends when all cells
//! are done, when the budget is used up, or when the user interrupts.
//!
//! NAS benchmarks take long and get a share of the time. A class is started only if the visits that an
//! interval needs are expected to fit.
//!
//! Checking the interval after each repetition and stopping as soon as it is narrow would stop when the
//! scatter happens to be underestimated, and the truth would be outside too often. So intervals are checked
//! rarely: after the minimum number of passes, and then whenever there are half as many more.

use super::assemble::assemble;
use super::cell::{Arm, Purpose};
use super::classes::classes;
use super::nas_time::estimate_s;
use super::plan::{CHECKS_FULL, CHECKS_QUICK, plan};
use super::samples::{Measured, Usual};
use super::{Executor, ExecutorError, Mode, Phase, Progress, Settings, TaskRun};
use crate::kernels::{Nas, ProblemClass};
use crate::profile::MachineProfile;
use crate::random::Random;
use crate::stats::VALUES_MIN;
use crate::time::Time;
use crate::topology::Topology;
use std::time::Duration;

/// Measures everything that `settings` request, on the PEs that `topology` allows, until all intervals are
/// narrow, the budget is used up or the user interrupts. Always returns a valid profile, which is partial in
/// the latter two cases. The caller adds what only it knows: the version of corewise, the circumstances'
/// time, processor, kernel, virtualisation, frequency and vector unit, and the discovery.
pub fn calibrate(
    executor: &mut dyn Executor,
    topology: &Topology,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
) -> MachineProfile {
    let checks = if settings.mode == Mode::Quick { CHECKS_QUICK } else { CHECKS_FULL };
    let classes = classes(topology, checks, &mut Random::new(settings.seed, 0));
    let plan = plan(topology, &classes, settings);
    let mut session = Session {
        start: executor.now(),
        executor,
        settings,
        progress,
        random: Random::new(settings.seed, 1),
        cells: plan.cells.into_iter().map(Measured::new).collect(),
        usual: Usual::default(),
        pass: 0,
    };
    session.run();
    let mut profile = MachineProfile::empty(topology.clone(), settings.evidence);
    profile.classes = classes.classes;
    profile.missing = plan.missing;
    profile.circumstances.passes = session.pass;
    profile.circumstances.seconds = session.elapsed().as_secs_f64();
    let interrupted = session.executor.interrupted();
    assemble(&session.cells, settings, interrupted, &mut profile);
    profile
}

/// A calibration in progress.
struct Session<'a> {
    executor: &'a mut dyn Executor,
    settings: &'a Settings,
    progress: &'a mut dyn FnMut(&Progress),
    random: Random,
    start: Time,
    cells: Vec<Measured>,
    usual: Usual,
    pass: u32,
}

impl Session<'_> {
    /// Runs passes until nothing is left to do or the session has to end.
    fn run(&mut self) {
        loop {
            let mut order: Vec<usize> = (0..self.cells.len()).filter(|&at| !self.cells[at].done).collect();
            self.random.shuffle(&mut order);
            let mut visited = false;
            for cell in order {
                if self.is_over(self.settings.window) {
                    return;
                }
                if self.cells[cell].is_nas() && !self.nas_fits(cell) {
                    continue;
                }
                if !visited {
                    self.pass += 1;
                    visited = true;
                }
                self.visit(cell);
            }
            if !visited {
                return;
            }
            self.usual = Usual::learn(&self.cells);
            self.executor.renew_memory();
        }
    }

    fn elapsed(&self) -> Duration {
        self.executor.now().since(self.start)
    }

    fn time_left(&self) -> Duration {
        self.settings.budget.saturating_sub(self.elapsed())
    }

    /// Returns whether something that takes `duration` must not be started any more.
    fn is_over(&self, duration: Duration) -> bool {
        self.executor.interrupted() || self.time_left() < duration
    }

    /// Runs each arm of a cell once.
    fn visit(&mut self, index: usize) {
        self.report(index);
        let begin = self.executor.now();
        let mut arm_time = self.arm_time(index);
        let cell = &self.cells[index];
        let mut order: Vec<usize> =
            (0..cell.failures.len()).filter(|&arm| cell.failures[arm].is_none()).collect();
        self.random.shuffle(&mut order);
        let mut visit = vec![None; cell.failures.len()];
        for arm in order {
            if self.is_over(arm_time) {
                break;
            }
            let arm_begin = self.executor.now();
            match self.run_arm(index, arm) {
                Ok(runs) => visit[arm] = Some(runs),
                Err(error) => self.cells[index].failures[arm] = Some(error),
            }
            arm_time = arm_time.max(self.executor.now().since(arm_begin));
        }
        let spent = self.executor.now().since(begin);
        let cell = &mut self.cells[index];
        cell.visits.push(visit);
        cell.spent += spent;
        cell.done = is_done(cell, &self.usual, self.settings);
    }

    fn run_arm(&mut self, cell: usize, arm: usize) -> Result<Vec<TaskRun>, ExecutorError> {
        match &self.cells[cell].cell.arms[arm] {
            Arm::Tasks(tasks) => Ok(self.executor.run(tasks, self.settings.window)?.runs),
            Arm::Nas(nas, size, pes) => {
                let run = self.executor.run_nas(*nas, *size, pes)?;
                self.cells[cell].verified &= run.verified;
                let lost = Duration::ZERO;
                Ok(vec![TaskRun { work: 1.0, elapsed: run.elapsed, lost, clock_ghz: None }])
            }
        }
    }

    /// Returns the expected time of one arm of a cell.
    fn arm_time(&self, index: usize) -> Duration {
        let cell = &self.cells[index];
        let Purpose::Nas { nas, size, .. } = cell.cell.purpose else { return self.settings.window };
        if cell.has_run() {
            return cell.spent / (cell.visits.len() * cell.cell.arms.len()) as u32;
        }
        Duration::from_secs_f64(estimate_s(nas, size, self.largest_run(nas)))
    }

    /// Returns the largest class of a benchmark that was run, with the mean time of an arm.
    fn largest_run(&self, nas: Nas) -> Option<(ProblemClass, f64)> {
        let runs = self.cells.iter().filter_map(|cell| match cell.cell.purpose {
            Purpose::Nas { nas: other, size, .. } if other == nas && cell.has_run() => {
                let arms = (cell.visits.len() * cell.cell.arms.len()) as f64;
                Some((size, cell.spent.as_secs_f64() / arms))
            }
            _ => None,
        });
        runs.max_by_key(|&(size, _)| size)
    }

    /// Returns whether a NAS cell may be visited now: its smaller classes have been visited, its share of the
    /// time is not used up, and it can be completed.
    fn nas_fits(&self, index: usize) -> bool {
        let Purpose::Nas { nas, size, .. } = self.cells[index].cell.purpose else { return true };
        let is_smaller = |other: &Measured| match other.cell.purpose {
            Purpose::Nas { nas: other_nas, size: other_size, .. } => other_nas == nas && other_size < size,
            _ => false,
        };
        if self.cells.iter().any(|other| is_smaller(other) && other.visits.is_empty()) {
            return false;
        }
        let others_done = self.cells.iter().all(|cell| cell.is_nas() || cell.done);
        let spent: Duration = self.cells.iter().filter(|cell| cell.is_nas()).map(|cell| cell.spent).sum();
        let share = if others_done { 1.0 } else { self.settings.nas_share };
        if !others_done && spent > self.elapsed().mul_f64(share) {
            return false;
        }
        let left = self.settings.budget.mul_f64(share).saturating_sub(spent).min(self.time_left());
        let visit_time = |at: usize| self.arm_time(at) * self.cells[at].cell.arms.len() as u32;
        let still_needed = |at: usize| VALUES_MIN.saturating_sub(self.cells[at].visits.len()) as u32;
        let started = (0..self.cells.len()).filter(|&at| {
            at != index
                && self.cells[at].is_nas()
                && !self.cells[at].visits.is_empty()
                && !self.cells[at].done
        });
        let promised: Duration = started.map(|at| visit_time(at) * still_needed(at)).sum();
        promised + visit_time(index) * still_needed(index).max(1) <= left
    }

    /// Reports the next cell to the caller.
    fn report(&mut self, index: usize) {
        let cell = &self.cells[index];
        let done = self.elapsed().as_secs_f64() / self.settings.budget.as_secs_f64().max(f64::MIN_POSITIVE);
        let progress = Progress {
            phase: if cell.is_nas() { Phase::Nas } else { Phase::Kernels },
            cell: cell.cell.label.clone(),
            pass: self.pass,
            cells_done: self.cells.iter().filter(|cell| cell.done).count(),
            cells: self.cells.len(),
            done: done.min(1.0),
            remaining: self.time_left(),
        };
        (self.progress)(&progress);
    }
}

/// Returns whether intervals are checked after that many visits: at the minimum, and then at half as many
/// more each time.
fn is_look(visits: usize, visits_min: usize) -> bool {
    let half_more = |&look: &usize| Some(look + (look / 2).max(1));
    std::iter::successors(Some(visits_min), half_more).take_while(|&look| look <= visits).last()
        == Some(visits)
}

/// Returns whether a cell needs no more visits.
fn is_done(cell: &Measured, usual: &Usual, settings: &Settings) -> bool {
    let possible = || cell.cell.wanted.iter().filter(|contrast| cell.is_possible(contrast));
    if possible().next().is_none() {
        return true;
    }
    let visits_min = if cell.is_nas() { VALUES_MIN } else { settings.passes_min as usize };
    let is_narrow = |contrast| {
        let interval = cell.interval(contrast, usual);
        interval.is_some_and(|interval| interval.width() <= settings.interval_width)
    };
    is_look(cell.visits.len(), visits_min) && possible().all(is_narrow)
}
