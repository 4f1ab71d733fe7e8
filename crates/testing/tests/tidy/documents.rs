//! Rules about what people read, and about what is nobody's business.

use std::collections::BTreeSet;

use crate::{Finding, Tree, check, finding};

/// Every relative link of a Markdown file leads to a file or directory of the tree, and a place in a Markdown
/// file that it names is a heading.
pub fn relative_links_lead_somewhere(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files(is_page) {
        for (index, target) in links(text).filter(|(_, target)| is_relative(target)) {
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
            let Some(file) = file.filter(|file| tree.contains(file) || is_directory(tree, file)) else {
                findings.push(finding(path, index, format!("the link {target} leads nowhere")));
                continue;
            };
            if is_page(&file) && !place.is_empty() && !headings(&tree.0[&file]).contains(place) {
                findings.push(finding(path, index, format!("{file} has no heading #{place}")));
            }
        }
    }
    findings
}

fn is_page(path: &str) -> bool {
    path.ends_with(".md")
}

fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// The lines of a Markdown file outside of code blocks, with their indices.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code_block = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code_block ^= is_fence;
        !in_code_block && !is_fence
    })
}

/// What the headings of a Markdown file are called in links, by the rule of GitHub and mdBook: small letters,
/// digits, `-` and `_`, a space as `-`, and a number behind a name that was there before.
fn headings(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = without_targets(line.trim_start_matches('#').trim());
        let words = title.to_lowercase().replace(' ', "-");
        let name: String = words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect();
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// A text with `[text](target)` as `text`.
fn without_targets(text: &str) -> String {
    let mut pieces = text.split("](");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |before, piece| before + piece.split_once(')').map_or(piece, |(_, after)| after))
}

/// The targets of `[text](target)` and `<img src="target">`, with their lines, outside of code blocks.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(index, line)| {
        let kinds = [("](", [')', ' ']), ("src=\"", ['"', '"']), ("href=\"", ['"', '"'])];
        kinds.into_iter().flat_map(move |(opening, closing)| {
            let ends = line.match_indices(opening).map(move |(at, _)| &line[at + opening.len()..]);
            ends.filter_map(move |rest| Some((index, &rest[..rest.find(closing)?])))
        })
    })
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

/// Every page is in the table of contents, so that a reader can find it, in the tree and in the book
/// (`./dev book`, which has no other pages). What GitHub reads by itself is no page.
pub fn documents_are_reachable(tree: &Tree) -> Vec<Finding> {
    const CONTENTS: &str = "docs/SUMMARY.md";
    let contents = tree.0.get(CONTENTS).map_or("", String::as_str);
    let listed: BTreeSet<String> = links(contents).filter_map(|(_, link)| resolve(CONTENTS, link)).collect();
    let pages = tree.files(|path| is_page(path) && path != CONTENTS && !path.starts_with(".github/"));
    pages
        .filter(|(path, _)| !listed.contains(*path))
        .map(|(path, _)| finding(path, 0, format!("list it in {CONTENTS}")))
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
    let readme = "# Top\n[run](docs/run.md) [web](https://a.example/x) [top](#top)\n```\n[no](no.md)\n```\n";
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
fn a_link_to_no_heading_is_found() {
    let page = "# A `b`: [C, d](x.md), e_f\n## Same\n## Same\n```\n# no\n```\n[c](a.rs#L1)\n";
    let found = |links: &str, places: &[&str]| {
        let readme = format!("# Top\n{links}");
        let files = [("README.md", readme.as_str()), ("a.md", page), ("a.rs", ""), ("x.md", "")];
        check(relative_links_lead_somewhere, &files, places);
    };
    found("[1](a.md#a-b-c-d-e_f) [2](a.md#same) [3](a.md#same-1) [4](#top) [5](https://a.example/#x)", &[]);
    for link in ["[6](a.md#same-2)", "[7](a.md#no)", "[8](#same)"] {
        found(link, &["README.md:2"]);
    }
}

#[test]
fn an_unreachable_document_is_found() {
    let contents = ("docs/SUMMARY.md", "- [run](run.md)\n- [all](../README.md)");
    let pages = [("docs/run.md", ""), ("README.md", ""), (".github/bug.md", "")];
    check(documents_are_reachable, &[&[contents], &pages[..]].concat(), &[]);
    check(documents_are_reachable, &[contents, ("docs/top.md", "")], &["docs/top.md:1"]);
    check(documents_are_reachable, &[("docs/run.md", "docs/run.md")], &["docs/run.md:1"]);
}

#[test]
fn a_path_of_a_developers_machine_is_found() {
    check(no_machine_is_named, &[("a.rs", "\"crates/root/x\" $PWD/work/ ../home/x /rooted")], &[]);
    check(no_machine_is_named, &[("a.md", &format!("\ncd /{}/me", "home"))], &["a.md:2"]);
    check(no_machine_is_named, &[("dev", &format!("\"/{}/x\"", "work"))], &["dev:1"]);
}
