//! A recording as a page: the time by caller, the hot functions as source and machine code with the ways of
//! their branches, and the hot paths.

pub use super::flame::Flame;

use super::file_name;
use crate::page::words::Share;
use crate::page::{self, remark, text};
use corewise_paths::listing::{Listed, Listing};
use corewise_paths::summary::{HotFunction, Summary};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The least share of its function's time that makes an instruction hot.
const HOT: f64 = 0.05;

/// Of a listing.
const COLUMNS: [&str; 5] = ["Time", "Executed", "Taken", "Address", "Instruction"];

/// Returns the page, from a summary and the listing of each of its functions (`None` if there is none).
pub fn render(summary: &Summary, listings: &[Option<Listing>], flame: &Flame) -> String {
    let title = format!("paths of {}", summary.command.join(" "));
    let about = "Each function is above its caller, and as wide as its share of the time. A window reaches \
                 few callers, so the lowest row is not always where the program began.";
    let body = html! {
        (header(summary))
        (page::section("Time by caller", &html! { (flame.draw()) (remark(about)) }))
        (functions(summary, listings))
        (paths(summary))
        (page::list("Notes", &summary.notes))
    };
    page::document(&title, include_str!("style.css"), &body)
}

fn header(summary: &Summary) -> Markup {
    let listed = |counts: &BTreeMap<String, u64>| {
        let all = counts.values().sum::<u64>().max(1) as f64;
        let words = counts.iter().map(|(reason, count)| format!("{reason} {}", Share(*count as f64 / all)));
        text(words.collect::<Vec<_>>().join(", "))
    };
    let facts = [
        ("Evidence", text(summary.evidence)),
        ("Sampler", text(&summary.backend)),
        ("Windows", text(format!("{} of {} branches", summary.windows, summary.branches_max))),
        ("One each", text(format!("{:.1} ms of CPU time", summary.period_ns as f64 / 1e6))),
        ("They ended", listed(&summary.ended)),
        ("Samples without one", text(summary.without_window.values().sum::<u64>())),
        ("Contradicting the code", text(summary.contradicting)),
    ];
    page::header("paths report", &text(summary.command.join(" ")), &facts, &Markup::default())
}

fn functions(summary: &Summary, listings: &[Option<Listing>]) -> Markup {
    let about = "Time: share of all samples that were taken there. Executed: against the function's most \
                 frequent instruction; Taken: the share of a branch's executions that took it, with a bar; \
                 both estimated from the windows. Instructions that no window shows are left out.";
    let content = html! {
        @for (index, (function, listing)) in summary.functions.iter().zip(listings).enumerate() {
            details open[index == 0] {
                summary {
                    span.share { (Share(function.share)) }
                    span.bar { i style={ "width:" (format!("{:.1}", 100.0 * function.share)) "%" } {} }
                    span.name { code { (function.name) } " " span.quiet { (file_name(&function.module)) } }
                }
                @match listing {
                    Some(listing) if !listing.instructions.is_empty() => (code(function, listing, index)),
                    _ => p.quiet { "Its code is not available." },
                }
            }
        }
        (remark(about))
    };
    page::section("Hot functions", &content)
}

fn code(function: &HotFunction, listing: &Listing, index: usize) -> Markup {
    let places = listing.instructions.iter().map(|listed| &listed.places[..]);
    let before = std::iter::once(&[][..]).chain(places);
    html! {
        div.scroll {
            table.code {
                thead { tr { @for name in COLUMNS { th { (name) } } } }
                tbody {
                    @for (listed, before) in listing.instructions.iter().zip(before) {
                        @if listed.behind_a_gap { tr.gap { td colspan="5" { "  ⋮" } } }
                        @if listed.places != before { (source_line(listed)) }
                        (instruction(function, listed, index))
                    }
                }
            }
        }
    }
}

/// Formats the source line of instructions, with the inlined calls that lead to it.
fn source_line(listed: &Listed) -> Markup {
    let Some((innermost, callers)) = listed.places.split_last() else { return Markup::default() };
    html! {
        tr.line {
            td colspan="5" {
                (file_name(&innermost.file)) ":" (innermost.line) "  "
                @if let Some(line) = &listed.line { b { (line) } }
                @if !callers.is_empty() {
                    "  (" (corewise_paths::demangled(&innermost.function)) " inlined at"
                    @for caller in callers.iter().rev() { " " (file_name(&caller.file)) ":" (caller.line) }
                    ")"
                }
            }
        }
    }
}

