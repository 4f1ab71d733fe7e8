//! The pages of text: what the marks mean, and everything that is known of one thread or program.
//!
//! Headings begin at the margin, text is indented.

use super::about::About;
use super::rows::position;
use super::screen::{Focus, Screen};
use super::tables::{parallelism, thread_name};
use crate::page::words::Share;
use crate::report::words::{counters, discovery};
use crate::terminal::Name;
use corewise_core::classify::{CONFIDENCE_MIN, FpuClass};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::Standing;
use corewise_core::plan::{Change, OutcomeKind};
use corewise_core::policy::{DEFAULT, PolicyKind};
use corewise_core::time::Time;
use corewise_core::top::{ApplicationState, Decided, ThreadState, Top};
use corewise_core::topology::DomainKind;
use corewise_core::view::{Estimate, Source};

const HELP: &str = "What this is
  corewise top shows which threads run where, what they use, and why they are there. It only watches: it \
changes nothing. A PE (processing element) is what Linux calls a CPU.
What the columns mean
  CPU%: how much of one PE a thread or program took. 100 is a whole PE.
  FPU%: in how many cycles floating-point work was in flight. Threads that use it much (FPU USE) disturb \
each other where cores share a floating-point unit; those that use it little do not.
  SPIN%: how much of its time a thread only checked whether its wait is over.
  IPC: instructions per cycle. L2: misses of the second-level cache per 100 cycles.
  RUNNABLE: how many threads of a program ran or waited for a PE, on average.
  PARALLEL: no (ST): hardly ever two threads at once; partly (PS): often one alone; yes (HP): nearly \
always several.
  LIMIT: compute or memory, whichever limits a program.
  PLACED, WHY: the PEs that corewise chose, or free. With --policy it shows what that policy would do.
Keys
  Up, Down, PgUp, PgDn, Home, End choose a row; Enter explains it; Tab goes from threads to programs and back.
  s sorts by the next column (CPU, FPU, SPIN, PE, NAME), S by the one before.
  / shows only names with what you type; Esc shows all again.
  Space pauses the display; the programs run on. In a replay + and - change the speed.
  q, or Ctrl-C, ends. Ctrl-Z stops, fg continues.";

/// Returns the help, with what is not known here.
pub fn help(top: &Top, about: &About) -> Vec<String> {
    let mut lines: Vec<String> = HELP.lines().map(str::to_owned).collect();
    lines.push("Here".to_owned());
    let sources = &about.sources;
    lines.push(format!(
        "  Threads are found by {}; what they use is known by {}.",
        Name(discovery(&sources.discovery)),
        Name(&counters(&sources.counters))
    ));
    lines.extend(policy(top));
    lines.extend(about.notes.iter().map(|note| format!("  Note: {}", Name(note))));
    lines
}

/// Returns everything that is known of the chosen row.
pub fn of_selected(top: &Top, screen: &Screen, about: &About) -> Vec<String> {
    let lines = match screen.focus {
        Focus::Threads => {
            let rows = screen.thread_rows(top);
            rows.get(position(&rows, screen.thread)).and_then(|id| of_thread(top, *id, about))
        }
        Focus::Applications => {
            let rows = screen.app_rows(top);
            rows.get(position(&rows, screen.app)).and_then(|id| of_application(top, *id, about))
        }
    };
    lines.unwrap_or_else(|| vec!["Nothing is chosen: it has ended, or no name matches.".to_owned()])
}

fn of_thread(top: &Top, id: ThreadId, about: &About) -> Option<Vec<String>> {
    let thread = top.threads.get(&id)?;
    let app = top.applications.get(&thread.app);
    let of = app.map_or(String::new(), |app| format!(", program {}", Name(&app.name)));
    let mut lines =
        vec![format!("Thread {} ({}) of process {}{of}", id.tid, thread_name(top, thread), thread.pid)];
    lines.push("Where it runs".to_owned());
    lines.push(where_it_runs(top, thread));
    // Seen from beside, what the daemon has set looks like what its user permits.
    if top.bound_by_daemon(id).is_none() {
        lines.push(format!("  Its user permits PEs {}.", thread.permitted));
    }
    lines.push("What it uses".to_owned());
    lines.extend(uses(thread));
    let history = about.look.history(&thread.history, 1.0, 60);
    lines.push(format!("  CPU over time: {}", history.trim_start()));
    lines.push("Where corewise has it, and why".to_owned());
    lines.extend(why(top, id, thread));
    lines.extend(thread.decisions.iter().map(decided));
    lines.push("The policy".to_owned());
    lines.extend(policy(top));
    if let Some(app) = app {
        lines.push(format!("Its program {}", Name(&app.name)));
        lines.extend(does(app, about));
    }
    Some(lines)
}

