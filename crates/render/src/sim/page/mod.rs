//! The comparison of a scenario as one HTML page, on [`crate::page`]: speedups as bars with their spread, the
//! figures in tables, who ran where, and the scenario that fixes it all. Everything is simulated.

mod timeline;

#[cfg(test)]
mod tests;

use crate::page;
use crate::page::markup::{Known, Seconds, Share, Text};
use corewise_sim::comparison::{Comparison, VariantResult, last_seed};
use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result};

// Lengths are in units of the drawing.
const LABEL_WIDTH: f64 = 200.0;
const APP_WIDTH: f64 = 150.0;
const PLOT_WIDTH: f64 = 620.0;
const NUMBER_WIDTH: f64 = 110.0;
const BAR_HEIGHT: f64 = 15.0;
const GROUP_GAP: f64 = 12.0;

/// The applications that are drawn and listed, first ones first: a page stays readable.
const APPLICATIONS_SHOWN_MAX: usize = 40;

/// The page of a comparison, with the scenario's text as it was simulated.
pub fn render(comparison: &Comparison, scenario: &str) -> String {
    let title = format!("simulated: {}", comparison.scenario);
    page::document(&title, include_str!("style.css"), Body { comparison, scenario })
}

struct Body<'a> {
    comparison: &'a Comparison,
    scenario: &'a str,
}

impl Display for Body<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        header(f, self.comparison)?;
        chart(f, self.comparison)?;
        variants(f, self.comparison)?;
        applications(f, self.comparison)?;
        timeline::section(f, self.comparison)?;
        writeln!(f, "<section>\n<h2>Parameters</h2>\n<pre>{}</pre>\n</section>", Lines(self.scenario))
    }
}

/// A text of several lines: [`Text`] would spell out the line ends.
struct Lines<'a>(&'a str);

impl Display for Lines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.lines().try_for_each(|line| writeln!(f, "{}", Text(&line.replace('\t', "    "))))
    }
}

fn header(f: &mut Formatter<'_>, comparison: &Comparison) -> Result {
    writeln!(f, "<header>\n<p class=\"brand\">corewise sim</p>\n<h1>{}</h1>", Text(&comparison.scenario))?;
    let last = last_seed(comparison.seed, comparison.runs);
    let facts: [(&str, &dyn Display); 4] = [
        ("Evidence", &Text(comparison.evidence)),
        ("Machine", &Text(&comparison.machine)),
        ("Seeds", &format!("{} to {last}", comparison.seed)),
        ("Seeds of the default", &comparison.baseline_runs),
    ];
    page::facts(f, &facts)?;
    writeln!(
        f,
        "<p class=\"quiet\">Every figure on this page is simulated: it follows from the parameters at the \
         end. A speedup is the time under the operating system's own scheduler divided by this \
         one.</p>\n</header>"
    )
}

/// One bar: its name, speedup, and half a whisker.
struct Bar<'a> {
    name: &'a str,
    value: Option<f64>,
    half: f64,
}

/// The speedups of a variant: each application, then the geometric mean.
fn bars(variant: &VariantResult) -> Vec<Bar<'_>> {
    let apps = variant.applications.iter().take(APPLICATIONS_SHOWN_MAX).map(|app| Bar {
        name: &app.name,
        value: app.speedup,
        half: app.speedup.zip(app.spread).map_or(0.0, |(speedup, spread)| speedup * spread),
    });
    apps.chain([Bar { name: "geometric mean", value: variant.speedup, half: 0.0 }]).collect()
}

