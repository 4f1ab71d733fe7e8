//! The rules of this code base that neither the compiler nor clippy checks, as a test.
//!
//! A rule is a pure function from a tree of files to findings. So the same function judges the real tree
//! ([`the_tree_keeps_every_rule`]) and a small made-up tree that breaks the rule, which proves that the rule
//! can fail (the tests beside each rule).

mod circles;
mod documents;
mod installed;
mod layers;
mod lexer;
mod registry;
mod shape;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The text files of a source tree by their path from its root.
struct Tree(BTreeMap<String, String>);

/// `path:line: what is wrong and what to do`.
type Finding = String;

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 22] = [
    shape::functions_are_short,
    shape::files_are_short,
    shape::lines_are_narrow,
    shape::nothing_is_left_for_later,
    shape::tests_say_what_they_skip,
    layers::crates_depend_downwards,
    circles::files_use_each_other_in_one_direction,
    layers::pure_crates_are_pure,
    layers::columns_are_aligned_in_render,
    layers::what_people_see_is_made_in_render,
    layers::unsafe_has_its_places,
    layers::unsafe_says_why_it_is_sound,
    layers::mapped_files_are_opened_in_one_place,
    layers::proc_is_read_in_one_place,
    layers::programs_are_started_in_one_place,
    layers::every_crate_takes_the_common_lints,
    layers::policies_start_with_an_essay,
    documents::relative_links_lead_somewhere,
    documents::documents_are_reachable,
    documents::no_machine_is_named,
    registry::the_page_of_policies_is_that_of_the_registry,
    words::english_is_plain,
];

impl Tree {
    /// The files that git knows or would add. Those that are no UTF-8 have an empty text, so that links to
    /// them still lead somewhere.
    fn of_this_repository() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .expect("git runs");
        assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
        let paths = String::from_utf8(listed.stdout).expect("paths are UTF-8");
        let read = |path: &str| {
            let bytes = std::fs::read(root.join(path)).ok()?; // Deleted, and git does not know yet.
            Some((path.to_owned(), String::from_utf8(bytes).unwrap_or_default()))
        };
        Tree(paths.split_terminator('\0').filter_map(read).collect())
    }

    fn of(files: &[(&str, &str)]) -> Tree {
        Tree(files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect())
    }

    /// The files whose path satisfies a condition, with their paths.
    fn files(&self, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(move |(path, _)| wanted(path))
    }

    fn contains(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

fn finding(path: &str, line_index: usize, what: impl std::fmt::Display) -> Finding {
    format!("{path}:{}: {what}", line_index + 1)
}

/// Judges a made-up tree: the findings must begin with the expected places, in order.
#[track_caller]
fn check(rule: Rule, files: &[(&str, &str)], expected_places: &[&str]) {
    let findings = rule(&Tree::of(files));
    let as_expected = findings.len() == expected_places.len()
        && findings.iter().zip(expected_places).all(|(finding, place)| finding.starts_with(place));
    assert!(as_expected, "expected findings at {expected_places:?}, got {findings:#?}");
}

#[test]
fn the_tree_keeps_every_rule() {
    let tree = Tree::of_this_repository();
    assert!(tree.contains("crates/testing/tests/tidy/main.rs"), "this file is not among those that it read");
    let findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}
