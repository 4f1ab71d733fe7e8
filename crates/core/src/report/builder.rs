//! Collects a report while the loop runs.

use super::applications::Applications;
use super::beside::Beside;
use super::timeline::TimelineBuilder;
use super::totals::Totals;
use super::uneven::Uneven;
use super::{
    Binding, ChangedProgram, Decision, Host, Overhead, PeKind, PredictedReport, RanOn, Report, Shared,
    Sources, ThreadGroup, ThreadReport, WaitsReport, headline, ran_on, rounded,
};
use crate::classify::FpuClass;
use crate::engine::Engine;
use crate::guard::BACK;
use crate::ids::{AppId, ThreadId};
use crate::observe::{
    CounterReading, Event, EventBatch, Input, Observation, Program, Standing, ThreadReading,
};
use crate::plan::{Action, Change, Outcome, OutcomeKind, Setting, SettingKind};
use crate::stats::{median, quantile};
use crate::time::Time;
use crate::topology::Topology;
use crate::view::{Usage, working_share};
use crate::waits::QUOTA_IS_SPENT;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The number of ended threads that are listed individually: those with the most CPU time.
const ENDED_LISTED_MAX: usize = 1_000;

/// The number of names by which the other ended threads are grouped; threads of further names form one group.
const GROUPS_MAX: usize = 200;

/// The number of latest decisions that are listed.
const DECISIONS_LISTED_MAX: usize = 10_000;

/// The number of latest bindings that are listed per thread.
const BINDINGS_LISTED_MAX: usize = 1_000;

/// What the report contains besides the observations of the loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Circumstances {
    /// The command that ran.
    pub command: Vec<String>,
    /// Whether threads were not actually bound.
    pub dry_run: bool,
    /// `measured` or `replayed`.
    pub evidence: &'static str,
    /// The host and the time.
    pub host: Option<Host>,
    /// The sources in use.
    pub sources: Sources,
    /// How long each round of the loop took.
    pub rounds: Vec<Duration>,
    /// The peak memory usage of corewise, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// CPU time that the kernel counted for the command and its descendants, from the start on; includes
    /// processes that ended before anything watched them.
    pub command_cpu: Option<Duration>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Collects a report while the loop runs.
#[derive(Default)]
pub struct ReportBuilder {
    /// In a fixed order, so that sums of equal runs are equal to the last digit.
    lives: BTreeMap<ThreadId, Life>,
    /// The number of ended threads in `lives`.
    ended: usize,
    /// Sums over the threads that are no longer in `lives`.
    totals: BTreeMap<AppId, Totals>,
    groups: BTreeMap<(AppId, Option<Arc<str>>), Group>,
    applications: Applications,
    decisions: VecDeque<Decision>,
    decisions_left_out: usize,
    timeline: TimelineBuilder,
    uneven: Uneven,
    /// Decisions without an outcome yet: the thread and kind of setting, and the decision's number.
    open: Vec<((ThreadId, Option<SettingKind>), usize)>,
    /// The processes whose waits were changed, by the kind of change.
    changed: BTreeSet<(SettingKind, ThreadId)>,
    /// Whether the waits of any were to be shorter for the sake of its quota.
    in_quota: bool,
    /// The number of such processes that have ended and were removed from `changed`, and their programs.
    changed_and_ended: BTreeMap<SettingKind, u64>,
    programs_of_ended: BTreeMap<Arc<str>, u64>,
    /// The program of each living process, by its ID.
    programs: HashMap<u32, Program>,
    last: Time,
    own_cpu_ns: u64,
    nothing_to_gain: Option<String>,
    predicted: Option<PredictedReport>,
    beside: Beside,
}

struct Life {
    last: ThreadReading,
    program: Option<Arc<str>>,
    class: FpuClass,
    bindings: Vec<Binding>,
    /// Whether the last of these is in force.
    is_bound: bool,
    ran_on: Vec<RanOn>,
}

impl Life {
    fn new(reading: &ThreadReading, class: FpuClass) -> Life {
        Life {
            last: reading.clone(),
            program: None,
            class,
            bindings: Vec::new(),
            is_bound: false,
            ran_on: Vec::new(),
        }
    }

    /// The binding that is in force, if any, has lasted until this time.
    fn extend_binding(&mut self, at: Time) {
        if let Some(binding) = self.bindings.last_mut().filter(|_| self.is_bound) {
            binding.to_ns = at.0.max(binding.from_ns);
        }
    }

