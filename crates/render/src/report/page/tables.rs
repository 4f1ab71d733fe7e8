//! The tables of threads and of decisions, with the contents of the drawing in words and figures.

use super::super::programs::{self, Labels};
use super::super::words::of_parallelism;
use super::shown::{DECISIONS_SHOWN_MAX, PROGRAMS_SHOWN_MAX, THREADS_SHOWN_MAX};
use crate::page::words::{Seconds, Share};
use crate::page::{self, known, known_markup, remark, text};
use corewise_core::cpuset::CpuSet;
use corewise_core::observe::Standing;
use corewise_core::report::{Decision, Report, ThreadReport};
use maud::{Markup, html};

/// The columns of the table of threads, with explanations.
const THREAD_COLUMNS: [(&str, &str); 10] = [
    ("Thread", ""),
    ("tid", ""),
    ("CPU time", ""),
    ("FPU usage", "share of cycles with floating-point work in flight; the thin line is the confidence"),
    ("Vector", "share of cycles with vector arithmetic in flight, floating-point or integer"),
    ("Spinning", "share of user time spent busy-waiting"),
    ("IPC", "instructions per cycle"),
    ("L2 misses", "per 100 cycles"),
    ("Ran on PE", "where it was seen running"),
    ("Bound to PE", "by corewise, at one time or another"),
];

/// Returns the table of programs that are applications.
pub fn applications(report: &Report) -> Markup {
    let executed = report.applications.iter().filter(|app| app.executed_by.is_some());
    let count = executed.clone().count();
    if count == 0 {
        return Markup::default();
    }
    let rows = html! {
        @for app in executed.take(PROGRAMS_SHOWN_MAX) {
            tr {
                th scope="row" { bdi { (app.name) } }
                td { bdi { (app.executed_by.as_deref().unwrap_or_default()) } }
                td.figure { (Seconds(app.cpu_seconds)) }
                td.figure { (format!("{:.2}", app.tlp_mean)) }
                td.figure { (app.runnable_max) }
                td.figure { (known(app.sequential_fraction.map(Share))) }
                td { (known(app.parallelism_class.map(of_parallelism))) }
            }
        }
    };
    let columns = [
        "Application",
        "Executed by",
        "CPU time",
        "Threads at work, mean",
        "Threads at work, highest",
        "Only one at work",
        "Parallelism",
    ];
    let table = html! {
        (page::table(&columns, &rows))
        (left_out(count, PROGRAMS_SHOWN_MAX, "applications, the busiest"))
    };
    page::section("Programs that are applications of their own", &table)
}

/// Returns the table of programs.
pub fn programs(report: &Report) -> Markup {
    let programs = programs::of(report);
    if programs.is_empty() {
        return Markup::default();
    }
    let rows = html! {
        @for program in programs.iter().take(PROGRAMS_SHOWN_MAX) {
            tr {
                th scope="row" { bdi { (program.name) } }
                td.figure { (program.processes.len()) }
                td.figure { (program.threads.len()) }
                td.figure { (Seconds(program.cpu_seconds())) }
                td.figure { (known(program.mean(|thread| thread.fpu_usage).map(Share))) }
                td.figure { (known(program.mean(|thread| thread.spin_share).map(Share))) }
            }
        }
    };
    let columns = ["Program", "Processes", "Threads", "CPU time", "FPU usage", "Spinning"];
    let table = html! {
        (page::table(&columns, &rows))
        (left_out(programs.len(), PROGRAMS_SHOWN_MAX, "programs, the busiest"))
    };
    page::section("Programs", &table)
}

/// Returns the table of threads.
pub fn threads(report: &Report) -> Markup {
    let (threads, labels) = (&report.threads, Labels::of(report));
    let rows = html! {
        @for thread in threads.iter().take(THREADS_SHOWN_MAX) { (thread_row(thread, &labels.label(thread))) }
    };
    html! {
        section {
            h2 #threads { "Threads" }
            (page::table_explained(&THREAD_COLUMNS, &rows))
            (left_out(threads.len(), THREADS_SHOWN_MAX, "threads, the busiest"))
            @if let Some(source) = threads.iter().find_map(|thread| thread.fpu_usage_source.as_deref()) {
                (remark(format_args!("Source of the FPU usage: {source}.")))
            }
        }
    }
}

