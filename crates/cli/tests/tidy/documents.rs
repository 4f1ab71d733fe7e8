//! Rules about what people read, and about what is nobody's business.

use crate::{Finding, Tree, check, finding};

/// Every relative link of a Markdown file leads to a file or directory of the tree.
pub fn relative_links_lead_somewhere(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files(|path| path.ends_with(".md")) {
        for (index, target) in links(text) {
            let file = target.split('#').next().unwrap_or_default();
            let is_relative = !file.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
            let leads_somewhere =
                resolve(path, file).is_some_and(|p| tree.contains(&p) || is_directory(tree, &p));
            if is_relative && !leads_somewhere {
                findings.push(finding(path, index, format!("the link {target} leads nowhere")));
            }
        }
    }
    findings
}

/// The targets of `[text](target)` and `<img src="target">`, with their lines, outside of code blocks.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut in_code_block = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code_block = !in_code_block;
        }
        if in_code_block {
            continue;
        }
        for (opening, closing) in [("](", [')', ' ']), ("src=\"", ['"', '"']), ("href=\"", ['"', '"'])] {
            let ends = line.match_indices(opening).map(|(at, _)| &line[at + opening.len()..]);
            found.extend(ends.filter_map(|rest| Some((index, &rest[..rest.find(closing)?]))));
        }
    }
    found
}

/// The path from the root of a link in the file `from`; `None` if it leads out of the tree.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn is_directory(tree: &Tree, path: &str) -> bool {
    let prefix = format!("{path}/");
    path.is_empty() || tree.files(|file| file.starts_with(&prefix)).next().is_some()
}

/// Every page of `docs/` is linked from the README, so that a reader can find it.
pub fn documents_are_reachable(tree: &Tree) -> Vec<Finding> {
    let readme = tree.files(|path| path == "README.md").map(|(_, text)| text).next().unwrap_or_default();
    let linked = links(readme);
    let is_linked = |path: &str| linked.iter().any(|(_, link)| link.split('#').next() == Some(path));
    let pages = tree.files(|path| path.starts_with("docs/") && path.ends_with(".md"));
    pages
        .filter(|(path, _)| !is_linked(path))
        .map(|(path, _)| finding(path, 0, "link it in README.md"))
        .collect()
}

/// No path of the author's machine: it would hold nowhere else.
pub fn no_machine_is_named(tree: &Tree) -> Vec<Finding> {
    // In parts, so that this file itself keeps the rule.
    let homes = ["home", "root", "Users", "work"].map(|directory| format!("/{directory}/"));
    let mut findings = Vec::new();
    for (path, text) in tree.files(|path| !path.contains("/fixtures/") && !path.contains("/machines/")) {
        for (index, line) in text.lines().enumerate() {
            for home in &homes {
                if line.match_indices(home).any(|(at, _)| starts_a_path(&line[..at])) {
                    findings.push(finding(
                        path,
                        index,
                        format!("a path under {home} is of one machine only"),
                    ));
                }
            }
        }
    }
    findings
}

/// Whether a slash after this text is the root, not a separator within a path.
fn starts_a_path(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "._-/~})".contains(c))
}

#[test]
fn a_dead_link_is_found() {
    let readme = "[run](docs/run.md#top) [web](https://a.example/x) [top](#top)\n```\n[no](no.md)\n```\n";
    let run = "[back](../README.md) ![picture](a.svg \"title\") [all](.)";
    check(
        relative_links_lead_somewhere,
        &[("README.md", readme), ("docs/run.md", run), ("docs/a.svg", "")],
        &[],
    );
    check(relative_links_lead_somewhere, &[("README.md", "\n[a](docs/no.md)")], &["README.md:2"]);
    check(relative_links_lead_somewhere, &[("README.md", "<img src=\"no.svg\">")], &["README.md:1"]);
    check(relative_links_lead_somewhere, &[("README.md", "[out](../x)")], &["README.md:1"]);
}

#[test]
fn an_unreachable_document_is_found() {
    check(documents_are_reachable, &[("README.md", "[run](docs/run.md)"), ("docs/run.md", "")], &[]);
    check(
        documents_are_reachable,
        &[("README.md", "see docs/run.md"), ("docs/run.md", "")],
        &["docs/run.md:1"],
    );
}

#[test]
fn a_path_of_a_developers_machine_is_found() {
    check(no_machine_is_named, &[("a.rs", "\"crates/root/x\" $PWD/work/ ../home/x /rooted")], &[]);
    check(no_machine_is_named, &[("a.md", &format!("\ncd /{}/me", "home"))], &["a.md:2"]);
    check(no_machine_is_named, &[("dev", &format!("\"/{}/x\"", "work"))], &["dev:1"]);
}
