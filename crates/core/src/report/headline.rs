//! What corewise did in a run, and what that gained, in one sentence: every form of a report begins with it.
//!
//! Readers may know none of corewise's terms, so the sentence says CPU, and names programs by their scripts.
//! What was changed about waits comes first: on most machines it gains the most. Gains are stated only as the
//! guard measured them.

use super::{ChangedProgram, Report, WaitsReport};
use crate::guard::waits::{LOG_MAX, WaitsFindings, WaitsState};
use crate::guard::{Findings, Gain, State};
use crate::policy::DEFAULT;
use std::collections::BTreeSet;
use std::fmt;

/// The number of programs that are named.
const NAMED_MAX: usize = 2;

/// From this gain on it is a factor instead of a percentage.
const FACTOR_FROM: f64 = 0.5;

const NOT_MEASURED: &str = "the gain was not measured (`corewise compare` does that)";
const TOO_SHORT: &str = "the gain is unknown, as the run was too short to measure it";

/// What corewise did, as a sentence that begins with its name. It contains names of programs, which are
/// untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headline {
    /// The sentence after corewise's name, without the full stop.
    pub did: String,
}

impl fmt::Display for Headline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corewise {}.", self.did)
    }
}

/// Returns what corewise did in a run.
pub fn headline(report: &Report) -> Headline {
    let of_waits = waits(&report.waits, spinning_share(report));
    let of_waits = of_waits.map(|did| format!("{did}; {}", gain_of_waits(report.waits.guard.as_ref())));
    let bound = report.threads.iter().filter(|thread| !thread.bindings.is_empty()).count();
    let did = match (of_waits, placement(report, bound)) {
        (None, None) => format!("changed nothing: {}", why_nothing(report)),
        (Some(waits), Some(placed)) => format!("{waits}; {placed}"),
        (Some(waits), None) => {
            let not =
                no_placement(report).map_or(String::new(), |why| format!("; bound no thread, as {why}"));
            format!("{waits}{not}")
        }
        (None, Some(placed)) => placed,
    };
    Headline { did }
}

/// The same of a command that was not watched, with the reason of that.
pub fn headline_of_unwatched(changed: &WaitsReport, why: &str) -> Headline {
    let did = match waits(changed, None) {
        Some(did) => format!("{did}; {TOO_SHORT}"),
        None => format!("changed nothing: {why}"),
    };
    Headline { did }
}

/// What was done about waits, if anything.
fn waits(waits: &WaitsReport, spinning: Option<f64>) -> Option<String> {
    let shorter = match waits.in_quota {
        true => "sleep instead of spin while others needed a CPU or a CPU quota was spent",
        false => "sleep instead of spin while others needed a CPU",
    };
    let kinds = [
        (waits.processes_with_short_waits, "let idle threads of", shorter),
        (waits.processes_in_turns, "let", "take turns on the CPUs with other programs"),
    ];
    let mut did = Vec::new();
    for (count, verb, what) in kinds.into_iter().filter(|(count, ..)| *count > 0) {
        let bound = match did.is_empty() {
            true => subject(&waits.programs, count),
            false => processes(count),
        };
        did.push(format!("{verb} {bound} {what}"));
    }
    did.splice(0..0, start(waits));
    let last = did.pop()?;
    let did = if did.is_empty() { last } else { format!("{} and {last}", did.join(", ")) };
    let spun = spinning.map(|share| format!(" ({:.0} % of the CPU time was spent spinning)", 100.0 * share));
    Some(did + &spun.unwrap_or_default())
}

/// How the command was started.
fn start(waits: &WaitsReport) -> Option<String> {
    let team = waits.team_size.map(|size| {
        let threads = if size == 1 { "1 thread".to_owned() } else { format!("{size} threads") };
        let which = match &waits.team_pes {
            Some(pes) => format!("on the fast CPUs {pes}, as loops in equal parts end sooner there"),
            None => "for the CPUs that it could have".to_owned(),
        };
        format!("teams of {threads}, {which}")
    });
    let schedule = waits.schedule.as_ref();
    let schedule = schedule.map(|how| {
        format!("OMP_SCHEDULE={how}, so that slow CPUs get smaller parts of loops with schedule(runtime)")
    });
    let with: Vec<String> = team.into_iter().chain(schedule).collect();
    let with = (!with.is_empty()).then(|| with.join(", and "))?;
    Some(format!("started the command with {with} (sums may be rounded differently)"))
}

/// The programs to which some processes belong, by name.
fn subject(programs: &[ChangedProgram], count: u64) -> String {
    let named: Vec<&str> = programs.iter().take(NAMED_MAX).map(|program| &*program.name).collect();
    let names = match (&named[..], programs.len().saturating_sub(NAMED_MAX)) {
        ([], _) => return processes(count),
        (named, 0) => named.join(" and "),
        (named, rest) => format!("{} and {rest} more", named.join(", ")),
    };
    if count > 1 { format!("{names} ({})", processes(count)) } else { names }
}

fn processes(count: u64) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

/// The share of the CPU time that went into busy-waiting, if it is known and not next to nothing.
fn spinning_share(report: &Report) -> Option<f64> {
    let known = report.threads.iter().filter(|thread| thread.spin_share.is_some());
    let all: f64 = known.map(|thread| thread.cpu_seconds).sum();
    let share = report.waits.spinning_cpu_seconds? / all;
    (share >= 0.01).then_some(share)
}

