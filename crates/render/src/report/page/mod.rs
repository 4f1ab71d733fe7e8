//! The report of a run as one HTML page.
//!
//! All its texts are untrusted (a program names its threads as it likes). A page stays readable and small
//! whatever the run: it draws the busiest threads and the first decisions and says how many it left out; the
//! JSON report contains them all.

mod brackets;
mod columns;
mod lanes;
mod parallelism;
mod shown;
mod tables;
mod timeline;

#[cfg(test)]
mod tests;

use super::closing::watched_from;
use super::words::{counters, discovery, of_parallelism, own_cost};
use crate::page::words::{Seconds, Share};
use crate::page::{self, known, text};
use crate::profile::words::utc;
use corewise_core::classify::IntensityClass;
use corewise_core::report::{ApplicationReport, Report, headline};
use maud::{Markup, html};

/// Renders the page.
pub fn render(report: &Report) -> String {
    page::document(&report.command.join(" "), include_str!("style.css"), &body(report))
}

fn body(report: &Report) -> Markup {
    html! {
        (header(report))
        @for app in in_full(report) { (application(app)) }
        (tables::applications(report))
        (tables::programs(report))
        (timeline::section(report))
        (lanes::section(report))
        (tables::threads(report))
        (tables::decisions(report))
        (page::list("Notes", &report.notes))
    }
}

/// Returns the applications that have a section of their own, the busiest first: what the user has named,
/// which is often a shell or a launcher, and the busiest of all.
fn in_full(report: &Report) -> Vec<&ApplicationReport> {
    let by_time = |a: &&ApplicationReport, b: &&ApplicationReport| a.cpu_seconds.total_cmp(&b.cpu_seconds);
    let busiest = report.applications.iter().max_by(by_time);
    let is_busiest = |app: &ApplicationReport| busiest.is_some_and(|busiest| std::ptr::eq(busiest, app));
    let named = report.applications.iter().filter(|app| app.executed_by.is_none() || is_busiest(app));
    let mut shown: Vec<&ApplicationReport> = named.collect();
    shown.sort_by(|a, b| by_time(b, a));
    shown
}

fn header(report: &Report) -> Markup {
    let policy =
        if report.dry_run { format!("{} (dry run)", report.policy) } else { report.policy.to_owned() };
    let host = report.host.clone().unwrap_or_default();
    let facts = [
        ("Date", known(host.unix_time.map(utc))),
        ("Host", known(host.name)),
        ("Processor", known(host.processor)),
        ("Kernel", known(host.kernel)),
        ("Duration", text(Seconds(report.wall_seconds))),
        ("Machine", text(&report.machine)),
        ("Evidence", text(&report.evidence)),
        ("Policy", text(policy)),
        ("Threads found by", text(discovery(&report.sources.discovery))),
        ("What they use, by", text(counters(&report.sources.counters))),
        ("corewise itself", text(own_cost(report))),
    ];
    let command = html! { code { (report.command.join(" ")) } };
    let headline_and_more = html! {
        p.headline { (headline(report).to_string()) }
        @if let Some(why) = &report.nothing_to_gain {
            (page::remark(format_args!("{}: nothing bound, {why}", report.policy)))
        }
    };
    page::header("run", &command, &facts, &headline_and_more)
}

fn application(app: &ApplicationReport) -> Markup {
    let class = app.parallelism_class.map(of_parallelism);
    let intensity = app.intensity_class.map(|class| match class {
        IntensityClass::Compute => "CI, compute-intensive",
        IntensityClass::Memory => "MI, memory-intensive",
    });
    let two = |value: Option<f64>| known(value.map(|x| format!("{x:.2}")));
    let facts = [
        ("CPU time", text(Seconds(app.cpu_seconds))),
        ("PEs busy, mean", two(app.busy_pes_mean)),
        ("Threads at work, mean", text(format_args!("{:.2}", app.tlp_mean))),
        ("Threads at work, highest", text(app.runnable_max)),
        ("Only one at work", known(app.sequential_fraction.map(Share))),
        ("Parallelism", known(class)),
        ("Intensity", known(intensity)),
        ("FPU usage", known(app.fpu_usage.map(Share))),
        ("L2 misses/100 cycles", two(app.l2_misses_per_100_cycles)),
        ("IPC", two(app.ipc)),
    ];
    let from =
        watched_from(app).map_or(String::new(), |from| format!(", {from}; CPU time is from the start"));
    html! {
        section.application {
            h2 { "Application " (app.name) }
            (page::facts(&facts))
            (page::remark(format_args!("The figures of parallelism are {}{from}.", app.parallelism_evidence)))
        }
    }
}
