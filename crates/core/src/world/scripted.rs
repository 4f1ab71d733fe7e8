//! A minimal machine for tests: threads with a fixed FPU demand on PEs of equal speed, and nothing random.
//!
//! It does one thing: it lets time pass in the steps that the engine asks for, gives each thread its share of
//! the PEs it may use, and produces cumulative readings from that. No caches, no contention, no waiting: a
//! test of a policy needs just enough world to show its decisions.

use super::{Wake, World};
use crate::cpuset::CpuSet;
use crate::ids::{AppId, PeId, ThreadId};
use crate::observe::{
    ApplicationReading, CounterReading, Observation, SampleReading, Standing, ThreadReading,
};
use crate::plan::{Action, Change, Outcome, OutcomeKind};
use crate::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clock samples that a thread gives per second of CPU time.
const SAMPLES_PER_SECOND: f64 = 200.0;

/// One scripted thread.
#[derive(Debug, Clone)]
pub struct ScriptedThread {
    /// When it appears and when it ends.
    pub lives: std::ops::Range<Time>,
    /// FPU usage in each phase: the usage that holds from that time on.
    pub fpu_usage: Vec<(Time, f64)>,
    /// The share of a PE that it wants, 0..1.
    pub cpu_share: f64,
    /// The PEs that its user lets it have; `None` for all.
    pub permitted: Option<CpuSet>,
    /// Whether it may be placed.
    pub standing: Standing,
    /// What the system answers when it is bound; `None` lets it succeed.
    pub refuses: Option<OutcomeKind>,
}

impl ScriptedThread {
    /// A thread that runs all the time with one FPU usage.
    pub fn steady(fpu_usage: f64) -> Self {
        Self {
            lives: Time(0)..Time(u64::MAX),
            fpu_usage: vec![(Time(0), fpu_usage)],
            cpu_share: 1.0,
            permitted: None,
            standing: Standing::Free,
            refuses: None,
        }
    }
}

/// The scripted machine.
pub struct ScriptedWorld {
    now: Time,
    end: Time,
    allowed: Vec<(Time, CpuSet)>,
    threads: Vec<(ScriptedThread, State)>,
    outcomes: Vec<Outcome>,
}

#[derive(Default, Clone)]
struct State {
    cpu_ns: u64,
    counters: SampleReading,
    bound: Option<CpuSet>,
    last_pe: Option<PeId>,
    reported_end: bool,
}

impl ScriptedWorld {
    /// A machine that allows the PEs of `allowed` (each set from its time on) and runs until `end`.
    pub fn new(allowed: Vec<(Time, CpuSet)>, threads: Vec<ScriptedThread>, end: Time) -> Self {
        let threads = threads.into_iter().map(|thread| (thread, State::default())).collect();
        Self { now: Time(0), end, allowed, threads, outcomes: Vec::new() }
    }

    /// Where each living thread is bound now, by its index in the script.
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
        let seconds = to.since(self.now).as_secs_f64();
        let allowed = self.allowed_now().clone();
        for (index, (thread, state)) in self.threads.iter_mut().enumerate() {
            if !thread.lives.contains(&self.now) {
                continue;
            }
            let phase = thread.fpu_usage.iter().rev().find(|(from, _)| *from <= self.now);
            let usage = phase.map_or(0.0, |(_, usage)| *usage);
            let samples = SAMPLES_PER_SECOND * seconds * thread.cpu_share;
            state.cpu_ns += (seconds * thread.cpu_share * 1e9) as u64;
            state.counters.judged += samples as u64;
            state.counters.fp += samples * usage;
            state.counters.vector += samples * usage;
            let may_use = state.bound.as_ref().unwrap_or(&allowed);
            state.last_pe = may_use.iter().nth(index % may_use.len().max(1));
        }
        self.now = to;
    }

    fn reading(&self, index: usize) -> ThreadReading {
        let (thread, state) = &self.threads[index];
        let permitted = thread
            .permitted
            .as_ref()
            .map_or(self.allowed_now().clone(), |set| set.intersection(self.allowed_now()));
        ThreadReading {
            thread: id(index),
            pid: 1,
            app: AppId(0),
            name: format!("thread {index}").into(),
            cpu_ns: state.cpu_ns,
            runnable_ns: Some(state.cpu_ns),
            runnable: thread.cpu_share > 0.0,
            last_pe: state.last_pe,
            standing: if state.bound.is_some() { Standing::Bound } else { thread.standing },
            permitted: Arc::new(permitted),
            counters: Some(CounterReading::Sample(state.counters)),
            ended: thread.lives.end <= self.now,
        }
    }
}

/// The identity of the thread at an index of the script.
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
        let running: u64 = self.threads.iter().map(|(_, state)| state.cpu_ns).sum();
        Ok(Observation {
            at: self.now,
            allowed: self.allowed_now().clone(),
            threads: readings,
            applications: vec![ApplicationReading {
                app: AppId(0),
                name: "script".into(),
                runnable_thread_ns: running,
                active_ns: self.now.0,
                sequential_ns: 0,
                runnable_max: self.threads.len() as u32,
                exact: true,
            }],
            outcomes: std::mem::take(&mut self.outcomes),
            own_cpu_ns: 0,
        })
    }

    fn apply(&mut self, actions: &[Action]) {
        for action in actions {
            let (thread, state) = &mut self.threads[(action.thread.tid - 100) as usize];
            let result = match (&action.change, &thread.refuses) {
                (_, _) if thread.lives.end <= self.now => OutcomeKind::Gone,
                (Change::Bind(_), Some(refusal)) => refusal.clone(),
                (Change::Bind(pes), None) => {
                    state.bound = Some(pes.clone());
                    OutcomeKind::Done
                }
                (Change::Free, _) => {
                    state.bound = None;
                    if thread.standing == Standing::Inherited {
                        thread.standing = Standing::Free;
                    }
                    OutcomeKind::Done
                }
            };
            self.outcomes.push(Outcome { thread: action.thread, change: action.change.clone(), result });
        }
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, Self::Error> {
        self.advance(deadline.min(self.end));
        Ok(if self.now >= self.end { Wake::Finished } else { Wake::Deadline })
    }
}
