//! The result of an experiment as one HTML page. Each scenario is a group of bars, one a variant, with a
//! whisker for the spread over the seeds and a band where the paper gives a number.

use super::table::{agreement, figure, words};
use crate::chart::grouped::{self, Group, GroupedBar, GroupedBars};
use crate::chart::palette::colour;
use crate::page::words::{Seconds, Share};
use crate::page::{self, known, remark, text};
use corewise_sim::comparison::{VariantResult, last_seed};
use corewise_sim::experiment::{ExperimentResult, Measure, ScenarioResult, spread, variant_names};
use maud::{Markup, html};

/// Renders the page.
pub fn render(result: &ExperimentResult) -> String {
    let title = format!("experiment: {}", result.title);
    let style = [grouped::STYLE, include_str!("style.css")].concat();
    let body = html! {
        (header(result))
        (findings(result))
        (chart(result))
        (sensitivity(result))
        (applications(result))
    };
    page::document(&title, &style, &body)
}

fn header(result: &ExperimentResult) -> Markup {
    let first = result.scenarios.first().map(|scenario| &scenario.comparison);
    let seeds = first.map(|first| format!("{} to {}", first.seed, last_seed(first.seed, first.runs)));
    let agree = result.findings.iter().filter(|verdict| verdict.agrees == Some(true)).count();
    let facts = [
        ("Evidence", text(result.evidence)),
        ("Paper", text(&result.source)),
        ("Figure", text(&result.figure)),
        ("Seeds", known(seeds)),
        ("Claims that agree", text(format_args!("{agree} of {}", result.findings.len()))),
    ];
    let command = format!("experiment {}", result.name);
    page::header(&command, &text(&result.title), &facts, &remark(&result.about))
}

fn findings(result: &ExperimentResult) -> Markup {
    let class = |agrees| match agrees {
        Some(true) => "agrees",
        Some(false) => "differs",
        None => "quiet",
    };
    let rows = html! {
        @for verdict in &result.findings {
            tr {
                td { (verdict.claim) }
                td { (verdict.paper) }
                td { (verdict.ours) }
                td class=(class(verdict.agrees)) { (agreement(verdict.agrees)) }
            }
        }
    };
    page::section("What the paper found", &page::table(&["Claim", "Paper", "Ours (simulated)", ""], &rows))
}

/// Returns half the length of a whisker: the spread of the time is that of the speed.
fn whisker(measure: Measure, variant: &VariantResult) -> f64 {
    match (measure, spread(variant), variant.speedup) {
        (Measure::Speedup, Some(spread), Some(speedup)) => spread * speedup,
        _ => 0.0,
    }
}

fn chart(result: &ExperimentResult) -> Markup {
    let names = variant_names(result.scenarios.iter());
    let group = |scenario: &ScenarioResult| {
        let variants = scenario.comparison.variants.iter().skip(1);
        let bar = |variant: &VariantResult| {
            let place = names.iter().position(|name| *name == variant.name).unwrap_or_default();
            bar(result, scenario, variant, colour(place))
        };
        Group { name: scenario.name.clone(), bars: variants.map(bar).collect() }
    };
    let groups = result.scenarios.iter().map(group).collect();
    let content = html! {
        p.legend {
            "A whisker is the spread over the seeds (standard deviation), a hatched band the paper's number, \
             the line is the default."
        }
        (GroupedBars { groups, reference: 0.0 }.draw("bars"))
    };
    page::section(&format!("Simulated: {}", words(result.measure)), &content)
}

fn bar(
    result: &ExperimentResult,
    scenario: &ScenarioResult,
    variant: &VariantResult,
    colour: String,
) -> GroupedBar {
    let measure = result.measure;
    let value = measure.of(variant);
    let own = result.published.iter().filter(|n| n.scenario == scenario.name && n.variant == variant.name);
    let band = |lowest, highest| {
        let words = format!("paper: {} to {}", figure(measure, Some(lowest)), figure(measure, Some(highest)));
        (lowest, highest, words)
    };
    GroupedBar {
        name: variant.name.clone(),
        value,
        spread: whisker(measure, variant),
        figure: figure(measure, value),
        colour,
        bands: own.map(|number| band(number.lowest, number.highest)).collect(),
    }
}

fn sensitivity(result: &ExperimentResult) -> Markup {
    let Some(own) = &result.sensitivity else { return Markup::default() };
    let mut columns = vec!["Setting"];
    columns.extend(own.variants.iter().map(String::as_str));
    columns.push("Claims that hold");
    let rows = html! {
        @for row in &own.rows {
            tr {
                th scope="row" title=(row.set.join(" ")) { (row.name) }
                @for mean in &row.means { td.figure { (figure(result.measure, *mean)) } }
                td.figure { (row.agree) " of " (row.checked) }
            }
        }
    };
    let scenarios = own.scenarios.join(", ");
    let content = html! {
        (page::table(&columns, &rows))
        (remark(format_args!("Means over {scenarios} with {} seeds, simulated.", own.runs)))
    };
    page::section("What it depends on", &content)
}

fn applications(result: &ExperimentResult) -> Markup {
    let columns = ["Scenario", "Variant", "Application", "Time", "Spread", "Speedup", "On fast PEs"];
    let rows = html! {
        @for scenario in &result.scenarios {
            @for variant in &scenario.comparison.variants {
                @for app in &variant.applications {
                    tr {
                        th scope="row" { (scenario.name) }
                        td { (variant.name) }
                        td { (app.name) }
                        td.figure { (known(app.seconds.map(Seconds))) }
                        td.figure { (known(app.spread.map(Share))) }
                        td.figure { (known(app.speedup.map(|speedup| format!("{speedup:.3}")))) }
                        td.figure { (known(app.fast_share.map(Share))) }
                    }
                }
            }
        }
    };
    html! {
        details {
            summary { "Every application" }
            (page::section("Every application (simulated)", &page::table(&columns, &rows)))
        }
    }
}
