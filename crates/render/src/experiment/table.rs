//! The result of an experiment as text for a terminal.

use crate::table::Table;
use corewise_sim::estimate::Estimate;
use corewise_sim::experiment::finding::{Agreement, Judgement, percent, signed_percent};
use corewise_sim::experiment::{ExperimentResult, Measure, ScenarioResult, count, variant_names};
use std::fmt::{Result, Write};

/// Renders the text.
pub fn render(result: &ExperimentResult) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_result(&mut text, result);
    text
}

/// Formats a figure of an experiment's measure with half its interval; effects have a sign.
pub fn figure(measure: Measure, value: Option<Estimate>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match measure {
        Measure::Spread | Measure::Sequential => percent(&value),
        Measure::Speedup | Measure::AllDone | Measure::WeightedSpeedup | Measure::Delta => {
            signed_percent(&value)
        }
    }
}

/// Returns a measure in words.
pub fn words(measure: Measure) -> &'static str {
    match measure {
        Measure::Speedup => "speedup over the default (geometric mean of the applications)",
        Measure::AllDone => "speedup over the default of the time until all have completed",
        Measure::WeightedSpeedup => {
            "weighted speedup (what all get done, each relative to alone), over the default"
        }
        Measure::Spread => "run-to-run spread of the application that varies most",
        Measure::Sequential => "share of the time with one runnable thread, as the system sees it",
        Measure::Delta => "benefit of close over distant placement (Δ)",
    }
}

/// Returns in words whether paper and simulation agree.
pub fn agreement(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::Agrees => "agrees",
        Agreement::Disagrees => "does not agree",
        Agreement::Undecided => "undecided",
        Agreement::NotChecked => "not checked",
    }
}

/// Renders the claims of all experiments as one table.
pub fn render_claims(results: &[ExperimentResult]) -> String {
    let mut table = Table::new("<<<");
    for result in results {
        table.row([result.name.as_str(), &tally(&result.findings), &result.title]);
    }
    let all: Vec<Judgement> = results.iter().flat_map(|result| result.findings.clone()).collect();
    table.row(["all", &tally(&all), ""]);
    let mut text = format!(
        "Of what the papers found, {}.\n\nsimulated: the claims of {} experiments\n{table}",
        tally(&all),
        results.len()
    );
    for result in results {
        text += &format!("\n{} ({}, {})\n{}", result.name, result.source, result.figure, claims(result));
    }
    text
}

/// Returns how many claims agree, and how many do not.
pub fn tally(judged: &[Judgement]) -> String {
    let rest = [(Agreement::Undecided, "undecided"), (Agreement::NotChecked, "not checked")];
    let rest = rest.map(|(agreement, words)| (count(judged, agreement), words));
    let rest = rest.iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!(", {count} {words}"));
    let agree = count(judged, Agreement::Agrees);
    format!("{agree} of {} agree{}", judged.len(), rest.collect::<String>())
}

fn claims(result: &ExperimentResult) -> Table {
    let mut table = Table::new("<<");
    for judgement in &result.findings {
        table.row([agreement(judgement.agreement), &judgement.claim]);
        if !judgement.paper.is_empty() {
            table.row(["", &format!("paper: {}", judgement.paper)]);
        }
        table.row(["", &format!("ours:  {}", judgement.ours)]);
    }
    table
}

fn write_result(out: &mut String, result: &ExperimentResult) -> Result {
    if !result.findings.is_empty() {
        writeln!(out, "Of what the paper found, {}.\n", tally(&result.findings))?;
    }
    writeln!(out, "{}: {} ({}, {})", result.evidence, result.title, result.source, result.figure)?;
    writeln!(out, "\n{}, with 95 % intervals over the seeds", words(result.measure))?;
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
    write!(out, "{}", claims(result))?;
    write_sensitivity(out, result)?;
    writeln!(out)
}

fn cell(scenario: &ScenarioResult, variant: &str, measure: Measure) -> String {
    let Some(variant) = scenario.variant(variant) else { return String::new() };
    figure(measure, measure.of(variant))
}

fn write_sensitivity(out: &mut String, result: &ExperimentResult) -> Result {
    let Some(table) = &result.sensitivity else { return Ok(()) };
    writeln!(
        out,
        "\nwhat it depends on: means over {} ({} seeds), claims that agree",
        table.scenarios.join(", "),
        table.runs
    )?;
    let mut text = Table::new(&format!("<{}", ">".repeat(table.variants.len())));
    text.row(std::iter::once("").chain(table.variants.iter().map(|name| &**name)));
    for row in &table.rows {
        let means = row.means.iter().map(|mean| figure(result.measure, *mean));
        let claims = format!("{} of {}, {} undecided", row.agree, row.checked, row.undecided);
        text.row(std::iter::once(row.name.clone()).chain(means).chain([claims]));
    }
    write!(out, "{text}")
}
