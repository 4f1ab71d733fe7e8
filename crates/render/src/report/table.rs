//! A report as a table, in the form of Table I of the BulldOver paper.

use super::closing::watched_from;
use super::programs::{self, Labels};
use super::words::{counters, discovery};
use crate::profile::words::utc;
use crate::table::Table;
use crate::terminal::Name;
use corewise_core::report::{ApplicationReport, Report, ThreadReport, headline};

/// The maximum number of applications, and of rows below them; all threads are in the JSON.
const ROWS_MAX: usize = 8;

/// Renders what corewise did, and the [figures].
pub fn render(report: &Report) -> String {
    format!("{}\n\n{}", Name(&headline(report).to_string()), figures(report))
}

/// Renders the rows: the command and the busiest programs that are applications, then the busiest programs or
/// threads.
pub fn figures(report: &Report) -> String {
    let mut table = Table::new("<>>>>>>>>");
    table.row(["program", "CPU s", "FPU usage", "vector unit", "L2/100", "IPC", "threads", "seq.", "class"]);
    let applications = report.applications.iter().take(ROWS_MAX);
    applications.for_each(|application| table.row(application_row(application)));
    rows(report).into_iter().take(ROWS_MAX).for_each(|(_, row)| table.row(row));
    let first = report.applications.first();
    let evidence = first.map_or("estimated", |application| &*application.parallelism_evidence);
    let from = first.and_then(watched_from).map_or(String::new(), |from| format!(", {from}"));
    format!(
        "{table}FPU usage: share of cycles with floating-point work in flight, by {}; \
         L2/100: misses per 100 cycles;\n\
         threads: mean number at work, seq.: share of the time with one, {evidence} by {}{from}.\n{}",
        counters(&report.sources.counters),
        discovery(&report.sources.discovery),
        circumstances(report)
    )
}

/// Returns the rows below the whole, each with its CPU time, the largest first: one for each program of
/// several processes, and for each thread of the others.
fn rows(report: &Report) -> Vec<(f64, [String; 6])> {
    let labels = Labels::of(report);
    let mut rows = Vec::new();
    for program in programs::of(report) {
        if program.processes.len() > 1 {
            let seconds = program.cpu_seconds();
            rows.push((seconds, row(program.label(), seconds, |rate| program.mean(rate))));
            continue;
        }
        for thread in &program.threads {
            let label = format!("{} {}", Name(&labels.label(thread)), thread.tid);
            rows.push((thread.cpu_seconds, row(label, thread.cpu_seconds, |rate| rate(thread))));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows
}

/// Returns a row, given how to get a rate of what it is about.
fn row(
    label: String,
    cpu_seconds: f64,
    get: impl Fn(fn(&ThreadReport) -> Option<f64>) -> Option<f64>,
) -> [String; 6] {
    [
        format!("  {label}"),
        format!("{cpu_seconds:.2}"),
        number(get(|thread| thread.fpu_usage)),
        number(get(|thread| thread.vector_usage)),
        number(get(|thread| thread.l2_misses_per_100_cycles)),
        number(get(|thread| thread.ipc)),
    ]
}

/// Returns one line about where and when; empty if a recording lacks that.
fn circumstances(report: &Report) -> String {
    let Some(host) = &report.host else { return String::new() };
    let facts =
        [host.name.clone(), host.processor.clone(), host.kernel.clone().map(|k| format!("Linux {k}"))];
    let facts: Vec<String> = facts.into_iter().flatten().chain(host.unix_time.map(utc)).collect();
    format!("{}: {}.\n", report.evidence, facts.join(", "))
}

fn application_row(application: &ApplicationReport) -> [String; 9] {
    let parallel = application.parallelism_class.map_or("-".to_owned(), |class| json_name(&class));
    let intensity = application.intensity_class.map_or(String::new(), |class| json_name(&class));
    [
        Name(&application.name).to_string(),
        format!("{:.2}", application.cpu_seconds),
        number(application.fpu_usage),
        number(application.vector_usage),
        number(application.l2_misses_per_100_cycles),
        number(application.ipc),
        format!("{:.2}", application.tlp_mean),
        number(application.sequential_fraction),
        parallel + &intensity,
    ]
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

/// Returns the name of a class in the report's JSON.
fn json_name(class: &impl serde::Serialize) -> String {
    serde_json::to_value(class).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
