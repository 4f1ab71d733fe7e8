//! A minimal deterministic machine for tests: threads with a scripted demand.
//!
//! It advances time in the steps that the engine asks for, gives each thread its share of the PEs that it may
//! use, and produces cumulative readings from that. It models no caches, no contention and no waiting: a test
//! of a policy needs only enough of a world to show the policy's decisions.

use super::{Look, Wake, World};
use crate::cpuset::CpuSet;
use crate::ids::{AppId, PeId, ThreadId};
use crate::machine_model::MachineModel;
use crate::observe::{
    ApplicationReading, CounterReading, Event, EventBatch, EventKind, Hints, Observation, PmuReading,
    RunnableThreads, SampleReading, Sizing, Standing, ThreadReading, Treatment, Treatments,
};
use crate::plan::{Action, Change, Outcome, OutcomeKind, SettingKind};
use crate::time::Time;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Clock samples per second of CPU time of a thread.
const SAMPLES_PER_SECOND: f64 = 200.0;

/// How often the world checks which threads are runnable; shorter changes go unseen.
const SLICE: Duration = Duration::from_millis(50);

/// One scripted thread, which is a process of its own.
#[derive(Debug, Clone)]
pub struct ScriptedThread {
    /// From when until when it lives.
    pub lives: Range<Time>,
    /// Its application.
    pub app: AppId,
    /// When it is blocked and wants no PE.
    pub blocked: Vec<Range<Time>>,
    /// Hardware counter rates in each phase; empty on a machine without counters, which samples instead.
    pub rates: Vec<(Time, ScriptedRates)>,
    /// FPU usage in each phase, with the time at which the phase begins.
    pub fpu_usage: Vec<(Time, f64)>,
    /// The share of a PE that it wants, 0..1.
    pub cpu_share: f64,
    /// The PEs that its user permits; `None` for all.
    pub permitted: Option<CpuSet>,
    /// Whether it may be placed.
    pub standing: Standing,
    /// The hints of its runtime library, each with the time from which it holds.
    pub hints: Vec<(Time, Hints)>,
    /// The outcome when it is bound; `None` means success.
    pub refuses: Option<OutcomeKind>,
    /// What others do to its mask, or it does itself, and when.
    pub interference: Vec<(Time, Interference)>,
    /// How it is treated, each with the time from which that holds.
    pub treatments: Vec<(Time, Treatment)>,
    /// How its program chooses the number of its threads.
    pub sizing: Sizing,
    /// Its process, if it is not the only thread of one.
    pub pid: Option<u32>,
}

/// A change of a thread's mask by somebody else than the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interference {
    /// The mask permits everything again.
    Widens,
    /// The mask is one of its own.
    Pins,
    /// The mask is one that the engine has given to some thread.
    Copies,
    /// The system moves it to where it would run if the engine had not moved it. The mask stays as it is.
    Strays,
}

/// Events per cycle or instruction of one thread in one phase.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScriptedRates {
    /// Instructions per cycle on a fast PE (on every PE, unless the machine has slow ones).
    pub ipc: f64,
    /// Instructions per cycle on a slow PE.
    pub ipc_on_slow: f64,
    /// L2 misses per 100 cycles.
    pub l2_misses_per_100_cycles: f64,
    /// Share of branches among the instructions, 0..1.
    pub branches: f64,
}

impl ScriptedThread {
    /// Returns a thread that runs all the time with one FPU usage.
    pub fn steady(fpu_usage: f64) -> Self {
        Self {
            lives: Time(0)..Time(u64::MAX),
            app: AppId(0),
            blocked: Vec::new(),
            rates: Vec::new(),
            fpu_usage: vec![(Time(0), fpu_usage)],
            cpu_share: 1.0,
            permitted: None,
            standing: Standing::Free,
            hints: Vec::new(),
            refuses: None,
            interference: Vec::new(),
            treatments: Vec::new(),
            sizing: Sizing::default(),
            pid: None,
        }
    }
}

/// The scripted machine.
pub struct ScriptedWorld {
    now: Time,
    end: Time,
    allowed: Vec<(Time, CpuSet)>,
    slow: CpuSet,
    threads: Vec<(ScriptedThread, State)>,
    applications: BTreeMap<AppId, ApplicationReading>,
    outcomes: Vec<Outcome>,
    has_weights: bool,
    tells_events: bool,
    kinds: Vec<EventKind>,
    /// The events to report, and the state that was last reported.
    events: Vec<Event>,
    reported_tlp: BTreeMap<AppId, u32>,
    reported_allowed: CpuSet,
    reported_hints: BTreeMap<usize, Hints>,
    reported_treatments: Treatments,
}

