//! Lets another program decide: `exec`.
//!
//! Problem: it should be possible to try an idea for a policy without writing Rust and without building
//! corewise.
//!
//! Approach: a command named by the user reads one scene per line and answers each with one line that holds
//! the wanted placement; both are JSON, described in `docs/policy-protocol.md`. This file is the pure half:
//! it builds the scenes, checks the answers and handles answers that are late or wrong. The other half is a
//! [`Peer`], which starts the command and transfers the lines.
//!
//! - A command that requests it in its greeting is also asked when something has happened: [`EVENTS`].
//! - The command must greet before anything else is started, so that a wrong command is found at once.
//! - An answer that has not arrived after `deadline` is late: the placement of the last answer stays, and the
//!   late one is dropped when it arrives. No scene is sent while an answer is outstanding, so nothing piles
//!   up. After [`LATE_MAX`] late answers in a row corewise gives the command up.
//! - An answer that breaks a rule (unknown thread, PEs that the thread may not use, invalid JSON) ends the
//!   command at once: a program that is wrong about one thread is not trusted about the others.
//! - Giving up means: the command is ended, all threads are freed, and [`Policy::failure`] gives the reason.
//!
//! Source: ours; a child process with lines of JSON is how language servers and `git` helpers communicate.
//!
//! Parameters: `command` and `deadline`.
//!
//! Limits: a decision waits for the answer, so a slow program delays everything else by up to the deadline.

pub use super::peer::{Peer, StartCommand};

use super::interface::{Cause, Policy, Scene, Subject};
use super::kind::{Parameters, PolicyKind};
use super::needs::{Needs, Reading};
use crate::classify::FpuClass;
use crate::cpuset::CpuSet;
use crate::ids::{PeId, ThreadId};
use crate::observe::{Event, EventKind, Hints};
use crate::plan::{Assignment, Placement};
use crate::topology::DomainKind;
use crate::view::{ApplicationView, Estimate};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// The protocol version. It changes when programs for the old version would fail; new fields in scenes do not
/// change it.
pub const VERSION: u32 = 1;

/// The events that a command can subscribe to.
pub const EVENTS: &[EventKind] = &[
    EventKind::ThreadStarted,
    EventKind::ThreadEnded,
    EventKind::ThreadRenamed,
    EventKind::TlpChanged,
    EventKind::Hint,
    EventKind::AllowedChanged,
];

/// The number of late answers in a row after which the command is given up.
pub const LATE_MAX: u32 = 5;

/// How long the command may take to greet.
pub const GREETING_WITHIN: Duration = Duration::from_secs(10);

/// The maximum number of characters of the command's text that messages repeat.
const TEXT_MAX: usize = 200;

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "exec",
    machine: "any",
    rule: "a command decides: it reads scenes and writes placements, as lines of JSON",
    why: "only its author knows; the reasons that it gives stand with each decision",
    source: "ours",
    makes_claims: false,
    rest: Some("command"),
    make: |parameters| Box::new(Exec::new(parameters)),
};

/// The policy.
struct Exec {
    /// `None` once the command is given up.
    peer: Option<Box<dyn Peer>>,
    deadline: Duration,
    /// Whether the command is also asked at events.
    wants_events: bool,
    /// The placement of the last answer.
    wanted: Placement,
    step: u64,
    /// Whether the answer to the last scene is outstanding.
    is_outstanding: bool,
    late: u32,
    failure: Option<String>,
}

impl Exec {
    fn new(parameters: &mut Parameters<'_>) -> Self {
        let range = Duration::from_millis(1)..=Duration::from_secs(60);
        let late = "how long an answer may take (at least 10s where time is simulated)";
        let deadline = parameters.duration("deadline", Duration::from_millis(100), range, late);
        let wants_events = Cell::new(false);
        let greet = |peer: &mut dyn Peer| greet(peer).map(|events| wants_events.set(events));
        let peer =
            parameters.command("command", "the program that decides, see docs/policy-protocol.md", greet);
        Self {
            peer,
            deadline,
            wants_events: wants_events.get(),
            wanted: Placement::default(),
            step: 0,
            is_outstanding: false,
            late: 0,
            failure: None,
        }
    }

    fn ask(&mut self, scene: &Scene<'_>) -> Result<(), String> {
        let peer = self.peer.as_mut().ok_or("it was not started")?;
        if self.is_outstanding {
            // The outstanding answer belongs to an older scene: drop it.
            self.is_outstanding = peer.exchange("", Duration::ZERO)?.is_none();
            if self.is_outstanding && matches!(scene.cause, Cause::Events(_)) {
                // Events can be frequent, so only scenes at intervals count as late.
                return Ok(());
            }
        }
        if !self.is_outstanding {
            self.step += 1;
            if let Some(answer) = peer.exchange(&line_of(self.step, scene)?, self.deadline)? {
                self.wanted = placement_of(&answer, self.step, scene)?;
                self.late = 0;
                return Ok(());
            }
            self.is_outstanding = true;
        }
        self.late += 1;
        if self.late < LATE_MAX {
            return Ok(());
        }
        Err(format!("{LATE_MAX} answers in a row took longer than {:?}", self.deadline))
    }
}

