//! The tables: everything that the figures show, in words and numbers. Long ones are folded.

use super::figures::ROWS_MAX;
use crate::page::markup::{Known, Text};
use crate::profile::words;
use corewise_core::profile::{MachineProfile, PairClass};
use std::fmt::{Display, Formatter, Result};

/// The machine as reported and as measured, and the classes of its pairs.
pub struct Machine<'a>(pub &'a MachineProfile);

/// Every Δ.
pub struct Deltas<'a>(pub &'a MachineProfile);

/// What each class of pairs gets from each workload.
pub struct Pairs<'a>(pub &'a MachineProfile);

/// What concerns single PEs: speeds; and the NAS benchmarks' times.
pub struct Singles<'a>(pub &'a MachineProfile);

impl Display for Machine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let profile = self.0;
        writeln!(f, "<section>\n<h2>Machine</h2>\n<pre class=\"scroll\">")?;
        profile.reported.draw().lines().try_for_each(|line| writeln!(f, "{}", Text(line)))?;
        writeln!(f, "</pre>")?;
        if let Some(found) = &profile.discovered {
            writeln!(f, "<h3>As it behaves</h3>\n<ul>")?;
            for (kind, pes) in &found.groups {
                writeln!(f, "<li>PEs {pes} share a {}</li>", kind.word())?;
            }
            for disagreement in &found.disagreements {
                writeln!(f, "<li class=\"differs\">{}</li>", Text(disagreement))?;
            }
            writeln!(f, "</ul>")?;
        }
        let row = |class: &PairClass| {
            let measured: Vec<String> = class.measured.iter().map(|(a, b)| format!("{a}-{b}")).collect();
            let deviation = class.largest_deviation.map(|ratio| format!("{ratio:.3}"));
            vec![
                Text(&class.name).to_string(),
                class.pairs.to_string(),
                measured.join(", "),
                Known(deviation).to_string(),
            ]
        };
        let rows: Vec<_> = profile.classes.iter().map(row).collect();
        table(f, &["Class of pairs", "Pairs", "Measured", "Largest ratio within"], &rows)?;
        writeln!(f, "</section>")
    }
}

impl Display for Deltas<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let profile = self.0;
        let rows: Vec<_> = profile
            .deltas
            .iter()
            .map(|d| {
                vec![
                    d.subject.to_string(),
                    Text(words::class(profile, d.close)).to_string(),
                    Text(words::class(profile, d.distant)).to_string(),
                    words::signed(d.delta),
                    d.verdict.to_string(),
                    d.delta.repetitions.to_string(),
                ]
            })
            .collect();
        let columns = ["Run", "Close", "Distant", "Δ [95 %]", "Better", "Repetitions"];
        folded(f, "Δ of every workload", &columns, &rows)
    }
}

impl Display for Pairs<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let profile = self.0;
        let rows: Vec<_> = profile
            .pairs
            .iter()
            .map(|pair| {
                let (unit, rate) = words::in_unit(pair.workload.first.kernel, pair.rate);
                let slowdowns = pair.slowdowns.map(|(first, second)| {
                    if pair.workload.first == pair.workload.second {
                        words::interval(first)
                    } else {
                        format!("{}; {}", words::interval(first), words::interval(second))
                    }
                });
                vec![
                    Text(words::class(profile, pair.class)).to_string(),
                    pair.workload.to_string(),
                    format!("{} {unit}", words::interval(rate)),
                    Known(slowdowns).to_string(),
                    Known(pair.delta_alone.map(words::signed)).to_string(),
                    pair.discarded.to_string(),
                ]
            })
            .collect();
        let columns = [
            "Class of pairs",
            "Run",
            "Rate of a thread [95 %]",
            "Slowdown",
            "Δ against alone",
            "Thrown away",
        ];
        folded(f, "Every class and workload", &columns, &rows)
    }
}

impl Display for Singles<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let profile = self.0;
        let speeds: Vec<_> = profile
            .speeds
            .iter()
            .map(|speed| {
                let kernel = speed.kernel.name().to_owned();
                vec![speed.pe.to_string(), kernel, words::interval(speed.relative)]
            })
            .collect();
        folded(f, "Speed of each PE", &["PE", "Run", "Relative speed [95 %]"], &speeds)?;
        let nas: Vec<_> = profile
            .nas
            .iter()
            .map(|result| {
                let place = result.pair_class.map_or("one thread", |class| words::class(profile, class));
                vec![
                    format!("{}.{:?}", result.nas.name(), result.class),
                    if result.own { "built in" } else { "the user's binary" }.to_owned(),
                    Text(place).to_string(),
                    format!("{} s", words::interval(result.seconds)),
                    if result.verified { "yes" } else { "NO" }.to_owned(),
                ]
            })
            .collect();
        let columns = ["Benchmark", "Program", "Where", "Time [95 %]", "Result as published"];
        folded(f, "NAS parallel benchmarks", &columns, &nas)
    }
}

/// A section that opens at a click, or is open if it is short; nothing if there is nothing in it.
fn folded(f: &mut Formatter<'_>, heading: &str, columns: &[&str], rows: &[Vec<String>]) -> Result {
    if rows.is_empty() {
        return Ok(());
    }
    let open = if rows.len() <= ROWS_MAX { " open" } else { "" };
    writeln!(f, "<section>\n<details{open}>\n<summary><h2>{heading} ({})</h2></summary>", rows.len())?;
    table(f, columns, rows)?;
    writeln!(f, "</details>\n</section>")
}

/// The cells are markup already.
fn table(f: &mut Formatter<'_>, columns: &[&str], rows: &[Vec<String>]) -> Result {
    writeln!(f, "<div class=\"scroll\">\n<table>\n<thead><tr>")?;
    for column in columns {
        writeln!(f, "<th scope=\"col\">{column}</th>")?;
    }
    writeln!(f, "</tr></thead>\n<tbody>")?;
    for row in rows {
        let cells: String = row.iter().map(|cell| format!("<td class=\"figure\">{cell}</td>")).collect();
        writeln!(f, "<tr>{cells}</tr>")?;
    }
    writeln!(f, "</tbody>\n</table>\n</div>")
}
