//! Explains in sentences why threads are where they are, for readers who have not read the papers.
//!
//! Problem: a report lists what was observed and decided in the terms of corewise's decisions, and a
//! placement that was tried in epochs fills hundreds of lines of it. Approach: answer the questions that
//! people ask (what does the policy do, did it help, why is this thread there, what was not done) from the
//! contents of the report. Repeated events are listed once. Limits: causes that are not in the report are not
//! guessed; alternatives that a policy considered are known only as far as its reasons list them.

use super::programs::{self, Labels, Program};
use crate::page::words::{Seconds, Share};
use crate::terminal::Name;
use corewise_core::classify::FpuClass;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::OVER;
use corewise_core::guard::{BACK, Findings, Gain, State};
use corewise_core::observe::Standing;
use corewise_core::policy::{DEFAULT, PolicyKind, SPREAD};
use corewise_core::report::{Decision, PredictedReport, Report, ThreadReport, headline};
use corewise_core::topology::DomainKind;
use std::collections::BTreeMap;

/// Threads of a whole run that are explained: the busiest.
const THREADS_MAX: usize = 8;

/// Pairs of programs that are listed.
const PAIRS_MAX: usize = 12;

/// Programs that are listed: the busiest.
const PROGRAMS_MAX: usize = 8;

/// The maximum number of events of a thread's history that are listed, from the first on: as many as a screen
/// holds.
const EVENTS_MAX: usize = 20;

/// Sets of PEs that are named of those that share one thing.
const SHARED_MAX: usize = 4;

/// Threads that are named in one sentence.
const NAMES_MAX: usize = 3;

/// What was decided about a thread, and the outcome: repeated events are listed once.
type Event<'a> = (String, &'a str, Option<&'a str>);

/// The whole run.
pub fn of_run(report: &Report) -> String {
    let mut text = head(report);
    section(&mut text, "What ran", ran(report));
    section(&mut text, "What ran beside what", beside(report));
    section(&mut text, "How programs waited", waits(report));
    section(&mut text, "What the policy does", purpose(report));
    section(&mut text, "Did the placement help?", vec![gained(report)]);
    let title = match report.threads.len() {
        0..=THREADS_MAX => "Where the threads were".to_owned(),
        all => format!("Where the threads were, the {THREADS_MAX} busiest of {all}"),
    };
    let labels = Labels::of(report);
    let threads = report.threads.iter().take(THREADS_MAX).flat_map(|thread| place(report, thread, &labels));
    section(&mut text, &title, threads.collect());
    section(&mut text, "What was not done", not_done(report));
    section(&mut text, "Notes", report.notes.iter().map(|note| Name(note).to_string()).collect());
    text
}

/// One thread; `None` if the report does not list it.
pub fn of_thread(report: &Report, tid: u32) -> Option<String> {
    // A number may have had several owners.
    let mut owners = report.threads.iter().filter(|thread| thread.tid == tid).peekable();
    owners.peek()?;
    let (mut text, labels) = (head(report), Labels::of(report));
    section(&mut text, "Where it was", owners.flat_map(|thread| place(report, thread, &labels)).collect());
    section(&mut text, "What was decided about it", history(report, tid));
    section(&mut text, "Did the placement help?", vec![gained(report)]);
    Some(text)
}

fn section(text: &mut String, title: &str, lines: Vec<String>) {
    if !lines.is_empty() {
        let lines: Vec<String> = lines.iter().map(|line| format!("  {line}\n")).collect();
        *text += &format!("\n{title}\n{}", lines.concat());
    }
}

fn head(report: &Report) -> String {
    let host = report.host.as_ref();
    let on = host.and_then(|host| host.name.as_ref()).map(|name| format!(" on {}", Name(name)));
    format!(
        "{}\n\n{}: {} under the policy {}, {}{}\n",
        Name(&headline(report).to_string()),
        Name(&report.command.join(" ")),
        Seconds(report.wall_seconds),
        Name(&report.policy),
        report.evidence,
        on.unwrap_or_default()
    )
}

