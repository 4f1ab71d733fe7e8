//! A report as a table, in the form of Table I of the BulldOver paper.

use crate::profile::words::utc;
use crate::table::Table;
use crate::terminal::Name;
use corewise_core::report::{ApplicationReport, Report};

/// The maximum number of threads in the table; the others are in the JSON.
const THREADS_MAX: usize = 8;

/// Renders the rows: the whole program, then its busiest threads.
pub fn render(report: &Report) -> String {
    let mut table = Table::new("<>>>>>>>>");
    table.row(["program", "CPU s", "FPU usage", "vector unit", "L2/100", "IPC", "threads", "seq.", "class"]);
    report.applications.iter().for_each(|application| table.row(application_row(application)));
    for thread in report.threads.iter().take(THREADS_MAX) {
        table.row([
            format!("  {} {}", Name(&thread.name), thread.tid),
            format!("{:.2}", thread.cpu_seconds),
            number(thread.fpu_usage),
            number(thread.vector_usage),
            number(thread.l2_misses_per_100_cycles),
            number(thread.ipc),
        ]);
    }
    let evidence =
        report.applications.first().map_or("estimated", |application| &*application.parallelism_evidence);
    format!(
        "{table}FPU usage: share of cycles with floating-point work in flight, by {}; \
         L2/100: misses per 100 cycles;\n\
         threads: mean number at work, seq.: share of the time with one, {evidence} by {}.\n{}",
        report.sources.counters,
        report.sources.discovery,
        circumstances(report)
    )
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
