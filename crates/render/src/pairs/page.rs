//! What pairs of programs gain, as a page with a heat map.

use super::{EVIDENCE, gain_with_interval, pair_of, summary};
use crate::chart::palette::on_scale;
use crate::chart::{self, Figure, WIDTH, tenth, text_width};
use crate::page::{self, known, text};
use crate::profile::words;
use corewise_core::pairs::{Findings, Plan};
use maud::{Markup, html};

const TOP: f64 = 30.0;
const CELL_MAX: f64 = 46.0;
/// The cell width from which a figure fits into it.
const CELL_WITH_FIGURE_MIN: f64 = 28.0;
/// Names take at most this share of the width.
const NAMES_MAX: f64 = 300.0;

/// Returns the page.
pub fn render(plan: &Plan, findings: &Findings) -> String {
    let facts = [
        ("Evidence", text(EVIDENCE)),
        ("PEs", text(format!("{}, {}", plan.pes[0], plan.pes[1]))),
        ("Runs of each", text(plan.runs)),
        ("Seed of the order", text(plan.seed)),
    ];
    let about = page::remark(format!(
        "{}. The gain is that of both at once over one after the other: in the time in which each completes \
         1/slowdown of its work, one after the other would complete 1. Programs are started again until both \
         have completed, so that both have a neighbour all the time. Intervals miss the truth once in \
         twenty.",
        summary(plan, findings)
    ));
    let heat = heat_map(findings);
    let body = html! {
        (page::header("pairs", &text("What pairs of programs gain"), &facts, &about))
        (page::section(&heat.title, &html! { (heat.embedded()) (page::remark(&heat.caption)) }))
        (pairs(findings))
        (alone(plan, findings))
    };
    page::document("pairs", chart::STYLE, &body)
}

/// Returns the drawing of all pairs.
pub fn heat_map(findings: &Findings) -> Figure {
    let count = findings.programs.len();
    let widest = findings.programs.iter().map(|name| text_width(name)).fold(0.0, f64::max);
    let left = widest.min(NAMES_MAX) + 40.0;
    let side = ((WIDTH - left) / count.max(1) as f64).min(CELL_MAX);
    let gains = || findings.pairs.iter().map(|pair| pair.gain.value);
    let (low, high) = gains().fold((0.0_f64, 0.0_f64), |(low, high), gain| (low.min(gain), high.max(gain)));
    let middle = |index: usize| side * (index as f64 + 0.5);
    let content = html! {
        @for (row, name) in findings.programs.iter().enumerate() {
            text.tick.end x=(tenth(left - 8.0)) y=(tenth(TOP + middle(row) + 4.0)) {
                (shortened(name)) " " (row + 1)
            }
            text.tick.middle x=(tenth(left + middle(row))) y=(TOP - 8.0) { (row + 1) }
            @for column in 0..count {
                (cell(findings, (row, column), (left, side), (low, high)))
            }
        }
    };
    Figure {
        file: "pairs".to_owned(),
        title: "Gain of both at once, per cent".to_owned(),
        caption:
            "Each row is a program, each column the one beside it. Figures in brackets are predicted: these \
                  pairs did not run."
                .to_owned(),
        content,
        height: TOP + side * count as f64 + 10.0,
    }
}

fn cell(
    findings: &Findings,
    (row, column): (usize, usize),
    (left, side): (f64, f64),
    (low, high): (f64, f64),
) -> Markup {
    let Some(pair) = pair_of(findings, row, column) else { return Markup::default() };
    let share = if high > low { (pair.gain.value - low) / (high - low) } else { 0.5 };
    let ink = if share > 0.55 { "#111" } else { "#fff" };
    let (x, y) = (left + side * column as f64, TOP + side * row as f64);
    let figure = format!("{:+.0}", 100.0 * pair.gain.value);
    html! {
        rect x=(tenth(x)) y=(tenth(y)) width=(tenth(side - 1.0)) height=(tenth(side - 1.0))
            fill=(on_scale(share)) {
            title {
                (findings.programs[row]) " beside " (findings.programs[column]) ": "
                (gain_with_interval(pair))
            }
        }
        @if side >= CELL_WITH_FIGURE_MIN {
            text.cell style={ "fill:" (ink) } x=(tenth(x + side / 2.0)) y=(tenth(y + side / 2.0 + 4.0)) {
                @if pair.measured { (figure) } @else { "(" (figure) ")" }
            }
        }
    }
}

/// Returns the beginning of a name that is too long for a label.
fn shortened(name: &str) -> String {
    let mut short = name.to_owned();
    while text_width(&short) > NAMES_MAX {
        short.pop();
    }
    short
}

fn pairs(findings: &Findings) -> Markup {
    let rows = html! {
        @for pair in &findings.pairs {
            tr {
                th scope="row" { (findings.programs[pair.a]) }
                td { (findings.programs[pair.b]) }
                td.figure { (gain_with_interval(pair)) }
                @for slowdown in pair.slowdowns {
                    td.figure {
                        @if pair.measured { (words::interval(slowdown)) }
                        @else { (format!("{:.2} predicted", slowdown.value)) }
                    }
                }
            }
        }
    };
    let columns = ["Program", "Beside", "Gain [95 %]", "Slowdown of the first", "Of the second"];
    page::section("Pairs", &page::table(&columns, &rows))
}

fn alone(plan: &Plan, findings: &Findings) -> Markup {
    let rows = html! {
        @for (program, alone) in plan.programs.iter().zip(&findings.alone) {
            tr {
                th scope="row" { (program.name) }
                td.figure { (known(alone.map(words::interval))) }
                td { code { (program.command.join(" ")) } }
            }
        }
    };
    page::section("Alone", &page::table(&["Program", "Time in s [95 %]", "Command"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::{csv, table};
    use corewise_core::ids::PeId;
    use corewise_core::pairs::{Program, Record, Subject, findings, rows};

    #[test]
    fn every_form_shows_each_pair_with_its_interval_and_what_is_predicted() {
        let program = |name: &str| Program { name: name.to_owned(), command: vec![name.to_owned()] };
        let plan = Plan {
            programs: ["<a>", "b", "c", "d", "e"].map(program).to_vec(),
            pes: [PeId(0), PeId(1)],
            runs: 3,
            seed: 1,
            every: false,
            timeout_seconds: None,
        };
        let mut records = Vec::new();
        for run in 0..3 {
            for subject in plan.subjects().into_iter().filter(|subject| *subject != Subject::Pair(1, 3)) {
                let seconds = match subject {
                    Subject::Alone(a) => vec![1.0 + a as f64],
                    Subject::Pair(a, b) => {
                        [a, b].map(|a| (1.0 + a as f64) * (1.25 + 0.01 * f64::from(run))).to_vec()
                    }
                };
                records.push(Record { subject, seconds });
            }
        }
        let found = findings(&plan, &records);
        let text = table::render(&plan, &found);
        assert!(
            text.contains("14 of 15 pairs measured on the PEs 0 and 1; the others are predicted"),
            "{text}"
        );
        assert!(text.contains("+59 % [") && text.contains("~+5"), "{text}");
        let page = render(&plan, &found);
        assert!(page.contains("&lt;a&gt; beside b: +59 % [") && page.contains("(+5"), "{page}");
        page::browser::check_self_contained(&page);
        let csv = csv::write(&rows(&plan, &records));
        assert_eq!(csv.lines().count(), 1 + 5 + 2 * 9, "{csv}");
    }
}