fn thread_row(thread: &ThreadReport, label: &str) -> Markup {
    let two = |value: Option<f64>| known(value.map(|x| format!("{x:.2}")));
    let usage = thread.fpu_usage.map(|usage| meter(usage, thread.fpu_usage_confidence));
    let seen: CpuSet = thread.ran_on.iter().filter_map(|ran| ran.pe).collect();
    html! {
        tr {
            th scope="row" { bdi { (label) } }
            td.figure.quiet { (thread.tid) }
            td.figure { (Seconds(thread.cpu_seconds)) }
            td { (known_markup(usage)) }
            td.figure { (known(thread.vector_usage.map(Share))) }
            td.figure { (known(thread.spin_share.map(Share))) }
            td.figure { (two(thread.ipc)) }
            td.figure { (two(thread.l2_misses_per_100_cycles)) }
            td { (known((!seen.is_empty()).then_some(seen))) }
            td { (bound_to(thread)) }
        }
    }
}

/// Returns a bar for the value, with a thin one below for its confidence.
fn meter(usage: f64, confidence: Option<f64>) -> Markup {
    let percent = |share: f64| (share * 100.0).clamp(0.0, 100.0).round();
    let trust = confidence.map_or("not known".to_owned(), |confidence| Share(confidence).to_string());
    html! {
        span.meter title={ "confidence " (trust) } {
            span.value { (Share(usage)) }
            span.bar style={ "width:" (percent(usage)) "%" } {}
            span.trust style={ "width:" (percent(confidence.unwrap_or(0.0))) "%" } {}
        }
    }
}

/// Returns the PEs that a thread was bound to, or why corewise left it alone.
fn bound_to(thread: &ThreadReport) -> String {
    let bound = thread.bindings.iter().fold(CpuSet::new(), |all, binding| all.union(&binding.pes));
    match thread.standing {
        Standing::SelfPinned => "it pinned itself".to_owned(),
        Standing::UserPlaced => "its user placed it".to_owned(),
        Standing::StartsPrograms if bound.is_empty() => "its process starts programs".to_owned(),
        Standing::LeftAlone if bound.is_empty() => "a rule leaves it alone".to_owned(),
        Standing::NeedsAllPes if bound.is_empty() => "it asked for SCHED_DEADLINE".to_owned(),
        Standing::Free | Standing::Bound | Standing::Inherited if bound.is_empty() => "free".to_owned(),
        Standing::Free
        | Standing::Bound
        | Standing::Inherited
        | Standing::StartsPrograms
        | Standing::LeftAlone
        | Standing::NeedsAllPes => bound.to_string(),
    }
}

/// Returns the table of decisions.
pub fn decisions(report: &Report) -> Markup {
    let decisions = &report.decisions;
    if decisions.is_empty() {
        return page::section("Decisions", &remark("None: every thread ran where the kernel put it."));
    }
    let labels = Labels::of(report);
    let thread = |tid| report.threads.iter().find(|thread| thread.tid == tid);
    let name_of = |tid| thread(tid).map(|thread| labels.label(thread));
    let rows = html! {
        @for (index, decision) in decisions.iter().take(DECISIONS_SHOWN_MAX).enumerate() {
            (decision_row(index, decision, &name_of(decision.tid).unwrap_or_default()))
        }
    };
    let table = html! {
        div.decisions { (page::table(&["When", "Thread", "PE", "Why", "Outcome"], &rows)) }
        (left_out(decisions.len(), DECISIONS_SHOWN_MAX, "decisions, the first"))
    };
    page::section("Decisions", &table)
}

fn decision_row(index: usize, decision: &Decision, name: &str) -> Markup {
    let what = match (&decision.setting, &decision.pes) {
        (Some(setting), _) => text(setting),
        (None, Some(pes)) => text(pes),
        (None, None) => html! { span.quiet { "freed" } },
    };
    html! {
        tr id={ "decision-" (index) } {
            td.figure { (Seconds(decision.at_ns as f64 / 1e9)) }
            th scope="row" { bdi { (name) } " " span.quiet { (decision.tid) } }
            td { (what) }
            td { (decision.reason) }
            td { (known(decision.outcome.as_deref())) }
        }
    }
}

/// Says how many of how many are shown, if not all are.
fn left_out(all: usize, shown: usize, what: &str) -> Markup {
    match all.saturating_sub(shown) {
        0 => Markup::default(),
        rest => remark(format_args!("{shown} of {all} {what}. {rest} more are in the JSON report.")),
    }
}