/// Beside which other programs each program ran, the longest first.
fn beside(report: &Report) -> Vec<String> {
    let mut cpu_seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for thread in &report.threads {
        let name = thread.program.as_deref().unwrap_or(&thread.name);
        *cpu_seconds.entry(name).or_default() += thread.cpu_seconds;
    }
    let is_known = |name: &str| cpu_seconds.contains_key(name);
    let of_the_run =
        report.beside.iter().filter(|pair| is_known(&pair.programs.0) || is_known(&pair.programs.1));
    let pairs = of_the_run.take(PAIRS_MAX).map(|pair| {
        let (a, b) = (&*pair.programs.0, &*pair.programs.1);
        let share = |name: &str| {
            let cpu = cpu_seconds.get(name).filter(|cpu| **cpu > 0.0)?;
            Some(format!("{} of the CPU time of {}", Share(pair.pe_seconds / cpu), Name(name)))
        };
        let mut shares: Vec<String> = share(a).into_iter().collect();
        if a != b {
            shares.extend(share(b));
        }
        let shares = if shares.is_empty() { String::new() } else { format!(", {}", shares.join(", ")) };
        format!(
            "{} beside {} on CPUs that share {}: {}{shares}",
            Name(a),
            Name(b),
            resource(pair.shared),
            Seconds(pair.pe_seconds)
        )
    });
    pairs.collect()
}

/// The policy's rule, why it should help, and what the machine has of what it is about.
fn purpose(report: &Report) -> Vec<String> {
    let kind = kind_of(report);
    let rule = kind.map(|kind| format!("The rule of {}: {}.", kind.name, kind.rule));
    let why = kind.map(|kind| format!("Why: {}.", kind.why));
    rule.into_iter().chain(why).chain(shared(report)).collect()
}

/// The policy without its parameters.
fn kind_of(report: &Report) -> Option<&'static PolicyKind> {
    PolicyKind::find(report.policy.split(':').next().unwrap_or_default()).ok()
}

fn is_policy(report: &Report, kind: &PolicyKind) -> bool {
    kind_of(report).is_some_and(|of| of.name == kind.name)
}

/// Which PEs share what.
fn shared(report: &Report) -> Option<String> {
    let mut by_kind: BTreeMap<DomainKind, Vec<&CpuSet>> = BTreeMap::new();
    for shared in &report.shared {
        by_kind.entry(shared.resource).or_default().push(&shared.pes);
    }
    let kinds = by_kind.iter().map(|(kind, sets)| {
        let named: Vec<String> = sets.iter().take(SHARED_MAX).map(|pes| pes.to_string()).collect();
        let others = more(sets.len(), SHARED_MAX, "others");
        format!("{} (PEs {}{others})", resource(*kind), named.join("; "))
    });
    let kinds: Vec<String> = kinds.collect();
    (!kinds.is_empty()).then(|| format!("This machine's PEs share {}.", kinds.join(", ")))
}

fn resource(kind: DomainKind) -> &'static str {
    match kind {
        DomainKind::Core => "a core with all its units",
        DomainKind::L1 => "an L1 cache",
        DomainKind::Module => "a floating-point unit",
        DomainKind::L2 => "an L2 cache",
        DomainKind::Cluster => "a cluster",
        DomainKind::L3 => "an L3 cache",
        DomainKind::Die => "a die",
        DomainKind::NumaNode => "a memory node",
        DomainKind::Package => "a package",
    }
}

/// How many are not named.
fn more(all: usize, named: usize, what: &str) -> String {
    match all.saturating_sub(named) {
        0 => String::new(),
        rest => format!(" and {rest} {what}"),
    }
}

fn gained(report: &Report) -> String {
    let measured = measured_gain(report);
    match report.predicted {
        Some(predicted) => format!("{measured} {}", predicted_gain(&predicted)),
        None => measured,
    }
}

