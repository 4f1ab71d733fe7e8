//! The simulation as a [`World`]: the same engine and policies run on it as on a real machine.

use crate::machine::Pmu;
use crate::random::Random;
use crate::sim::Sim;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::{ApplicationReading, CounterReading, Observation, Standing, ThreadReading};
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind};
use corewise_core::time::Time;
use corewise_core::world::{Wake, World};
use std::collections::HashMap;

/// The simulated world.
pub struct SimWorld {
    sim: Sim,
    by_id: HashMap<ThreadId, usize>,
    known: usize,
    outcomes: Vec<Outcome>,
    /// Apart from the simulation's own chance, so that looking does not change what happens.
    noise: Random,
}

impl SimWorld {
    /// A world around a simulation.
    pub fn new(sim: Sim, seed: u64) -> Self {
        Self { sim, by_id: HashMap::new(), known: 0, outcomes: Vec::new(), noise: Random::new(seed, 1) }
    }

    /// The simulation, for its results.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    fn reading(&mut self, index: usize) -> ThreadReading {
        let now = self.sim.now;
        let pmu: Pmu = self.sim.machine.spec.pmu;
        let thread = &mut self.sim.threads[index];
        let app = &self.sim.apps[thread.app];
        let counting = if thread.counted { now.0 - thread.counted_since.0 } else { 0 };
        let standing = match (thread.bound, &app.plan.pin) {
            (true, _) => Standing::Bound,
            (false, Some(_)) => Standing::SelfPinned,
            (false, None) => Standing::Free,
        };
        ThreadReading {
            thread: thread.id,
            pid: thread.pid,
            app: AppId(thread.app as u32),
            name: app.plan.name.clone(),
            cpu_ns: thread.cpu_ns,
            runnable_ns: Some(thread.runnable_ns + counting),
            runnable: thread.counted,
            last_pe: thread.warm_pe.map(|pe| PeId(pe as u32)),
            standing,
            permitted: thread.permitted.clone(),
            counters: Some(CounterReading::Pmu(thread.counters.read(&pmu, thread.cpu_ns, &mut self.noise))),
            ended: thread.ended,
        }
    }

    fn carry_out(&mut self, action: &Action) -> OutcomeKind {
        let Some(&index) = self.by_id.get(&action.thread) else { return OutcomeKind::Gone };
        let all = &self.sim.machine.topology.pes;
        let thread = &mut self.sim.threads[index];
        if thread.ended {
            return OutcomeKind::Gone;
        }
        let mask = match &action.change {
            Change::Bind(pes) => pes.intersection(all),
            Change::Free => (*thread.permitted).clone(),
        };
        if mask.is_empty() {
            return OutcomeKind::Refused("Invalid argument".to_owned());
        }
        thread.bound = matches!(action.change, Change::Bind(_));
        self.sim.restrict(index, mask);
        OutcomeKind::Done
    }
}

impl World for SimWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.sim.now
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        for index in self.known..self.sim.threads.len() {
            self.by_id.insert(self.sim.threads[index].id, index);
        }
        self.known = self.sim.threads.len();
        let present = std::mem::take(&mut self.sim.present);
        let threads: Vec<ThreadReading> = present.iter().map(|&index| self.reading(index)).collect();
        self.sim.present = present.into_iter().filter(|&index| !self.sim.threads[index].ended).collect();
        let now = self.sim.now;
        let applications = self.sim.apps.iter_mut().enumerate().map(|(index, app)| {
            app.parallelism.settle(now);
            ApplicationReading {
                app: AppId(index as u32),
                name: app.plan.name.clone(),
                runnable_thread_ns: app.parallelism.runnable_thread_ns,
                active_ns: app.parallelism.active_ns,
                sequential_ns: app.parallelism.sequential_ns,
                runnable_max: app.parallelism.runnable_max,
                exact: true,
            }
        });
        Ok(Observation {
            at: now,
            allowed: self.sim.machine.topology.allowed.clone(),
            threads,
            applications: applications.collect(),
            outcomes: std::mem::take(&mut self.outcomes),
            own_cpu_ns: 0,
        })
    }

    fn apply(&mut self, actions: &[Action]) {
        for action in actions {
            let result = self.carry_out(action);
            self.outcomes.push(Outcome { thread: action.thread, change: action.change.clone(), result });
        }
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error> {
        Ok(if self.sim.run_until(deadline) { Wake::Finished } else { Wake::Deadline })
    }
}
