//! A recording as text.

use crate::table::Table;
use crate::terminal::Name;
use corewise_paths::summary::{HotFunction, Summary};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the text.
pub fn render(summary: &Summary) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_description(&mut text, summary);
    text
}

fn write_description(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    match summary.functions.first() {
        Some(hot) => {
            writeln!(out, "Most of the time went into {}: {}.\n", Name(&hot.name), percent(hot.share))?
        }
        None => writeln!(out, "No function can be named: no window was recorded.\n")?,
    }
    writeln!(
        out,
        "{}: {} windows of {} branches by {}, one each {:.1} ms of CPU time",
        Name(&summary.command.join(" ")),
        summary.windows,
        summary.branches_max,
        Name(&summary.backend),
        summary.period_ns as f64 / 1e6
    )?;
    let listed = |counts: &BTreeMap<String, u64>, of: u64| {
        let mut counts: Vec<_> = counts.iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(**count));
        let shown = |(reason, count): (&String, &u64)| {
            format!("{} {}", Name(reason), percent(*count as f64 / of.max(1) as f64))
        };
        counts.into_iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "windows ended: {}", listed(&summary.ended, summary.windows as u64))?;
    if !summary.without_window.is_empty() {
        let samples = summary.windows as u64 + summary.without_window.values().sum::<u64>();
        writeln!(out, "samples without a window: {}", listed(&summary.without_window, samples))?;
    }
    if summary.contradicting > 0 {
        writeln!(out, "windows that contradict the files' code: {}", summary.contradicting)?;
    }
    summary.notes.iter().try_for_each(|note| writeln!(out, "note: {}", Name(note)))?;
    writeln!(out, "\nhot functions (share of the time)")?;
    let mut functions = Table::new("><<");
    for HotFunction { share, name, module, .. } in &summary.functions {
        let file = Name(super::file_name(module)).to_string();
        functions.row([percent(*share), Name(name).to_string(), file]);
    }
    writeln!(
        out,
        "{functions}\nhot paths (share of all executions of paths; {} different ones estimated)",
        summary.different_paths
    )?;
    let mut paths = Table::new("><<<");
    for path in &summary.paths {
        paths.row([
            percent(path.share),
            format!("{}+{:#x}", Name(&path.function), path.offset),
            format!("{} blocks, {} instructions", path.blocks.len(), path.instructions),
            path.outcomes.clone(),
        ]);
    }
    write!(out, "{paths}")
}