/// What the machine model says that the placement gains, by cause.
fn predicted_gain(predicted: &PredictedReport) -> String {
    let (free, placed) = (predicted.free_pe_seconds_per_second, predicted.placed_pe_seconds_per_second);
    let terms = [
        ("by shared units", free.units, placed.units),
        ("by shared caches", free.caches, placed.caches),
        ("at memory channels", free.memory, placed.memory),
        ("on slower CPUs", free.speed, placed.speed),
    ];
    let shown = terms.iter().filter(|(_, free, placed)| (free - placed).abs() >= 0.005);
    let causes: Vec<String> =
        shown.map(|(cause, free, placed)| format!("{free:.2} and {placed:.2} {cause}")).collect();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    format!(
        "Predicted by the machine profile: without the placement the threads lose {:.2} seconds of CPU time \
         per second to each other, with it {:.2}{causes}.",
        free.total(),
        placed.total(),
    )
}

fn measured_gain(report: &Report) -> String {
    let was_bound = report.decisions.iter().any(|decision| decision.pes.is_some());
    match (&report.nothing_to_gain, &report.guard) {
        _ if is_policy(report, &DEFAULT) => "Nothing was placed, so there is nothing to judge.".to_owned(),
        (Some(why), _) => format!("Nothing was placed: {}.", Name(why)),
        _ if report.dry_run => {
            "This was a dry run: no thread was moved, so it does not show what the placement gains."
                .to_owned()
        }
        (None, Some(found)) => found_gain(found),
        (None, None) if was_bound => {
            "Not measured: the run had no guard. `corewise compare` measures it.".to_owned()
        }
        (None, None) => "The policy wanted to bind no thread, so there is nothing to judge.".to_owned(),
    }
}

/// What the guard found, in sentences.
fn found_gain(found: &Findings) -> String {
    let Some(meter) = found.meter else {
        return "Not measured: the progress of the program could not be measured here, so the threads were \
             bound by the rule alone. `corewise compare` measures what that gains."
            .to_owned();
    };
    let how = format!(
        "The placement was switched on and off in {} that took {}, and the work done with and without it \
         was compared, by {}",
        if found.trials == 1 { "a trial".to_owned() } else { format!("{} trials", found.trials) },
        Seconds(found.trial_seconds),
        meter.words()
    );
    let (gain, after) = (found.gain.as_ref().map(work), found.taken_back_after_seconds.unwrap_or_default());
    match (found.state, gain) {
        (State::Kept, Some(gain)) => format!("Yes. {how}: with it, {gain}. So it was kept."),
        (State::TakenBack, Some(gain)) => format!(
            "No. {how}: with it, {gain}. So it was reverted {} after it was first wanted, and the threads \
             ran where the kernel put them.",
            Seconds(after)
        ),
        (State::Fell, _) => format!(
            "At first. {how}, and it was kept; later the program made less progress than without it, and it \
             was reverted."
        ),
        (State::Unclear, Some(gain)) => format!(
            "Unclear. {how}: with it, {gain}. It was reverted, as a placement is kept only if it is shown to \
             help."
        ),
        (State::NotJudged, _) | (State::Kept | State::TakenBack | State::Unclear, None) => format!(
            "Not measured: the run was too short. Progress would have been measured by {}.",
            meter.words()
        ),
    }
}

/// A gain in words, with what it is certain of.
fn work(gain: &Gain) -> String {
    let word = if gain.value < 0.0 { "less" } else { "more" };
    let figure = format!("{:.1} % {word} was done", 100.0 * gain.value.abs());
    match (gain.low, gain.high) {
        (Some(low), Some(high)) => {
            format!("{figure} (with 95 % certainty between {:+.1} and {:+.1} %)", 100.0 * low, 100.0 * high)
        }
        _ => figure,
    }
}

/// Which programs ran; empty if the threads below say as much.
fn ran(report: &Report) -> Vec<String> {
    let programs = programs::of(report);
    if programs.iter().all(|program| program.processes.len() == 1) {
        return Vec::new();
    }
    let line = |program: &Program<'_>| {
        let (label, count, seconds) =
            (program.label(), program.threads.len(), Seconds(program.cpu_seconds()));
        let threads = if count == 1 { "thread" } else { "threads" };
        format!("{label}: {count} {threads}, {seconds} of CPU time.")
    };
    programs.iter().take(PROGRAMS_MAX).map(line).collect()
}

