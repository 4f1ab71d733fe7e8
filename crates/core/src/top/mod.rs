//! Which thread runs where now, and why: the data of a live display (`corewise top`).
//!
//! Problem: people want to see the present, and a report only sums up a whole run. Approach: [`Top`] observes
//! the control loop like a report's builder, but keeps the last state of each living thread, application and
//! PE, with a short history of each, so that its memory is bounded by what lives. Shares are of the time
//! between the two last observations; usage and classes are those that the engine decides by. Limits: a
//! thread counts for the PE on which it was seen last, so a PE's busy share is that of the watched programs,
//! and of a thread that moves often it is a guess; what happened between two observations is not shown.

mod history;

pub use history::{HISTORY_MAX, History};

use crate::classify::{
    FpuClass, IntensityClass, ParallelismClass, intensity_class, known_fpu_usage, parallelism_class,
};
use crate::cpuset::CpuSet;
use crate::engine::Engine;
use crate::ids::{AppId, PeId, ThreadId};
use crate::observe::{ApplicationReading, Input, Observation, Standing, ThreadReading, Treatment};
use crate::plan::{Action, Assignment, Change, Outcome, OutcomeKind, SettingKind};
use crate::time::Time;
use crate::topology::Topology;
use crate::view::{ApplicationView, Usage};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The number of latest decisions that are kept per thread.
pub const DECISIONS_MAX: usize = 5;

/// The present state of a machine and of the programs that are watched on it.
#[derive(Debug, Clone, Default)]
pub struct Top {
    /// The time of the last observation.
    pub at: Time,
    /// The machine; `None` before the first observation.
    pub topology: Option<Topology>,
    /// Its PEs, also those that were there once.
    pub pes: BTreeMap<PeId, PeState>,
    /// The applications that live.
    pub applications: BTreeMap<AppId, ApplicationState>,
    /// The threads that live.
    pub threads: BTreeMap<ThreadId, ThreadState>,
    /// What is decided by which policy.
    pub policy: PolicyState,
    /// What a daemon does that runs beside, if one does.
    pub daemon: Option<DaemonState>,
    /// The share of a PE that corewise itself takes, 0..1; `None` before it is known.
    pub own_share: Option<f64>,
    /// The time between two looks, apart from those that something urgent asks for.
    pub interval: Duration,
    /// Why that is longer than wanted, if it is.
    pub looks_rarer: Option<String>,
    /// The programs of processes.
    programs: HashMap<u32, Arc<str>>,
    own_cpu_ns: u64,
}

/// The policy, and what is known of its placement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyState {
    /// Its name, with its parameters.
    pub name: String,
    /// Why it does nothing here, if it gave a reason.
    pub nothing_to_gain: Option<String>,
    /// Why it has given up, if it has.
    pub failure: Option<String>,
    /// What the guards have found, in words: of placements, then of waits.
    pub findings: Vec<String>,
}

/// A daemon that runs beside the display, as it describes itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DaemonState {
    /// The name of its policy.
    pub policy: String,
    /// The share of a PE that it takes itself, 0..1; `None` before it is known.
    pub own_share: Option<f64>,
    /// What its guards have found, in words.
    pub findings: Vec<String>,
    /// The threads that it has bound, by their kernel's number, and why.
    pub bound: HashMap<u32, Assignment>,
}

/// One PE.
#[derive(Debug, Clone, Default)]
pub struct PeState {
    /// Whether it is online and allowed.
    pub is_usable: bool,
    /// Whether the machine's model knows it: not if it came online later.
    pub is_known: bool,
    /// The share of the time in which watched threads ran on it, 0..1.
    pub busy: f64,
    /// The same at the last observations.
    pub history: History,
    /// The threads that ran on it, the busiest first.
    pub who: Vec<ThreadId>,
}

