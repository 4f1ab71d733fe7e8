//! The report of a run as one HTML page, for people.
//!
//! The page is a single file: style and drawing are in it, there is no script, and its content security
//! policy forbids it every request, so it can be mailed, archived and opened anywhere. Every text in it comes
//! from outside (a program names its threads as it likes) and is written through [`markup::Text`] only. A
//! page stays readable and small whatever the run: it draws the busiest threads and the first decisions and
//! says how many it left out; the JSON report holds them all.

mod markup;
mod tables;
mod timeline;

#[cfg(test)]
mod tests;

use corewise_core::classify::{IntensityClass, ParallelismClass};
use corewise_core::report::{ApplicationReport, Report};
use markup::{Known, Seconds, Share, Text};
use std::fmt::{Display, Formatter, Result};

/// The threads that are drawn and listed, busiest first.
const THREADS_SHOWN_MAX: usize = 60;

/// The decisions that are marked and listed, first ones first.
const DECISIONS_SHOWN_MAX: usize = 500;

/// The page.
pub fn render(report: &Report) -> String {
    Page(report).to_string()
}

struct Page<'a>(&'a Report);

impl Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let report = self.0;
        let command = report.command.join(" ");
        write!(
            f,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>corewise: {command}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n",
            command = Text(&command),
            style = include_str!("report_page/style.css"),
        )?;
        header(f, report, &command)?;
        for application in &report.applications {
            write!(f, "{}", Application(application))?;
        }
        write!(f, "{}", timeline::Timeline(report))?;
        write!(f, "{}{}", tables::Threads(report), tables::Decisions(report))?;
        notes(f, &report.notes)?;
        writeln!(f, "</main>\n</body>\n</html>")
    }
}

fn header(f: &mut Formatter<'_>, report: &Report, command: &str) -> Result {
    writeln!(
        f,
        "<header>\n<p class=\"brand\">corewise run</p>\n<h1><code>{}</code></h1>\n<dl>",
        Text(command)
    )?;
    let overhead = report.overhead;
    let policy =
        if report.dry_run { format!("{} (dry run)", report.policy) } else { report.policy.to_owned() };
    let own =
        format!("{} CPU, {} of one PE", Seconds(overhead.cpu_seconds), Share(overhead.fraction_of_wall));
    let facts: [(&str, &dyn Display); 7] = [
        ("Duration", &Seconds(report.wall_seconds)),
        ("Machine", &Text(&report.machine)),
        ("Evidence", &Text(report.evidence)),
        ("Policy", &Text(&policy)),
        ("Threads seen by", &Text(&report.sources.discovery)),
        ("Counters", &Text(&report.sources.counters)),
        ("corewise itself", &Text(&own)),
    ];
    for (name, value) in facts {
        writeln!(f, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
    }
    writeln!(f, "</dl>")?;
    if let Some(verdict) = &report.verdict {
        writeln!(f, "<p class=\"verdict\">{}</p>", Text(verdict))?;
    }
    writeln!(f, "</header>")
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
        writeln!(f, "<section class=\"application\">\n<h2>Application {}</h2>\n<dl>", Text(&app.name))?;
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
        for (name, value) in facts {
            writeln!(f, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
        }
        let evidence = Text(app.parallelism_evidence);
        writeln!(f, "</dl>\n<p class=\"quiet\">The figures of parallelism are {evidence}.</p>\n</section>")
    }
}

fn notes(f: &mut Formatter<'_>, notes: &[String]) -> Result {
    if notes.is_empty() {
        return Ok(());
    }
    writeln!(f, "<section>\n<h2>Notes</h2>\n<ul>")?;
    for note in notes {
        writeln!(f, "<li>{}</li>", Text(note))?;
    }
    writeln!(f, "</ul>\n</section>")
}