impl Policy for Exec {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        use Reading::*;
        let events = if self.wants_events { EVENTS } else { &[] };
        Needs { used: &[FpuUsage, Ipc, L2Misses, Branches, Tlp, Spinning, Master], events, ..Needs::NONE }
    }

    fn answers(&mut self, scene: &Scene<'_>) -> bool {
        let Cause::Events(events) = scene.cause else { return true };
        self.wants_events && events.iter().any(|event| EVENTS.contains(&event.kind()))
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        if self.failure.is_none()
            && let Err(problem) = self.ask(scene)
        {
            self.failure =
                Some(format!("the policy's command was given up, and nothing is bound any more: {problem}"));
            self.peer = None;
        }
        match &self.failure {
            Some(failure) => Placement::without_gain(failure),
            None => self.wanted.clone(),
        }
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

/// corewise's first line.
#[derive(Serialize)]
struct Greeting {
    version: u32,
}

/// The first line from the command.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GreetingBack {
    version: u32,
    #[serde(default)]
    events: bool,
}

/// Returns whether the command subscribes to events.
fn greet(peer: &mut dyn Peer) -> Result<bool, String> {
    let answer = peer.exchange(&to_line(&Greeting { version: VERSION })?, GREETING_WITHIN)?;
    let answer = answer.ok_or_else(|| format!("no greeting came within {GREETING_WITHIN:?}"))?;
    let GreetingBack { version, events } = parse(&answer)?;
    match version {
        VERSION => Ok(events),
        other => Err(format!("it speaks version {other} of the protocol, corewise version {VERSION}")),
    }
}

/// A scene as sent to the command.
#[derive(Serialize)]
struct SceneLine<'a> {
    step: u64,
    now_ns: u64,
    events: Vec<EventLine<'a>>,
    machine: MachineLine<'a>,
    allowed_pes: &'a CpuSet,
    threads: Vec<ThreadLine<'a>>,
    applications: Vec<ApplicationLine>,
}

/// An event that caused the scene.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum EventLine<'a> {
    ThreadStarted { thread: String },
    ThreadEnded { thread: String },
    ThreadRenamed { thread: String, name: &'a str },
    TlpChanged { application: u32, runnable_threads: u32, only: Option<String> },
    Hint { thread: String, spins: bool, is_master: bool, phase: Option<u32> },
    AllowedChanged { pes: &'a CpuSet },
}

impl<'a> EventLine<'a> {
    fn of(event: &'a Event) -> Option<EventLine<'a>> {
        Some(match event {
            Event::ThreadStarted(reading) => EventLine::ThreadStarted { thread: key(reading.thread) },
            Event::ThreadEnded(thread) => EventLine::ThreadEnded { thread: key(*thread) },
            Event::ThreadRenamed { thread, name } => EventLine::ThreadRenamed { thread: key(*thread), name },
            Event::TlpChanged(now) => EventLine::TlpChanged {
                application: now.app.0,
                runnable_threads: now.count,
                only: now.only.map(key),
            },
            Event::Hint { thread, hints } => {
                let Hints { spinning: spins, master: is_master, phase } = *hints;
                EventLine::Hint { thread: key(*thread), spins, is_master, phase }
            }
            Event::AllowedChanged(pes) => EventLine::AllowedChanged { pes },
            // These are handled by the engine for all policies.
            Event::Process(_) | Event::Treated { .. } => return None,
        })
    }
}

#[derive(Serialize)]
struct MachineLine<'a> {
    pes: &'a CpuSet,
    shared: Vec<SharedLine<'a>>,
    kinds: Vec<KindLine<'a>>,
}

#[derive(Serialize)]
struct SharedLine<'a> {
    by: &'a CpuSet,
    what: DomainKind,
}

#[derive(Serialize)]
struct KindLine<'a> {
    name: &'a str,
    pes: &'a CpuSet,
}

#[derive(Serialize)]
struct ThreadLine<'a> {
    thread: String,
    name: &'a str,
    application: u32,
    placeable: bool,
    resident: bool,
    may_use_pes: CpuSet,
    bound_pes: Option<&'a CpuSet>,
    last_pe: Option<PeId>,
    runnable: bool,
    runnable_share: f64,
    spins: bool,
    is_master: bool,
    phase: Option<u32>,
    fpu_class: FpuClass,
    fpu_usage: Option<Estimate>,
    vector_usage: Option<Estimate>,
    spin_share: Option<Estimate>,
    memory_share: Option<Estimate>,
    branch_share: Option<Estimate>,
    l2_misses_per_100_cycles: Option<Estimate>,
    instructions_per_cycle: Option<Estimate>,
    branch_misses_per_100: Option<Estimate>,
}