fn chart(f: &mut Formatter<'_>, comparison: &Comparison) -> Result {
    let groups: Vec<(&str, Vec<Bar<'_>>)> =
        comparison.variants.iter().skip(1).map(|variant| (variant.name.as_str(), bars(variant))).collect();
    let ends = groups.iter().flat_map(|(_, bars)| bars).filter_map(|bar| Some(bar.value? + bar.half));
    let most = ends.fold(1.0, f64::max) * 1.02;
    let x = |value: f64| ((LABEL_WIDTH + APP_WIDTH + value / most * PLOT_WIDTH) * 10.0).round() / 10.0;
    let height: f64 =
        groups.iter().map(|(_, bars)| bars.len() as f64 * BAR_HEIGHT + GROUP_GAP).sum::<f64>() + 4.0;
    let width = LABEL_WIDTH + APP_WIDTH + PLOT_WIDTH + NUMBER_WIDTH;
    writeln!(
        f,
        "<section>\n<h2>Speedup over the default (simulated)</h2>\n<p class=\"legend\">A whisker is the \
         spread over the seeds (standard deviation), the line is the default.</p>\n<div class=\"scroll\">\n\
         <svg class=\"bars\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Speedups; the tables \
         below say the same\">"
    )?;
    let mut top = 4.0;
    for (name, bars) in &groups {
        let y = top + BAR_HEIGHT - 4.0;
        writeln!(f, "<text class=\"name\" x=\"0\" y=\"{y}\">{}</text>", Text(name))?;
        for (index, bar) in bars.iter().enumerate() {
            let class = if index + 1 == bars.len() { "mean" } else { "app" };
            draw(f, bar, class, top, &x)?;
            top += BAR_HEIGHT;
        }
        top += GROUP_GAP;
    }
    let one = x(1.0);
    writeln!(f, "<line class=\"one\" x1=\"{one}\" y1=\"0\" x2=\"{one}\" y2=\"{height}\"/>")?;
    writeln!(f, "</svg>\n</div>\n</section>")
}

fn draw(f: &mut Formatter<'_>, bar: &Bar<'_>, class: &str, top: f64, x: &impl Fn(f64) -> f64) -> Result {
    let baseline = top + BAR_HEIGHT - 4.0;
    writeln!(f, "<text class=\"quiet\" x=\"{LABEL_WIDTH}\" y=\"{baseline}\">{}</text>", Text(bar.name))?;
    let from = x(0.0);
    if let Some(value) = bar.value {
        writeln!(
            f,
            "<rect class=\"{class}\" x=\"{from}\" y=\"{}\" width=\"{:.1}\" height=\"{}\"/>",
            top + 2.0,
            x(value) - from,
            BAR_HEIGHT - 4.0
        )?;
        if bar.half > 0.0 {
            let (low, high, middle) = (x(value - bar.half), x(value + bar.half), top + BAR_HEIGHT / 2.0);
            writeln!(
                f,
                "<line class=\"whisker\" x1=\"{low}\" y1=\"{middle}\" x2=\"{high}\" y2=\"{middle}\"/>"
            )?;
        }
    }
    let end = LABEL_WIDTH + APP_WIDTH + PLOT_WIDTH + NUMBER_WIDTH;
    let number = bar.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
    writeln!(f, "<text class=\"number\" x=\"{end}\" y=\"{baseline}\">{number}</text>")
}

fn variants(f: &mut Formatter<'_>, comparison: &Comparison) -> Result {
    let moves: BTreeSet<&str> =
        comparison.variants.iter().flat_map(|variant| variant.migrations.keys().copied()).collect();
    let moved: Vec<String> = moves.iter().map(|distance| format!("Moves within {distance}")).collect();
    let mut columns =
        vec!["Variant", "Policy", "Speedup (geometric mean)", "All done", "Speedup of all done", "Fairness"];
    columns.extend(moved.iter().map(String::as_str));
    table(f, "Variants (simulated)", &columns)?;
    for variant in &comparison.variants {
        write!(
            f,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"figure\">{}</td><td class=\"figure\">{}</td>\
             <td class=\"figure\">{}</td><td class=\"figure\">{}</td>",
            Text(&variant.name),
            Text(&variant.policy),
            Known(variant.speedup.map(|x| format!("{x:.3}"))),
            Known(variant.all_done_seconds.map(Seconds)),
            Known(variant.all_done_speedup.map(|x| format!("{x:.3}"))),
            Known(variant.fairness.map(|x| format!("{x:.2}"))),
        )?;
        for distance in &moves {
            let count = variant.migrations.get(distance).copied().unwrap_or(0.0);
            write!(f, "<td class=\"figure\">{count:.1}</td>")?;
        }
        writeln!(f, "</tr>")?;
    }
    close_table(f, Some("Moves are migrations per run, by the closest thing that both PEs share."))
}

fn applications(f: &mut Formatter<'_>, comparison: &Comparison) -> Result {
    let columns = ["Variant", "Application", "Time", "Spread", "Speedup", "Time on the fastest PEs"];
    table(f, "Applications (simulated)", &columns)?;
    let mut left_out = 0;
    for variant in &comparison.variants {
        left_out = variant.applications.len().saturating_sub(APPLICATIONS_SHOWN_MAX);
        for app in variant.applications.iter().take(APPLICATIONS_SHOWN_MAX) {
            writeln!(
                f,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"figure\">{}</td>\
                 <td class=\"figure\">{}</td><td class=\"figure\">{}</td><td class=\"figure\">{}</td></tr>",
                Text(&variant.name),
                Text(&app.name),
                Known(app.seconds.map(Seconds)),
                Known(app.spread.map(Share)),
                Known(app.speedup.map(|x| format!("{x:.3}"))),
                Known(app.fast_share.map(Share)),
            )?;
        }
    }
    let words = format!("{left_out} more applications are left out; --json holds them all.");
    close_table(f, (left_out > 0).then_some(words.as_str()))
}

fn table(f: &mut Formatter<'_>, title: &str, columns: &[&str]) -> Result {
    writeln!(f, "<section>\n<h2>{}</h2>\n<div class=\"scroll\">\n<table>\n<thead><tr>", Text(title))?;
    for column in columns {
        writeln!(f, "<th scope=\"col\">{}</th>", Text(column))?;
    }
    writeln!(f, "</tr></thead>\n<tbody>")
}

fn close_table(f: &mut Formatter<'_>, words: Option<&str>) -> Result {
    writeln!(f, "</tbody>\n</table>\n</div>")?;
    if let Some(words) = words {
        writeln!(f, "<p class=\"quiet\">{}</p>", Text(words))?;
    }
    writeln!(f, "</section>")
}
