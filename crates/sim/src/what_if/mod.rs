//! What if the threads of a recording had run under another policy, or on another machine?
//!
//! Problem: a recording shows what threads did where they were; users want to know what they would gain
//! elsewhere. Approach: each recorded thread becomes a program of the simulator, and both the recorded case
//! and the target case are simulated.
//!
//! 1. *Programs* ([`history`]). In every interval a thread worked (its CPU time), waited for a PE (which the
//!    simulated system recreates) and waited for something else. Work is counted in core cycles: as measured,
//!    else the CPU time at the clock of the PE where the thread was seen. Its demand is what the counters
//!    show in that interval, else over the whole run, else it is unknown.
//! 2. *Reproduction.* The recording is simulated on its own machine with the bindings that corewise made
//!    then. As recorded cycles include waits for neighbours, each thread's work is scaled until its simulated
//!    cycles equal the recorded ones. The duration is not fitted; its error is reported.
//! 3. *Prediction.* The same programs run on the target machine, under the target policy and under `default`,
//!    with the real engine. The speedup is over `default` there; the time is the recorded one, scaled by the
//!    ratio of the simulated times there and as recorded. Errors of the model that affect both sides of a
//!    ratio cancel out.
//! 4. *Uncertainty.* Both cases run with several seeds and under several [`Assumption`]s about unknowns. The
//!    interval contains nine tenths of the pairs of seeds under each assumption. It is widened on both sides
//!    by the relative error of the reproduction and by half an interval of the recording, which is its time
//!    resolution. Beyond [`REPRODUCTION_ERROR_MAX`] no interval is wide enough, and none is given.
//!
//! Waits: barriers, locks and joins are not in a recording. While no thread of an application was runnable,
//! its threads waited for input, output or timers: those times stay. A thread that waited while others of
//! its application worked may have waited for them, or not; both are assumed. In the first case the waits
//! follow the busiest thread ([`waits`]). Threads with less than [`BYSTANDER_SHARE`] of their application's
//! CPU time (a shell, a master that only joins) are always assumed to wait for the others.
//!
//! Source: trace-driven simulation, as in any textbook. Limits: which thread waits for which is unknown, and
//! the waits of an interval are treated as a whole, so a policy that reacts to a program's serial parts gains
//! only if these last for intervals. Within an interval, work and waiting alternate at an assumed pace.
//! Busy-waiting counts as work. Other load of the recorded machine is missing, which shows as an error of the
//! reproduction. Working sets are never known. Misses and IPC are transferred to another machine unchanged.

pub mod assume;
mod error;
pub mod history;
mod models;
mod question;
mod run;
mod waits;

pub use error::WhatIfError;
pub use question::Question;

use crate::comparison::seeds;
use assume::{Assumption, WaitingFor};
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::AppId;
use corewise_core::policy::{DEFAULT, Policy, PolicySpec};
use history::Histories;
use models::{Model, Models};
use run::{Run, Setup};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use waits::Waits;

/// A thread with less than this share of its application's CPU time waits for the others.
pub const BYSTANDER_SHARE: f64 = 0.01;

/// The number of rounds in which works are scaled to the recorded cycles.
const FIT_ROUNDS: usize = 3;

/// The number of rounds in which waits converge.
const WAIT_ROUNDS: usize = 3;

/// If the simulated duration of a recording differs from the recorded one by more than this share, the
/// recording cannot be reproduced and nothing is predicted. This limit is ours: a range widened that much on
/// both sides tells nothing.
pub const REPRODUCTION_ERROR_MAX: f64 = 0.25;

/// The share of the pairs of seeds below, and above, the interval.
const TAIL: f64 = 0.05;

/// A figure with its range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// The figure.
    pub value: f64,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Range {
    /// The ratio of something to itself.
    const ONE: Range = Range { value: 1.0, low: 1.0, high: 1.0 };
}

/// A prediction. Everything except `recorded` is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Always `simulated`.
    pub evidence: &'static str,
    /// The recording.
    pub recorded: Recorded,
    /// The target machine.
    pub machine: String,
    /// The target policy.
    pub policy: String,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub runs: u32,
    /// The recorded case, simulated.
    pub reproduction: Reproduction,
    /// Time under the policy `default` over time under the policy, both on the target machine; `null` if the
    /// recording cannot be reproduced ([`REPRODUCTION_ERROR_MAX`]).
    pub speedup: Option<Range>,
    /// Recorded time over predicted time: what machine and policy gain together; `null` likewise.
    pub over_recorded: Option<Range>,
    /// The predicted time in seconds; `null` likewise.
    pub seconds: Option<Range>,
    /// The result of each assumption; the first is the figure.
    pub assumptions: Vec<Assumed>,
    /// What the recording does not contain and is assumed, in words.
    pub unknown: Vec<String>,
    /// Other limits of the prediction, in words.
    pub notes: Vec<String>,
}

