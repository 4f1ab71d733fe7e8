//! The line that `corewise run` says at the end.

use super::words::own_cost;
use crate::terminal::Name;
use corewise_core::report::{ApplicationReport, Headline, Report, headline};
use std::time::Duration;

/// Returns the line about a run: what corewise did, then the figures.
pub fn of_run(report: &Report) -> String {
    let wall = format!("{:.2} s", report.wall_seconds);
    let of = |application: &ApplicationReport| figures(report, application);
    let figures = match &report.applications[..] {
        [] => wall,
        [one] => format!("{wall}{}", of(one)),
        many => {
            let named = |one: &ApplicationReport| format!("; {}{}", Name(&one.name), of(one));
            format!("{wall}{}", many.iter().map(named).collect::<String>())
        }
    };
    format!("{}. {figures}; own cost {}", Name(&headline(report).did), own_cost(report))
}

fn figures(report: &Report, application: &ApplicationReport) -> String {
    let busy = application.busy_pes_mean.map(|busy| format!(", {}", busy_cpus(busy)));
    let usage = |usage| format!(", FPU usage {usage:.2} ({})", report.sources.counters);
    let fpu = application.fpu_usage.map(usage);
    let from = watched_from(application).map(|from| format!(", watched {from}"));
    [busy, fpu, from].into_iter().flatten().collect()
}

fn busy_cpus(mean: f64) -> String {
    format!("{mean:.2} CPUs busy on average")
}

/// Returns from when on an application was watched, in words; `None` if that was from its start.
pub fn watched_from(application: &ApplicationReport) -> Option<String> {
    // Getting ready takes less time than is shown.
    let from = format!("{:.1}", application.from_seconds);
    (from != "0.0").then(|| format!("from {from} s on"))
}

/// Returns the line about a command that was not watched.
pub fn of_unwatched(headline: &Headline, wall: Duration, cpu: Option<Duration>) -> String {
    let wall = wall.as_secs_f64();
    let busy = cpu.filter(|_| wall > 0.0).map(|cpu| format!(", {}", busy_cpus(cpu.as_secs_f64() / wall)));
    format!("{}. {wall:.2} s{}", Name(&headline.did), busy.unwrap_or_default())
}

#[cfg(test)]
mod tests;