/// One application.
#[derive(Debug, Clone)]
pub struct ApplicationState {
    /// Its name.
    pub name: Arc<str>,
    /// The name of the application that executed its program, if one did.
    pub executed_by: Option<Arc<str>>,
    /// The PEs that its first process may use, if known.
    pub allowed: Option<CpuSet>,
    /// Its living processes and threads.
    pub processes: u32,
    /// Its living threads.
    pub threads: u32,
    /// The recent mean number of runnable threads.
    pub tlp: f64,
    /// The same at the last observations.
    pub history: History,
    /// The recent share of its active time with one runnable thread, 0..1; `None` if it was not active.
    pub sequential: Option<f64>,
    /// Whether these figures are integrated exactly or estimated.
    pub is_exact: bool,
    /// Its class since it has been watched.
    pub class: Option<ParallelismClass>,
    /// Whether computation or memory limits it, if counters tell.
    pub intensity: Option<IntensityClass>,
    /// The number of PEs that it kept busy since the observation before.
    pub cpu: f64,
    /// FPU usage of its threads, weighted by CPU time, 0..1.
    pub fpu: Option<f64>,
}

/// One thread.
#[derive(Debug, Clone)]
pub struct ThreadState {
    /// Its process.
    pub pid: u32,
    /// Its application.
    pub app: AppId,
    /// Its name.
    pub name: Arc<str>,
    /// The script or executable of its process, if known.
    pub program: Option<Arc<str>>,
    /// The PE on which it was seen last.
    pub pe: Option<PeId>,
    /// The share of the time in which it ran since the observation before, 0..1.
    pub cpu: f64,
    /// The same at the last observations.
    pub history: History,
    /// Whether it ran or waited for a PE at the observation.
    pub is_runnable: bool,
    /// What it uses, from its counters.
    pub usage: Usage,
    /// Its FPU class.
    pub class: FpuClass,
    /// Who decides where it runs.
    pub standing: Standing,
    /// How its process is treated, if not as everything else.
    pub treatment: Option<Arc<Treatment>>,
    /// The PEs that its user permits.
    pub permitted: Arc<CpuSet>,
    /// Where the policy has it, and why; in a dry run, where it would have it.
    pub assignment: Option<Assignment>,
    /// The settings of the thread and of its process, in words, each with its reason.
    pub settings: Vec<(String, Arc<str>)>,
    /// What was decided about it, the latest last.
    pub decisions: VecDeque<Decided>,
    cpu_ns: u64,
}

impl ThreadState {
    /// Returns why it is not placed, if somebody else decides about it.
    pub fn why_not_placed(&self) -> Option<&str> {
        let by_treatment = self.treatment.as_ref().and_then(|treatment| treatment.left_alone.as_deref());
        by_treatment.or(self.standing.why_not_placed())
    }
}

/// A decision about a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// When.
    pub at: Time,
    /// What.
    pub change: Change,
    /// Why.
    pub reason: Arc<str>,
    /// What became of it; `None` if that is not known, as in a dry run.
    pub outcome: Option<OutcomeKind>,
}

impl Top {
    /// Takes in one round of the control loop.
    pub fn take(&mut self, input: &Input, actions: &[Action], engine: &Engine) {
        input.outcomes().iter().for_each(|outcome| self.take_outcome(outcome));
        if let Input::Observation(observation) = input {
            self.take_observation(observation, engine);
            self.interval = engine.own_interval().unwrap_or(engine.config().interval);
            self.looks_rarer = engine.looks_rarer();
        }
        for action in actions {
            self.take_action(action, input.at());
        }
        self.policy = PolicyState {
            name: engine.policy_name().to_owned(),
            nothing_to_gain: engine.nothing_to_gain().map(str::to_owned),
            failure: engine.policy_failure().map(str::to_owned),
            findings: findings(engine),
        };
    }

    /// Returns where a daemon that runs beside has bound a thread, and why.
    pub fn bound_by_daemon(&self, thread: ThreadId) -> Option<&Assignment> {
        self.daemon.as_ref()?.bound.get(&thread.tid)
    }

    /// Returns the name of a thread's program, else of the thread.
    pub fn program_of<'a>(&'a self, thread: &'a ThreadState) -> &'a str {
        thread.program.as_deref().unwrap_or(&thread.name)
    }