    fn end_binding(&mut self, at: Time) {
        self.extend_binding(at);
        self.is_bound = false;
    }
}

#[derive(Default)]
struct Group {
    threads: u64,
    cpu_ns: u64,
}

impl ReportBuilder {
    /// Takes in one round of the loop.
    pub fn watch(&mut self, input: &Input, actions: &[Action], engine: &Engine) {
        for outcome in input.outcomes() {
            self.take_outcome(outcome, input.at());
        }
        match input {
            Input::Observation(observation) => self.take_observation(observation, engine),
            Input::Events(batch) => self.take_events(batch),
        }
        for action in actions {
            self.take_action(action, input.at());
        }
        self.nothing_to_gain = engine.nothing_to_gain().map(str::to_owned);
    }

    fn take_observation(&mut self, observation: &Observation, engine: &Engine) {
        if let Some(predicted) = engine.predicted() {
            let seconds = observation.at.since(self.last).as_secs_f64();
            self.predicted.get_or_insert_default().add(predicted, seconds);
        }
        let programs = observation.programs.iter();
        self.programs.extend(programs.map(|program| (program.leader.tid, program.clone())));
        for reading in &observation.threads {
            self.take_share(reading, engine.topology(), observation.at);
            self.take_reading(reading, engine, observation.at);
        }
        self.uneven.end_step(observation.at.since(self.last));
        self.timeline.take_applications(&observation.applications, observation.at);
        let ended = |program: &Program| self.lives.get(&program.leader).is_some_and(|life| life.last.ended);
        self.programs.retain(|_, program| !ended(program));
        if self.ended > 2 * ENDED_LISTED_MAX {
            self.group_small_threads();
        }
        for (app, into) in self.applications.take(&observation.applications) {
            self.fold(app, into);
        }
        let program = |pid: u32| {
            let known = self.programs.get(&pid).map(|program| program.name.clone());
            let named = || observation.threads.iter().find(|thread| thread.pid == pid);
            known.or_else(|| Some(named()?.name.clone())).unwrap_or_else(|| "others".into())
        };
        self.beside.take(&observation.beside, program);
        self.last = observation.at;
        self.own_cpu_ns = observation.own_cpu_ns;
    }

    fn take_events(&mut self, batch: &EventBatch) {
        for event in &batch.events {
            match event {
                // It may be bound before the next observation.
                Event::ThreadStarted(reading) => {
                    self.lives.entry(reading.thread).or_insert_with(|| Life::new(reading, FpuClass::Unknown));
                }
                Event::ThreadEnded(thread) => {
                    self.timeline.take_end(*thread, batch.at);
                    self.lives.get_mut(thread).into_iter().for_each(|life| life.end_binding(batch.at));
                }
                Event::TlpChanged(runnable) => self.timeline.take_runnable(runnable, batch.at),
                Event::ThreadRenamed { .. }
                | Event::Hint { .. }
                | Event::AllowedChanged(_)
                | Event::Process(_)
                | Event::Treated { .. } => {}
            }
        }
    }

    /// Takes in what a thread worked since the last observation, on a machine with several kinds of PEs.
    fn take_share(&mut self, reading: &ThreadReading, topology: &Topology, at: Time) {
        let fastest = topology.kinds.first().filter(|_| topology.kinds.len() > 1);
        let Some((pe, fastest)) = reading.last_pe.zip(fastest) else { return };
        let before = self.lives.get(&reading.thread).map(|life| &life.last);
        let share = working_share(before, reading, at.since(self.last));
        self.uneven.take(reading.app, fastest.pes.contains(pe), share);
    }

