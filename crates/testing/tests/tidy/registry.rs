//! A rule that holds what is written of the policies beside their registry.

use crate::{Finding, Tree, check, finding};
use corewise_core::policy::{KINDS, Parameter};

const PAGE: &str = "docs/policies.md";

/// The tables of policies and of their parameters have the registry's rows, in its order.
pub fn the_page_of_policies_is_that_of_the_registry(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files(|path| path == PAGE) {
        let mut rows = text.lines().enumerate().filter(|(_, line)| line.starts_with("| `"));
        let mut line = 0;
        for expected in expected_rows() {
            let found;
            (line, found) = rows.next().unwrap_or((line, "the end"));
            if found != expected {
                findings.push(finding(path, line, format!("the registry says {expected}")));
            }
        }
        findings.extend(
            rows.map(|(line, _)| finding(path, line, "the registry has no such policy or parameter")),
        );
    }
    findings
}

fn expected_rows() -> Vec<String> {
    let rows = KINDS
        .iter()
        .map(|kind| format!("| `{}` | {} | {} | {} |", kind.name, kind.machine, kind.rule, kind.source));
    let mut rows: Vec<String> = rows.collect();
    for kind in KINDS {
        for Parameter { name, default, unit, doc, .. } in kind.parameters() {
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            rows.push(format!("| `{}` | `{name}` | {default}{unit} | {doc} |", kind.name));
        }
    }
    rows
}

#[test]
fn a_row_that_differs_from_the_registry_is_found() {
    let rows = expected_rows();
    check(the_page_of_policies_is_that_of_the_registry, &[(PAGE, &rows.join("\n"))], &[]);
    let missing = rows[..rows.len() - 1].join("\n");
    check(the_page_of_policies_is_that_of_the_registry, &[(PAGE, &missing)], &["docs/policies.md:"]);
    let more = rows.join("\n") + "\n| `best` | any |";
    let place = format!("docs/policies.md:{}: the registry has no such", rows.len() + 1);
    check(the_page_of_policies_is_that_of_the_registry, &[(PAGE, &more)], &[&place]);
}
