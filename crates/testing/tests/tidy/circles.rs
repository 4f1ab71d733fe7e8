//! Rule: the files of a crate use each other in one direction, so that each can be read with only those below
//! it in mind.
//!
//! What counts: paths in code that begin with `crate`, `self`, `super` or a submodule, in `use` and
//! elsewhere. A path leads to the deepest file on its way. What does not count: declarations of modules,
//! re-exports (`pub use`), comments, tests. Each file counts for itself.
//!
//! Limit: what a macro writes, and paths within a module that is no file of its own, are not seen rightly.

use crate::lexer::lex;
use crate::{Finding, Tree, check, finding, is_rust};
use std::collections::{BTreeMap, BTreeSet};

/// A module by the names on its way from the crate's root, which has none.
type Module = Vec<String>;

/// Which other files each file of a crate uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// No files use each other in a circle.
pub fn files_use_each_other_in_one_direction(tree: &Tree) -> Vec<Finding> {
    let is_source = |path: &str| is_rust(path) && path.starts_with("crates/") && path.contains("/src/");
    let name_of = |path: &str| path.split('/').nth(1).unwrap_or_default().to_owned();
    let names: BTreeSet<String> = tree.files(is_source).map(|(path, _)| name_of(path)).collect();
    let of_crate = |name: &String| {
        let place = format!("crates/{name}/src");
        let found = |circle: Vec<String>| format!("a circle of files: {}", circle.join(", "));
        circles(&uses_in(tree, name)).into_iter().map(move |circle| finding(&place, 0, found(circle)))
    };
    names.iter().flat_map(of_crate).collect()
}

/// Which files of a crate use which.
fn uses_in(tree: &Tree, name: &str) -> Uses {
    let folder = format!("crates/{name}/src/");
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let files = tree.files(|path| path.starts_with(&folder) && is_rust(path) && !is_test(path));
    let texts: BTreeMap<Module, &str> =
        files.map(|(path, text)| (module_of(&path[folder.len()..]), text)).collect();
    let modules: BTreeSet<Module> = texts.keys().cloned().collect();
    let name_of = |module: &Module| if module.is_empty() { "the root".to_owned() } else { module.join("::") };
    let uses = |(module, text): (&Module, &&str)| {
        (name_of(module), used_by(module, text, &modules).iter().map(name_of).collect())
    };
    texts.iter().map(uses).collect()
}

/// The module of a file, by its path from `src`.
fn module_of(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" || path == "main" {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

/// The modules that a module's code uses.
fn used_by(module: &Module, text: &str, modules: &BTreeSet<Module>) -> BTreeSet<Module> {
    let mut code = lex(text).code;
    for attribute in ["#[cfg(test)]", "#[cfg(doc)]", "pub use ", "pub(crate) use ", "pub(super) use "] {
        blank_items(&mut code, attribute);
    }
    let paths = imports(&code).into_iter().chain(paths(&code));
    paths.filter_map(|path| leads_to(module, &path, modules)).collect()
}

/// Blanks what begins with these words, each to its closing brace or semicolon.
fn blank_items(code: &mut String, begin: &str) {
    while let Some(start) = code.find(begin) {
        let mut depth = 0;
        let end = code[start..].char_indices().find(|&(_, c)| {
            depth += i32::from(matches!(c, '{' | '(' | '[')) - i32::from(matches!(c, '}' | ')' | ']'));
            depth <= 0 && (c == ';' || c == '}')
        });
        let length = end.map_or(code.len() - start, |(at, _)| at + 1);
        code.replace_range(start..start + length, "");
    }
}

/// The paths of all `use`s.
fn imports(code: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let begins = |at: usize| at == 0 || code[..at].trim_end_matches(' ').ends_with('\n');
    for (start, _) in code.match_indices("use ").filter(|(at, _)| begins(*at)) {
        let tree = code[start + "use ".len()..].split(';').next().unwrap_or_default();
        expand(tree, &[], &mut all);
    }
    all
}

/// The paths of a tree such as `a::{self, b::c}`.
fn expand(tree: &str, before: &[String], all: &mut Vec<Vec<String>>) {
    let (path, group) = tree.split_once('{').unwrap_or((tree, ""));
    let names = path.split("::").map(|name| name.split(" as ").next().unwrap_or_default().trim().to_owned());
    let path: Vec<String> = before.iter().cloned().chain(names.filter(|name| !name.is_empty())).collect();
    if group.is_empty() {
        all.push(path);
        return;
    }
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 && c == ',' {
            let part = group[start..at].trim();
            if !part.is_empty() {
                expand(part, &path, all);
            }
            start = at + 1;
        }
    }
}

/// All paths of several names.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    // What ends so is the beginning of a group, which [`imports`] expands.
    let is_path = |word: &&str| word.contains("::") && !word.ends_with("::");
    let words = code.split(|c| !is_of_path(c)).filter(is_path);
    words.map(|word| word.split("::").map(str::to_owned).collect()).collect()
}

/// The module of a file that a path leads to; `None` if it leads out of the crate, or stays.
fn leads_to(from: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let mut names = path.iter().peekable();
    let mut at = from.clone();
    match names.peek()?.as_str() {
        "crate" => {
            names.next();
            at.clear();
        }
        "self" => drop(names.next()),
        "super" => {
            while names.next_if(|name| *name == "super").is_some() {
                at.pop()?;
            }
        }
        name => {
            at.push(name.to_owned());
            modules.contains(&at).then_some(())?;
            names.next();
        }
    }
    for name in names {
        at.push(name.clone());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    (at != *from).then_some(at)
}

/// The largest sets of files that all lead to each other.
fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(node) = next.pop() {
            next.extend(uses.get(node).into_iter().flatten().filter(|used| seen.insert((*used).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|node| (node, reached(node))).collect();
    let circle_of = |node: &String| -> Vec<String> {
        let comes_back = |other: &&String| reached.get(other).is_some_and(|from| from.contains(node));
        reached[node].iter().filter(comes_back).cloned().collect()
    };
    let circles: BTreeSet<Vec<String>> =
        uses.keys().map(circle_of).filter(|circle| !circle.is_empty()).collect();
    circles.into_iter().collect()
}

#[test]
fn a_circle_of_files_is_found() {
    let root = ("crates/binding/src/lib.rs", "pub mod a;\npub mod b;\nmod c;\npub use c::C;\n");
    let a = ("crates/binding/src/a.rs", "use crate::b::{self, B};\nfn f() { b::g() }\n");
    let down =
        ("crates/binding/src/b.rs", "//! [`crate::a`]\n#[cfg(test)]\nmod tests { use crate::a::A; }\n");
    check(files_use_each_other_in_one_direction, &[root, a, down], &[]);
    let beside = ("crates/binding/src/b.rs", "use super::{c::C, d};\n");
    check(files_use_each_other_in_one_direction, &[root, a, beside], &[]);
    for up in ["use super::a;\n", "use std::io::{self};\nfn g() { let x = super::a::f(); }\n"] {
        let up = ("crates/binding/src/b.rs", up);
        check(
            files_use_each_other_in_one_direction,
            &[root, a, up],
            &["crates/binding/src:1: a circle of files: a, b"],
        );
    }
}

#[test]
fn a_circle_of_a_folder_and_its_files_is_found() {
    let parent = ("crates/sim/src/a/mod.rs", "mod b;\nuse b::B;\npub struct A;\n");
    let part = ("crates/sim/src/a/b.rs", "use super::A;\npub struct B(A);\n");
    let found = ["crates/sim/src:1: a circle of files: a, a::b"];
    check(files_use_each_other_in_one_direction, &[parent, part], &found);
}