fn of_application(top: &Top, id: AppId, about: &About) -> Option<Vec<String>> {
    let app = top.applications.get(&id)?;
    let mut lines = vec![format!("Program {}", Name(&app.name))];
    lines.extend(app.executed_by.iter().map(|by| format!("  It was started by {}.", Name(by))));
    lines.extend(app.allowed.iter().map(|pes| format!("  It may use PEs {pes}.")));
    lines.push("What it does".to_owned());
    lines.extend(does(app, about));
    let history = about.look.history(&app.history, app.history.max().max(1.0), 60);
    lines.push(format!("  Runnable threads over time: {}", history.trim_start()));
    lines.push("The policy".to_owned());
    lines.extend(policy(top));
    lines.push("Its threads".to_owned());
    let mut threads: Vec<_> = top.threads.iter().filter(|(_, thread)| thread.app == id).collect();
    threads.sort_by(|a, b| b.1.cpu.total_cmp(&a.1.cpu));
    lines.extend(threads.into_iter().map(|(id, thread)| {
        let pe = thread.pe.map_or(String::new(), |pe| format!(" on PE {pe}"));
        format!("  {} {}: {} of a PE{pe}", id.tid, thread_name(top, thread), Share(thread.cpu))
    }));
    Some(lines)
}

fn does(app: &ApplicationState, about: &About) -> Vec<String> {
    let estimated = if app.is_exact { "" } else { " (estimated)" };
    let (processes, threads, tlp) = (app.processes, app.threads, app.tlp);
    let mut lines = vec![format!(
        "  {} in {}; {tlp:.1} of them runnable on average{estimated}; parallel: {}.",
        plural(threads as usize, "thread", "threads"),
        plural(processes as usize, "process", "processes"),
        parallelism(app.class, &about.look)
    )];
    let sequential =
        app.sequential.map(|share| format!("  For {} of its time one thread ran alone.", Share(share)));
    lines.extend(sequential);
    let fpu = app.fpu.map(|fpu| format!("  FPU usage of its threads: {}.", Share(fpu)));
    lines.extend(fpu);
    lines
}

/// A number of things, in words.
pub fn plural(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

fn where_it_runs(top: &Top, thread: &ThreadState) -> String {
    let Some(pe) = thread.pe else { return "  It was not seen on any PE yet.".to_owned() };
    let state = if thread.is_runnable { "runs or waits for a PE" } else { "waits for something else" };
    format!("  It {state}; last on PE {pe}{}.", shares(top, pe))
}

/// With which PEs a PE shares what.
fn shares(top: &Top, pe: PeId) -> String {
    let Some(machine) = &top.topology else { return String::new() };
    let kind = machine.kinds.iter().find(|kind| machine.kinds.len() > 1 && kind.pes.contains(pe));
    let kind = kind.map(|kind| format!(" ({})", kind.name)).unwrap_or_default();
    let mut sets: Vec<(DomainKind, &CpuSet)> = Vec::new();
    for domain in machine.domains.iter().filter(|domain| domain.pes.len() > 1 && domain.pes.contains(pe)) {
        if !sets.iter().any(|(_, pes)| **pes == domain.pes) {
            sets.push((domain.kind, &domain.pes));
        }
    }
    let shared: Vec<String> = sets
        .into_iter()
        .map(|(kind, pes)| {
            let mut others = pes.clone();
            others.remove(pe);
            let pes = if others.len() == 1 { "PE" } else { "PEs" };
            format!("its {} with {pes} {others}", resource(kind))
        })
        .collect();
    if shared.is_empty() { kind } else { format!("{kind}, which shares {}", shared.join(", ")) }
}

fn resource(kind: DomainKind) -> &'static str {
    match kind {
        DomainKind::Core => "core",
        DomainKind::L1 => "L1 cache",
        DomainKind::Module => "floating-point unit",
        DomainKind::L2 => "L2 cache",
        DomainKind::Cluster => "cluster",
        DomainKind::L3 => "L3 cache",
        DomainKind::Die => "die",
        DomainKind::NumaNode => "memory",
        DomainKind::Package => "package",
    }
}