    fn take_reading(&mut self, reading: &ThreadReading, engine: &Engine, at: Time) {
        let (class, subject) = (engine.fpu_class(reading.thread), engine.subject(reading.thread));
        let first = !self.lives.contains_key(&reading.thread);
        let life = self.lives.entry(reading.thread).or_insert_with(|| Life::new(reading, class));
        // CPU time since the last observation was spent after it, on the PE where the thread is seen now.
        let cpu_ns_before = if first { 0 } else { life.last.cpu_ns };
        let (lasted_ns, ran_ns) =
            (at.since(self.last).as_nanos() as f64, reading.cpu_ns.saturating_sub(cpu_ns_before) as f64);
        if let Some(pe) = reading.last_pe {
            let share = (ran_ns / lasted_ns.max(1.0)).min(1.0);
            let span = RanOn { from_ns: self.last.0, to_ns: at.0, pe: Some(pe), share };
            ran_on::push(&mut life.ran_on, span);
        }
        self.timeline.take_reading(reading, ran_ns.min(lasted_ns), class == FpuClass::Intensive, at);
        // An ended thread has no mask any more; report its last standing.
        let standing = if reading.ended { life.last.standing } else { reading.standing };
        let standing = subject.map_or(standing, |subject| subject.view.standing);
        life.is_bound &= reading.ended || standing == Standing::Bound;
        life.extend_binding(at);
        let counters = reading.counters.clone().or_else(|| life.last.counters.take());
        let program = self.programs.get(&reading.pid).map(|program| program.name.clone());
        // The process may have executed another program since; but what has ended did not become another one.
        life.program =
            if reading.ended { life.program.take().or(program) } else { program.or(life.program.take()) };
        life.class = class;
        life.last = ThreadReading { counters, standing, ..reading.clone() };
        if reading.ended {
            self.ended += 1;
            let changed =
                SettingKind::ALL.into_iter().filter(|kind| self.changed.remove(&(*kind, reading.thread)));
            let kinds: Vec<SettingKind> = changed.collect();
            let program = life.program.as_ref().unwrap_or(&reading.name);
            let has_room =
                self.programs_of_ended.len() < GROUPS_MAX || self.programs_of_ended.contains_key(program);
            if !kinds.is_empty() && has_room {
                *self.programs_of_ended.entry(program.clone()).or_default() += 1;
            }
            kinds.into_iter().for_each(|kind| *self.changed_and_ended.entry(kind).or_default() += 1);
        }
    }

    fn take_action(&mut self, action: &Action, at: Time) {
        let (pes, setting) = match &action.change {
            Change::Bind(pes) | Change::Move(pes) => (Some(pes.clone()), None),
            Change::Free => (None, None),
            Change::Set(setting) => (None, Some(setting.to_string())),
            Change::Reset(kind) => (None, Some(format!("{kind}: as before"))),
        };
        let about = (action.thread, action.change.setting_kind());
        self.open.push((about, self.decisions_left_out + self.decisions.len()));
        // A dry run never reports outcomes: bound the list.
        if self.open.len() > 2 * DECISIONS_LISTED_MAX {
            self.open.retain(|(_, number)| *number >= self.decisions_left_out);
        }
        self.in_quota |= action.reason.starts_with(QUOTA_IS_SPENT);
        let (tid, reason) = (action.thread.tid, action.reason.to_string());
        self.decisions.push_back(Decision { at_ns: at.0, tid, pes, setting, reason, outcome: None });
        if self.decisions.len() > DECISIONS_LISTED_MAX {
            self.decisions.pop_front();
            self.decisions_left_out += 1;
        }
    }

    fn take_outcome(&mut self, outcome: &Outcome, now: Time) {
        if outcome.result == OutcomeKind::GivenBack {
            self.take_change(outcome.thread, &outcome.change, now);
        }
        if let (Change::Set(setting), OutcomeKind::Done) = (&outcome.change, &outcome.result)
            && setting.kind().is_of_process()
            && *setting != Setting::MayTakeTurns
        {
            self.changed.insert((setting.kind(), outcome.thread));
        }
        let about = (outcome.thread, outcome.change.setting_kind());
        let Some(position) = self.open.iter().position(|(open, _)| *open == about) else { return };
        let (_, number) = self.open.remove(position);
        let listed = number.checked_sub(self.decisions_left_out);
        let Some(decision) = listed.and_then(|index| self.decisions.get_mut(index)) else { return };
        let (at, is_of_policy) = (Time(decision.at_ns), decision.reason != BACK);
        decision.outcome = Some(match &outcome.result {
            OutcomeKind::Done => "done".to_owned(),
            OutcomeKind::Gone => "the thread had ended".to_owned(),
            OutcomeKind::NotOurs => "left alone: somebody else has changed it since".to_owned(),
            OutcomeKind::GivenBack => "given back: corewise was stopped".to_owned(),
            OutcomeKind::Refused(answer) => format!("refused: {answer}"),
            OutcomeKind::Unsupported => "not supported here".to_owned(),
        });
        if outcome.result == OutcomeKind::Done {
            // What is moved back to where it ran is free for the policy.
            let change = if is_of_policy { &outcome.change } else { &Change::Free };
            self.take_change(outcome.thread, change, at);
        }
    }

