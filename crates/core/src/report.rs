//! What happened in a run, for people and scripts: who used what, who ran where, what was decided and why.
//!
//! [`ReportBuilder`] listens to the control loop and keeps, per thread, only what the report needs; the size
//! grows with threads and changes, not with time.

use crate::classify::{
    FpuClass, IntensityClass, ParallelismClass, fpu_class, intensity_class, parallelism_class,
};
use crate::cpuset::CpuSet;
use crate::engine::Engine;
use crate::ids::{PeId, ThreadId};
use crate::observe::{ApplicationReading, CounterReading, Observation, Standing, ThreadReading};
use crate::plan::{Action, Change, Outcome, OutcomeKind};
use crate::stats::{median, quantile};
use crate::time::Time;
use crate::view::{ApplicationView, Usage};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The report of one run. Absent knowledge is `null`; field names carry their unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The command that ran.
    pub command: Vec<String>,
    /// The policy.
    pub policy: &'static str,
    /// Whether the policy bound nothing, and why.
    pub verdict: Option<String>,
    /// Whether threads were only decided about, not bound.
    pub dry_run: bool,
    /// `measured` on a real machine, `replayed` from a recording.
    pub evidence: &'static str,
    /// The machine in words.
    pub machine: String,
    /// Time from start to end.
    pub wall_seconds: f64,
    /// Where the knowledge came from.
    pub sources: Sources,
    /// One entry a thread, in order of CPU time.
    pub threads: Vec<ThreadReport>,
    /// One entry an application.
    pub applications: Vec<ApplicationReport>,
    /// Every change that was asked for.
    pub decisions: Vec<Decision>,
    /// What corewise itself cost.
    pub overhead: Overhead,
    /// What the user should know: losses, refusals, fallbacks.
    pub notes: Vec<String>,
}

/// The sources in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// `bpf` or `poll`.
    pub discovery: String,
    /// `pmu …`, `sample` or `none`.
    pub counters: String,
}

/// What is known of one thread over its whole life.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadReport {
    /// Kernel thread id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// CPU time.
    pub cpu_seconds: f64,
    /// Share of cycles with floating-point work in flight, 0..1.
    pub fpu_usage: Option<f64>,
    /// Share of cycles with the shared vector unit occupied, 0..1.
    pub vector_usage: Option<f64>,
    /// Where the two come from: `pmu FILE` or `sample` (an estimate).
    pub fpu_usage_source: Option<String>,
    /// How far they can be trusted, 0..1.
    pub fpu_usage_confidence: Option<f64>,
    /// The FPU class that follows from the whole life.
    pub fpu_class: FpuClass,
    /// Share of user time spent busy-waiting, 0..1.
    pub spin_share: Option<f64>,
    /// Share of memory instructions around the samples, 0..1.
    pub memory_share: Option<f64>,
    /// Share of branches around the samples, 0..1.
    pub branch_share: Option<f64>,
    /// L2 misses per 100 cycles.
    pub l2_misses_per_100_cycles: Option<f64>,
    /// Instructions per cycle.
    pub ipc: Option<f64>,
    /// Who decides where it runs.
    pub standing: Standing,
    /// The times in which corewise had it bound.
    pub bindings: Vec<Binding>,
    /// Where it ran, noted at each change; known to the interval.
    pub ran_on: Vec<RanOn>,
}

/// One time in which a thread was bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// Its begin, in nanoseconds since the start.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// The PEs, as a list.
    pub pes: CpuSet,
}

/// Where a thread was seen from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RanOn {
    /// Since when, in nanoseconds since the start.
    pub at_ns: u64,
    /// The PE; `null` once it no longer ran.
    pub pe: Option<PeId>,
}

