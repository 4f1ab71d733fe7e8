//! The line that `corewise run` says at the end.

use super::words::{counters, own_cost};
use crate::terminal::Name;
use corewise_core::report::{ApplicationReport, Headline, Report, headline};
use std::time::Duration;

/// Returns the line about a run: what corewise did, then the figures.
pub fn of_run(report: &Report) -> String {
    let wall = format!("{:.2} s", report.wall_seconds);
    let roots: Vec<_> = report.applications.iter().filter(|of| of.executed_by.is_none()).collect();
    let figures = match &roots[..] {
        [] => wall,
        [one] => format!("{wall}{}", figures(report, one)),
        many => {
            let named = |one: &&ApplicationReport| format!("; {}{}", Name(&one.name), figures(report, one));
            format!("{wall}{}", many.iter().map(named).collect::<String>())
        }
    };
    format!("{}. {figures}; own cost {}", Name(&headline(report).did), own_cost(report))
}

/// The figures of what the user named, with everything below it.
fn figures(report: &Report, root: &ApplicationReport) -> String {
    let below: Vec<_> = report.applications.iter().filter(|of| of.target == root.target).collect();
    let cpu_seconds: f64 = below.iter().map(|of| of.cpu_seconds).sum();
    // Unless all have ended, it lasted to the end of the run.
    let ended = below.iter().map(|of| of.ended_seconds);
    let ended = ended.reduce(|latest, end| Some(latest?.max(end?))).flatten();
    let lasted = ended.unwrap_or(report.wall_seconds);
    let busy = (lasted > 0.0).then(|| format!(", {}", busy_cpus(cpu_seconds / lasted)));
    let known = below.iter().filter_map(|of| Some((of.cpu_seconds, of.fpu_usage?)));
    let (seconds, used) = known.fold((0.0, 0.0), |(all, used), (of, usage)| (all + of, used + of * usage));
    let usage = |usage| format!(", FPU usage {usage:.2} (by {})", counters(&report.sources.counters));
    let fpu = (seconds > 0.0).then(|| usage(used / seconds));
    let from = watched_from(root).map(|from| format!(", watched {from}"));
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
