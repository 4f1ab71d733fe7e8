//! The study of accuracy as a page: the path-profiling paper's Figures 3, 4 and 5.

use super::Study;
use crate::chart::lines::{Line, LineChart, Panel};
use crate::chart::{self, Axis};
use crate::page;
use crate::page::markup::{Share, Text};
use corewise_core::profile::Estimate;
use corewise_paths::study::Row;
use std::collections::BTreeSet;
use std::fmt::{Display, Formatter, Result};

/// The page.
pub fn render(study: &Study) -> String {
    let title = format!("path profiles of {}", study.command.join(" "));
    page::document(&title, chart::STYLE, Body(study))
}

struct Body<'a>(&'a Study);

impl Display for Body<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let study = self.0;
        header(f, study)?;
        table(f, study)?;
        let periods = "sampling period, ms of CPU time";
        let unique = |row: &Row| row.paths_seen_whole as f64;
        let accuracy = |row: &Row| 100.0 * row.agreement.accuracy;
        let overlap = |row: &Row| 100.0 * row.agreement.edge_overlap;
        let period = |row: &Row| row.period_ns as f64 / 1e6;
        let runs = |row: &Row| row.runs as f64;
        let by_period = [
            panel("Unique paths", (&study.by_period, &period), &unique, (periods, "paths"), true),
            panel("Accuracy", (&study.by_period, &period), &accuracy, (periods, "%"), true),
            panel("Edge overlap", (&study.by_period, &period), &overlap, (periods, "%"), true),
        ];
        let by_runs = [
            panel("Unique paths", (&study.by_runs, &runs), &unique, ("runs", "paths"), false),
            panel("Accuracy", (&study.by_runs, &runs), &accuracy, ("runs", "%"), false),
            panel("Edge overlap", (&study.by_runs, &runs), &overlap, ("runs", "%"), false),
        ];
        let caption = "Fewer samples, fewer paths: the paper's Figure 3, without its overhead. Longer \
                       periods are made by leaving out windows.";
        section(f, study, "By sampling period, all runs together", caption, by_period.into())?;
        let caption = "Runs put together: the paper's Figure 4 for the paths, its Figure 5 for the accuracy \
                       (75 to 95 % there).";
        section(f, study, "By number of runs", caption, by_runs.into())?;
        page::list(f, "Notes", &study.notes)
    }
}

fn header(f: &mut Formatter<'_>, study: &Study) -> Result {
    let command = study.command.join(" ");
    writeln!(f, "<header>\n<p class=\"brand\">corewise paths accuracy</p>\n<h1>{}</h1>", Text(&command))?;
    let runs = study.whole().next().map_or(0, |row| row.runs);
    let facts: [(&str, &dyn Display); 3] =
        [("Evidence", &Text(study.evidence)), ("Sampler", &Text(&study.backend)), ("Runs", &runs)];
    page::facts(f, &facts)?;
    writeln!(f, "</header>")
}

fn table(f: &mut Formatter<'_>, study: &Study) -> Result {
    writeln!(f, "<section>\n<h2>All runs</h2>\n<div class=\"scroll\">\n<table>\n<thead><tr>")?;
    for column in [
        "Branches of a window",
        "Windows",
        "Accuracy",
        "Hot paths found",
        "Edge overlap",
        "Path overlap",
        "Unique paths",
    ] {
        writeln!(f, "<th scope=\"col\">{column}</th>")?;
    }
    writeln!(f, "</tr></thead>\n<tbody>")?;
    for row in study.whole() {
        let agreement = &row.agreement;
        writeln!(
            f,
            "<tr><th scope=\"row\">{}</th><td class=\"figure\">{}</td>\
             <td class=\"figure\">{}</td><td class=\"figure\">{} of {}</td><td class=\"figure\">{}</td>\
             <td class=\"figure\">{}</td><td class=\"figure\">{}</td></tr>",
            row.branches,
            row.windows,
            Share(agreement.accuracy),
            agreement.hot_found,
            agreement.hot_paths,
            Share(agreement.edge_overlap),
            Share(agreement.path_overlap),
            row.paths_seen_whole
        )?;
    }
    writeln!(f, "</tbody>\n</table>\n</div>")?;
    writeln!(
        f,
        "<p class=\"quiet\">Accuracy is the paper's: of the flow of paths with at least 0.125 % of it, the \
         share whose paths are among the estimate's as many hottest.</p>\n</section>"
    )
}

fn section(f: &mut Formatter<'_>, study: &Study, title: &str, caption: &str, panels: Vec<Panel>) -> Result {
    let names = lengths(&study.by_runs).iter().map(|branches| format!("{branches} branches")).collect();
    let (content, height) = LineChart { names, panels }.draw();
    let figure = chart::Figure {
        file: String::new(),
        title: title.to_owned(),
        caption: caption.to_owned(),
        content,
        height,
    };
    writeln!(f, "<section>\n<h2>{}</h2>\n<div class=\"scroll\">", Text(title))?;
    writeln!(f, "{}</div>\n<p class=\"quiet\">{}</p>\n</section>", figure.embedded(), Text(&figure.caption))
}

fn lengths(rows: &[Row]) -> Vec<usize> {
    rows.iter().map(|row| row.branches).collect::<BTreeSet<_>>().into_iter().collect()
}

/// What is drawn of a row.
type Quantity<'a> = &'a dyn Fn(&Row) -> f64;

/// A line for each length of windows.
fn panel(
    heading: &str,
    (rows, x): (&[Row], Quantity<'_>),
    y: Quantity<'_>,
    labels: (&'static str, &'static str),
    logarithmic: bool,
) -> Panel {
    // There is one estimate for each setting, so no interval.
    let exact = |value| Estimate { value, low: value, high: value, repetitions: 1 };
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
