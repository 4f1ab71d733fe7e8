//! The report of a run as one HTML page, for people.
//!
//! Every text in it comes from outside (a program names its threads as it likes). A page stays readable and
//! small whatever the run: it draws the busiest threads and the first decisions and says how many it left
//! out; the JSON report holds them all.

mod lanes;
mod tables;
mod timeline;

#[cfg(test)]
mod tests;

use crate::page;
use crate::page::markup::{Known, Seconds, Share, Text};
use crate::profile::words::utc;
use crate::report::words::own_cost;
use corewise_core::classify::{IntensityClass, ParallelismClass};
use corewise_core::report::{ApplicationReport, Report};
use std::fmt::{Display, Formatter, Result};

/// The threads that are drawn and listed, busiest first.
const THREADS_SHOWN_MAX: usize = 60;

/// The decisions that are marked and listed, first ones first.
const DECISIONS_SHOWN_MAX: usize = 500;

/// The page.
pub fn render(report: &Report) -> String {
    page::document(&report.command.join(" "), include_str!("style.css"), Body(report))
}

struct Body<'a>(&'a Report);

impl Display for Body<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let report = self.0;
        header(f, report, &report.command.join(" "))?;
        for application in &report.applications {
            write!(f, "{}", Application(application))?;
        }
        write!(f, "{}{}", timeline::Timeline(report), lanes::Lanes(report))?;
        write!(f, "{}{}", tables::Threads(report), tables::Decisions(report))?;
        page::list(f, "Notes", &report.notes)
    }
}

fn header(f: &mut Formatter<'_>, report: &Report, command: &str) -> Result {
    writeln!(f, "<header>\n<p class=\"brand\">corewise run</p>\n<h1><code>{}</code></h1>", Text(command))?;
    let policy =
        if report.dry_run { format!("{} (dry run)", report.policy) } else { report.policy.to_owned() };
    let host = report.host.clone().unwrap_or_default();
    let facts: [(&str, &dyn Display); 11] = [
        ("Date", &Known(host.unix_time.map(utc))),
        ("Host", &known(&host.name)),
        ("Processor", &known(&host.processor)),
        ("Kernel", &known(&host.kernel)),
        ("Duration", &Seconds(report.wall_seconds)),
        ("Machine", &Text(&report.machine)),
        ("Evidence", &Text(report.evidence)),
        ("Policy", &Text(&policy)),
        ("Threads seen by", &Text(&report.sources.discovery)),
        ("Counters", &Text(&report.sources.counters)),
        ("corewise itself", &Text(&own_cost(report))),
    ];
    page::facts(f, &facts)?;
    if let Some(verdict) = &report.verdict {
        writeln!(f, "<p class=\"verdict\">{}</p>", Text(verdict))?;
    }
    writeln!(f, "</header>")
}

fn known(fact: &Option<String>) -> Known<Text<'_>> {
    Known(fact.as_deref().map(Text))
}

struct Application<'a>(&'a ApplicationReport);

impl Display for Application<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let app = self.0;
        let class = app.parallelism_class.map(|class| match class {
            ParallelismClass::SingleThreaded => "ST, single-threaded",
            ParallelismClass::PartiallySequential => "PS, partially sequential",
            ParallelismClass::HighlyParallel => "HP, highly parallel",
        });
        let intensity = app.intensity_class.map(|class| match class {
            IntensityClass::Compute => "CI, compute-intensive",
            IntensityClass::Memory => "MI, memory-intensive",
        });
        writeln!(f, "<section class=\"application\">\n<h2>Application {}</h2>", Text(&app.name))?;
        let facts: [(&str, &dyn Display); 8] = [
            ("TLP, mean", &format!("{:.2}", app.tlp_mean)),
            ("TLP, highest", &app.runnable_max),
            ("One thread runnable", &Known(app.sequential_fraction.map(Share))),
            ("Parallelism", &Known(class)),
            ("Intensity", &Known(intensity)),
            ("FPU usage", &Known(app.fpu_usage.map(Share))),
            ("L2 misses/100 cycles", &Known(app.l2_misses_per_100_cycles.map(|x| format!("{x:.2}")))),
            ("IPC", &Known(app.ipc.map(|x| format!("{x:.2}")))),
        ];
        page::facts(f, &facts)?;
        let evidence = Text(app.parallelism_evidence);
        writeln!(f, "<p class=\"quiet\">The figures of parallelism are {evidence}.</p>\n</section>")
    }
}
