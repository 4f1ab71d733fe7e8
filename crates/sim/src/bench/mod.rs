//! A simulated machine that can be calibrated: kernels at the paces of a known machine, with noise.
//!
//! Problem: whether a calibration finds the truth can only be checked where the truth is known. Approach: a
//! [`Machine`] defines what is shared. Waits for its FPUs and issue slots are those of
//! [`corewise_core::machine_model::contention`], with the usage of each [`Kernel`]; [`memory`] adds the
//! levels that a loop over a region uses; two threads on one variable take a latency that grows with their
//! distance; the clock falls with the number of busy PEs of the package. Each measurement is multiplied by
//! seeded noise and is occasionally an outlier. Time advances by the requested windows. The reported topology
//! is chosen by the caller: it may differ from the true one.
//!
//! A NAS benchmark is a mix of these demands in one block ([`kernels::Mix`]): enough to see that its Δ lies
//! between those of its parts, but no forecast of any benchmark's time.
//!
//! Limits: those of the contention model. The units of a PE that pauses (duty below 1) are free meanwhile,
//! and its cache share shrinks with what it inserts. Memory is local. Figures are `simulated`.

pub mod kernels;
pub mod loops;
pub mod memory;
pub mod trials;

use crate::machine::Machine;
use crate::random::Random;
use corewise_core::calibrate::{Executor, ExecutorError, NasRun, REGION_UNIT, Repetition, Task, TaskRun};
use corewise_core::ids::PeId;
use corewise_core::kernels::{Focus, Kernel, Nas, ProblemClass};
use corewise_core::machine_model::MachineModel;
use corewise_core::machine_model::contention::{Demand, LINE_BYTES, Load, Pace, Solver};
use corewise_core::time::Time;
use corewise_core::topology::{DomainKind, Topology, TopologyError};
use kernels::Mix;
use loops::Loops;
use std::time::Duration;

/// The time of a run besides its window.
const SETUP: Duration = Duration::from_micros(100);

/// The errors of measurements, and the machine's behaviour apart from sharing.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Standard deviation of the logarithm of one measurement.
    pub noise: f64,
    /// Share of disturbed measurements, which show 0.3 to 0.9 of the rate.
    pub outliers: f64,
    /// The share by which the clock falls when all PEs of a package are busy, 0..1.
    pub clock_fall: f64,
    /// The number of runs after which the hypervisor swaps the hosts of two PEs; `None`: never.
    pub moves_after: Option<u64>,
    /// The number of runs after which the user interrupts.
    pub interrupted_after: Option<u64>,
    /// A PE that goes offline, and the number of runs before that.
    pub gone: Option<(PeId, u64)>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            noise: 0.1,
            outliers: 0.01,
            clock_fall: 0.2,
            moves_after: None,
            interrupted_after: None,
            gone: None,
        }
    }
}

/// The cost of the measurements so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The number of repetitions.
    pub runs: u64,
    /// The total number of their tasks.
    pub tasks: u64,
}

/// A machine that runs kernels by a model.
#[derive(Debug)]
pub struct ModelMachine {
    machine: MachineModel,
    loops: Loops,
    conditions: Conditions,
    random: Random,
    now: Time,
    tally: Tally,
    /// The machine's PE behind each PE.
    places: Vec<usize>,
    packages: Vec<usize>,
    /// PEs of each package.
    package_sizes: Vec<usize>,
    cores_of_l3: Vec<usize>,
    solver: Solver,
}

impl ModelMachine {
    /// Creates a machine with these conditions.
    pub fn new(machine: Machine, conditions: Conditions, seed: u64) -> Self {
        let (machine, loops) = (machine.model, machine.spec.loops);
        let count = machine.pes.len();
        let mut packages = vec![0; count];
        for package in machine.topology.domains(DomainKind::Package) {
            package.pes.iter().for_each(|pe| packages[pe.0 as usize] = package.logical as usize);
        }
        let mut package_sizes = vec![0; count];
        packages.iter().for_each(|&package| package_sizes[package] += 1);
        let mut cores_of_l3 = vec![0; machine.l3_bytes.len()];
        for first in machine.topology.domains(DomainKind::Core).filter_map(|core| core.pes.first()) {
            cores_of_l3[machine.pes[first.0 as usize].l3] += 1;
        }
        Self {
            random: Random::new(seed, 0),
            places: (0..count).collect(),
            machine,
            loops,
            conditions,
            now: Time(0),
            tally: Tally::default(),
            packages,
            package_sizes,
            cores_of_l3,
            solver: Solver::default(),
        }
    }

    /// Returns what is really shared, as long as nothing moved.
    pub fn truth(&self) -> &Topology {
        &self.machine.topology
    }

