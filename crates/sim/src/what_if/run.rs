//! Simulated runs of the threads of a recording.

use super::assume::Assumption;
use super::error::WhatIfError;
use super::history::{Histories, History, Segment};
use super::models::Model;
use super::waits::Waits;
use crate::machine::{Machine, Pmu};
use crate::program::{Op, Program, Waiting, Work};
use crate::random::Random;
use crate::sim::memory::MemoryUse;
use crate::sim::sched::groups::nice_weight;
use crate::sim::{Sim, Stop};
use crate::thread::AppPlan;
use crate::world::SimWorld;
use corewise_core::engine::Engine;
use corewise_core::ids::AppId;
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{ApplicationReading, EventKind, Observation};
use corewise_core::plan::{Action, Change};
use corewise_core::time::Time;
use corewise_core::world::{Look, Wake, World, control_loop};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A thread that worked and waited in one interval is assumed to have done both once in this time.
const PERIOD: Duration = Duration::from_millis(10);

/// How often the number of runnable threads of an application is sampled.
const POLL: Duration = Duration::from_millis(1);

/// Two threads in step would coincide always or never: each begins at another phase of its period.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// Time until all work was done.
    pub seconds: f64,
    /// Each thread's core cycles, in the order of the histories.
    pub cycles: Vec<f64>,
    /// Time for which each thread wanted a PE, in nanoseconds.
    pub runnable_ns: Vec<f64>,
}

/// How the threads of a recording run on a machine.
pub struct Setup<'a> {
    /// The threads.
    pub histories: &'a Histories,
    /// Core cycles of each segment of each thread, as recorded.
    pub cycles: &'a [Vec<f64>],
    /// Cycles of work per recorded cycle, by thread.
    pub scales: &'a [f64],
    /// The assumption about unknown demands.
    pub assumption: Assumption,
    /// The waits of each thread.
    pub waits: &'a [Waits],
    /// The machine.
    pub model: &'a Model,
}

impl Setup<'_> {
    fn plan(&self, index: usize) -> AppPlan {
        let thread = &self.histories.threads[index];
        let waits = &self.waits[index];
        let place_in_period = (index as f64 * GOLDEN_RATIO).fract();
        let mut program = Program { loops: 1, ..Program::default() };
        for (number, segment) in thread.segments.iter().enumerate() {
            let scale = self.scales[index];
            let demand = self.assumption.demand(index, &segment.known, scale);
            let work = Work { cycles: self.cycles[index][number] * scale, demand, imbalance: 0.0 };
            push(&mut program.ops, segment, work, waits.segments_ns[number], place_in_period);
        }
        let pin = thread.pinned.clone().filter(|_| self.model.is_recorded);
        AppPlan {
            name: thread.name.clone(),
            program: Arc::new(program),
            threads: 1,
            waiting: Waiting::Sleep,
            adapt_team: false,
            reports_master: false,
            start: Time(waits.start_ns as u64),
            pin,
            weight: nice_weight(0),
            is_batch: false,
            group: None,
            background: false,
            variation: 0.0,
            memory: MemoryUse::default(),
            treatments: Vec::new(),
        }
    }

    fn sim(&self, seed: u64) -> Result<Sim, WhatIfError> {
        let machine = Machine::with_topology(self.model.spec.clone(), self.model.topology.clone())?;
        let plans = (0..self.histories.threads.len()).map(|index| self.plan(index)).collect();
        // A much slower machine takes longer, but not forever.
        let longest = 100 * self.histories.end.0 + 60_000_000_000;
        Ok(Sim::new(machine, self.model.os, plans, Stop { completions: 1, at: Time(longest) }, seed))
    }

    /// Simulates the recorded case: threads are where they were as far as that is known, else where the
    /// system's scheduler puts them.
    pub fn as_recorded(&self, seed: u64) -> Result<Run, WhatIfError> {
        let mut world = SimWorld::new(self.sim(seed)?, seed);
        let plan_of: BTreeMap<_, _> =
            self.histories.threads.iter().enumerate().map(|(plan, h)| (h.thread, plan)).collect();
        for hold in &self.histories.holds {
            let Ok(_) = world.wait_until(hold.at);
            let Some(plan) = plan_of.get(&hold.thread) else { continue };
            let Ok(_) = world.observe();
            let threads = &world.sim().threads;
            let Some(id) = threads.iter().find(|thread| thread.app == *plan).map(|thread| thread.id) else {
                continue;
            };
            let change = hold.pes.clone().map_or(Change::Free, Change::Bind);
            world.apply(&[Action { thread: id, change, reason: "".into() }]);
        }
        let Ok(_) = world.wait_until(Time(u64::MAX));
        self.result(world.sim())
    }

    /// Simulates the threads under an engine.
    pub fn under(&self, mut engine: Engine, seed: u64) -> Result<Run, WhatIfError> {
        let inner = SimWorld::new(self.sim(seed)?, seed);
        let mut world = Grouped { inner, histories: self.histories, groups: BTreeMap::new() };
        let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
        self.result(world.inner.sim())
    }

    fn result(&self, sim: &Sim) -> Result<Run, WhatIfError> {
        let seconds = sim.all_done().ok_or(WhatIfError::Endless)?.as_secs_f64();
        let mut cycles = vec![0.0; self.histories.threads.len()];
        let mut runnable_ns = cycles.clone();
        for thread in &sim.threads {
            // Read a copy, without noise.
            let mut counters = thread.counters;
            let exact = Pmu { noise: 0.0, counting: 1.0 };
            cycles[thread.app] += counters.read(&exact, 0, &mut Random::new(0, 0)).cycles as f64;
            runnable_ns[thread.app] += thread.runnable_ns as f64;
        }
        Ok(Run { seconds, cycles, runnable_ns })
    }
}