    fn take_observation(&mut self, observation: &Observation, engine: &Engine) {
        let elapsed = observation.at.since(self.at);
        let programs = observation.programs.iter();
        self.programs.extend(programs.map(|program| (program.leader.tid, program.name.clone())));
        self.take_threads(&observation.threads, elapsed, engine);
        self.take_applications(&observation.applications, observation.at, engine);
        self.take_pes(&observation.unreserved(), engine.topology());
        let own_ns = observation.own_cpu_ns.saturating_sub(self.own_cpu_ns);
        self.own_share =
            (self.own_cpu_ns > 0 && !elapsed.is_zero()).then(|| own_ns as f64 / elapsed.as_nanos() as f64);
        (self.at, self.own_cpu_ns) = (observation.at, observation.own_cpu_ns);
    }

    fn take_threads(&mut self, readings: &[ThreadReading], elapsed: Duration, engine: &Engine) {
        let mut before = std::mem::take(&mut self.threads);
        for reading in readings.iter().filter(|reading| !reading.ended) {
            let known = before.remove(&reading.thread);
            let state = self.thread_state(reading, known, elapsed, engine);
            self.threads.insert(reading.thread, state);
        }
        // A number that is free again may become that of another process.
        let ended: Vec<u32> = readings.iter().filter(|r| r.ended).map(|r| r.thread.tid).collect();
        ended.iter().for_each(|tid| drop(self.programs.remove(tid)));
    }

    fn thread_state(
        &self,
        reading: &ThreadReading,
        known: Option<ThreadState>,
        elapsed: Duration,
        engine: &Engine,
    ) -> ThreadState {
        let subject = engine.subject(reading.thread);
        let (cpu_ns, mut history, decisions) =
            known.map_or_else(Default::default, |known| (known.cpu_ns, known.history, known.decisions));
        let ran_ns = reading.cpu_ns.saturating_sub(cpu_ns) as f64;
        let cpu = if elapsed.is_zero() { 0.0 } else { (ran_ns / elapsed.as_nanos() as f64).min(1.0) };
        history.push(cpu);
        let settings = [reading.thread.tid, reading.pid].into_iter().flat_map(|tid| settings_of(tid, engine));
        let settings: BTreeMap<SettingKind, _> = settings
            .filter(|(kind, of, _)| kind.is_of_process() || *of == reading.thread)
            .map(|(kind, _, setting)| (kind, setting))
            .collect();
        ThreadState {
            pid: reading.pid,
            app: reading.app,
            name: reading.name.clone(),
            program: self.programs.get(&reading.pid).cloned(),
            pe: reading.last_pe,
            cpu,
            history,
            is_runnable: reading.runnable,
            usage: subject.map_or_else(Usage::default, |subject| subject.view.usage),
            class: engine.fpu_class(reading.thread),
            standing: subject.map_or(reading.standing, |subject| subject.view.standing),
            treatment: subject.and_then(|subject| subject.treatment.clone()),
            permitted: reading.permitted.clone(),
            assignment: engine.present().bound.get(&reading.thread).cloned(),
            settings: settings.into_values().collect(),
            decisions,
            cpu_ns: reading.cpu_ns,
        }
    }

    fn take_applications(&mut self, readings: &[ApplicationReading], at: Time, engine: &Engine) {
        let mut before = std::mem::take(&mut self.applications);
        let mut sums: BTreeMap<AppId, Sums> = BTreeMap::new();
        for thread in self.threads.values() {
            sums.entry(thread.app).or_default().add(thread);
        }
        let names: BTreeMap<AppId, &Arc<str>> =
            readings.iter().map(|reading| (reading.app, &reading.name)).collect();
        for reading in readings.iter().filter(|reading| reading.ended.is_none()) {
            let Some(sums) = sums.get(&reading.app) else { continue };
            let view = engine.application(reading.app);
            let tlp = view.map_or(0.0, |view| view.tlp_mean);
            let mut history = before.remove(&reading.app).map(|known| known.history).unwrap_or_default();
            history.push(tlp);
            let so_far = ApplicationView::between(None, reading, at.since(reading.began));
            let state = ApplicationState {
                name: reading.name.clone(),
                executed_by: reading.executed_by.and_then(|by| names.get(&by)).map(|name| (*name).clone()),
                allowed: reading.allowed.clone(),
                processes: reading.processes,
                threads: sums.threads,
                tlp,
                history,
                sequential: view.and_then(|view| view.sequential_fraction),
                is_exact: reading.exact,
                class: parallelism_class(so_far.sequential_fraction, reading.runnable_max),
                intensity: intensity_class(sums.l2_misses.mean()),
                cpu: sums.cpu,
                fpu: sums.fpu.mean(),
            };
            self.applications.insert(reading.app, state);
        }
    }