/// The recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    /// The command.
    pub command: Vec<String>,
    /// The machine.
    pub machine: String,
    /// Its duration in seconds.
    pub seconds: f64,
    /// Threads that used CPU time.
    pub threads: usize,
    /// Their CPU time in seconds.
    pub cpu_seconds: f64,
    /// The source of counters.
    pub counters: String,
}

/// How well the simulator reproduces the recording.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reproduction {
    /// Mean simulated duration in seconds.
    pub seconds: f64,
    /// Simulated over recorded duration, less 1.
    pub error: f64,
}

/// The result of one assumption.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assumed {
    /// The assumption.
    #[serde(flatten)]
    pub assumption: Assumption,
    /// The assumption in words.
    pub words: String,
    /// Simulated duration of the recorded case in seconds, mean over the seeds.
    pub recorded_seconds: f64,
    /// Simulated duration on the target machine under the policy `default` in seconds, likewise.
    pub default_seconds: f64,
    /// Simulated duration of the target case in seconds, likewise.
    pub wished_seconds: f64,
    /// The ratio of the last two, with the range over the seeds.
    pub speedup: Range,
    /// The ratio of the recorded case to the target case, with the range over the seeds.
    pub over_recorded: Range,
}

/// Predicts the run.
pub fn predict(question: &Question<'_>) -> Result<Prediction, WhatIfError> {
    let histories = Histories::of(question.recording)?;
    let Models { recorded, wished, cycles, notes } = models::of(question, &histories)?;
    let case = Case { question, histories: &histories, recorded: &recorded, wished: &wished, cycles };
    let assumptions = Assumption::TRIED.iter().map(|a| case.assumed(*a)).collect::<Result<Vec<_>, _>>()?;
    let seconds = histories.end.as_secs_f64();
    let error = assumptions[0].recorded_seconds / seconds - 1.0;
    let over_recorded = enclosing(&assumptions, |assumed| assumed.over_recorded);
    let shortest = seconds.min(seconds / over_recorded.high);
    let resolution = Duration::from_nanos(question.recording.header.interval_ns).as_secs_f64() / 2.0;
    let is_reproduced = error.abs() <= REPRODUCTION_ERROR_MAX;
    let widened = |range: Range| {
        let wider = 1.0 + error.abs() + resolution / shortest;
        is_reproduced.then_some(Range { low: range.low / wider, high: range.high * wider, ..range })
    };
    let speedup = enclosing(&assumptions, |assumed| assumed.speedup);
    // Nothing is uncertain about the ratio of a policy to itself.
    let speedup = if speedup == Range::ONE { is_reproduced.then_some(speedup) } else { widened(speedup) };
    let over_recorded = widened(over_recorded);
    let header = &question.recording.header;
    Ok(Prediction {
        evidence: "simulated",
        recorded: Recorded {
            command: header.command.clone(),
            machine: header.topology.origin.clone(),
            seconds,
            threads: histories.threads.len(),
            cpu_seconds: histories.threads.iter().map(|thread| thread.cpu_ns as f64).sum::<f64>() / 1e9,
            counters: header.counters.clone(),
        },
        machine: format!("{}: {}", wished.spec.name, wished.spec.topology),
        policy: (question.policy)().name().to_owned(),
        seed: question.seed,
        runs: question.runs,
        reproduction: Reproduction { seconds: assumptions[0].recorded_seconds, error },
        speedup,
        over_recorded,
        seconds: over_recorded.map(|ratio| Range {
            value: seconds / ratio.value,
            low: seconds / ratio.high,
            high: seconds / ratio.low,
        }),
        assumptions,
        unknown: models::unknown(&histories),
        notes,
    })
}

/// Both machines with the recorded threads.
struct Case<'a> {
    question: &'a Question<'a>,
    histories: &'a Histories,
    recorded: &'a Model,
    wished: &'a Model,
    /// Recorded core cycles by thread and segment.
    cycles: Vec<Vec<f64>>,
}

