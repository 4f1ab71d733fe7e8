//! The result of an experiment as text for a terminal.

use crate::table::Table;
use corewise_sim::experiment::finding::signed_percent;
use corewise_sim::experiment::{ExperimentResult, Measure, ScenarioResult, spread, variant_names};
use std::fmt::{Result, Write};

/// Renders the text.
pub fn render(result: &ExperimentResult) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_result(&mut text, result);
    text
}

/// Formats a figure of an experiment's measure; effects have a sign.
pub fn figure(measure: Measure, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match measure {
        Measure::Spread | Measure::Sequential => format!("{:.1} %", 100.0 * value),
        Measure::Speedup | Measure::AllDone | Measure::Throughput | Measure::Delta => signed_percent(value),
    }
}

/// Returns a measure in words.
pub fn words(measure: Measure) -> &'static str {
    match measure {
        Measure::Speedup => "speedup over the default (geometric mean of the applications)",
        Measure::AllDone => "speedup over the default of the time until all have completed",
        Measure::Throughput => "instructions of all applications a second, over the default",
        Measure::Spread => "run-to-run spread of the application that varies most",
        Measure::Sequential => "share of the time with one runnable thread, as the system sees it",
        Measure::Delta => "benefit of close over distant placement (Δ)",
    }
}

/// Returns in words whether paper and simulation agree.
pub fn agreement(agrees: Option<bool>) -> &'static str {
    match agrees {
        Some(true) => "agrees",
        Some(false) => "does not agree",
        None => "not checked",
    }
}

fn write_result(out: &mut String, result: &ExperimentResult) -> Result {
    writeln!(out, "{}: {} ({}, {})", result.evidence, result.title, result.source, result.figure)?;
    let brackets =
        if result.measure == Measure::Speedup { "; in brackets its spread over the seeds, in %" } else { "" };
    writeln!(out, "\n{}{brackets}", words(result.measure))?;
    let variants = variant_names(result.scenarios.iter());
    let mut table = Table::new(&format!("<{}", ">".repeat(variants.len())));
    table.row(std::iter::once("").chain(variants.iter().map(|name| &**name)));
    for scenario in &result.scenarios {
        let cells = variants.iter().map(|variant| cell(scenario, variant, result.measure));
        table.row(std::iter::once(scenario.name.clone()).chain(cells));
    }
    write!(out, "{table}")?;
    if !result.findings.is_empty() {
        writeln!(out, "\nwhat the paper found")?;
    }
    let mut table = Table::new("<<");
    for verdict in &result.findings {
        table.row([agreement(verdict.agrees), &verdict.claim]);
        if !verdict.paper.is_empty() {
            table.row(["", &format!("paper: {}", verdict.paper)]);
        }
        table.row(["", &format!("ours:  {}", verdict.ours)]);
    }
    write!(out, "{table}")?;
    write_sensitivity(out, result)?;
    writeln!(out)
}

fn cell(scenario: &ScenarioResult, variant: &str, measure: Measure) -> String {
    let Some(variant) = scenario.variant(variant) else { return String::new() };
    let value = figure(measure, measure.of(variant));
    match spread(variant) {
        Some(spread) if measure == Measure::Speedup => format!("{value} ({:.1})", 100.0 * spread),
        _ => value,
    }
}

fn write_sensitivity(out: &mut String, result: &ExperimentResult) -> Result {
    let Some(table) = &result.sensitivity else { return Ok(()) };
    writeln!(
        out,
        "\nwhat it depends on: means over {} ({} seeds), claims that hold",
        table.scenarios.join(", "),
        table.runs
    )?;
    let mut text = Table::new(&format!("<{}", ">".repeat(table.variants.len())));
    text.row(std::iter::once("").chain(table.variants.iter().map(|name| &**name)));
    for row in &table.rows {
        let means = row.means.iter().map(|mean| figure(result.measure, *mean));
        let claims = format!("{} of {}", row.agree, row.checked);
        text.row(std::iter::once(row.name.clone()).chain(means).chain([claims]));
    }
    write!(out, "{text}")
}