/// Where a thread was, and why.
fn place(report: &Report, thread: &ThreadReport, labels: &Labels<'_>) -> Vec<String> {
    let label = labels.label(thread);
    let name = Name(&label);
    let mut lines =
        vec![format!("{name} {}, {} of CPU time", thread.tid, Seconds(thread.cpu_seconds)), where_(thread)];
    lines.push(why(report, thread));
    lines.extend(thread.fpu_usage.map(|usage| {
        let source = thread.fpu_usage_source.as_deref().unwrap_or("an unknown source");
        format!("It computes in floating point for {} of its time, by {}.", Share(usage), Name(source))
    }));
    let is_held = |decision: &Decision| decision.tid == thread.tid && decision.reason == BACK;
    lines.extend(report.decisions.iter().any(is_held).then(|| {
        "At times it was moved back to where it had run before, to compare times with and without the \
         placement."
            .to_owned()
    }));
    let spin = thread.spin_share.filter(|share| *share >= 0.01);
    lines.extend(spin.map(|share| format!("It spends {} of its time busy-waiting.", Share(share))));
    lines[1..].iter_mut().for_each(|line| line.insert_str(0, "  "));
    lines
}

fn where_(thread: &ThreadReport) -> String {
    let seconds = |ns: u64| Seconds(ns as f64 / 1e9);
    let span = |(from_ns, to_ns): (u64, u64)| to_ns.saturating_sub(from_ns);
    let mut bound: BTreeMap<String, u64> = BTreeMap::new();
    for binding in &thread.bindings {
        let time = bound.entry(pes(&binding.pes)).or_default();
        *time = time.saturating_add(span((binding.from_ns, binding.to_ns)));
    }
    let lived = match (thread.ran_on.first(), thread.ran_on.last()) {
        (Some(first), Some(last)) => seconds(span((first.from_ns, last.to_ns))).to_string(),
        _ => "an unknown time".to_owned(),
    };
    let mut bound: Vec<(String, u64)> = bound.into_iter().collect();
    bound.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let named: Vec<String> =
        bound.iter().take(NAMES_MAX).map(|(pes, time)| format!("to {pes} for {}", seconds(*time))).collect();
    if !named.is_empty() {
        let others = more(bound.len(), NAMES_MAX, "other places");
        return format!("It was watched for {lived}, and bound {}{others}.", named.join(", "));
    }
    let seen: CpuSet = thread.ran_on.iter().filter_map(|ran| ran.pe).collect();
    let on = if seen.is_empty() { String::new() } else { format!("; it was seen on {}", pes(&seen)) };
    format!("It was watched for {lived}, and never bound{on}.")
}

fn pes(pes: &CpuSet) -> String {
    if pes.len() == 1 { format!("PE {pes}") } else { format!("PEs {pes}") }
}

/// What would inherit the mask of a bound thread.
const PROGRAMS: &str = "programs, which would see only the PEs of a bound thread";

