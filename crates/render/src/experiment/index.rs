//! All experiments on one page: each claim with the paper's number, ours with its interval, and whether
//! both agree.

use super::page::claims;
use super::table::tally;
use crate::page::{self, remark, text};
use corewise_sim::experiment::ExperimentResult;
use corewise_sim::experiment::finding::Judgement;
use maud::{Markup, html};

/// Renders the page. Each experiment has a page of its own beside it, `NAME.html`.
pub fn render(results: &[ExperimentResult]) -> String {
    let all: Vec<Judgement> = results.iter().flat_map(|result| result.findings.clone()).collect();
    let facts = [
        ("Evidence", text("simulated")),
        ("Experiments", text(results.len())),
        ("Claims", text(tally(&all))),
    ];
    let about = remark(
        "Every figure on this page is simulated. Ranges are 95 % intervals over seeds that all variants \
         share; a claim agrees if the whole interval does.",
    );
    let body = html! {
        (page::header("experiment run all", &text("Published results, simulated"), &facts, &about))
        (summary(results))
        @for result in results { (section(result)) }
    };
    page::document("experiments", include_str!("style.css"), &body)
}

fn link(result: &ExperimentResult) -> Markup {
    html! { a href=(format!("{}.html", result.name)) { (result.name) } }
}

fn summary(results: &[ExperimentResult]) -> Markup {
    let rows = html! {
        @for result in results {
            tr {
                th scope="row" { (link(result)) }
                td { (result.title) }
                td { (result.source) ", " (result.figure) }
                td { (tally(&result.findings)) }
            }
        }
    };
    page::section("Experiments", &page::table(&["Name", "What", "Paper", "Claims"], &rows))
}

fn section(result: &ExperimentResult) -> Markup {
    let content = html! {
        p { (link(result)) }
        (claims(result))
    };
    page::section(&result.title, &content)
}