/// What is known of one application.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApplicationReport {
    /// Its name.
    pub name: Arc<str>,
    /// Time-weighted mean number of runnable threads.
    pub tlp_mean: f64,
    /// Share of its active time with exactly one runnable thread, 0..1.
    pub sequential_fraction: Option<f64>,
    /// Whether the two are `exact` or `estimated` by polling.
    pub parallelism_evidence: &'static str,
    /// The most threads that were runnable at once.
    pub runnable_max: u32,
    /// `ST`, `PS` or `HP`.
    pub parallelism_class: Option<ParallelismClass>,
    /// `CI` or `MI`; needs a hardware counter.
    pub intensity_class: Option<IntensityClass>,
    /// FPU usage of all its threads together, weighted by CPU time, 0..1.
    pub fpu_usage: Option<f64>,
    /// L2 misses per 100 cycles of all its threads together.
    pub l2_misses_per_100_cycles: Option<f64>,
    /// Instructions per cycle of all its threads together.
    pub ipc: Option<f64>,
}

/// One change that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// When, in nanoseconds since the start.
    pub at_ns: u64,
    /// The thread.
    pub tid: u32,
    /// The PEs it was bound to; `null` when it was given back its own.
    pub pes: Option<CpuSet>,
    /// Why.
    pub reason: String,
    /// What became of it: `done`, or the system's answer; `null` if the run ended first.
    pub outcome: Option<String>,
}

/// What corewise itself cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overhead {
    /// CPU time of corewise.
    pub cpu_seconds: f64,
    /// The same divided by the wall time: the share of one PE.
    pub fraction_of_wall: f64,
    /// Median time of a round, from waking up to the last action, in milliseconds; `null` in a replay.
    pub round_ms_median: Option<f64>,
    /// The longest round, in milliseconds.
    pub round_ms_max: Option<f64>,
    /// The most memory that corewise held; `null` in a replay.
    pub peak_memory_bytes: Option<u64>,
}

/// What the report says beside what the loop saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Circumstances {
    /// The command that ran.
    pub command: Vec<String>,
    /// Whether threads were only decided about.
    pub dry_run: bool,
    /// `measured` or `replayed`.
    pub evidence: &'static str,
    /// The sources in use.
    pub sources: Sources,
    /// How long each round of the loop took.
    pub rounds: Vec<Duration>,
    /// The most memory that corewise held, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Collects a report while the loop runs.
#[derive(Default)]
pub struct ReportBuilder {
    threads: HashMap<ThreadId, Life>,
    applications: Vec<ApplicationReading>,
    decisions: Vec<Decision>,
    /// Decisions without an outcome yet: their thread and index.
    open: Vec<(ThreadId, usize)>,
    last: Time,
    own_cpu_ns: u64,
    verdict: Option<String>,
}

struct Life {
    last: ThreadReading,
    bindings: Vec<Binding>,
    ran_on: Vec<RanOn>,
}

impl ReportBuilder {
    /// Takes in one round of the loop.
    pub fn watch(&mut self, observation: &Observation, actions: &[Action], engine: &Engine) {
        for outcome in &observation.outcomes {
            self.take_outcome(outcome);
        }
        for reading in &observation.threads {
            self.take_reading(reading, observation.at);
        }
        for action in actions {
            let pes = match &action.change {
                Change::Bind(pes) => Some(pes.clone()),
                Change::Free => None,
            };
            self.open.push((action.thread, self.decisions.len()));
            let (tid, reason) = (action.thread.tid, action.reason.clone());
            self.decisions.push(Decision { at_ns: observation.at.0, tid, pes, reason, outcome: None });
        }
        self.applications.clone_from(&observation.applications);
        self.last = observation.at;
        self.own_cpu_ns = observation.own_cpu_ns;
        self.verdict = engine.nothing_to_gain().map(str::to_owned);
    }

    fn take_reading(&mut self, reading: &ThreadReading, at: Time) {
        let life = self.threads.entry(reading.thread).or_insert_with(|| Life {
            last: reading.clone(),
            bindings: Vec::new(),
            ran_on: Vec::new(),
        });
        // What it has run since the last look, it ran after the last look, where it is seen now.
        let cpu_ns_before = if life.ran_on.is_empty() { 0 } else { life.last.cpu_ns };
        let pe = reading.last_pe.filter(|_| reading.cpu_ns > cpu_ns_before);
        if life.ran_on.last().is_none_or(|seen| seen.pe != pe) {
            life.ran_on.push(RanOn { at_ns: self.last.0, pe });
        }
        if reading.ended && pe.is_some() {
            life.ran_on.push(RanOn { at_ns: at.0, pe: None });
        }
        // An ended thread has no mask any more; who decided last stays true of its life.
        let standing = if reading.ended { life.last.standing } else { reading.standing };
        if let Some(binding) = life.bindings.last_mut()
            && standing == Standing::Bound
        {
            binding.to_ns = at.0;
        }
        let counters = reading.counters.clone().or_else(|| life.last.counters.take());
        life.last = ThreadReading { counters, standing, ..reading.clone() };
    }