#[derive(Serialize)]
struct ApplicationLine {
    application: u32,
    runnable_threads_mean: f64,
    sequential_fraction: Option<f64>,
    exact: bool,
}

/// The command's answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerLine {
    step: u64,
    bind: Vec<BindLine>,
    #[serde(default)]
    nothing_to_gain: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BindLine {
    thread: String,
    pes: CpuSet,
    #[serde(default)]
    reason: Option<String>,
}

fn to_line(value: &impl Serialize) -> Result<String, String> {
    let line = serde_json::to_string(value).map_err(|error| error.to_string())?;
    Ok(line + "\n")
}

fn line_of(step: u64, scene: &Scene<'_>) -> Result<String, String> {
    let topology = &scene.machine.topology;
    let shared = topology.domains.iter().filter(|domain| domain.pes.len() > 1);
    let application = |(app, view): (&crate::ids::AppId, &ApplicationView)| ApplicationLine {
        application: app.0,
        runnable_threads_mean: view.tlp_mean,
        sequential_fraction: view.sequential_fraction,
        exact: view.exact,
    };
    let events = match scene.cause {
        Cause::Interval => &[],
        Cause::Events(events) => events,
    };
    to_line(&SceneLine {
        step,
        now_ns: scene.now.0,
        events: events.iter().filter_map(EventLine::of).collect(),
        machine: MachineLine {
            pes: &topology.pes,
            shared: shared.map(|domain| SharedLine { by: &domain.pes, what: domain.kind }).collect(),
            kinds: topology.kinds.iter().map(|kind| KindLine { name: &kind.name, pes: &kind.pes }).collect(),
        },
        allowed_pes: scene.allowed,
        threads: scene.threads.iter().map(|subject| thread_line(subject, scene)).collect(),
        applications: scene.applications.iter().map(application).collect(),
    })
}

fn thread_line<'a>(subject: &'a Subject, scene: &Scene<'a>) -> ThreadLine<'a> {
    let (view, usage) = (&subject.view, &subject.view.usage);
    let may_use_pes = view.permitted.intersection(scene.allowed);
    ThreadLine {
        thread: key(view.thread),
        name: &subject.name,
        application: view.app.0,
        placeable: subject.placeable && !may_use_pes.is_empty(),
        resident: subject.resident,
        may_use_pes,
        bound_pes: subject.assignment.as_ref().map(|assignment| &assignment.pes),
        last_pe: view.last_pe,
        runnable: subject.runnable,
        runnable_share: view.runnable_share,
        spins: subject.hints.spinning,
        is_master: subject.hints.master,
        phase: subject.hints.phase,
        fpu_class: subject.fpu_class,
        fpu_usage: usage.fpu,
        vector_usage: usage.vector,
        spin_share: usage.spin,
        memory_share: usage.memory,
        branch_share: usage.branches,
        l2_misses_per_100_cycles: usage.l2_misses_per_100_cycles,
        instructions_per_cycle: usage.ipc,
        branch_misses_per_100: usage.branch_misses_per_100,
    }
}

/// Returns a thread's key in the protocol: thread IDs are reused, so a generation is added.
fn key(thread: ThreadId) -> String {
    format!("{}-{}", thread.tid, thread.generation)
}

/// Returns the placement of an answer, or the rule that it breaks.
fn placement_of(answer: &str, step: u64, scene: &Scene<'_>) -> Result<Placement, String> {
    let AnswerLine { step: answered, bind, nothing_to_gain } = parse(answer)?;
    if answered != step {
        return Err(format!("it answered step {answered} instead of step {step}"));
    }
    let known: BTreeMap<String, &Subject> =
        scene.threads.iter().map(|subject| (key(subject.view.thread), subject)).collect();
    let mut placement =
        Placement { nothing_to_gain: nothing_to_gain.map(|why| clipped(&why)), ..Placement::default() };
    for BindLine { thread, pes, reason } in bind {
        let shown = clipped(&thread);
        let subject =
            known.get(&thread).ok_or_else(|| format!("it binds `{shown}`, which is not a thread"))?;
        let usable = subject.view.permitted.intersection(scene.allowed);
        if !subject.placeable {
            return Err(format!("it binds thread {shown}, which is not placeable"));
        }
        if pes.is_empty() || !pes.is_subset(&usable) {
            return Err(format!(
                "it binds thread {shown} to the PEs `{pes}`, of which it may use `{usable}`"
            ));
        }
        let reason = reason.map_or_else(|| "the policy's command wants it".to_owned(), |why| clipped(&why));
        if placement.bound.insert(subject.view.thread, Assignment { pes, reason: reason.into() }).is_some() {
            return Err(format!("it binds thread {shown} twice"));
        }
    }
    Ok(placement)
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| format!("it answered `{}`: {error}", clipped(line)))
}

/// Returns the beginning of a text.
fn clipped(text: &str) -> String {
    let end = text.char_indices().nth(TEXT_MAX).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned() + if end < text.len() { "…" } else { "" }
}

#[cfg(test)]
mod tests;