    /// Takes in a change that was carried out at this time.
    fn take_change(&mut self, thread: ThreadId, change: &Change, at: Time) {
        let Some(life) = self.lives.get_mut(&thread) else { return };
        self.timeline.take_change((thread, life.last.app), change, at);
        match change {
            Change::Bind(pes) | Change::Move(pes) => {
                life.end_binding(at);
                if life.bindings.len() == BINDINGS_LISTED_MAX {
                    life.bindings.drain(..BINDINGS_LISTED_MAX / 2);
                }
                life.bindings.push(Binding { from_ns: at.0, to_ns: at.0, pes: pes.clone() });
                life.is_bound = true;
            }
            Change::Free => life.end_binding(at),
            Change::Set(_) | Change::Reset(_) => {}
        }
    }

    /// Keeps the ended threads with the most CPU time and groups the others.
    fn group_small_threads(&mut self) {
        let mut ended: Vec<(u64, ThreadId)> =
            self.lives.values().filter(|l| l.last.ended).map(|l| (l.last.cpu_ns, l.last.thread)).collect();
        ended.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, thread) in ended.drain(ENDED_LISTED_MAX..) {
            let Some(Life { last, .. }) = self.lives.remove(&thread) else { continue };
            self.totals.entry(last.app).or_default().add(&last);
            let mut key = (last.app, Some(last.name));
            if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
                key.1 = None;
            }
            let group = self.groups.entry(key).or_default();
            group.threads += 1;
            group.cpu_ns += last.cpu_ns;
        }
        self.ended = ENDED_LISTED_MAX;
    }

    /// Counts an application with another one from now on.
    fn fold(&mut self, app: AppId, into: AppId) {
        self.uneven.forget(app);
        let totals = self.totals.remove(&app);
        totals.into_iter().for_each(|totals| self.totals.entry(into).or_default().join(&totals));
        self.lives.values_mut().filter(|life| life.last.app == app).for_each(|life| life.last.app = into);
        let names: Vec<_> = self.groups.keys().filter(|(of, _)| *of == app).cloned().collect();
        for (app, name) in names {
            let Some(Group { threads, cpu_ns }) = self.groups.remove(&(app, name.clone())) else { continue };
            let group = self.groups.entry((into, name)).or_default();
            (group.threads, group.cpu_ns) = (group.threads + threads, group.cpu_ns + cpu_ns);
        }
    }

    /// Returns the report, completed by what only the caller knows.
    pub fn finish(mut self, engine: &Engine, circumstances: Circumstances) -> Report {
        for life in self.lives.values() {
            self.totals.entry(life.last.app).or_default().add(&life.last);
        }
        let mut threads: Vec<ThreadReport> = self.lives.values().map(thread_report).collect();
        threads.sort_by(|a, b| b.cpu_seconds.total_cmp(&a.cpu_seconds).then(a.tid.cmp(&b.tid)));
        let waits = WaitsReport {
            handled: engine.handles_waits() && !circumstances.dry_run,
            guard: engine.waits_findings().copied(),
            ..self.waits(&threads)
        };
        let mut report = Report {
            headline: String::new(),
            command: circumstances.command,
            policy: engine.policy_name().to_owned(),
            nothing_to_gain: self.nothing_to_gain.take(),
            dry_run: circumstances.dry_run,
            evidence: circumstances.evidence.into(),
            machine: engine.topology().origin.clone(),
            shared: Shared::of(engine.topology()),
            kinds: PeKind::of(engine.topology()),
            host: circumstances.host,
            wall_seconds: self.last.as_secs_f64(),
            sources: circumstances.sources,
            threads,
            more_threads: self.thread_groups(),
            applications: self.applications.report(self.last, &self.totals, circumstances.command_cpu),
            timeline: self.timeline.finish(&self.applications.in_order(&self.totals)),
            decisions: self.decisions.into(),
            decisions_left_out: self.decisions_left_out as u64,
            waits,
            beside: self.beside.report(),
            predicted: self.predicted.filter(|predicted| predicted.seconds > 0.0),
            guard: engine.findings().filter(|found| found.is_about_something()).copied(),
            overhead: overhead(
                self.own_cpu_ns,
                self.last,
                &circumstances.rounds,
                circumstances.peak_memory_bytes,
            ),
            notes: circumstances
                .notes
                .into_iter()
                .chain(self.applications.note())
                .chain(self.uneven.notes(engine.machine(), |app| self.applications.name(app)))
                .chain(engine.notes())
                .collect(),
        };
        report.headline = headline(&report).to_string();
        report
    }

    fn waits(&self, threads: &[ThreadReport]) -> WaitsReport {
        let spun = threads.iter().filter_map(|thread| Some(thread.cpu_seconds * thread.spin_share?));
        let changed = |kind| {
            let living = self.changed.iter().filter(|(of, _)| *of == kind).count() as u64;
            living + self.changed_and_ended.get(&kind).copied().unwrap_or(0)
        };
        let living: BTreeSet<ThreadId> = self.changed.iter().map(|(_, leader)| *leader).collect();
        let program = |leader: ThreadId| {
            let life = self.lives.get(&leader);
            let read = life.and_then(|life| life.program.as_ref());
            let read = read.or(self.programs.get(&leader.tid).map(|program| &program.name));
            read.or(life.map(|life| &life.last.name)).cloned()
        };
        let mut programs = self.programs_of_ended.clone();
        living.into_iter().filter_map(program).for_each(|name| *programs.entry(name).or_default() += 1);
        WaitsReport {
            handled: false,
            programs: ChangedProgram::list(programs),
            spinning_cpu_seconds: spun.reduce(|sum, seconds| sum + seconds),
            processes_with_short_waits: changed(SettingKind::SpinCount),
            in_quota: self.in_quota,
            processes_in_turns: changed(SettingKind::Turns),
            team_size: None,
            team_pes: None,
            schedule: None,
            guard: None,
        }
    }

    fn thread_groups(&self) -> Vec<ThreadGroup> {
        let report = |((app, name), group): (&(AppId, Option<Arc<str>>), &Group)| ThreadGroup {
            application: self.applications.name(*app).unwrap_or_default(),
            name: name.clone(),
            threads: group.threads,
            cpu_seconds: group.cpu_ns as f64 / 1e9,
        };
        self.groups.iter().map(report).collect()
    }
}