    fn take_outcome(&mut self, outcome: &Outcome) {
        let Some(position) = self.open.iter().position(|(thread, _)| *thread == outcome.thread) else {
            return;
        };
        let (_, index) = self.open.remove(position);
        let decision = &mut self.decisions[index];
        decision.outcome = Some(match &outcome.result {
            OutcomeKind::Done => "done".to_owned(),
            OutcomeKind::Gone => "the thread had ended".to_owned(),
            OutcomeKind::NotOurs => "left alone: its mask was no longer the one corewise had set".to_owned(),
            OutcomeKind::Refused(answer) => format!("refused: {answer}"),
        });
        if let (Change::Bind(pes), OutcomeKind::Done, Some(life)) =
            (&outcome.change, &outcome.result, self.threads.get_mut(&outcome.thread))
        {
            let at_ns = decision.at_ns;
            life.bindings.push(Binding { from_ns: at_ns, to_ns: at_ns, pes: pes.clone() });
        }
    }

    /// The report, with what only the caller knows.
    pub fn finish(self, engine: &Engine, circumstances: Circumstances) -> Report {
        let wall_seconds = self.last.as_secs_f64();
        let mut threads: Vec<ThreadReport> = self.threads.values().map(thread_report).collect();
        threads.sort_by(|a, b| b.cpu_seconds.total_cmp(&a.cpu_seconds).then(a.tid.cmp(&b.tid)));
        let whole = WholeUsage::of(self.threads.values().map(|life| &life.last));
        let elapsed = self.last.since(Time(0));
        let applications =
            self.applications.iter().map(|reading| application_report(reading, elapsed, &whole)).collect();
        let cpu_seconds = self.own_cpu_ns as f64 / 1e9;
        let rounds_ms: Vec<f64> =
            circumstances.rounds.iter().map(|round| round.as_secs_f64() * 1e3).collect();
        Report {
            command: circumstances.command,
            policy: engine.policy_name(),
            verdict: self.verdict,
            dry_run: circumstances.dry_run,
            evidence: circumstances.evidence,
            machine: engine.topology().origin.clone(),
            wall_seconds,
            sources: circumstances.sources,
            threads,
            applications,
            decisions: self.decisions,
            overhead: Overhead {
                cpu_seconds,
                fraction_of_wall: if wall_seconds > 0.0 { cpu_seconds / wall_seconds } else { 0.0 },
                round_ms_median: median(&rounds_ms),
                round_ms_max: quantile(&rounds_ms, 1.0),
                peak_memory_bytes: circumstances.peak_memory_bytes,
            },
            notes: circumstances.notes,
        }
    }
}

fn thread_report(life: &Life) -> ThreadReport {
    let reading = &life.last;
    let usage = reading.counters.as_ref().map_or(Usage::default(), |counters| Usage::between(None, counters));
    let source = reading.counters.as_ref().map(|counters| match counters {
        CounterReading::Pmu(pmu) => format!("pmu {}", pmu.events),
        CounterReading::Sample(_) => "sample (estimate)".to_owned(),
    });
    ThreadReport {
        tid: reading.thread.tid,
        pid: reading.pid,
        name: reading.name.clone(),
        cpu_seconds: reading.cpu_ns as f64 / 1e9,
        fpu_usage: usage.fpu.map(|e| e.value),
        vector_usage: usage.vector.map(|e| e.value),
        fpu_usage_source: source.filter(|_| usage.fpu.is_some()),
        fpu_usage_confidence: usage.fpu.map(|e| e.confidence),
        fpu_class: fpu_class(&usage, crate::classify::FPU_THRESHOLD, FpuClass::Unknown),
        spin_share: usage.spin.map(|e| e.value),
        memory_share: usage.memory.map(|e| e.value),
        branch_share: usage.branches.map(|e| e.value),
        l2_misses_per_100_cycles: usage.l2_misses_per_100_cycles,
        ipc: usage.ipc,
        standing: reading.standing,
        bindings: life.bindings.clone(),
        ran_on: life.ran_on.clone(),
    }
}