impl Case<'_> {
    fn assumed(&self, assumption: Assumption) -> Result<Assumed, WhatIfError> {
        let threads = self.histories.threads.len();
        let recorded_waits = waits::recorded(self.histories);
        let seed = self.question.seed;
        let seeds = seeds(seed, self.question.runs);
        let mut scales = vec![1.0; threads];
        for _ in 0..FIT_ROUNDS {
            let run = self.setup(assumption, self.recorded, &scales, &recorded_waits).as_recorded(seed)?;
            self.fit(&mut scales, &run);
        }
        let as_recorded = self.setup(assumption, self.recorded, &scales, &recorded_waits);
        let recorded: Vec<Run> =
            seeds.clone().map(|seed| as_recorded.as_recorded(seed)).collect::<Result<_, _>>()?;
        let there = |policy: &dyn Fn() -> Box<dyn Policy>| {
            let waits = self.waits_there(assumption, &scales, &recorded_waits, &recorded[0], policy)?;
            let setup = self.setup(assumption, self.wished, &scales, &waits);
            let runs = seeds.clone().map(|seed| setup.under(self.engine(policy()), seed));
            runs.collect::<Result<Vec<_>, _>>().map(|runs| seconds(&runs))
        };
        let policy = self.question.policy;
        let wished = there(policy)?;
        let is_default = policy().name() == DEFAULT.name;
        let default = if is_default { wished.clone() } else { there(&by_default)? };
        let recorded = seconds(&recorded);
        Ok(Assumed {
            assumption,
            words: assumption.words(),
            recorded_seconds: mean(&recorded),
            default_seconds: mean(&default),
            wished_seconds: mean(&wished),
            speedup: if is_default { Range::ONE } else { ratio(&default, &wished) },
            over_recorded: ratio(&recorded, &wished),
        })
    }

    /// Returns the waits of the threads on the target machine under a policy.
    fn waits_there(
        &self,
        assumption: Assumption,
        scales: &[f64],
        recorded_waits: &[Waits],
        recorded: &Run,
        policy: &dyn Fn() -> Box<dyn Policy>,
    ) -> Result<Vec<Waits>, WhatIfError> {
        let rigid = self.rigid(assumption);
        let mut waits = recorded_waits.to_vec();
        for _ in 0..WAIT_ROUNDS {
            let setup = self.setup(assumption, self.wished, scales, &waits);
            let run = setup.under(self.engine(policy()), self.question.seed)?;
            waits = waits::following(self.histories, &growth(recorded, &run), assumption.window(), &rigid);
        }
        Ok(waits)
    }

    fn setup<'s>(
        &'s self,
        assumption: Assumption,
        model: &'s Model,
        scales: &'s [f64],
        waits: &'s [Waits],
    ) -> Setup<'s> {
        Setup { histories: self.histories, cycles: &self.cycles, scales, assumption, waits, model }
    }

    /// Scales each thread's work until its cycles equal the recorded ones.
    fn fit(&self, scales: &mut [f64], run: &Run) {
        for ((scale, simulated), recorded) in scales.iter_mut().zip(&run.cycles).zip(&self.cycles) {
            let recorded: f64 = recorded.iter().sum();
            if *simulated > 0.0 && recorded > 0.0 {
                *scale = (*scale * recorded / simulated).clamp(0.02, 2.0);
            }
        }
    }

    /// Returns the threads whose waits keep their durations.
    fn rigid(&self, assumption: Assumption) -> Vec<bool> {
        let mut of_app: BTreeMap<AppId, u64> = BTreeMap::new();
        for thread in &self.histories.threads {
            *of_app.entry(thread.app).or_default() += thread.cpu_ns;
        }
        let is_bystander = |app: AppId, cpu_ns: u64| (cpu_ns as f64) < BYSTANDER_SHARE * of_app[&app] as f64;
        let threads = self.histories.threads.iter();
        let follow = match assumption.waiting_for {
            WaitingFor::Others | WaitingFor::OthersClosely => true,
            WaitingFor::SomethingElse => false,
        };
        threads.map(|t| !follow && !is_bystander(t.app, t.cpu_ns)).collect()
    }

    fn engine(&self, policy: Box<dyn Policy>) -> Engine {
        // A damaged header must neither stop the clock nor overflow it.
        let interval = self.question.recording.header.interval_ns.clamp(1_000_000, 3_600_000_000_000);
        let interval = Duration::from_nanos(interval);
        let fpu_threshold = self.question.fpu_threshold;
        let config = EngineConfig { fpu_threshold, ..EngineConfig::with_interval(interval) };
        Engine::new(self.wished.topology.clone(), policy, config)
    }
}

/// Returns the factor by which the time that each thread wants a PE changes.
fn growth(recorded: &Run, wished: &Run) -> Vec<f64> {
    let ratio = |(recorded, wished): (&f64, &f64)| if *recorded > 0.0 { wished / recorded } else { 1.0 };
    recorded.runnable_ns.iter().zip(&wished.runnable_ns).map(ratio).collect()
}

fn by_default() -> Box<dyn Policy> {
    PolicySpec::from(&DEFAULT).build(None).expect("the default policy needs no command")
}

fn seconds(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|run| run.seconds).collect()
}

/// Returns the figure of the first assumption with the range of all.
fn enclosing(assumptions: &[Assumed], of: impl Fn(&Assumed) -> Range) -> Range {
    let ranges = || assumptions.iter().map(&of);
    let low = ranges().map(|range| range.low).fold(f64::INFINITY, f64::min);
    let high = ranges().map(|range| range.high).fold(0.0, f64::max);
    Range { value: of(&assumptions[0]).value, low, high }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the ratio of the means, with the range of most pairs of seeds.
fn ratio(recorded: &[f64], wished: &[f64]) -> Range {
    let mut pairs: Vec<f64> = recorded.iter().flat_map(|r| wished.iter().map(move |w| r / w)).collect();
    pairs.sort_by(f64::total_cmp);
    let at = |share: f64| pairs[(share * (pairs.len() - 1) as f64).round() as usize];
    Range { value: mean(recorded) / mean(wished), low: at(TAIL), high: at(1.0 - TAIL) }
}