    /// Returns the cost so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn place(&self, pe: PeId) -> Result<usize, ExecutorError> {
        let known = self.machine.topology.pes.contains(pe);
        let gone = self.conditions.gone.is_some_and(|(gone, after)| gone == pe && self.tally.runs > after);
        match known && !gone {
            true => Ok(self.places[pe.0 as usize]),
            false => Err(ExecutorError::Pe { pe, why: "it is not online".to_owned() }),
        }
    }

    fn count(&mut self, tasks: usize) {
        self.tally.runs += 1;
        self.tally.tasks += tasks as u64;
        if self.conditions.moves_after.is_some_and(|after| self.tally.runs.is_multiple_of(after)) {
            let (a, b) = (self.random.below(self.places.len()), self.random.below(self.places.len()));
            self.places.swap(a, b);
        }
    }

    /// Returns the factor by which one measurement is disturbed.
    fn disturbance(&mut self) -> f64 {
        let outlier = self.random.unit() < self.conditions.outliers;
        let share = if outlier { 0.3 + 0.6 * self.random.unit() } else { 1.0 };
        share * (self.conditions.noise * self.random.normal()).exp()
    }

    /// Returns each task's clock as a multiple of the machine's, including the PE's speed.
    fn clocks(&self, tasks: &[Task], places: &[usize]) -> Vec<f64> {
        let mut drawn = vec![0.0; self.package_sizes.len()];
        for (task, &place) in tasks.iter().zip(places) {
            drawn[self.packages[place]] += task.kernel.usage().power * task.duty;
        }
        let clock = |&place: &usize| {
            let package = self.packages[place];
            let others = self.package_sizes[package].saturating_sub(1).max(1);
            let load = (drawn[package] - 1.0).max(0.0) / others as f64;
            self.machine.pes[place].speed * (1.0 - self.conditions.clock_fall * load.min(2.0))
        };
        places.iter().map(clock).collect()
    }

    /// Returns the slowdown of each working task by shared units.
    fn unit_waits(&mut self, tasks: &[Task], places: &[usize]) -> Vec<f64> {
        let width = self.machine.units.issue_width;
        let load = |(task, &pe): (&Task, &usize)| {
            let usage = self.loops.usage(task.kernel);
            let shared_fpu = self.machine.pes[pe].fpu != self.machine.pes[pe].core;
            let fpu = if shared_fpu { usage.fpu_of_module } else { usage.fpu };
            let demand =
                Demand { fpu: fpu * task.duty, ipc: usage.issue * width * task.duty, ..Demand::default() };
            Load::new(pe, demand)
        };
        let loads: Vec<Load> = tasks.iter().zip(places).map(load).collect();
        let mut paces: Vec<Pace> = Vec::new();
        self.solver.solve(&self.machine, &loads, &mut paces);
        let ghz = self.machine.ghz;
        let wait = |((pace, &pe), task): ((&Pace, &usize), &Task)| {
            // The model knows mean demands; a task meets its neighbours only while it works itself.
            1.0 + (ghz * self.machine.pes[pe].speed / pace.work_per_ns - 1.0) / task.duty
        };
        paces.iter().zip(places).zip(tasks).map(wait).collect()
    }

    /// Returns the units of work per nanosecond of each task, without noise.
    fn rates(&mut self, tasks: &[Task], places: &[usize], clocks: &[f64]) -> Result<Vec<f64>, ExecutorError> {
        let waits = self.unit_waits(tasks, places);
        let users: Vec<memory::User> = (0..tasks.len())
            .filter(|&index| tasks[index].kernel.focus() == Focus::Memory)
            .map(|index| {
                let Task { kernel, region_bytes, duty, .. } = tasks[index];
                let (pe, region) = (places[index], region_bytes.max(1) as f64);
                memory::User { pe, kernel, region, duty, clock: clocks[index] }
            })
            .collect();
        let mut memory_times =
            memory::times(&self.machine, &self.loops, &self.cores_of_l3, &users).into_iter();
        let mut rates = Vec::with_capacity(tasks.len());
        for (index, task) in tasks.iter().enumerate() {
            let rate = match task.kernel.focus() {
                Focus::Memory => {
                    let (near, far) = memory_times.next().expect("there is a user for each task of memory");
                    let work = if task.kernel == Kernel::LoadLatency { 1.0 } else { LINE_BYTES };
                    work / (near * waits[index] + far)
                }
                Focus::Synchronisation => {
                    let partner = partner(tasks, index)?;
                    let latency = self.latency_ns(places[index], places[partner]);
                    // Two threads do the work together.
                    0.5 / (latency * kernels::exchange_cost(task.kernel) * waits[index])
                }
                Focus::Computation => {
                    let per_cycle = task.kernel.usage().work_per_cycle;
                    per_cycle * self.machine.ghz * clocks[index] / waits[index]
                }
            };
            rates.push(task.duty * rate);
        }
        Ok(rates)
    }

    /// Returns how long it takes until a PE sees what another one wrote.
    fn latency_ns(&self, a: usize, b: usize) -> f64 {
        self.machine.latency_ns(PeId(a as u32), PeId(b as u32)).value
    }

    /// Returns the slowest thread's time for its part, plus the exchanges, in nanoseconds.
    fn nas_ns(&mut self, mix: &Mix, places: &[usize]) -> f64 {
        let demand = self.loops.demand(&mix.demand, self.machine.units.issue_width);
        let load = |&pe: &usize| Load::new(pe, demand);
        let loads: Vec<Load> = places.iter().map(load).collect();
        let mut paces = Vec::new();
        self.solver.solve(&self.machine, &loads, &mut paces);
        let slowest = paces.iter().map(|pace| pace.work_per_ns).fold(f64::INFINITY, f64::min);
        let latencies = places.iter().map(|&pe| self.latency_ns(places[0], pe));
        let latency = if places.len() > 1 { latencies.fold(0.0, f64::max) } else { 0.0 };
        mix.gcycles * 1e9 / places.len() as f64 / slowest + mix.exchanges * latency
    }
}