/// Why a thread was bound, or was not.
fn why(report: &Report, thread: &ThreadReport) -> String {
    match thread.standing {
        Standing::SelfPinned => return "It set its own PEs, so it is left alone.".to_owned(),
        Standing::UserPlaced => {
            return "Its user chose its PEs (by OMP_PLACES or the like), so it is left alone.".to_owned();
        }
        Standing::StartsPrograms if thread.bindings.is_empty() => {
            return format!("Its process starts {PROGRAMS}, so it is left alone.");
        }
        Standing::LeftAlone if thread.bindings.is_empty() => return "A rule leaves it alone.".to_owned(),
        Standing::NeedsAllPes if thread.bindings.is_empty() => {
            return "Its program asked for SCHED_DEADLINE, so it is left alone.".to_owned();
        }
        Standing::Free
        | Standing::Bound
        | Standing::Inherited
        | Standing::StartsPrograms
        | Standing::LeftAlone
        | Standing::NeedsAllPes => {}
    }
    let decisions = || report.decisions.iter().filter(|decision| decision.tid == thread.tid);
    let wanted = decisions().filter(|decision| decision.pes.is_some() && decision.reason != BACK);
    // The latest that was carried out, else the latest.
    let bind = wanted.max_by_key(|decision| is_done(decision));
    match bind {
        Some(decision) => {
            let reason = Name(&decision.reason);
            let after = decisions().rfind(|decision| decision.reason != OVER);
            let after = after.filter(|last| last.pes.is_none() && last.setting.is_none());
            let freed = after.map(|last| format!(" In the end it was free: {}.", Name(&last.reason)));
            let (what, refusal) = (what(report, decision), refusal(report, decision));
            format!("Why: it {what}: {reason}{refusal}.{}", freed.unwrap_or_default())
        }
        None if !thread.bindings.is_empty() && decisions().next().is_none() => {
            "The reason is not in the report, which contains only the latest decisions.".to_owned()
        }
        None => why_free(report, thread),
    }
}

fn is_done(decision: &Decision) -> bool {
    decision.outcome.as_deref() == Some("done")
}

/// What became of a decision that was not carried out.
fn refusal(report: &Report, decision: &Decision) -> String {
    match decision.outcome.as_deref() {
        Some("done") => String::new(),
        Some(outcome) => format!("; this failed: {}", Name(outcome)),
        None if report.dry_run => String::new(),
        None => "; the run ended before that".to_owned(),
    }
}

/// Why nothing was decided of a thread.
fn why_free(report: &Report, thread: &ThreadReport) -> String {
    if let Some(why) = &report.nothing_to_gain {
        return format!("It is left to the kernel: {}.", Name(why));
    }
    let spread = is_policy(report, &SPREAD);
    match thread.fpu_class {
        FpuClass::Light if spread => {
            "It is left to the kernel: it uses floating point too little to disturb others.".to_owned()
        }
        FpuClass::Unknown if spread => {
            "It is left to the kernel: too little is known about its usage for a decision.".to_owned()
        }
        FpuClass::Intensive | FpuClass::Light | FpuClass::Unknown => {
            "It is left to the kernel: the policy never asked to bind it.".to_owned()
        }
    }
}

/// What a decision was to change.
fn what(report: &Report, decision: &Decision) -> String {
    match (&decision.setting, &decision.pes) {
        (Some(setting), _) => Name(setting).to_string(),
        (None, Some(to)) if is_done(decision) => format!("was bound to {}", pes(to)),
        (None, Some(to)) if report.dry_run => format!("would have been bound to {}", pes(to)),
        (None, Some(to)) => format!("was to be bound to {}", pes(to)),
        (None, None) => "freed".to_owned(),
    }
}

/// What was decided of a thread, in the order of its first time, with how often.
fn history(report: &Report, tid: u32) -> Vec<String> {
    let mut times: BTreeMap<Event<'_>, (u64, u64, usize)> = BTreeMap::new();
    for decision in report.decisions.iter().filter(|decision| decision.tid == tid) {
        let event = (what(report, decision), decision.reason.as_str(), decision.outcome.as_deref());
        let (_, last, count) = times.entry(event).or_insert((decision.at_ns, 0, 0));
        (*last, *count) = (decision.at_ns, *count + 1);
    }
    let mut events: Vec<_> = times.into_iter().collect();
    events.sort_by_key(|(_, (first, ..))| *first);
    let lines = events.iter().take(EVENTS_MAX).map(|((what, reason, outcome), (first, last, count))| {
        let seconds = |ns: &u64| *ns as f64 / 1e9;
        let again = match count {
            1 => String::new(),
            _ => format!(" ({count} times until {:.3} s)", seconds(last)),
        };
        let outcome = outcome.filter(|outcome| *outcome != "done").map(|o| format!(" [{}]", Name(o)));
        format!("{:>9.3} s  {what}: {}{again}{}", seconds(first), Name(reason), outcome.unwrap_or_default())
    });
    let mut lines: Vec<String> = lines.collect();
    if events.is_empty() {
        lines.push("Nothing.".to_owned());
    }
    let others = [
        (events.len().saturating_sub(EVENTS_MAX) as u64, "more are in the report"),
        (report.decisions_left_out, "earlier decisions, about any thread, are not in the report"),
    ];
    lines
        .extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    lines
}

