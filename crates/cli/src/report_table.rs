//! A report as a table, in the form of Table I of the BulldOver paper.

use corewise_core::report::{ApplicationReport, Report};

/// Threads in the table; the others are in the JSON.
const THREADS_MAX: usize = 8;

/// The rows: the whole program, then its busiest threads.
pub fn render(report: &Report) -> String {
    let mut text = format!(
        "{:<20} {:>8} {:>9} {:>11} {:>6} {:>6} {:>8} {:>6} {:>6}\n",
        "program", "CPU s", "FPU usage", "vector unit", "L2/100", "IPC", "threads", "seq.", "class"
    );
    for application in &report.applications {
        text += &application_row(application, report);
    }
    for thread in report.threads.iter().take(THREADS_MAX) {
        let name = format!("  {} {}", thread.name, thread.tid);
        text += &format!(
            "{:<20} {:>8.2} {:>9} {:>11} {:>6} {:>6}\n",
            name,
            thread.cpu_seconds,
            number(thread.fpu_usage),
            number(thread.vector_usage),
            number(thread.l2_misses_per_100_cycles),
            number(thread.ipc)
        );
    }
    let evidence =
        report.applications.first().map_or("estimated", |application| application.parallelism_evidence);
    text + &format!(
        "FPU usage: share of cycles with floating-point work in flight, by {}; \
         L2/100: misses per 100 cycles;\n\
         threads: mean number at work, seq.: share of the time with one, {evidence} by {}.\n",
        report.sources.counters, report.sources.discovery
    )
}

fn application_row(application: &ApplicationReport, report: &Report) -> String {
    let cpu: f64 = report.threads.iter().map(|thread| thread.cpu_seconds).sum();
    let vector: f64 = report.threads.iter().filter_map(|t| Some(t.vector_usage? * t.cpu_seconds)).sum();
    let judged: f64 = report.threads.iter().filter(|t| t.vector_usage.is_some()).map(|t| t.cpu_seconds).sum();
    let parallel = application.parallelism_class.map_or("-".to_owned(), |class| json_name(&class));
    let intensity = application.intensity_class.map_or(String::new(), |class| json_name(&class));
    format!(
        "{:<20} {:>8.2} {:>9} {:>11} {:>6} {:>6} {:>8.2} {:>6} {:>6}\n",
        application.name,
        cpu,
        number(application.fpu_usage),
        number((judged > 0.0).then(|| vector / judged)),
        number(application.l2_misses_per_100_cycles),
        number(application.ipc),
        application.tlp_mean,
        number(application.sequential_fraction),
        parallel + &intensity
    )
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

/// The name that a class has in the report.
fn json_name(class: &impl serde::Serialize) -> String {
    serde_json::to_value(class).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
