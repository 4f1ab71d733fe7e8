//! The result of an experiment as one HTML page. Each scenario is a group of bars, one a variant, with a
//! whisker for the spread over the seeds and a band where the paper gives a number.

use super::table::{agreement, figure, tally, words};
use crate::chart::grouped::{self, Group, GroupedBar, GroupedBars};
use crate::chart::palette::colour;
use crate::page::{self, known, remark, text};
use crate::sim::estimate::{ratio, seconds, share};
use corewise_sim::comparison::{VariantResult, last_seed};
use corewise_sim::estimate::Estimate;
use corewise_sim::experiment::finding::Agreement;
use corewise_sim::experiment::{ExperimentResult, ScenarioResult, variant_names};
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
    let facts = [
        ("Evidence", text(result.evidence)),
        ("Paper", text(&result.source)),
        ("Figure", text(&result.figure)),
        ("Seeds", known(seeds)),
        ("Claims", text(tally(&result.findings))),
    ];
    let command = format!("experiment {}", result.name);
    page::header(&command, &text(&result.title), &facts, &remark(&result.about))
}

fn findings(result: &ExperimentResult) -> Markup {
    let content = html! {
        (claims(result))
        (remark("Ranges are 95 % intervals over the seeds. A claim agrees if the whole interval does."))
    };
    page::section("What the paper found", &content)
}

/// The table of what the paper claims and what was found.
pub(super) fn claims(result: &ExperimentResult) -> Markup {
    let rows = html! {
        @for judgement in &result.findings {
            tr {
                td { (judgement.claim) }
                td { (judgement.paper) }
                td { (judgement.ours) }
                td class=(class(judgement.agreement)) { (agreement(judgement.agreement)) }
            }
        }
    };
    page::table(&["Claim", "Paper", "Ours (simulated)", ""], &rows)
}

/// Returns how an agreement is shown.
fn class(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::Agrees => "agrees",
        Agreement::Disagrees => "differs",
        Agreement::Undecided | Agreement::NotChecked => "quiet",
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
            "A whisker is the 95 % interval over the seeds, a hatched band the paper's number, the line is \
             the default."
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
    let exact = |value| figure(measure, Some(Estimate { value, low: None, high: None }));
    let band = |lowest, highest| {
        let words = format!("paper: {} to {}", exact(lowest), exact(highest));
        (lowest, highest, words)
    };
    GroupedBar {
        name: variant.name.clone(),
        value: value.map(|value| value.value),
        whisker: value.and_then(|value| value.low.zip(value.high)),
        figure: figure(measure, value),
        colour,
        bands: own.map(|number| band(number.lowest, number.highest)).collect(),
    }
}

fn sensitivity(result: &ExperimentResult) -> Markup {
    let Some(own) = &result.sensitivity else { return Markup::default() };
    let mut columns = vec!["Setting"];
    columns.extend(own.variants.iter().map(String::as_str));
    columns.push("Claims that agree");
    let rows = html! {
        @for row in &own.rows {
            tr {
                th scope="row" title=(row.set.join(" ")) { (row.name) }
                @for mean in &row.means { td.figure { (figure(result.measure, *mean)) } }
                td.figure { (row.agree) " of " (row.checked) ", " (row.undecided) " undecided" }
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
    let columns =
        ["Scenario", "Variant", "Application", "Time", "Spread", "Speedup", "Progress", "On fast PEs"];
    let rows = html! {
        @for scenario in &result.scenarios {
            @for variant in &scenario.comparison.variants {
                @for app in &variant.applications {
                    tr {
                        th scope="row" { (scenario.name) }
                        td { (variant.name) }
                        td { (app.name) }
                        td.figure { (seconds(app.seconds)) }
                        td.figure { (share(app.spread)) }
                        td.figure { (ratio(app.speedup)) }
                        td.figure { (share(app.progress)) }
                        td.figure { (share(app.fast_share)) }
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