    fn take_pes(&mut self, allowed: &CpuSet, topology: &Topology) {
        if self.topology.as_ref() != Some(topology) {
            self.topology = Some(topology.clone());
        }
        let mut runs: BTreeMap<PeId, Vec<(f64, ThreadId)>> = BTreeMap::new();
        for (id, thread) in self.threads.iter().filter(|(_, thread)| thread.cpu > 0.0) {
            if let Some(pe) = thread.pe {
                runs.entry(pe).or_default().push((thread.cpu, *id));
            }
        }
        for pe in topology.pes.union(allowed).iter().chain(runs.keys().copied()) {
            self.pes.entry(pe).or_default();
        }
        for (pe, state) in &mut self.pes {
            let mut who = runs.remove(pe).unwrap_or_default();
            who.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            state.is_usable = allowed.contains(*pe);
            state.is_known = topology.pes.contains(*pe);
            state.busy = who.iter().fold(0.0, |sum, (cpu, _)| sum + cpu).min(1.0);
            state.history.push(state.busy);
            state.who = who.into_iter().map(|(_, thread)| thread).collect();
        }
    }

    fn take_action(&mut self, action: &Action, at: Time) {
        let Some(thread) = self.threads.get_mut(&action.thread) else { return };
        if thread.decisions.len() == DECISIONS_MAX {
            thread.decisions.pop_front();
        }
        let (change, reason) = (action.change.clone(), action.reason.clone());
        thread.decisions.push_back(Decided { at, change, reason, outcome: None });
    }

    fn take_outcome(&mut self, outcome: &Outcome) {
        let Some(thread) = self.threads.get_mut(&outcome.thread) else { return };
        let mut open = thread.decisions.iter_mut().filter(|decided| decided.outcome.is_none());
        if let Some(decided) = open.find(|decided| decided.change == outcome.change) {
            decided.outcome = Some(outcome.result.clone());
        }
    }
}

/// Returns the settings of the threads that have this number: those of a process are its first thread's.
fn settings_of(
    tid: u32,
    engine: &Engine,
) -> impl Iterator<Item = (SettingKind, ThreadId, (String, Arc<str>))> + '_ {
    let [first, last] = [0, u64::MAX].map(|generation| ThreadId { tid, generation });
    let settings = engine.present().settings.range((first, SettingKind::Weight)..=(last, SettingKind::Turns));
    settings
        .map(|(&(thread, kind), wanted)| (kind, thread, (wanted.setting.to_string(), wanted.reason.clone())))
}

/// Returns what the guards have found, in words.
fn findings(engine: &Engine) -> Vec<String> {
    let of_placement = engine.findings().filter(|found| found.is_about_something());
    let of_placement = of_placement.map(ToString::to_string);
    of_placement.into_iter().chain(engine.waits_findings().map(ToString::to_string)).collect()
}

/// Sums over the threads of an application.
#[derive(Debug, Default)]
struct Sums {
    threads: u32,
    cpu: f64,
    fpu: Weighted,
    l2_misses: Weighted,
}

impl Sums {
    fn add(&mut self, thread: &ThreadState) {
        self.threads += 1;
        self.cpu += thread.cpu;
        let fpu = known_fpu_usage(&thread.usage);
        self.fpu.add(fpu.map(|estimate| estimate.value), thread.cpu);
        let misses = thread.usage.l2_misses_per_100_cycles;
        self.l2_misses.add(misses.map(|estimate| estimate.value), thread.cpu);
    }
}

/// A weighted mean of what is known.
#[derive(Debug, Default)]
struct Weighted {
    sum: f64,
    weight: f64,
}

impl Weighted {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn mean(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

#[cfg(test)]
mod tests;