#[derive(Default, Clone)]
struct State {
    cpu_ns: f64,
    counted: Counted,
    bound: Option<CpuSet>,
    /// The last interference that is still in force.
    interfered: Option<Interference>,
    /// Where it was moved, until it strays.
    moved_to: Option<PeId>,
    last_pe: Option<PeId>,
    reported_end: bool,
    start_noted: bool,
    end_noted: bool,
}

/// Counts so far, before rounding to whole events.
#[derive(Default, Clone, Copy)]
struct Counted {
    samples: f64,
    fp: f64,
    fpu_busy_cycles: f64,
    instructions: f64,
    branches: f64,
    l2_misses: f64,
}

impl ScriptedWorld {
    /// Creates a machine that allows the PEs of `allowed` (each set from its time on) and runs until `end`.
    pub fn new(allowed: Vec<(Time, CpuSet)>, threads: Vec<ScriptedThread>, end: Time) -> Self {
        let application = |thread: &ScriptedThread| ApplicationReading {
            app: thread.app,
            name: format!("script {}", thread.app.0).into(),
            runnable_thread_ns: 0,
            active_ns: 0,
            sequential_ns: 0,
            runnable_max: 0,
            exact: true,
            ..ApplicationReading::default()
        };
        let applications = threads.iter().map(|thread| (thread.app, application(thread))).collect();
        let threads = threads.into_iter().map(|thread| (thread, State::default())).collect();
        Self {
            now: Time(0),
            end,
            reported_allowed: CpuSet::new(),
            allowed,
            slow: CpuSet::new(),
            threads,
            applications,
            outcomes: Vec::new(),
            has_weights: false,
            tells_events: false,
            kinds: Vec::new(),
            events: Vec::new(),
            reported_tlp: BTreeMap::new(),
            reported_hints: BTreeMap::new(),
            reported_treatments: Treatments::new(),
        }
    }

    /// Adds slow PEs, on which threads have their `ipc_on_slow`.
    pub fn with_slow(self, slow: CpuSet) -> Self {
        Self { slow, ..self }
    }

    /// Makes the world report events of the subscribed kinds.
    pub fn with_events(self) -> Self {
        Self { tells_events: true, ..self }
    }

    /// Lets the machine accept every weight. They change nothing there.
    pub fn with_weights(self) -> Self {
        Self { has_weights: true, ..self }
    }

    /// Returns where each living thread is bound now, by its index in the script.
    pub fn bound(&self) -> BTreeMap<usize, CpuSet> {
        let threads = self.threads.iter().enumerate();
        let alive = threads.filter(|(_, (thread, _))| thread.lives.contains(&self.now));
        alive.filter_map(|(index, (_, state))| Some((index, state.bound.clone()?))).collect()
    }

    fn allowed_now(&self) -> &CpuSet {
        let held = self.allowed.iter().rev().find(|(from, _)| *from <= self.now);
        &held.unwrap_or(&self.allowed[0]).1
    }

    fn advance(&mut self, to: Time) {
        while self.now < to && self.events.is_empty() {
            let next = (self.now + SLICE).min(to);
            self.interfere(next);
            self.run_slice(next.since(self.now));
            self.now = next;
            self.note_events();
        }
    }

    /// Changes the masks that are to be changed from now until `until`.
    fn interfere(&mut self, until: Time) {
        for (thread, state) in &mut self.threads {
            let due = thread.interference.iter().filter(|(at, _)| self.now <= *at && *at < until);
            for (_, interference) in due {
                if *interference == Interference::Strays {
                    state.moved_to = None;
                    continue;
                }
                (state.bound, state.interfered) = (None, Some(*interference));
            }
        }
    }

    /// Records events for all differences from the state that was last reported.
    fn note_events(&mut self) {
        if self.kinds.is_empty() {
            return;
        }
        let mut events = Vec::new();
        let treatments = self.treatments();
        for pid in (0..self.threads.len()).map(|index| id(index).tid) {
            let treatment = treatments.get(&pid).cloned();
            if treatment.as_ref() != self.reported_treatments.get(&pid) {
                events.push(Event::Treated { pid, treatment });
            }
        }
        self.reported_treatments = treatments;
        let mut runnable: BTreeMap<AppId, Vec<ThreadId>> = BTreeMap::new();
        for index in 0..self.threads.len() {
            let (thread, state) = &self.threads[index];
            if !state.start_noted && thread.lives.contains(&self.now) {
                events.push(Event::ThreadStarted(Box::new(self.reading(index))));
                self.threads[index].1.start_noted = true;
            }
            let (thread, state) = &mut self.threads[index];
            if state.start_noted && !state.end_noted && thread.lives.end <= self.now {
                events.push(Event::ThreadEnded(id(index)));
                state.end_noted = true;
            }
            let hints = in_force(&thread.hints, self.now).unwrap_or_default();
            if self.reported_hints.insert(index, hints).unwrap_or_default() != hints {
                events.push(Event::Hint { thread: id(index), hints });
            }
            let threads = runnable.entry(thread.app).or_default();
            threads.extend(thread.wants_pe(self.now).then(|| id(index)));
        }
        for (app, threads) in runnable {
            let count = threads.len() as u32;
            if self.reported_tlp.insert(app, count).unwrap_or(0) != count {
                let only = threads.first().copied().filter(|_| count == 1);
                events.push(Event::TlpChanged(RunnableThreads { app, count, only }));
            }
        }
        if self.reported_allowed != *self.allowed_now() {
            self.reported_allowed = self.allowed_now().clone();
            events.push(Event::AllowedChanged(self.reported_allowed.clone()));
        }
        events.retain(|event| self.kinds.contains(&event.kind()));
        self.events = events;
    }

