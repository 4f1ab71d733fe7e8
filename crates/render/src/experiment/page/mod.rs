//! The result of an experiment as one HTML page, on [`crate::page`].
//! Each scenario is a group of bars, one a variant, with a whisker
//! for the spread over the seeds and a band where the paper gives a number.

use super::table::{agreement, figure, words};
use crate::page;
use crate::page::markup::{Known, Seconds, Share, Text};
use corewise_sim::comparison::{VariantResult, last_seed};
use corewise_sim::experiment::{ExperimentResult, Measure, ScenarioResult, spread, variant_names};
use std::fmt::{Display, Formatter, Result};

const LABEL_WIDTH: f64 = 190.0;
const VARIANT_WIDTH: f64 = 150.0;
const PLOT_WIDTH: f64 = 640.0;
const NUMBER_WIDTH: f64 = 120.0;
const BAR_HEIGHT: f64 = 15.0;
const GROUP_GAP: f64 = 12.0;

/// Colours of the variants, in order; they differ in lightness too.
const COLOURS: [&str; 8] =
    ["#0b6b5c", "#d98b2b", "#5b7fb8", "#a64d79", "#7a9a3a", "#8a6d5a", "#3aa6b0", "#6b5fa8"];

/// The page.
pub fn render(result: &ExperimentResult) -> String {
    let title = format!("experiment: {}", result.title);
    page::document(&title, include_str!("style.css"), Body(result))
}

struct Body<'a>(&'a ExperimentResult);

impl Display for Body<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let result = self.0;
        header(f, result)?;
        findings(f, result)?;
        chart(f, result)?;
        sensitivity(f, result)?;
        applications(f, result)
    }
}

fn header(f: &mut Formatter<'_>, result: &ExperimentResult) -> Result {
    writeln!(f, "<header>\n<p class=\"brand\">corewise experiment {}</p>", Text(&result.name))?;
    writeln!(f, "<h1>{}</h1>", Text(&result.title))?;
    let first = result.scenarios.first().map(|scenario| &scenario.comparison);
    let seeds = first.map(|first| format!("{} to {}", first.seed, last_seed(first.seed, first.runs)));
    let agree = result.findings.iter().filter(|verdict| verdict.agrees == Some(true)).count();
    let facts: [(&str, &dyn Display); 5] = [
        ("Evidence", &Text(result.evidence)),
        ("Paper", &Text(&result.source)),
        ("Figure", &Text(&result.figure)),
        ("Seeds", &Known(seeds)),
        ("Claims that agree", &format!("{agree} of {}", result.findings.len())),
    ];
    page::facts(f, &facts)?;
    writeln!(f, "<p class=\"quiet\">{}</p>\n</header>", Text(&result.about))
}

fn findings(f: &mut Formatter<'_>, result: &ExperimentResult) -> Result {
    table(f, "What the paper found", &["Claim", "Paper", "Ours (simulated)", ""])?;
    for verdict in &result.findings {
        let class = match verdict.agrees {
            Some(true) => "agrees",
            Some(false) => "differs",
            None => "quiet",
        };
        writeln!(
            f,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td></tr>",
            Text(&verdict.claim),
            Text(&verdict.paper),
            Text(&verdict.ours),
            agreement(verdict.agrees)
        )?;
    }
    close_table(f)
}

/// The range of the figures, wide enough for spreads and the paper's numbers.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(result: &ExperimentResult) -> Scale {
        let variants = result.scenarios.iter().flat_map(|scenario| &scenario.comparison.variants);
        let ours = variants.filter_map(|variant| {
            let value = result.measure.of(variant)?;
            let spread = whisker(result.measure, variant);
            Some([value - spread, value + spread])
        });
        let published = result.published.iter().map(|number| [number.lowest, number.highest]);
        let ends = ours.chain(published).flatten();
        let (low, high) = ends.fold((0.0, 0.01), |(low, high): (f64, f64), x| (low.min(x), high.max(x)));
        Scale { low, high }
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        ((LABEL_WIDTH + VARIANT_WIDTH + share * PLOT_WIDTH) * 10.0).round() / 10.0
    }
}

/// Half the length of a whisker: the spread of the time is that of the speed.
fn whisker(measure: Measure, variant: &VariantResult) -> f64 {
    match (measure, spread(variant), variant.speedup) {
        (Measure::Speedup, Some(spread), Some(speedup)) => spread * speedup,
        _ => 0.0,
    }
}

fn chart(f: &mut Formatter<'_>, result: &ExperimentResult) -> Result {
    let names = variant_names(result.scenarios.iter());
    let scale = Scale::of(result);
    let own = |scenario: &ScenarioResult| scenario.comparison.variants.len() - 1;
    let height: f64 =
        result.scenarios.iter().map(|s| own(s) as f64 * BAR_HEIGHT + GROUP_GAP).sum::<f64>() + 4.0;
    let width = LABEL_WIDTH + VARIANT_WIDTH + PLOT_WIDTH + NUMBER_WIDTH;
    writeln!(f, "<section>\n<h2>Simulated: {}</h2>", words(result.measure))?;
    writeln!(
        f,
        "<p class=\"legend\">A whisker is the spread over the seeds (standard deviation), a hatched band the \
         paper's number, the line is the default.</p>\n<div class=\"scroll\">\n\
         <svg class=\"bars\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"bars\">\n\
         <defs><pattern id=\"paper\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect class=\"stripe\" width=\"2\" height=\"6\"/></pattern></defs>"
    )?;
    let mut top = 4.0;
    for scenario in &result.scenarios {
        writeln!(
            f,
            "<text class=\"name\" x=\"0\" y=\"{}\">{}</text>",
            top + BAR_HEIGHT - 4.0,
            Text(&scenario.name)
        )?;
        for variant in scenario.comparison.variants.iter().skip(1) {
            let colour = names.iter().position(|name| *name == variant.name).unwrap_or_default();
            bar(f, result, scenario, variant, &scale, (top, COLOURS[colour % COLOURS.len()]))?;
            top += BAR_HEIGHT;
        }
        top += GROUP_GAP;
    }
    let zero = scale.x(0.0);
    writeln!(f, "<line class=\"zero\" x1=\"{zero}\" y1=\"0\" x2=\"{zero}\" y2=\"{height}\"/>")?;
    writeln!(f, "</svg>\n</div>\n</section>")
}

