//! The study of accuracy as a page: the path-profiling paper's Figures 3, 4 and 5.

use super::Study;
use crate::chart::lines::{Line, LineChart, Panel};
use crate::chart::{self, Axis};
use crate::page::words::Share;
use crate::page::{self, remark, text};
use corewise_core::profile::Measurement;
use corewise_paths::study::Row;
use maud::{Markup, html};
use std::collections::BTreeSet;

/// Returns the page.
pub fn render(study: &Study) -> String {
    let title = format!("path profiles of {}", study.command.join(" "));
    let body = html! {
        (header(study))
        (table(study))
        (by_period(study))
        (by_runs(study))
        (page::list("Notes", &study.notes))
    };
    page::document(&title, chart::STYLE, &body)
}

fn header(study: &Study) -> Markup {
    let runs = study.whole().next().map_or(0, |row| row.runs);
    let facts = [("Evidence", text(study.evidence)), ("Sampler", text(&study.backend)), ("Runs", text(runs))];
    page::header("paths accuracy", &text(study.command.join(" ")), &facts, &Markup::default())
}

fn table(study: &Study) -> Markup {
    let columns = [
        "Branches of a window",
        "Windows",
        "Accuracy",
        "Hot paths found",
        "Edge overlap",
        "Path overlap",
        "Unique paths",
    ];
    let rows = html! {
        @for row in study.whole() {
            @let agreement = &row.agreement;
            tr {
                th scope="row" { (row.branches) }
                td.figure { (row.windows) }
                td.figure { (Share(agreement.accuracy)) }
                td.figure { (agreement.hot_found) " of " (agreement.hot_paths) }
                td.figure { (Share(agreement.edge_overlap)) }
                td.figure { (Share(agreement.path_overlap)) }
                td.figure { (row.paths_seen_whole) }
            }
        }
    };
    let about = "Accuracy is the paper's: of the flow of paths with at least 0.125 % of it, the share whose \
                 paths are among the estimate's as many hottest.";
    page::section("All runs", &html! { (page::table(&columns, &rows)) (remark(about)) })
}

fn by_period(study: &Study) -> Markup {
    let caption = "Fewer samples, fewer paths: the paper's Figure 3, without its overhead. Longer periods \
                   are made by leaving out windows.";
    let period = |row: &Row| row.period_ns as f64 / 1e6;
    let panels = panels((&study.by_period, &period), "sampling period, ms of CPU time", true);
    section(study, "By sampling period, all runs together", caption, panels)
}

fn by_runs(study: &Study) -> Markup {
    let caption = "Runs put together: the paper's Figure 4 for the paths, its Figure 5 for the accuracy \
                   (75 to 95 % there).";
    let runs = |row: &Row| row.runs as f64;
    section(study, "By number of runs", caption, panels((&study.by_runs, &runs), "runs", false))
}

/// Draws the three quantities over another one.
fn panels(rows: (&[Row], Quantity<'_>), x_label: &'static str, logarithmic: bool) -> Vec<Panel> {
    let unique = |row: &Row| row.paths_seen_whole as f64;
    let accuracy = |row: &Row| 100.0 * row.agreement.accuracy;
    let overlap = |row: &Row| 100.0 * row.agreement.edge_overlap;
    vec![
        panel("Unique paths", rows, &unique, (x_label, "paths"), logarithmic),
        panel("Accuracy", rows, &accuracy, (x_label, "%"), logarithmic),
        panel("Edge overlap", rows, &overlap, (x_label, "%"), logarithmic),
    ]
}

fn section(study: &Study, title: &str, caption: &str, panels: Vec<Panel>) -> Markup {
    let names = lengths(&study.by_runs).iter().map(|branches| format!("{branches} branches")).collect();
    let (content, height) = LineChart { names, panels }.draw();
    let drawing = page::drawing("chart", (chart::WIDTH, height), title, &content);
    page::section(title, &html! { (drawing) (remark(caption)) })
}

fn lengths(rows: &[Row]) -> Vec<usize> {
    rows.iter().map(|row| row.branches).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The value of a row that is drawn.
type Quantity<'a> = &'a dyn Fn(&Row) -> f64;

/// Returns a line for each length of windows.
fn panel(
    heading: &str,
    (rows, x): (&[Row], Quantity<'_>),
    y: Quantity<'_>,
    labels: (&'static str, &'static str),
    logarithmic: bool,
) -> Panel {
    // There is one estimate for each setting, so no interval.
    let exact = |value| Measurement { value, low: value, high: value, repetitions: 1 };
    let lines = lengths(rows).into_iter().enumerate().map(|(name, branches)| {
        let of_length = rows.iter().filter(|row| row.branches == branches);
        Line { name, points: of_length.map(|row| (x(row), exact(y(row)))).collect() }
    });
    let xs = || rows.iter().map(x);
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    let highest = rows.iter().map(y).fold(0.0, f64::max);
    Panel {
        heading: heading.to_owned(),
        lines: lines.collect(),
        x: if logarithmic { Axis::logarithmic(low, high) } else { Axis::linear(low, high, 8) },
        y: Axis::linear(0.0, highest, 6),
        labels,
        marks: Vec::new(),
        base: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::browser;
    use corewise_paths::accuracy::Agreement;

    fn row(one_in: u64, runs: usize, branches: usize) -> Row {
        let accuracy = 1.0 - 1.0 / (runs * branches) as f64;
        Row {
            period_ns: 2_000_000 * one_in,
            runs,
            branches,
            windows: 100,
            paths_seen_whole: 40 * runs,
            agreement: Agreement {
                accuracy,
                edge_overlap: accuracy,
                path_overlap: accuracy,
                hot_paths: 20,
                hot_found: 19,
                hot_flow: 0.9,
            },
        }
    }

    #[test]
    fn every_length_of_windows_has_its_curves() {
        let lengths = [16, 32];
        let study = Study {
            evidence: "measured windows beside emulated truth",
            command: vec!["./a<b".to_owned()],
            backend: "shadow".to_owned(),
            by_period: lengths.iter().flat_map(|&n| [1, 2].map(|one_in| row(one_in, 2, n))).collect(),
            by_runs: lengths.iter().flat_map(|&n| [1, 2].map(|runs| row(1, runs, n))).collect(),
            notes: vec!["a note".to_owned()],
        };
        let page = render(&study);
        assert_eq!(page.matches("<polyline").count(), 6 * lengths.len());
        for part in ["a&lt;b", "32 branches", "19 of 20", "97 %", "a note"] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        browser::check_self_contained(&page);
    }
}