    /// Runs one slice: every thread that wants a PE gets one.
    fn run_slice(&mut self, slice: Duration) {
        let allowed = self.allowed_now().clone();
        let mut runnable: BTreeMap<AppId, u32> = BTreeMap::new();
        for (index, (thread, state)) in self.threads.iter_mut().enumerate() {
            if thread.wants_pe(self.now) {
                let may_use = state.bound.as_ref().unwrap_or(&allowed);
                let moved_to = state.moved_to.filter(|pe| may_use.contains(*pe));
                state.last_pe = moved_to.or_else(|| may_use.iter().nth(index % may_use.len().max(1)));
                let on_slow = state.last_pe.is_some_and(|pe| self.slow.contains(pe));
                state.run(thread, self.now, slice, on_slow);
                *runnable.entry(thread.app).or_default() += 1;
            }
        }
        let slice_ns = slice.as_nanos() as u64;
        for (app, count) in runnable {
            let Some(reading) = self.applications.get_mut(&app) else { continue };
            reading.runnable_thread_ns += slice_ns * u64::from(count);
            reading.active_ns += slice_ns;
            reading.sequential_ns += if count == 1 { slice_ns } else { 0 };
            reading.runnable_max = reading.runnable_max.max(count);
        }
    }

    /// Returns how the living threads are treated now.
    fn treatments(&self) -> Treatments {
        let living = self.threads.iter().enumerate();
        let living = living.filter(|(_, (thread, _))| thread.lives.contains(&self.now));
        let treated = living.filter_map(|(index, (thread, _))| {
            let treatment = in_force(&thread.treatments, self.now)?;
            Some((thread.pid.unwrap_or(id(index).tid), Arc::new(treatment.if_special()?)))
        });
        treated.collect()
    }

    fn reading(&self, index: usize) -> ThreadReading {
        let (thread, state) = &self.threads[index];
        let permitted = thread
            .permitted
            .as_ref()
            .map_or(self.allowed_now().clone(), |set| set.intersection(self.allowed_now()));
        ThreadReading {
            thread: id(index),
            pid: thread.pid.unwrap_or(id(index).tid),
            app: thread.app,
            name: format!("thread {index}").into(),
            cpu_ns: state.cpu_ns.round() as u64,
            runnable_ns: Some(state.cpu_ns.round() as u64),
            runnable: thread.wants_pe(self.now),
            last_pe: state.last_pe,
            standing: match (&state.bound, state.interfered) {
                (Some(_), _) => Standing::Bound,
                (None, Some(Interference::Pins)) => Standing::SelfPinned,
                (None, Some(Interference::Copies)) => Standing::Inherited,
                (None, Some(Interference::Widens | Interference::Strays) | None) => thread.standing,
            },
            permitted: Arc::new(permitted),
            counters: Some(state.counters(!thread.rates.is_empty())),
            hints: in_force(&thread.hints, self.now).unwrap_or_default(),
            progress: None,
            sizing: thread.sizing,
            ended: thread.lives.end <= self.now,
        }
    }
}

impl ScriptedThread {
    fn wants_pe(&self, now: Time) -> bool {
        let blocked = self.blocked.iter().any(|range| range.contains(&now));
        self.lives.contains(&now) && !blocked && self.cpu_share > 0.0
    }
}

impl State {
    fn run(&mut self, thread: &ScriptedThread, now: Time, slice: Duration, on_slow: bool) {
        let usage = in_force(&thread.fpu_usage, now).unwrap_or(0.0);
        let rates = in_force(&thread.rates, now).unwrap_or_default();
        let seconds = slice.as_secs_f64() * thread.cpu_share;
        // The clock of every PE runs at 1 GHz.
        let cycles = seconds * 1e9;
        let instructions = cycles * if on_slow { rates.ipc_on_slow } else { rates.ipc };
        self.cpu_ns += cycles;
        self.counted.samples += SAMPLES_PER_SECOND * seconds;
        self.counted.fp += SAMPLES_PER_SECOND * seconds * usage;
        self.counted.fpu_busy_cycles += cycles * usage;
        self.counted.instructions += instructions;
        self.counted.branches += instructions * rates.branches;
        self.counted.l2_misses += cycles * rates.l2_misses_per_100_cycles / 100.0;
    }

