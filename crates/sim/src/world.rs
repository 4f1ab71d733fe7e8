//! The simulation as a [`World`]: the same engine and policies run on it as on a real machine.

use crate::chance::Purpose;
use crate::faults::Faults;
use crate::machine::Pmu;
use crate::random::Random;
use crate::sim::Sim;
use crate::sim::state::news::NewsItem;
use crate::treatments::Reported;
use corewise_core::board::Board;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{
    ApplicationReading, CounterReading, Event, EventBatch, EventKind, Hints, Observation, ProgressReading,
    ProgressSource, RunnableThreads, Standing, ThreadReading,
};
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind, Setting, SettingKind};
use corewise_core::time::Time;
use corewise_core::world::{Look, Wake, World};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The simulated world.
pub struct SimWorld {
    sim: Sim,
    by_id: HashMap<ThreadId, usize>,
    known: usize,
    outcomes: Vec<Outcome>,
    /// CPU time of the decision that is being made, in nanoseconds; `None` between decisions.
    deciding_ns: Option<f64>,
    /// How many settings of each kind were changed.
    changed: BTreeMap<SettingKind, u64>,
    treatments: Reported,
    /// The random stream of faults at the interface.
    fault_random: Random,
    /// How far the clock is ahead of the simulation, in nanoseconds: the sum of its jumps.
    ahead_ns: u64,
}

impl SimWorld {
    /// Creates a world around a simulation.
    pub fn new(sim: Sim, seed: u64) -> Self {
        Self {
            sim,
            by_id: HashMap::new(),
            known: 0,
            outcomes: Vec::new(),
            deciding_ns: None,
            changed: BTreeMap::new(),
            treatments: Reported::default(),
            fault_random: Random::new(seed, 3),
            ahead_ns: 0,
        }
    }

    /// Returns the simulation, for its results.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    pub(crate) fn sim_mut(&mut self) -> &mut Sim {
        &mut self.sim
    }

    /// Returns the outcomes of the actions since the last observation.
    pub(crate) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Returns how often each kind of setting was changed.
    pub fn changed(&self) -> &BTreeMap<SettingKind, u64> {
        &self.changed
    }

    /// Returns whether a fault with this probability happens. A fault that is switched off draws no number.
    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.fault_random.unit() < share
    }

    fn reading(&mut self, index: usize) -> ThreadReading {
        let lost = self.happens(self.sim.faults.lost_readings);
        let (now, hints) = (self.sim.now, self.hints(index));
        let pmu: Pmu = self.sim.machine.spec.pmu;
        let (chance, progress_noise) = (self.sim.chance, self.sim.progress_noise);
        let thread = &mut self.sim.threads[index];
        let errors_of = |purpose| chance.stream(purpose, &[thread.key, now.0]);
        let (mut noise, mut error) = (errors_of(Purpose::CounterNoise), errors_of(Purpose::ProgressNoise));
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
        let samples_after = self.sim.decisions.samples_after;
        let is_sampled = now.0 >= samples_after.as_nanos() as u64;
        if is_sampled && !samples_after.is_zero() {
            thread.times.begin_samples(thread.cpu_ns, thread.counters.busy());
        }
        let is_known = !lost && (is_sampled || !self.sim.samples);
        let counters = is_known.then(|| match self.sim.samples {
            false => CounterReading::Pmu(thread.counters.read(&pmu, thread.cpu_ns, &mut noise)),
            true => CounterReading::Sample(thread.times.samples(
                thread.cpu_ns,
                thread.counters.busy(),
                &mut noise,
            )),
        });
        let work = progress_noise.map(|noise| thread.progress.read(noise, &mut error));
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
            hints,
            progress: work.map(|work| ProgressReading { work, source: ProgressSource::Simulated }),
            sizing: corewise_core::observe::Sizing::Fixed,
            ended: thread.ended,
        }
    }

    /// Registers the IDs of new threads.
    fn meet(&mut self) {
        for index in self.known..self.sim.threads.len() {
            self.by_id.insert(self.sim.threads[index].id, index);
        }
        self.known = self.sim.threads.len();
    }

    /// Returns the simulation's news as events.
    fn events(&mut self) -> Vec<Event> {
        self.meet();
        let items = std::mem::take(&mut self.sim.news.items);
        items.into_iter().map(|item| self.event(item)).collect()
    }

    fn event(&mut self, item: NewsItem) -> Event {
        let id = |index: usize| self.sim.threads[index].id;
        match item {
            NewsItem::Started { thread } => Event::ThreadStarted(Box::new(self.reading(thread))),
            NewsItem::Ended { thread } => Event::ThreadEnded(id(thread)),
            NewsItem::Hint { thread } => Event::Hint { thread: id(thread), hints: self.hints(thread) },
            NewsItem::Tlp { app, count, only } => {
                Event::TlpChanged(RunnableThreads { app: AppId(app as u32), count, only: only.map(id) })
            }
            NewsItem::Online => Event::AllowedChanged(self.allowed()),
            NewsItem::Process(reading) => Event::Process(reading),
        }
    }

    /// Lets the time pass that the last observation or events cost before actions follow from them.
    fn decide(&mut self) {
        let Some(cpu_ns) = self.deciding_ns.take() else { return };
        let latency = self.sim.decisions.latency + Duration::from_nanos(cpu_ns as u64);
        if cpu_ns > 0.0 {
            self.sim.take_cpu_time(cpu_ns);
        }
        self.sim.let_pass(self.sim.now + latency);
        self.meet();
    }

    fn allowed(&self) -> CpuSet {
        self.sim.machine.model.topology.allowed.intersection(&self.sim.online)
    }

    fn hints(&self, index: usize) -> Hints {
        let thread = &self.sim.threads[index];
        let reports_master = self.sim.apps[thread.app].plan.reports_master;
        let (spinning, master) = (thread.ready && !thread.counted, reports_master && thread.master);
        Hints { spinning, master, phase: None }
    }

    fn carry_out(&mut self, action: &Action) -> OutcomeKind {
        let Some(&index) = self.by_id.get(&action.thread) else { return OutcomeKind::Gone };
        let Faults { late_binds, refused_binds, .. } = self.sim.faults;
        let bind = matches!(action.change, Change::Bind(_) | Change::Move(_));
        if bind && !self.sim.threads[index].ended && self.happens(late_binds) {
            self.sim.kill(index);
            self.sim.catch_up();
        }
        let thread = &self.sim.threads[index];
        let mask = match &action.change {
            Change::Set(Setting::SpinCount(count)) => return self.sim.set_spin_count(index, Some(*count)),
            Change::Reset(SettingKind::SpinCount) => return self.sim.set_spin_count(index, None),
            Change::Set(Setting::InTurns | Setting::MayTakeTurns) => return self.sim.set_turns(index, true),
            Change::Reset(SettingKind::Turns) => return self.sim.set_turns(index, false),
            _ if thread.ended => return OutcomeKind::Gone,
            Change::Set(Setting::Weight(weight)) => return self.sim.weigh(index, Some(*weight)),
            Change::Reset(SettingKind::Weight) => return self.sim.weigh(index, None),
            Change::Bind(pes) | Change::Move(pes) => pes.clone(),
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
        if matches!(action.change, Change::Move(_)) {
            let permitted = CpuSet::clone(&self.sim.threads[index].permitted);
            self.sim.threads[index].bound = false;
            self.sim.restrict(index, permitted);
        }
        OutcomeKind::Done
    }
}

