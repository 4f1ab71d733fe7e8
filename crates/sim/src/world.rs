//! The simulation as a [`World`]: the same engine and policies run on it as on a real machine.

use crate::faults::Faults;
use crate::machine::Pmu;
use crate::random::Random;
use crate::sim::Sim;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::{
    ApplicationReading, CounterReading, Hints, Observation, Standing, ThreadReading,
};
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind};
use corewise_core::time::Time;
use corewise_core::world::{Wake, World};
use std::collections::HashMap;
use std::sync::Arc;

/// The simulated world.
pub struct SimWorld {
    sim: Sim,
    by_id: HashMap<ThreadId, usize>,
    known: usize,
    outcomes: Vec<Outcome>,
    /// Apart from the simulation's own chance, so that looking does not change what happens.
    noise: Random,
    /// The chance of faults at the seam, apart again.
    bad_luck: Random,
    /// By how much the clock is ahead of the simulation, in nanoseconds: the sum of its jumps.
    ahead_ns: u64,
}

impl SimWorld {
    /// A world around a simulation.
    pub fn new(sim: Sim, seed: u64) -> Self {
        Self {
            sim,
            by_id: HashMap::new(),
            known: 0,
            outcomes: Vec::new(),
            noise: Random::new(seed, 1),
            bad_luck: Random::new(seed, 3),
            ahead_ns: 0,
        }
    }

    /// The simulation, for its results.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    pub(crate) fn sim_mut(&mut self) -> &mut Sim {
        &mut self.sim
    }

    /// What became of the actions since the last observation.
    pub(crate) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Whether a fault happens that has this share. One that is switched off draws no number.
    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.bad_luck.unit() < share
    }

    fn reading(&mut self, index: usize) -> ThreadReading {
        let lost = self.happens(self.sim.faults.lost_readings);
        let now = self.sim.now;
        let pmu: Pmu = self.sim.machine.spec.pmu;
        let thread = &mut self.sim.threads[index];
        let app = &self.sim.apps[thread.app];
        let wanting = if thread.ready { now.0 - thread.ready_since.0 } else { 0 };
        let standing = match (thread.bound, thread.pinned) {
            (true, _) => Standing::Bound,
            (false, true) => Standing::SelfPinned,
            (false, false) => Standing::Free,
        };
        let permitted = if thread.permitted.is_subset(&self.sim.online) {
            thread.permitted.clone()
        } else {
            Arc::new(thread.permitted.intersection(&self.sim.online))
        };
        let counters =
            (!lost).then(|| CounterReading::Pmu(thread.counters.read(&pmu, thread.cpu_ns, &mut self.noise)));
        ThreadReading {
            thread: thread.id,
            pid: thread.pid,
            app: AppId(thread.app as u32),
            name: app.plan.name.clone(),
            cpu_ns: thread.cpu_ns,
            runnable_ns: Some(thread.runnable_ns + wanting),
            runnable: thread.ready,
            last_pe: thread.warm_pe.map(|pe| PeId(pe as u32)),
            standing,
            permitted,
            counters,
            hints: Hints {
                spinning: thread.ready && !thread.counted,
                master: app.plan.tells_master && thread.master,
            },
            ended: thread.ended,
        }
    }

    fn carry_out(&mut self, action: &Action) -> OutcomeKind {
        let Some(&index) = self.by_id.get(&action.thread) else { return OutcomeKind::Gone };
        let Faults { late_binds, refused_binds, .. } = self.sim.faults;
        let bind = matches!(action.change, Change::Bind(_));
        if bind && !self.sim.threads[index].ended && self.happens(late_binds) {
            self.sim.kill(index);
            self.sim.catch_up();
        }
        let thread = &self.sim.threads[index];
        let mask = match &action.change {
            Change::Set(_) | Change::Reset(_) => return OutcomeKind::Unsupported,
            Change::Bind(_) | Change::Free if thread.ended => return OutcomeKind::Gone,
            Change::Bind(pes) => pes.clone(),
            Change::Free if thread.bound => CpuSet::clone(&thread.permitted),
            Change::Free => return OutcomeKind::NotOurs,
        };
        if !mask.intersects(&self.sim.online) {
            return OutcomeKind::Refused("Invalid argument".to_owned());
        }
        if bind && self.happens(refused_binds) {
            return OutcomeKind::Refused("Operation not permitted".to_owned());
        }
        self.sim.threads[index].bound = bind;
        self.sim.restrict(index, mask);
        OutcomeKind::Done
    }
}

impl World for SimWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        Time(self.sim.now.0 + self.ahead_ns)
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        for index in self.known..self.sim.threads.len() {
            self.by_id.insert(self.sim.threads[index].id, index);
        }
        self.known = self.sim.threads.len();
        let present = std::mem::take(&mut self.sim.present);
        let threads: Vec<ThreadReading> = present.iter().map(|&index| self.reading(index)).collect();
        self.sim.present = present.into_iter().filter(|&index| !self.sim.threads[index].ended).collect();
        let (at, now) = (self.now(), self.sim.now);
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
            at,
            allowed: self.sim.machine.model.topology.allowed.intersection(&self.sim.online),
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
        let Faults { late_looks, late, clock_jumps, clock_jump, .. } = self.sim.faults;
        let mut until = Time(deadline.0.saturating_sub(self.ahead_ns));
        if self.happens(late_looks) {
            until = until + late.mul_f64(self.bad_luck.unit());
        }
        let finished = self.sim.run_until(until);
        if self.happens(clock_jumps) {
            self.ahead_ns += clock_jump.mul_f64(self.bad_luck.unit()).as_nanos() as u64;
        }
        Ok(if finished { Wake::Finished } else { Wake::Deadline })
    }
}