    fn counters(&self, pmu: bool) -> CounterReading {
        let whole = |events: f64| events.round() as u64;
        let Counted { samples, fp, fpu_busy_cycles, instructions, branches, l2_misses } = self.counted;
        if !pmu {
            let judged = whole(samples);
            return CounterReading::Sample(SampleReading { judged, fp, vector: fp, ..Default::default() });
        }
        CounterReading::Pmu(PmuReading {
            events: "script".into(),
            cycles: whole(self.cpu_ns),
            instructions: Some(whole(instructions)),
            fpu_busy_cycles: Some(whole(fpu_busy_cycles)),
            vector_busy_cycles: None,
            formula_confidence: 1.0,
            l2_misses: Some(whole(l2_misses)),
            branches: Some(whole(branches)),
            branch_misses: None,
            enabled_ns: whole(self.cpu_ns),
            running_ns: whole(self.cpu_ns),
        })
    }
}

/// Returns the value of the phase that holds at an instant.
fn in_force<T: Clone>(phases: &[(Time, T)], now: Time) -> Option<T> {
    phases.iter().rev().find(|(from, _)| *from <= now).map(|(_, value)| value.clone())
}

/// Returns the ID of the thread at an index of the script.
pub fn id(index: usize) -> ThreadId {
    ThreadId { tid: 100 + index as u32, generation: 0 }
}

impl World for ScriptedWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        let mut readings = Vec::new();
        for index in 0..self.threads.len() {
            let (thread, state) = &self.threads[index];
            if thread.lives.start <= self.now && !state.reported_end {
                readings.push(self.reading(index));
                self.threads[index].1.reported_end = readings.last().is_some_and(|reading| reading.ended);
            }
        }
        Ok(Observation {
            at: self.now,
            allowed: self.allowed_now().clone(),
            taken: CpuSet::new(),
            reserved: CpuSet::new(),
            processes: Vec::new(),
            treatments: Arc::new(self.treatments()),
            threads: readings,
            applications: self.applications.values().cloned().collect(),
            beside: Vec::new(),
            programs: Vec::new(),
            outcomes: std::mem::take(&mut self.outcomes),
            own_cpu_ns: 0,
            answers_cpu_ns: 0,
            board: None,
        })
    }

    fn apply(&mut self, actions: &[Action]) {
        for action in actions {
            let (thread, state) = &mut self.threads[(action.thread.tid - 100) as usize];
            let result = match (&action.change, &thread.refuses) {
                (_, _) if thread.lives.end <= self.now => OutcomeKind::Gone,
                (Change::Bind(_) | Change::Move(_), Some(refusal)) => refusal.clone(),
                (Change::Bind(_) | Change::Move(_) | Change::Free, None)
                    if state.interfered == Some(Interference::Pins) =>
                {
                    OutcomeKind::NotOurs
                }
                (Change::Bind(pes), None) => {
                    (state.bound, state.interfered) = (Some(pes.clone()), None);
                    OutcomeKind::Done
                }
                (Change::Move(pes), None) => {
                    (state.bound, state.interfered, state.moved_to) = (None, None, pes.first());
                    OutcomeKind::Done
                }
                (Change::Free, _) => {
                    (state.bound, state.interfered) = (None, None);
                    if thread.standing == Standing::Inherited {
                        thread.standing = Standing::Free;
                    }
                    OutcomeKind::Done
                }
                (change, _) if self.has_weights && change.setting_kind() == Some(SettingKind::Weight) => {
                    OutcomeKind::Done
                }
                (Change::Set(_) | Change::Reset(_), _) => OutcomeKind::Unsupported,
            };
            self.outcomes.push(Outcome { thread: action.thread, change: action.change.clone(), result });
        }
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        if self.tells_events {
            self.kinds = kinds.to_vec();
        }
    }

    fn tune(&mut self, _: Look) {}

    fn better_machine(&mut self) -> Option<MachineModel> {
        None
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error> {
        self.advance(deadline.min(self.end));
        if self.now >= self.end {
            return Ok(Wake::Finished);
        }
        let events = std::mem::take(&mut self.events);
        if events.is_empty() {
            return Ok(Wake::Deadline);
        }
        Ok(Wake::Events(EventBatch { at: self.now, events, outcomes: std::mem::take(&mut self.outcomes) }))
    }
}