fn bar(
    f: &mut Formatter<'_>,
    result: &ExperimentResult,
    scenario: &ScenarioResult,
    variant: &VariantResult,
    scale: &Scale,
    (top, colour): (f64, &str),
) -> Result {
    let baseline = top + BAR_HEIGHT - 4.0;
    let value = result.measure.of(variant);
    writeln!(f, "<text class=\"quiet\" x=\"{LABEL_WIDTH}\" y=\"{baseline}\">{}</text>", Text(&variant.name))?;
    if let Some(value) = value {
        let (from, to) = (scale.x(value.min(0.0)), scale.x(value.max(0.0)));
        let width = to - from;
        writeln!(
            f,
            "<rect x=\"{from}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>",
            top + 2.0,
            BAR_HEIGHT - 4.0
        )?;
        let half = whisker(result.measure, variant);
        if half > 0.0 {
            let middle = top + BAR_HEIGHT / 2.0;
            let (low, high) = (scale.x(value - half), scale.x(value + half));
            writeln!(
                f,
                "<line class=\"whisker\" x1=\"{low}\" y1=\"{middle}\" x2=\"{high}\" y2=\"{middle}\"/>"
            )?;
        }
    }
    for number in &result.published {
        if number.scenario == scenario.name && number.variant == variant.name {
            let (from, to) = (scale.x(number.lowest), scale.x(number.highest));
            let (lowest, highest) =
                (figure(result.measure, Some(number.lowest)), figure(result.measure, Some(number.highest)));
            writeln!(
                f,
                "<rect class=\"paper\" x=\"{}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\">\
                 <title>paper: {lowest} to {highest}</title></rect>",
                from - 2.0,
                to - from + 4.0
            )?;
        }
    }
    let x = LABEL_WIDTH + VARIANT_WIDTH + PLOT_WIDTH + NUMBER_WIDTH;
    let number = figure(result.measure, value);
    writeln!(f, "<text class=\"number\" x=\"{x}\" y=\"{baseline}\">{number}</text>")
}

fn sensitivity(f: &mut Formatter<'_>, result: &ExperimentResult) -> Result {
    let Some(own) = &result.sensitivity else { return Ok(()) };
    let mut columns = vec!["Setting"];
    columns.extend(own.variants.iter().map(String::as_str));
    columns.push("Claims that hold");
    table(f, "What it depends on", &columns)?;
    for row in &own.rows {
        let set = row.set.join(" ");
        writeln!(f, "<tr><th scope=\"row\" title=\"{}\">{}</th>", Text(&set), Text(&row.name))?;
        for mean in &row.means {
            writeln!(f, "<td class=\"figure\">{}</td>", figure(result.measure, *mean))?;
        }
        writeln!(f, "<td class=\"figure\">{} of {}</td></tr>", row.agree, row.checked)?;
    }
    writeln!(f, "</tbody>\n</table>\n</div>")?;
    let scenarios = own.scenarios.join(", ");
    writeln!(
        f,
        "<p class=\"quiet\">Means over {} with {} seeds, simulated.</p>\n</section>",
        Text(&scenarios),
        own.runs
    )
}

fn applications(f: &mut Formatter<'_>, result: &ExperimentResult) -> Result {
    let columns = ["Scenario", "Variant", "Application", "Time", "Spread", "Speedup", "On fast PEs"];
    writeln!(f, "<details>\n<summary>Every application</summary>")?;
    table(f, "Every application (simulated)", &columns)?;
    for scenario in &result.scenarios {
        for variant in &scenario.comparison.variants {
            for app in &variant.applications {
                writeln!(
                    f,
                    "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"figure\">{}</td>\
                     <td class=\"figure\">{}</td><td class=\"figure\">{}</td>\
                     <td class=\"figure\">{}</td></tr>",
                    Text(&scenario.name),
                    Text(&variant.name),
                    Text(&app.name),
                    Known(app.seconds.map(Seconds)),
                    Known(app.spread.map(Share)),
                    Known(app.speedup.map(|speedup| format!("{speedup:.3}"))),
                    Known(app.fast_share.map(Share)),
                )?;
            }
        }
    }
    close_table(f)?;
    writeln!(f, "</details>")
}

fn table(f: &mut Formatter<'_>, title: &str, columns: &[&str]) -> Result {
    writeln!(f, "<section>\n<h2>{}</h2>\n<div class=\"scroll\">\n<table>\n<thead><tr>", Text(title))?;
    for column in columns {
        writeln!(f, "<th scope=\"col\">{}</th>", Text(column))?;
    }
    writeln!(f, "</tr></thead>\n<tbody>")
}

fn close_table(f: &mut Formatter<'_>) -> Result {
    writeln!(f, "</tbody>\n</table>\n</div>\n</section>")
}