fn instruction(function: &HotFunction, listed: &Listed, index: usize) -> Markup {
    let is_hot = listed.time >= HOT * function.share && listed.time > 0.0;
    html! {
        tr id={ "f" (index) "-" (format!("{:x}", listed.address)) } {
            td.figure.hot[is_hot] { @if listed.time > 0.0 { (Share(listed.time)) } }
            td.figure { (Share(listed.executed)) }
            td {
                @if let Some(taken) = listed.taken {
                    span.ways { i style={ "width:" (format!("{:.0}", 100.0 * taken)) "%" } {} }
                    " " (Share(taken))
                }
            }
            td { (format!("{:x}", listed.address)) }
            td {
                (listed.assembly.as_deref().unwrap_or("?"))
                @if let Some(target) = listed.target {
                    "  " a href={ "#f" (index) "-" (format!("{target:x}")) } { "↷" }
                }
                @if let Some(name) = &listed.leads_to { "  → " (name) }
            }
        }
    }
}

fn paths(summary: &Summary) -> Markup {
    let columns = [
        ("Share", "of all executions of paths"),
        ("Begins at", "the function, and bytes after its first instruction"),
        ("Blocks", "basic blocks"),
        ("Instructions", ""),
        ("Branches", "T taken, N not taken, J and an address: an indirect jump"),
    ];
    let rows = html! {
        @for path in &summary.paths {
            tr {
                th scope="row" { (Share(path.share)) }
                td { code { (path.function) "+" (format!("{:#x}", path.offset)) } }
                td.figure { (path.blocks.len()) }
                td.figure { (path.instructions) }
                td { code { (path.outcomes) } }
            }
        }
    };
    let count = format!("{} different paths have an estimated flow.", summary.different_paths);
    page::section("Hot paths", &html! { (page::table_explained(&columns, &rows)) (remark(count)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::browser;
    use corewise_paths::export::source::Place;
    use corewise_paths::export::stacks::Callee;
    use corewise_paths::summary::HotPath;
    use corewise_paths::window::ModuleId;
    use corewise_testing::needs;

    fn listed(address: u64, time: f64, taken: Option<f64>) -> Listed {
        let place = |function: &str, line| Place {
            function: function.to_owned(),
            file: "/src/a<b.c".to_owned(),
            line,
        };
        Listed {
            address,
            assembly: Some("jne 0x1100".to_owned()),
            time,
            executed: 1.0,
            taken,
            target: taken.map(|_| 0x1100),
            leads_to: taken.is_none().then(|| "helper".to_owned()),
            places: vec![place("work", 12), place("_ZN4text5countEPKcRi", 7)],
            line: Some("while (i < n)".to_owned()),
            behind_a_gap: address == 0x1110,
        }
    }

    fn page() -> String {
        let callee = Callee { module: ModuleId(0), start: Some(0x1100) };
        let function = HotFunction {
            callee,
            share: 0.5,
            name: "work<int>".to_owned(),
            module: "/opt/program".to_owned(),
        };
        let path = HotPath {
            share: 0.25,
            function: "work<int>".to_owned(),
            offset: 0x10,
            module: "/opt/program".to_owned(),
            outcomes: "TTN".to_owned(),
            blocks: vec![0x1110, 0x1120],
            instructions: 9,
        };
        let stripped = HotFunction { name: "[vdso]".to_owned(), ..function.clone() };
        let summary = Summary {
            evidence: "measured windows, estimated paths",
            command: vec!["./a<b".to_owned()],
            backend: "shadow".to_owned(),
            period_ns: 10_000_000,
            branches_max: 32,
            windows: 100,
            without_window: BTreeMap::from([("lost".to_owned(), 3)]),
            ended: BTreeMap::from([("full".to_owned(), 90), ("system call".to_owned(), 10)]),
            contradicting: 0,
            different_paths: 17,
            functions: vec![function, stripped],
            paths: vec![path],
            notes: vec!["a note".to_owned()],
        };
        let instructions =
            vec![listed(0x1100, 0.2, None), listed(0x1104, 0.0, Some(0.75)), listed(0x1110, 0.01, Some(0.0))];
        let listing = Listing { function: callee, instructions };
        let mut flame = Flame::default();
        flame.add(["main".to_owned(), "work<int>".to_owned()], 1.0);
        render(&summary, &[Some(listing), None], &flame)
    }

    #[test]
    fn a_function_is_its_source_and_its_machine_code_with_the_ways_of_its_branches() {
        let page = page();
        for part in [
            "a&lt;b.c:7",
            "while (i &lt; n)",
            "text::count(char const*, int&amp;) inlined at a&lt;b.c:12",
            "width:75%",
            "id=\"f0-1104\"",
            "href=\"#f0-1100\"",
            "→ helper",
            "full 90 %, system call 10 %",
            "Its code is not available.",
            "work&lt;int&gt;",
            "TTN",
            "a note",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        assert_eq!(page.matches("⋮").count(), 1);
        assert_eq!(page.matches("<tr class=\"line\">").count(), 1, "a line is named once for all its code");
        browser::check_self_contained(&page);
    }

    #[test]
    fn a_browser_shows_it() {
        needs!(Chromium);
        let dom = browser::dom(&page());
        assert!(dom.contains("0x1100") && dom.contains("work&lt;int&gt;"), "{dom}");
    }
}