/// Usage of all threads together: each thread's rates weighted by its CPU time.
struct WholeUsage {
    fpu: Option<f64>,
    l2_misses_per_100_cycles: Option<f64>,
    ipc: Option<f64>,
}

impl WholeUsage {
    fn of<'a>(readings: impl Iterator<Item = &'a ThreadReading>) -> Self {
        let usages: Vec<(f64, Usage)> = readings
            .filter_map(|r| Some((r.cpu_ns as f64, Usage::between(None, r.counters.as_ref()?))))
            .collect();
        let mean = |of: fn(&Usage) -> Option<f64>| {
            let known = usages.iter().filter_map(|(weight, usage)| Some((*weight, of(usage)?)));
            let (sum, weights) = known.fold((0.0, 0.0), |(sum, all), (w, value)| (sum + w * value, all + w));
            (weights > 0.0).then(|| sum / weights)
        };
        Self {
            fpu: mean(|usage| usage.fpu.map(|e| e.value)),
            l2_misses_per_100_cycles: mean(|usage| usage.l2_misses_per_100_cycles),
            ipc: mean(|usage| usage.ipc),
        }
    }
}

fn application_report(
    reading: &ApplicationReading,
    elapsed: Duration,
    whole: &WholeUsage,
) -> ApplicationReport {
    let view = ApplicationView::between(None, reading, elapsed);
    ApplicationReport {
        name: reading.name.clone(),
        tlp_mean: view.tlp_mean,
        sequential_fraction: view.sequential_fraction,
        parallelism_evidence: if view.exact { "exact" } else { "estimated" },
        runnable_max: reading.runnable_max,
        parallelism_class: parallelism_class(view.sequential_fraction, reading.runnable_max),
        intensity_class: intensity_class(whole.l2_misses_per_100_cycles),
        fpu_usage: whole.fpu,
        l2_misses_per_100_cycles: whole.l2_misses_per_100_cycles,
        ipc: whole.ipc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AppId;
    use crate::observe::Hints;

    /// The readings of one thread, a second apart: CPU time in total, PE, whether it has ended.
    fn ran_on(readings: &[(u64, u32, bool)]) -> Vec<(u64, Option<u32>)> {
        let thread = ThreadId { tid: 7, generation: 0 };
        let mut builder = ReportBuilder::default();
        for (at, &(cpu_ns, pe, ended)) in (1..).map(|second| Time(second * 1_000_000_000)).zip(readings) {
            let reading = ThreadReading {
                thread,
                pid: 7,
                app: AppId(0),
                name: "t".into(),
                cpu_ns,
                runnable_ns: None,
                runnable: false,
                last_pe: Some(PeId(pe)),
                standing: Standing::Free,
                permitted: Arc::new(CpuSet::first_n(2)),
                counters: None,
                hints: Hints::default(),
                ended,
            };
            builder.take_reading(&reading, at);
            builder.last = at;
        }
        builder.threads[&thread]
            .ran_on
            .iter()
            .map(|r| (r.at_ns / 1_000_000_000, r.pe.map(|pe| pe.0)))
            .collect()
    }

    #[test]
    fn a_thread_is_on_a_pe_from_the_look_before_it_ran_to_its_rest_or_end() {
        assert_eq!(ran_on(&[(5, 0, false), (9, 0, false), (9, 0, false)]), [(0, Some(0)), (2, None)]);
        assert_eq!(ran_on(&[(5, 0, false), (9, 1, false)]), [(0, Some(0)), (1, Some(1))]);
        assert_eq!(ran_on(&[(5, 0, true)]), [(0, Some(0)), (1, None)]);
        assert_eq!(ran_on(&[(5, 0, false), (5, 0, true)]), [(0, Some(0)), (1, None)]);
        assert_eq!(ran_on(&[(0, 0, false)]), [(0, None)]);
    }
}
