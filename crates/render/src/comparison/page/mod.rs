//! A comparison as an HTML page: the ratios with their intervals and the noise floor, the times of each
//! variant, and every run in order, so that drift and outliers are visible.

mod plots;

#[cfg(test)]
mod tests;

use super::{Comparison, EVIDENCE, command_line, ratio, short_verdict, time_verdict};
use crate::page::words::Seconds;
use crate::page::{self, known, remark, text};
use corewise_core::comparison::{Effect, Findings, Metric};
use maud::{Markup, html};

/// Returns the page.
pub fn render(comparison: &Comparison, findings: &Findings) -> String {
    let body = html! {
        (header(comparison, findings))
        (plots::ratios(findings))
        (effects(comparison, findings))
        (plots::times(comparison, findings))
        (plots::order(comparison))
        (commands(comparison, findings))
        (page::list("Notes", &findings.notes))
    };
    page::document("comparison", include_str!("style.css"), &body)
}

fn header(comparison: &Comparison, findings: &Findings) -> Markup {
    let names: Vec<&str> = findings.variants.iter().map(|variant| variant.name.as_str()).collect();
    let setting = &comparison.setting;
    let facts = [
        ("Evidence", text(EVIDENCE)),
        ("Blocks", text(findings.blocks)),
        ("Runs", text(comparison.trials.len())),
        ("Seed of the order", text(comparison.plan.seed)),
        ("Processor", known(setting.processor.as_ref())),
        ("Kernel", known(setting.kernel.as_ref())),
        ("Scheduler", known(setting.scheduler.as_ref())),
        ("Clock", known(setting.frequency.as_ref())),
    ];
    let about = remark(
        "Each block has every variant once and the baseline, the first one, twice, in random order. A ratio \
         is that of two runs of one block. The control is the baseline again: its ratio is the noise floor. \
         Intervals miss the truth once in twenty.",
    );
    page::header("compare", &text(names.join(" · ")), &facts, &about)
}

fn effects(comparison: &Comparison, findings: &Findings) -> Markup {
    let of = |effects: &[(Metric, Effect)], metric: &Metric| {
        effects.iter().find(|(one, _)| one == metric).map(|(_, effect)| *effect)
    };
    let words = |metric: &Metric, effects: &[(Metric, Effect)], effect: &Effect| match metric {
        Metric::Wall => time_verdict(effects).unwrap_or_default(),
        _ => short_verdict(effect).to_owned(),
    };
    let row = |metric: &Metric, name: &str, effect: &Effect, words: &str| {
        html! {
            tr {
                td { (metric.name()) }
                th scope="row" { (name) }
                td.figure { (ratio(effect)) }
                td { (words) }
            }
        }
    };
    let rows = html! {
        @for metric in &Metric::all(&comparison.trials) {
            @for variant in &findings.variants {
                @if let Some(effect) = of(&variant.effects, metric) {
                    (row(metric, &variant.name, &effect, &words(metric, &variant.effects, &effect)))
                }
            }
            @if let Some(effect) = of(&findings.noise_floor, metric) {
                (row(metric, "(control)", &effect, "the noise floor"))
            }
        }
    };
    let table = page::table(&["Figure", "Variant", "Ratio [95 %]", "Verdict"], &rows);
    page::section("Against the first variant", &table)
}

fn commands(comparison: &Comparison, findings: &Findings) -> Markup {
    let rows = html! {
        @for (variant, found) in comparison.plan.variants.iter().zip(&findings.variants) {
            tr {
                th scope="row" { (variant.name) }
                td.figure { (known(found.wall().map(|wall| Seconds(wall.median)))) }
                td.figure { (known(found.wall().map(|wall| Seconds(wall.min)))) }
                td.figure { (known(found.wall().map(|wall| Seconds(wall.max)))) }
                td { code { (command_line(variant)) } }
            }
        }
    };
    page::section("Variants", &page::table(&["Variant", "Median", "Shortest", "Longest", "Command"], &rows))
}