fn overhead(own_cpu_ns: u64, end: Time, rounds: &[Duration], peak_memory_bytes: Option<u64>) -> Overhead {
    let (cpu_seconds, wall_seconds) = (own_cpu_ns as f64 / 1e9, end.as_secs_f64());
    let rounds_ms: Vec<f64> = rounds.iter().map(|round| round.as_secs_f64() * 1e3).collect();
    Overhead {
        cpu_seconds,
        fraction_of_wall: if wall_seconds > 0.0 { cpu_seconds / wall_seconds } else { 0.0 },
        round_ms_median: median(&rounds_ms),
        round_ms_max: quantile(&rounds_ms, 1.0),
        peak_memory_bytes,
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
        program: life.program.clone(),
        cpu_seconds: reading.cpu_ns as f64 / 1e9,
        fpu_usage: usage.fpu.map(|e| rounded(e.value)),
        vector_usage: usage.vector.map(|e| rounded(e.value)),
        fpu_usage_source: source.filter(|_| usage.fpu.is_some()),
        fpu_usage_confidence: usage.fpu.map(|e| rounded(e.confidence)),
        fpu_class: life.class,
        spin_share: usage.spin.map(|e| rounded(e.value)),
        memory_share: usage.memory.map(|e| rounded(e.value)),
        branch_share: usage.branches.map(|e| rounded(e.value)),
        l2_misses_per_100_cycles: usage.l2_misses_per_100_cycles.map(|e| e.value),
        ipc: usage.ipc.map(|e| e.value),
        standing: reading.standing,
        bindings: life.bindings.clone(),
        ran_on: life.ran_on.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_of_many_decisions_keeps_the_latest_in_bounded_room() {
        const DECISIONS: usize = 50_000;
        let mut builder = ReportBuilder::default();
        for number in 0..DECISIONS {
            let thread = ThreadId { tid: number as u32 % 7, generation: 0 };
            let action = Action { thread, change: Change::Free, reason: "".into() };
            builder.take_action(&action, Time(number as u64));
        }
        assert!(builder.open.len() <= 2 * DECISIONS_LISTED_MAX, "{}", builder.open.len());
        assert_eq!(builder.decisions.len(), DECISIONS_LISTED_MAX);
        assert_eq!(builder.decisions_left_out, DECISIONS - DECISIONS_LISTED_MAX);
    }
}
