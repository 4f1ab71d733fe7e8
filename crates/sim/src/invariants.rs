//! Invariants that are checked after every step of a simulated run.
//!
//! Problem: a mistake of a policy, the engine or the simulator need not be visible in a result; it may only
//! make it slightly wrong. Approach: a [`Checked`] world sits between engine and simulation, sees every
//! observation and every action, and compares them with what the simulation really did; the simulation checks
//! its own state at every instant ([`crate::sim`]). The first [`Violation`] is kept. Source: the guarantees
//! that [`corewise_core::engine`] and `ARCHITECTURE.md` give. Limits: the bounds on waiting and on migrations
//! are generous; they find errors, not poor performance.

pub use crate::violation::{Rule, Violation};

use crate::faults::Faults;
use crate::sim::Sim;
use crate::world::SimWorld;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{BINDS_PER_PE_MAX, RETRY_AFTER};
use corewise_core::ids::ThreadId;
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{
    CounterReading, Event, EventBatch, EventKind, Observation, Standing, ThreadReading, Treatments,
};
use corewise_core::plan::{Action, Change, Outcome, OutcomeKind, Placement, Setting, SettingKind, TURN};
use corewise_core::time::Time;
use corewise_core::world::{Look, Wake, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// A runnable thread gets a PE before every other thread has had this many slices: by weight, and by the
/// least weight that the thread has had, as it may then have run ahead.
const ROUNDS_MAX: f64 = 3.0;

/// The number of migrations per second and thread that no policy or balancer needs.
const MIGRATIONS_PER_S_MAX: f64 = 2000.0;

/// The checks' state of one thread.
struct Seen {
    cpu_ns: u64,
    wanted_ns: u64,
    cycles: u64,
    /// The time that it has waited since it last ran.
    waited_ns: u64,
    standing: Standing,
    permitted: CpuSet,
    pid: u32,
    /// The least weight that it has had.
    least: f64,
}

/// The checks and their state between steps.
pub struct Checker {
    /// Time between two decisions.
    interval: Duration,
    threads: HashMap<ThreadId, Seen>,
    ended: BTreeSet<ThreadId>,
    /// The processes that were reported as delayed, and whether their spin count can be changed.
    delayed: HashMap<ThreadId, bool>,
    refused: HashMap<ThreadId, Time>,
    treatments: Treatments,
    allowed: CpuSet,
    /// The time of the last input, and of the last observation.
    at: Time,
    observed: Time,
    migrations: u64,
    /// The largest sum of the weights of all threads.
    crowd: f64,
    /// Where threads were bound when the engine last saw the world, and are after a step.
    seen_bound: BTreeMap<ThreadId, CpuSet>,
    bound: BTreeMap<ThreadId, CpuSet>,
    /// Threads that the engine cannot know about yet: their action failed, they have ended, or the system
    /// changed their mask while the engine decided.
    undecided: BTreeSet<ThreadId>,
    finished: bool,
    violation: Option<Violation>,
}

impl Checker {
    /// Creates the checks of a run that has not begun.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            threads: HashMap::new(),
            ended: BTreeSet::new(),
            delayed: HashMap::new(),
            refused: HashMap::new(),
            treatments: Treatments::new(),
            allowed: CpuSet::new(),
            at: Time(0),
            observed: Time(0),
            migrations: 0,
            crowd: 0.0,
            seen_bound: BTreeMap::new(),
            bound: BTreeMap::new(),
            undecided: BTreeSet::new(),
            finished: false,
            violation: None,
        }
    }

    /// Returns the first violation as an error.
    pub fn result(self) -> Result<(), Violation> {
        self.violation.map_or(Ok(()), Err)
    }

    /// Checks after each step that the engine's placement is the world's.
    pub fn compare(&mut self, present: &Placement) {
        if self.finished {
            // The actions of the last step are not carried out any more.
            return;
        }
        let known = |thread: &&ThreadId| !self.undecided.contains(*thread);
        let threads: BTreeSet<&ThreadId> =
            present.bound.keys().chain(self.bound.keys()).filter(known).collect();
        let differs = threads.into_iter().find_map(|thread| {
            let engine = present.bound.get(thread).map(|assignment| &assignment.pes);
            let world = self.bound.get(thread);
            (engine != world).then(|| (*thread, engine.cloned(), world.cloned()))
        });
        if let Some((thread, engine, world)) = differs {
            let words = |pes: Option<CpuSet>| pes.map_or("free".to_owned(), |pes| format!("on {pes}"));
            let detail = format!("thread {thread} is {} for the engine, {}", words(engine), words(world));
            self.complain(Rule::Agreement, detail);
        }
    }

    /// Checks at the end, after everything was restored.
    pub fn compare_with_start(&mut self, sim: &Sim) {
        for thread in sim.threads.iter().filter(|thread| !thread.ended) {
            if thread.bound || thread.mask != *thread.permitted {
                self.complain(Rule::Restored, format!("thread {} is left on {}", thread.id, thread.mask));
            }
        }
        if let Some(thread) = sim.changed_thread() {
            self.complain(Rule::Restored, format!("weight or waits of thread {thread} are left changed"));
        }
        let by_threads: u64 = sim.threads.iter().map(|thread| thread.cpu_ns).sum();
        let by_apps: u64 = sim.applications().map(|(_, _, cpu_ns, _)| cpu_ns).sum();
        if by_threads != by_apps {
            self.complain(Rule::Work, format!("threads ran for {by_threads} ns, applications for {by_apps}"));
        }
        // What spins in a quota may never end.
        let has_quotas = !sim.quota_period_max().is_zero();
        if sim.faults == Faults::default() && !has_quotas && sim.all_done().is_none() {
            let waiting: Vec<&str> =
                sim.applications().filter(|(_, runs, _, _)| runs.is_empty()).map(|(name, ..)| name).collect();
            self.complain(Rule::Progress, format!("never completed: {}", waiting.join(", ")));
        }
    }

    fn complain(&mut self, rule: Rule, detail: String) {
        let at = self.at;
        self.violation.get_or_insert(Violation { at, rule, detail });
    }

    fn see(&mut self, observation: &Observation, sim: &Sim) {
        // All of them may have been ready since the last observation, even if none is any more.
        let standings = sim.standings();
        // A choice at dispatch passes over a thread until the others are ahead of it.
        let rounds = if sim.dispatching.is_some() { 2.0 * ROUNDS_MAX } else { ROUNDS_MAX };
        self.crowd = self.crowd.max(standings.values().map(|(weight, _)| weight).sum());
        let slice_ns = 1.5 * sim.os.slice_max().as_nanos() as f64;
        let turns = TURN * (sim.gangs() as u32 + 1);
        let pause_ns = (self.interval + sim.os.balance + sim.faults.late + turns + sim.quota_period_max())
            .as_nanos() as f64;
        if observation.at < self.at {
            self.complain(Rule::Time, format!("it was {} ns, now it is {} ns", self.at.0, observation.at.0));
        }
        let elapsed_s = observation.at.since(self.observed).max(self.interval).as_secs_f64();
        (self.at, self.observed) = (observation.at, observation.at);
        self.allowed = observation.unreserved();
        self.treatments = Treatments::clone(&observation.treatments);
        self.take_outcomes(&observation.outcomes);
        for reading in &observation.threads {
            let before = self.threads.get(&reading.thread).map_or(f64::INFINITY, |seen| seen.least);
            let (weight, quota) = standings.get(&reading.thread).copied().unwrap_or((before, 1.0));
            let least = before.min(weight);
            let wait_max_ns = rounds * (self.crowd / least / quota * slice_ns + pause_ns);
            self.see_thread(reading, least, wait_max_ns);
        }
        let migrations: u64 = sim.migrations().values().sum();
        let moved = migrations - std::mem::replace(&mut self.migrations, migrations);
        if moved as f64 > MIGRATIONS_PER_S_MAX * elapsed_s * observation.threads.len() as f64 {
            self.complain(Rule::Migrations, format!("{moved} migrations in {elapsed_s} s"));
        }
    }

    /// Checks the events between two observations.
    fn hear(&mut self, batch: &EventBatch) {
        self.at = batch.at;
        self.take_outcomes(&batch.outcomes);
        for event in &batch.events {
            match event {
                Event::ThreadStarted(reading) => self.see_thread(reading, f64::INFINITY, f64::INFINITY),
                Event::AllowedChanged(pes) => self.allowed = pes.clone(),
                Event::Process(reading) => {
                    self.delayed.insert(reading.leader, reading.waits.is_adaptable());
                }
                Event::ThreadEnded(_)
                | Event::ThreadRenamed { .. }
                | Event::TlpChanged(_)
                | Event::Hint { .. } => {}
                Event::Treated { pid, treatment: Some(treatment) } => {
                    self.treatments.insert(*pid, treatment.clone());
                }
                Event::Treated { pid, treatment: None } => drop(self.treatments.remove(pid)),
            }
        }
    }

    fn take_outcomes(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            if let (OutcomeKind::Refused(_), Change::Bind(_) | Change::Move(_)) =
                (&outcome.result, &outcome.change)
            {
                self.refused.insert(outcome.thread, self.at);
            }
        }
    }

    fn see_thread(&mut self, reading: &ThreadReading, least: f64, wait_max_ns: f64) {
        let thread = reading.thread;
        let wanted_ns = reading.runnable_ns.unwrap_or(reading.cpu_ns);
        let before = self.threads.remove(&thread);
        let (cpu_ns, wanted_before_ns, cycles_before, waited_ns) =
            before.map_or((0, 0, 0, 0), |seen| (seen.cpu_ns, seen.wanted_ns, seen.cycles, seen.waited_ns));
        let cycles = match &reading.counters {
            Some(CounterReading::Pmu(pmu)) => pmu.cycles,
            Some(CounterReading::Sample(_)) | None => cycles_before,
        };
        if reading.cpu_ns < cpu_ns || wanted_ns < wanted_before_ns || cycles < cycles_before {
            self.complain(Rule::Time, format!("a reading of thread {thread} fell"));
        }
        if self.ended.contains(&thread) {
            self.complain(Rule::Time, format!("thread {thread} had ended and is there again"));
        }
        let ran = reading.cpu_ns > cpu_ns;
        let waited_ns = if ran { 0 } else { waited_ns + wanted_ns.saturating_sub(wanted_before_ns) };
        if waited_ns as f64 > wait_max_ns {
            let waited_s = waited_ns as f64 / 1e9;
            self.complain(Rule::Starvation, format!("thread {thread} has waited for {waited_s:.3} s"));
        }
        if reading.ended {
            self.ended.insert(thread);
            return;
        }
        let (standing, permitted) = (reading.standing, CpuSet::clone(&reading.permitted));
        let (pid, cpu_ns) = (reading.pid, reading.cpu_ns);
        let seen = Seen { cpu_ns, wanted_ns, cycles, waited_ns, standing, permitted, pid, least };
        self.threads.insert(thread, seen);
    }

    /// Checks the actions of a step before they are carried out.
    fn ask(&mut self, actions: &[Action]) {
        let mut bound = BTreeSet::new();
        for action in actions {
            if let Some(problem) = self.why_not_treated_so(action) {
                self.complain(
                    Rule::Treated,
                    format!("{problem}: {:?} of thread {}", action.change, action.thread),
                );
            }
            let is_adaptable = self.delayed.get(&action.thread);
            let pes = match &action.change {
                Change::Bind(pes) | Change::Move(pes) => pes,
                Change::Set(Setting::Weight(_)) => {
                    let free = |seen: &Seen| matches!(seen.standing, Standing::Free | Standing::Bound);
                    if !self.threads.get(&action.thread).is_some_and(free) {
                        let detail = format!("the weight of thread {} is changed", action.thread);
                        self.complain(Rule::LeftAlone, detail);
                    }
                    continue;
                }
                Change::Set(setting) => {
                    let changes_count = matches!(setting, Setting::SpinCount(_));
                    if is_adaptable.is_none_or(|&adaptable| changes_count && !adaptable) {
                        self.complain(Rule::Settings, format!("{setting} of thread {}", action.thread));
                    }
                    continue;
                }
                Change::Free | Change::Reset(_) => continue,
            };
            let thread = action.thread;
            let Some(seen) = self.threads.get(&thread) else {
                self.complain(Rule::LeftAlone, format!("thread {thread} is bound, and is not there"));
                continue;
            };
            if pes.is_empty() || !pes.is_subset(&self.allowed) || !pes.is_subset(&seen.permitted) {
                let detail = format!("thread {thread} of {} is bound to {pes}", seen.permitted);
                self.complain(Rule::AllowedPes, format!("{detail}, allowed: {}", self.allowed));
            } else if !matches!(seen.standing, Standing::Free | Standing::Bound) {
                self.complain(Rule::LeftAlone, format!("thread {thread} is bound against its own will"));
            }
            if self.refused.get(&thread).is_some_and(|&at| self.at.since(at) < RETRY_AFTER) {
                self.complain(Rule::LeftAlone, format!("thread {thread} was refused, and is bound again"));
            }
            if !bound.insert(thread) {
                self.complain(Rule::Binds, format!("thread {thread} is bound twice in one step"));
            }
        }
        let changes = actions.iter().filter(|action| !action.change.gives_back()).count();
        if changes > BINDS_PER_PE_MAX * self.allowed.len().max(1) {
            let detail = format!("{changes} changes in one step on {} PEs", self.allowed.len());
            self.complain(Rule::Binds, detail);
        }
    }

    /// Returns what a treatment says against an action, if anything.
    fn why_not_treated_so(&self, action: &Action) -> Option<&'static str> {
        let pid = match &action.change {
            Change::Free | Change::Reset(_) => return None,
            Change::Set(setting) if setting.kind().is_of_process() => action.thread.tid,
            Change::Bind(_) | Change::Move(_) | Change::Set(_) => self.threads.get(&action.thread)?.pid,
        };
        let treatment = self.treatments.get(&pid)?;
        match &action.change {
            Change::Set(setting) if !treatment.waits.permit(setting.kind()) => Some("its waits are fixed"),
            Change::Set(setting) if setting.kind().is_of_process() => None,
            Change::Bind(_) | Change::Move(_) | Change::Set(_) if treatment.left_alone.is_some() => {
                Some("it is left alone")
            }
            Change::Bind(pes) | Change::Move(pes)
                if treatment.pes.as_ref().is_some_and(|of| !pes.is_subset(of)) =>
            {
                Some("it has other PEs")
            }
            _ => None,
        }
    }

    /// Checks that nothing is kept that the treatments do not permit. Other PEs may have to wait for the next
    /// step.
    fn see_kept(&mut self, actions: usize) {
        let has_room = actions < BINDS_PER_PE_MAX * self.allowed.len();
        let is_kept = |(thread, pes): &(&ThreadId, &CpuSet)| {
            let seen = self.threads.get(thread).filter(|_| !self.undecided.contains(*thread));
            let treatment = seen.and_then(|seen| self.treatments.get(&seen.pid));
            treatment.is_some_and(|treatment| {
                let is_outside = treatment.pes.as_ref().is_some_and(|of| !pes.is_subset(of));
                treatment.left_alone.is_some() || is_outside && has_room
            })
        };
        if let Some((thread, pes)) = self.bound.iter().find(is_kept) {
            let detail = format!("thread {thread} stays on {pes}");
            self.complain(Rule::Treated, detail);
        }
    }

    /// Checks after the actions were carried out.
    fn carried_out(&mut self, world: &SimWorld, actions: &[Action]) {
        let failed = world.outcomes().iter().filter(|outcome| outcome.result != OutcomeKind::Done);
        self.undecided = failed.map(|outcome| outcome.thread).collect();
        let sim = world.sim();
        let ended = sim.present.iter().map(|&index| &sim.threads[index]).filter(|thread| thread.ended);
        self.undecided.extend(ended.map(|thread| thread.id));
        self.bound = bound(sim);
        let moves = |change: &Change| matches!(change, Change::Bind(_) | Change::Move(_) | Change::Free);
        let moved = actions.iter().filter(|action| moves(&action.change));
        let acted: BTreeSet<ThreadId> = moved.map(|action| action.thread).collect();
        let changed = |thread: &&ThreadId| self.seen_bound.get(thread) != self.bound.get(thread);
        let others = self.seen_bound.keys().filter(|thread| !acted.contains(thread)).filter(changed);
        self.undecided.extend(others.copied());
        // The actions of the last step give back only.
        if !self.finished {
            self.see_kept(actions.len());
        }
    }
}