impl World for SimWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        Time(self.sim.now.0 + self.ahead_ns)
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        self.meet();
        let present = std::mem::take(&mut self.sim.present);
        let threads: Vec<ThreadReading> = present.iter().map(|&index| self.reading(index)).collect();
        self.sim.present = present.into_iter().filter(|&index| !self.sim.threads[index].ended).collect();
        let (at, now) = (self.now(), self.sim.now);
        let treatments = self.treatments.all(&self.sim);
        self.deciding_ns = Some(self.sim.decisions.observation_ns(threads.len()));
        // There is no other run of corewise, so that the only note is the engine's own.
        let board = self.sim.samples.then(|| Board { clock: at, notes: Vec::new() });
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
                ..ApplicationReading::default()
            }
        });
        Ok(Observation {
            at,
            applications: applications.collect(),
            processes: self.sim.process_readings(),
            beside: self.sim.beside_readings(),
            programs: Vec::new(),
            allowed: self.allowed(),
            taken: CpuSet::new(),
            threads,
            outcomes: std::mem::take(&mut self.outcomes),
            own_cpu_ns: 0,
            answers_cpu_ns: 0,
            reserved: CpuSet::new(),
            treatments,
            board,
        })
    }

    fn apply(&mut self, actions: &[Action]) {
        self.decide();
        for action in actions {
            let result = self.carry_out(action);
            if let (Change::Set(setting), OutcomeKind::Done) = (&action.change, &result) {
                *self.changed.entry(setting.kind()).or_default() += 1;
            }
            self.outcomes.push(Outcome { thread: action.thread, change: action.change.clone(), result });
        }
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        // Without BPF only `/proc` tells something, which is that threads wait for PEs.
        let is_seen = |kind: &EventKind| self.sim.tells_events || *kind == EventKind::Process;
        let kinds: Vec<EventKind> = kinds.iter().copied().filter(is_seen).collect();
        self.sim.news.ask(&kinds, self.sim.apps.len());
        self.sim.begin_looks();
    }

    fn tune(&mut self, _: Look) {}

    fn better_machine(&mut self) -> Option<MachineModel> {
        None
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error> {
        let Faults { late_looks, late, clock_jumps, clock_jump, .. } = self.sim.faults;
        let mut until = Time(deadline.0.saturating_sub(self.ahead_ns));
        if self.happens(late_looks) {
            until = until + late.mul_f64(self.fault_random.unit());
        }
        let finished = self.sim.run_until(until);
        if self.happens(clock_jumps) {
            self.ahead_ns += clock_jump.mul_f64(self.fault_random.unit()).as_nanos() as u64;
        }
        if finished {
            return Ok(Wake::Finished);
        }
        let events = self.events();
        if events.is_empty() {
            return Ok(Wake::Deadline);
        }
        let mut news = self.treatments.news(&self.sim);
        news.extend(events);
        let events = news;
        self.deciding_ns = Some(self.sim.decisions.events_ns(events.len()));
        let outcomes = std::mem::take(&mut self.outcomes);
        Ok(Wake::Events(EventBatch { at: self.now(), events, outcomes }))
    }
}