/// Returns the task that works on the same memory: consecutive tasks of one kernel are partners in pairs.
fn partner(tasks: &[Task], index: usize) -> Result<usize, ExecutorError> {
    let kernel = tasks[index].kernel;
    let alike: Vec<usize> = (0..tasks.len()).filter(|&other| tasks[other].kernel == kernel).collect();
    let place = alike.iter().position(|&other| other == index).unwrap_or_default();
    alike.get(place ^ 1).copied().ok_or_else(|| ExecutorError::Unavailable {
        what: kernel.name().to_owned(),
        why: "it needs two threads".to_owned(),
    })
}

impl Executor for ModelMachine {
    fn now(&self) -> Time {
        self.now
    }

    fn interrupted(&self) -> bool {
        self.conditions.interrupted_after.is_some_and(|after| self.tally.runs >= after)
    }

    fn run(&mut self, tasks: &[Task], window: Duration) -> Result<Repetition, ExecutorError> {
        self.count(tasks.len());
        // The real kernels refuse it, too.
        if let Some(task) = tasks.iter().find(|task| !task.region_bytes.is_multiple_of(REGION_UNIT)) {
            let what = format!("{} on {} bytes", task.kernel.name(), task.region_bytes);
            return Err(ExecutorError::Unavailable { what, why: "give whole pages".to_owned() });
        }
        let places = tasks.iter().map(|task| self.place(task.pe)).collect::<Result<Vec<usize>, _>>()?;
        let clocks = self.clocks(tasks, &places);
        let rates = self.rates(tasks, &places, &clocks)?;
        let ghz = self.machine.ghz;
        let runs = rates.into_iter().zip(clocks).map(|(rate, clock)| TaskRun {
            work: rate * window.as_nanos() as f64 * self.disturbance(),
            elapsed: window,
            lost: Duration::ZERO,
            clock_ghz: Some(ghz * clock),
        });
        let runs = runs.collect();
        self.now = self.now + window + SETUP;
        Ok(Repetition { runs })
    }

    fn renew_memory(&mut self) {}

    fn run_nas(&mut self, nas: Nas, class: ProblemClass, pes: &[PeId]) -> Result<NasRun, ExecutorError> {
        self.count(pes.len());
        let places = pes.iter().map(|&pe| self.place(pe)).collect::<Result<Vec<usize>, _>>()?;
        let ns = self.nas_ns(&Mix::of(nas, class), &places) / self.disturbance();
        let elapsed = Duration::from_nanos(ns as u64);
        self.now = self.now + elapsed + SETUP;
        Ok(NasRun { elapsed, verified: true })
    }
}

/// Returns the same machine with other numbers for its PEs: PE i becomes `numbers[i]`.
pub fn renumbered(topology: &Topology, numbers: &[u32]) -> Result<Topology, TopologyError> {
    let mut other = topology.clone();
    let renumber = |pes: &mut corewise_core::cpuset::CpuSet| {
        *pes = pes.iter().map(|pe| PeId(numbers[pe.0 as usize])).collect();
    };
    let domains = other.domains.iter_mut().map(|domain| &mut domain.pes);
    let kinds = other.kinds.iter_mut().map(|kind| &mut kind.pes);
    domains.chain(kinds).chain([&mut other.pes, &mut other.allowed]).for_each(renumber);
    other.arranged()
}

#[cfg(test)]
mod tests;