/// Returns where the threads are bound that have not ended.
fn bound(sim: &Sim) -> BTreeMap<ThreadId, CpuSet> {
    let present = sim.present.iter().map(|&index| &sim.threads[index]);
    let bound = present.filter(|thread| thread.bound && !thread.ended);
    bound.map(|thread| (thread.id, thread.mask.clone())).collect()
}

/// A simulated world that is checked by a [`Checker`].
pub struct Checked<'a> {
    world: SimWorld,
    checker: &'a RefCell<Checker>,
}

impl<'a> Checked<'a> {
    /// Wraps a world.
    pub fn new(mut world: SimWorld, checker: &'a RefCell<Checker>) -> Self {
        world.sim_mut().begin_audit();
        Self { world, checker }
    }

    /// Returns the simulation, for its results.
    pub fn sim(&self) -> &Sim {
        self.world.sim()
    }

    /// Returns how often each kind of setting was changed.
    pub fn changes(&self) -> &BTreeMap<SettingKind, u64> {
        self.world.changed()
    }

    fn take_violation(&mut self) {
        if let Some(violation) = self.world.sim_mut().take_violation() {
            self.checker.borrow_mut().violation.get_or_insert(violation);
        }
    }
}

impl World for Checked<'_> {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.world.now()
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        let observation = self.world.observe()?;
        let mut checker = self.checker.borrow_mut();
        checker.see(&observation, self.world.sim());
        checker.seen_bound = bound(self.world.sim());
        drop(checker);
        Ok(observation)
    }

    fn apply(&mut self, actions: &[Action]) {
        self.checker.borrow_mut().ask(actions);
        self.world.apply(actions);
        self.checker.borrow_mut().carried_out(&self.world, actions);
        self.take_violation();
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        self.world.subscribe(kinds);
    }

    fn tune(&mut self, look: Look) {
        self.world.tune(look);
    }

    fn better_machine(&mut self) -> Option<MachineModel> {
        self.world.better_machine()
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error> {
        let wake = self.world.wait_until(deadline)?;
        let mut checker = self.checker.borrow_mut();
        checker.finished = wake == Wake::Finished;
        if let Wake::Events(batch) = &wake {
            checker.hear(batch);
            checker.seen_bound = bound(self.world.sim());
        }
        drop(checker);
        self.take_violation();
        Ok(wake)
    }
}