fn gain_of_waits(found: Option<&WaitsFindings>) -> String {
    let Some(found) = found else { return NOT_MEASURED.to_owned() };
    let programs = if found.runs > 1 { "all programs together" } else { "the program" };
    match (found.state, &found.gain) {
        (WaitsState::Kept, Some(gain)) => kept(programs, gain),
        (WaitsState::TakenBack, Some(gain)) => taken_back(found.taken_back_after_seconds, programs, gain),
        (WaitsState::Fell, _) => "took that back until the programs became slower without it".to_owned(),
        (WaitsState::Unclear, Some(gain)) => format!("measured: {}", unclear(gain)),
        _ if found.meter.is_none() => NOT_MEASURED.to_owned(),
        _ => TOO_SHORT.to_owned(),
    }
}

/// Which threads were bound for the policy, if any were, and what that gained.
fn placement(report: &Report, bound: usize) -> Option<String> {
    // Without a wish of the policy threads are bound because of how their programs wait.
    let is_by_policy = report.nothing_to_gain.is_none();
    match (bound, is_by_policy, report.waits.processes_in_turns) {
        (0, ..) => None,
        (_, false, 0) => Some(format!(
            "kept {bound} threads that spin on CPUs of their own while others needed a CPU; {NOT_MEASURED}"
        )),
        (_, false, _) => None,
        (_, true, _) => {
            let all = report.threads.len();
            let gain = gain_of_placement(report.guard.as_ref());
            Some(format!("bound {bound} of {all} threads by the policy {}; {gain}", report.policy))
        }
    }
}

fn gain_of_placement(found: Option<&Findings>) -> String {
    let Some(found) = found else { return NOT_MEASURED.to_owned() };
    match (found.state, &found.gain) {
        (State::Kept, Some(gain)) => kept("the program", gain),
        (State::TakenBack, Some(gain)) => taken_back(found.taken_back_after_seconds, "the program", gain),
        (State::Fell, _) => "took that back when the program became slower with it".to_owned(),
        (State::Unclear, Some(gain)) => format!("took that back: measured, {}", unclear(gain)),
        _ if found.meter.is_none() => NOT_MEASURED.to_owned(),
        _ => TOO_SHORT.to_owned(),
    }
}

fn kept(programs: &str, gain: &Gain) -> String {
    format!("measured: with that, {programs} ran {}", faster(gain))
}

fn taken_back(after_seconds: Option<f64>, programs: &str, gain: &Gain) -> String {
    let after = after_seconds.map_or(String::new(), |seconds| format!(" after {seconds:.1} s"));
    format!("took that back{after}: measured, with it {programs} ran {}", faster(gain))
}

fn unclear(gain: &Gain) -> String {
    let interval = interval(gain).map_or(String::new(), |interval| format!(" ({interval})"));
    format!("whether that helped is unclear{interval}")
}

/// A gain in words, with its interval.
fn faster(gain: &Gain) -> String {
    // Single pairs of the guard of waits are cut off there.
    let least = if gain.value > 0.99 * LOG_MAX.exp_m1() { "at least " } else { "" };
    let interval = interval(gain).map_or(String::new(), |interval| format!(" ({interval})"));
    format!("{least}{}{interval}", speed(gain.value))
}

fn interval(gain: &Gain) -> Option<String> {
    Some(format!("95 % certain: between {} and {}", speed(gain.low?), speed(gain.high?)))
}

fn speed(gain: f64) -> String {
    match gain {
        gain if gain >= FACTOR_FROM => format!("{:.1} times as fast", 1.0 + gain),
        gain if gain < 0.0 => format!("{:.1} % slower", -100.0 * gain),
        gain => format!("{:.1} % faster", 100.0 * gain),
    }
}

/// Why nothing was changed, in one clause.
fn why_nothing(report: &Report) -> String {
    if report.sources.discovery == "none" {
        return "the command could not be watched".to_owned();
    }
    if report.dry_run {
        let to_bind = report.decisions.iter().filter(|decision| decision.pes.is_some());
        let to_bind: BTreeSet<u32> = to_bind.map(|decision| decision.tid).collect();
        let what = if report.evidence == "replayed" { "this is a replay" } else { "it only watched" };
        return match to_bind.len() {
            0 => format!("{what}, and the policy {} would have bound no thread", report.policy),
            count => format!("{what}; the policy {} would have bound {count} threads", report.policy),
        };
    }
    let refused = |outcome: &&str| !matches!(*outcome, "done" | "the thread had ended");
    let outcomes = report.decisions.iter().filter_map(|decision| decision.outcome.as_deref());
    match outcomes.filter(refused).count() {
        0 => {}
        count => return format!("{count} changes that it tried could not be made"),
    }
    let no_waits =
        report.waits.handled.then(|| "no thread was seen to spin while others needed its CPU".to_owned());
    let reasons: Vec<String> = no_waits.into_iter().chain(no_placement(report)).collect();
    if reasons.is_empty() { "no change was asked for".to_owned() } else { reasons.join(", and ") }
}

/// Why no thread was bound.
fn no_placement(report: &Report) -> Option<String> {
    match &report.nothing_to_gain {
        _ if report.policy == DEFAULT.name => None,
        Some(_) => Some("placement gains nothing on this machine".to_owned()),
        None => Some(format!("the policy {} wanted none bound", report.policy)),
    }
}