/// What was wanted and not done, and which threads were left alone.
fn not_done(report: &Report) -> Vec<String> {
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in report.decisions.iter().filter_map(|decision| decision.outcome.as_deref()) {
        *refused.entry(outcome).or_default() += usize::from(outcome != "done");
    }
    let all = report.decisions.len();
    let refused = refused.into_iter().filter(|(_, count)| *count > 0);
    let refused = refused.map(|(outcome, count)| format!("{count} of {all} changes: {}.", Name(outcome)));
    let labels = Labels::of(report);
    let named = |is_one: &dyn Fn(&ThreadReport) -> bool, why: &str| {
        let all: Vec<&ThreadReport> = report.threads.iter().filter(|thread| is_one(thread)).collect();
        let name = |thread: &&ThreadReport| format!("{} {}", Name(&labels.label(thread)), thread.tid);
        let first: Vec<String> = all.iter().take(NAMES_MAX).map(name).collect();
        let others = more(all.len(), NAMES_MAX, "others");
        (!all.is_empty()).then(|| format!("{why}: {}{others}.", first.join(", ")))
    };
    let pinned = "Left alone, as they set their own PEs";
    let placed = "Left alone, as their user chose their PEs";
    let starters = format!("Left alone, as their processes start {PROGRAMS}");
    let unknown = "Not judged, as too little is known about their usage";
    let is_judged_by_usage = is_policy(report, &SPREAD) && report.nothing_to_gain.is_none();
    let alone = [
        named(&|thread| thread.standing == Standing::SelfPinned, pinned),
        named(&|thread| thread.standing == Standing::UserPlaced, placed),
        named(&|thread| thread.standing == Standing::StartsPrograms, &starters),
        named(&|thread| is_judged_by_usage && thread.fpu_class == FpuClass::Unknown, unknown),
    ];
    refused.chain(alone.into_iter().flatten()).collect()
}

/// What went into busy-waiting, and what was done about it.
fn waits(report: &Report) -> Vec<String> {
    let waits = &report.waits;
    let spun = waits.spinning_cpu_seconds.filter(|seconds| *seconds >= 0.01);
    let spun = spun.map(|seconds| format!("{} of CPU time was spent busy-waiting.", Seconds(seconds)));
    let changes = [
        (waits.processes_with_short_waits, "Idle threads were made to sleep sooner"),
        (waits.processes_in_turns, "Programs took turns on the PEs"),
    ];
    let changes = changes.iter().filter(|(count, _)| *count > 0);
    let processes = |count: u64| if count == 1 { "process" } else { "processes" };
    let changes = changes.map(|&(count, what)| format!("{what}, in {count} {}.", processes(count)));
    let found = waits.guard.map(|found| format!("Whether that helped: {found}."));
    let team = waits.team_size.map(|size| {
        format!(
            "Thread teams had {size} threads at most, chosen before the start (OMP_NUM_THREADS); sums may be \
             rounded differently than with more."
        )
    });
    let pes = waits.team_pes.as_ref().map(|pes| {
        format!(
            "These threads had the PEs {pes} (OMP_PLACES): the program's loops have equal parts, and end \
             sooner without the slower PEs."
        )
    });
    let schedule = waits.schedule.as_ref().map(|how| {
        format!(
            "Loops with schedule(runtime) were divided by OMP_SCHEDULE={how}, so that slow PEs get smaller \
             parts; sums may be rounded differently."
        )
    });
    let start = [team, pes, schedule].into_iter().flatten();
    spun.into_iter().chain(changes).chain(found).chain(start).collect()
}

#[cfg(test)]
mod tests;
