//! `corewise characterize`: what a program uses, as in Table I of the BulldOver paper.

use super::{FpuModules, SourceOptions};
use crate::session::{self, Ended, Plan};
use anyhow::Result;
use corewise_core::engine::EngineConfig;
use corewise_core::policy;
use corewise_core::report::{ApplicationReport, Report};
use corewise_linux::launch::Output;
use std::ffi::OsString;

/// Tell what a program uses: FPU, L2 misses, IPC, parallelism.
///
/// Prints the paper's Table I for the command on standard output; the command's own output goes to standard
/// error. Nothing is bound. A dash stands for what this machine has no counter for.
#[derive(Debug, clap::Args)]
pub struct Characterize {
    #[command(flatten)]
    sources: SourceOptions,
    #[command(flatten)]
    modules: FpuModules,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Characterize {
    /// Runs the command and prints its row; the exit status.
    pub fn execute(self) -> Result<u8> {
        let plan = Plan {
            command: self.command,
            topology: self.modules.live()?,
            policy: Box::new(policy::Default),
            config: EngineConfig::default(),
            counters: self.sources.counters,
            discovery: self.sources.discovery,
            act: false,
            output: Output::ToStandardError,
            record: None,
        };
        let Ended { report, exit_status, .. } = session::run(plan)?;
        for note in &report.notes {
            eprintln!("corewise: {note}");
        }
        let text = if self.json { serde_json::to_string_pretty(&report)? + "\n" } else { table(&report) };
        crate::output::print(&text)?;
        Ok(exit_status)
    }
}

/// The rows: the whole program, then its busiest threads.
fn table(report: &Report) -> String {
    const THREADS_MAX: usize = 8;
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