/// Adds the steps of one segment: alternating work and waits.
fn push(ops: &mut Vec<Op>, segment: &Segment, work: Work, wait_ns: f64, place_in_period: f64) {
    let works = work.cycles >= 1.0;
    let waits = wait_ns >= 1.0;
    let periods = (segment.length_ns as f64 / PERIOD.as_nanos() as f64).ceil().clamp(1.0, 1e6);
    let periods = if works && waits { periods } else { 1.0 };
    let first = ops.len();
    let before = if segment.waits_first { 1.0 } else { place_in_period };
    let sleep = |share: f64| {
        let ns = (share * wait_ns / periods) as u64;
        (ns > 0).then(|| Op::Sleep(Duration::from_nanos(ns)))
    };
    ops.extend(sleep(before));
    if works {
        ops.push(Op::Each(Work { cycles: work.cycles / periods, ..work }));
    }
    ops.extend(sleep(1.0 - before));
    if periods > 1.0 {
        ops.push(Op::Again { first, times: periods as u32, counter: 0 });
    }
}

/// The simulated world in which each recorded thread is an application of its own, presented with threads in
/// their original applications. The number of runnable threads is polled.
struct Grouped<'a> {
    inner: SimWorld,
    histories: &'a Histories,
    groups: BTreeMap<AppId, ApplicationReading>,
}

impl Grouped<'_> {
    fn poll(&mut self, passed_ns: u64) {
        let mut runnable: BTreeMap<AppId, u32> = BTreeMap::new();
        for thread in &self.inner.sim().threads {
            let history = &self.histories.threads[thread.app];
            *runnable.entry(history.app).or_default() += u32::from(thread.counted);
        }
        for (app, count) in runnable {
            let group = self.groups.entry(app).or_insert_with(|| ApplicationReading {
                app,
                name: "".into(),
                runnable_thread_ns: 0,
                active_ns: 0,
                sequential_ns: 0,
                runnable_max: 0,
                exact: false,
                ..ApplicationReading::default()
            });
            group.runnable_thread_ns += u64::from(count) * passed_ns;
            group.active_ns += if count > 0 { passed_ns } else { 0 };
            group.sequential_ns += if count == 1 { passed_ns } else { 0 };
            group.runnable_max = group.runnable_max.max(count);
        }
    }
}

impl World for Grouped<'_> {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        let mut observation = self.inner.observe()?;
        for reading in &mut observation.threads {
            let history: &History = &self.histories.threads[reading.app.0 as usize];
            (reading.app, reading.pid) = (history.app, history.pid);
        }
        observation.applications = self.groups.values().cloned().collect();
        Ok(observation)
    }

    fn apply(&mut self, actions: &[Action]) {
        self.inner.apply(actions);
    }

    /// A recording does not contain when its threads were runnable.
    fn subscribe(&mut self, _: &[EventKind]) {}

    fn tune(&mut self, look: Look) {
        self.inner.tune(look);
    }

    fn better_machine(&mut self) -> Option<MachineModel> {
        self.inner.better_machine()
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error> {
        loop {
            let from = self.inner.now();
            let until = (from + POLL).min(deadline);
            let wake = self.inner.wait_until(until)?;
            self.poll(self.inner.now().0 - from.0);
            if wake == Wake::Finished || until >= deadline {
                return Ok(wake);
            }
        }
    }
}