fn uses(thread: &ThreadState) -> Vec<String> {
    let usage = &thread.usage;
    let share = |of: &str, estimate: Option<Estimate>| match estimate {
        Some(estimate) => format!("  {of}: {}{}.", Share(estimate.value), evidence(&estimate)),
        None => format!("  {of}: unknown: no source has reported it yet."),
    };
    let number = |of: &str, estimate: Option<Estimate>| match estimate {
        Some(estimate) => format!("  {of}: {:.2}{}.", estimate.value, evidence(&estimate)),
        None => format!("  {of}: unknown: it takes hardware counters."),
    };
    let class = match thread.class {
        FpuClass::Intensive => "  By that it counts as FPU-intensive.",
        FpuClass::Light => "  By that it does not count as FPU-intensive.",
        FpuClass::Unknown => "  That is too little to judge it by.",
    };
    vec![
        format!("  CPU: {} of a PE since the last look.", Share(thread.cpu)),
        share("Floating-point unit", usage.fpu),
        class.to_owned(),
        share("Busy waiting", usage.spin),
        number("Instructions per cycle", usage.ipc),
        number("L2 misses per 100 cycles", usage.l2_misses_per_100_cycles),
    ]
}

fn evidence(estimate: &Estimate) -> String {
    let source = match estimate.source {
        Source::Counters => "counted",
        Source::Samples => "estimated from clock samples",
    };
    let weak = if estimate.confidence < CONFIDENCE_MIN { ", too weak for a decision" } else { "" };
    format!(" ({source}, confidence {:.2}{weak})", estimate.confidence)
}

/// Why a thread is where it is.
fn why(top: &Top, id: ThreadId, thread: &ThreadState) -> Vec<String> {
    if let Some(bound) = top.bound_by_daemon(id) {
        return vec![format!("  The daemon has bound it to {}: {}.", bound.pes, Name(&bound.reason))];
    }
    let settings = thread.settings.iter();
    let settings = settings.map(|(setting, reason)| format!("  {setting}: {}.", Name(reason)));
    let place = match (&thread.assignment, thread.standing) {
        (_, Standing::SelfPinned | Standing::UserPlaced)
        | (None, Standing::StartsPrograms | Standing::LeftAlone | Standing::NeedsAllPes) => {
            format!("  It is left alone: {}.", Name(thread.why_not_placed().unwrap_or_default()))
        }
        (Some(assignment), Standing::Bound) => {
            format!("  It is bound to {}: {}.", assignment.pes, Name(&assignment.reason))
        }
        (Some(assignment), _) => {
            format!("  The policy would bind it to {}: {}.", assignment.pes, Name(&assignment.reason))
        }
        (None, _) if top.policy.name == DEFAULT.name => {
            "  Nowhere in particular: the policy `default` leaves every thread to Linux. Try --policy spread."
                .to_owned()
        }
        (None, _) => "  Nowhere in particular: the policy does not bind it.".to_owned(),
    };
    std::iter::once(place).chain(settings).collect()
}

fn decided(decided: &Decided) -> String {
    let what = match &decided.change {
        Change::Bind(pes) => format!("bind to {pes}"),
        Change::Move(pes) => format!("move to {pes}, and let it keep its mask"),
        Change::Free => "free".to_owned(),
        Change::Set(setting) => setting.to_string(),
        Change::Reset(kind) => format!("{kind}: as before"),
    };
    let outcome = match &decided.outcome {
        None => "not carried out".to_owned(),
        Some(OutcomeKind::Done) => "done".to_owned(),
        Some(OutcomeKind::Gone) => "the thread had ended".to_owned(),
        Some(OutcomeKind::NotOurs) => "left alone: somebody else has changed it since".to_owned(),
        Some(OutcomeKind::GivenBack) => "given back: corewise was stopped".to_owned(),
        Some(OutcomeKind::Refused(answer)) => format!("refused: {}", Name(answer)),
        Some(OutcomeKind::Unsupported) => "not supported here".to_owned(),
    };
    let Time(at) = decided.at;
    format!("  At {:.1} s: {what}: {} ({outcome}).", at as f64 / 1e9, Name(&decided.reason))
}

/// What the policy does here, and what it has gained.
fn policy(top: &Top) -> Vec<String> {
    if let Some(daemon) = &top.daemon {
        let policy = format!("  A daemon runs. Its policy is {}.", Name(&daemon.policy));
        let found = daemon.findings.iter().map(|found| format!("  Measured: {}.", Name(found)));
        return std::iter::once(policy).chain(found).collect();
    }
    let policy = &top.policy;
    let kind = PolicyKind::find(policy.name.split(':').next().unwrap_or_default()).ok();
    let rule = kind.map_or(String::new(), |kind| format!(": {}", kind.rule));
    let mut lines = vec![format!("  The policy is {}{rule}.", Name(&policy.name))];
    lines
        .extend(policy.nothing_to_gain.iter().map(|why| format!("  It has nothing to gain: {}.", Name(why))));
    lines.extend(policy.failure.iter().map(|why| format!("  It has failed: {}.", Name(why))));
    if policy.findings.is_empty() {
        lines.push("  What it gains is not measured here.".to_owned());
    }
    lines.extend(policy.findings.iter().map(|found| format!("  Measured: {}.", Name(found))));
    lines
}
