//! The comparison of a scenario as one HTML page: speedups as bars with their spread, the figures in tables,
//! which application ran where, and the scenario with all parameters. Everything is simulated.

mod timeline;

#[cfg(test)]
mod tests;

use crate::chart::grouped::{self, Group, GroupedBar, GroupedBars};
use crate::chart::palette::colour;
use crate::page::{self, remark, text};
use crate::sim::estimate::{figure, moved_times, ratio, seconds, share};
use corewise_sim::comparison::{Comparison, EnergyResult, VariantResult, last_seed};
use corewise_sim::estimate::Estimate;
use maud::{Markup, html};
use std::collections::BTreeSet;

/// The maximum number of applications that are drawn and listed, first ones first.
const APPLICATIONS_SHOWN_MAX: usize = 40;

/// Renders the page of a comparison, with the scenario's text as it was simulated.
pub fn render(comparison: &Comparison, scenario: &str) -> String {
    let title = format!("simulated: {}", comparison.scenario);
    let style = [grouped::STYLE, include_str!("style.css")].concat();
    let body = html! {
        (header(comparison))
        (chart(comparison))
        (variants(comparison))
        (applications(comparison))
        (timeline::section(comparison))
        (page::section("Parameters", &html! { pre { (scenario) } }))
    };
    page::document(&title, &style, &body)
}

fn header(comparison: &Comparison) -> Markup {
    let last = last_seed(comparison.seed, comparison.runs);
    let facts = [
        ("Evidence", text(comparison.evidence)),
        ("Machine", text(&comparison.machine)),
        ("Seeds", text(format_args!("{} to {last}", comparison.seed))),
    ];
    let about = remark(
        "Every figure on this page is simulated: it follows from the parameters at the end. A speedup is the \
         time under the operating system's own scheduler divided by this one, with the same seed. The ranges \
         are 95 % intervals over the seeds.",
    );
    page::header("sim", &text(&comparison.scenario), &facts, &about)
}

fn chart(comparison: &Comparison) -> Markup {
    let group = |variant: &VariantResult| Group { name: variant.name.clone(), bars: bars(variant) };
    let groups = comparison.variants.iter().skip(1).map(group).collect();
    let label = "Speedups; the tables below say the same";
    let content = html! {
        p.legend {
            "A whisker is the 95 % interval, the line is the default."
        }
        (GroupedBars { groups, reference: 1.0 }.draw(label))
    };
    page::section("Speedup over the default (simulated)", &content)
}

/// Returns the speedups of a variant: each application, then the geometric mean.
fn bars(variant: &VariantResult) -> Vec<GroupedBar> {
    let bar = |name: &str, speedup: Option<Estimate>, of: usize| GroupedBar {
        name: name.to_owned(),
        value: speedup.map(|speedup| speedup.value),
        whisker: speedup.and_then(|speedup| speedup.low.zip(speedup.high)),
        figure: speedup.map_or_else(|| "–".to_owned(), |speedup| format!("{:.3}", speedup.value)),
        colour: colour(of),
        bands: Vec::new(),
    };
    let apps = variant.applications.iter().take(APPLICATIONS_SHOWN_MAX);
    let apps = apps.map(|app| bar(&app.name, app.speedup, 0));
    apps.chain([bar("geometric mean", variant.speedup, 1)]).collect()
}

fn variants(comparison: &Comparison) -> Markup {
    let moves: BTreeSet<&str> =
        comparison.variants.iter().flat_map(|variant| variant.migrations.keys().copied()).collect();
    let moved: Vec<String> = moves.iter().map(|distance| format!("Moves within {distance}")).collect();
    let mut columns = vec![
        "Variant",
        "Policy",
        "Speedup (geometric mean)",
        "All done",
        "Speedup of all done",
        "Weighted speedup",
        "Fairness",
    ];
    columns.extend(moved.iter().map(String::as_str));
    let has_energy = comparison.variants.iter().any(|variant| variant.energy.is_some());
    if has_energy {
        columns.extend(["Energy", "Mean power", "Energy-delay product"]);
    }
    let rows = html! {
        @for variant in &comparison.variants {
            tr {
                th scope="row" { (variant.name) }
                td { (variant.policy) }
                td.figure { (ratio(variant.speedup)) }
                td.figure { (seconds(variant.all_done_seconds)) }
                td.figure { (ratio(variant.all_done_speedup)) }
                td.figure { (ratio(variant.weighted_speedup)) }
                td.figure { (ratio(variant.fairness)) }
                @for distance in &moves {
                    td.figure { (moved_times(variant.migrations.get(distance))) }
                }
                @if has_energy {
                    @let energy = |of: fn(&EnergyResult) -> Estimate| variant.energy.as_ref().map(of);
                    td.figure { (figure(energy(|e| e.joules), "J")) }
                    td.figure { (figure(energy(|e| e.watts), "W")) }
                    td.figure { (figure(energy(|e| e.energy_delay_joule_seconds), "J s")) }
                }
            }
        }
    };
    let content = html! {
        (page::table(&columns, &rows))
        (remark("Moves are migrations per run, by the closest thing that both PEs share."))
    };
    page::section("Variants (simulated)", &content)
}

fn applications(comparison: &Comparison) -> Markup {
    let left_out = comparison.variants.last().map_or(0, |variant| variant.applications.len());
    let left_out = left_out.saturating_sub(APPLICATIONS_SHOWN_MAX);
    let mut columns =
        vec!["Variant", "Application", "Time", "Spread", "Speedup", "Progress", "Time on the fastest PEs"];
    let has_energy = comparison.variants.iter().any(|variant| variant.energy.is_some());
    columns.extend(has_energy.then_some("Energy"));
    let rows = html! {
        @for variant in &comparison.variants {
            @for app in variant.applications.iter().take(APPLICATIONS_SHOWN_MAX) {
                tr {
                    th scope="row" { (variant.name) }
                    td { (app.name) }
                    td.figure { (seconds(app.seconds)) }
                    td.figure { (share(app.spread)) }
                    td.figure { (ratio(app.speedup)) }
                    td.figure { (share(app.progress)) }
                    td.figure { (share(app.fast_share)) }
                    @if has_energy { td.figure { (figure(app.joules, "J")) } }
                }
            }
        }
    };
    let content = html! {
        (page::table(&columns, &rows))
        @if left_out > 0 {
            (remark(format_args!("{left_out} more applications are left out; --json holds them all.")))
        }
    };
    page::section("Applications (simulated)", &content)
}
