//! Rules about which part of the code may do what.

use crate::lexer::lex;
use crate::shape::lines_with;
use crate::{Finding, Tree, check, finding, is_rust};

/// What each crate may use of ours. `cli` may use all, and a crate that is not named here must be added.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 21] = [
    ("core", &[]),
    ("paths", &["core"]),
    ("rules", &["core"]),
    ("sim", &["core"]),
    ("render", &["core", "paths", "sim", "sys", "testing"]),
    ("rt", &["testing"]),
    ("testing", &["core"]),
    ("bpf", &["sys"]),
    ("sys", &["core", "testing"]),
    ("topology", &["core", "sys", "testing"]),
    ("code", &["core", "paths", "sys"]),
    ("discovery", &["core", "bpf", "sys", "testing"]),
    ("counters", &["core", "code", "discovery", "paths", "rt", "sys", "testing"]),
    ("binding", &["core", "code", "discovery", "sys", "testing"]),
    ("live", &["core", "binding", "counters", "discovery", "sys", "testing"]),
    ("rulebook", &["code", "core", "rules", "sys"]),
    ("daemon", &["binding", "core", "discovery", "live", "render", "rulebook", "rules", "sys"]),
    ("bench", &["core", "sys", "testing", "topology"]),
    ("branches", &["core", "bpf", "code", "paths", "sys", "testing"]),
    ("store", &[]),
    ("truth", &["code", "paths", "sys", "testing"]),
];

/// The crates that are functions of their inputs.
const PURE_CRATES: [&str; 4] = ["core", "paths", "rules", "sim"];

/// The crates that may hold unsafe code: those that talk to the kernel, to C or to the processor.
const UNSAFE_CRATES: [&str; 11] = [
    "sys",
    "topology",
    "code",
    "discovery",
    "counters",
    "binding",
    "live",
    "bench",
    "branches",
    "truth",
    "rt",
];

/// The crate's directory under `crates`, of a path within it.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name)
}

fn is_manifest(path: &str) -> bool {
    crate_of(path).is_some() && path.ends_with("Cargo.toml")
}

/// `core` uses nothing of ours, the worlds use `core`, the command uses all.
pub fn crates_depend_downwards(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files(is_manifest) {
        let Some(name) = crate_of(path).filter(|&name| name != "cli") else { continue };
        let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(crate_name, _)| *crate_name == name)
        else {
            findings.push(finding(path, 0, format!("say in this test what crate {name} may depend on")));
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            let used = line.strip_prefix("corewise-").and_then(|rest| rest.split(['.', ' ', '=']).next());
            if let Some(used) = used.filter(|used| !allowed.contains(used)) {
                findings.push(finding(path, index, format!("{name} must not depend on {used}")));
            }
        }
    }
    findings
}

/// A pure crate knows no files, clocks, environment, threads, output or globals; nor does what makes pages.
pub fn pure_crates_are_pure(tree: &Tree) -> Vec<Finding> {
    const IMPURE: [&str; 18] = [
        "std::fs",
        "std::env",
        "std::net",
        "std::process",
        "std::thread",
        "std::os",
        "std::{", // Would hide which parts are used.
        "time::Instant",
        "Instant::now",
        "SystemTime",
        "println!", // Also eprintln!.
        "print!",
        "static mut",
        "thread_local!",
        "OnceLock",
        "LazyLock",
        "Mutex",
        "extern \"C\"",
    ];
    let in_file = |(path, text): (&str, &str)| {
        let found = |(index, word)| finding(path, index, format!("`{word}` in a pure crate"));
        lines_with(&lex(text).code, &IMPURE).into_iter().map(found).collect::<Vec<_>>()
    };
    let is_pure = |path: &str| {
        // What prints, and the browser in which tests look at pages.
        let acts = ["crates/render/src/terminal/", "crates/render/src/page/browser.rs"];
        let makes_pages = path.starts_with("crates/render/") && !acts.iter().any(|act| path.starts_with(act));
        makes_pages || crate_of(path).is_some_and(|name| PURE_CRATES.contains(&name))
    };
    tree.files(|path| is_rust(path) && is_pure(path) && path.contains("/src/")).flat_map(in_file).collect()
}

/// What people see is made in `render`: HTML, SVG and progress stand nowhere else.
pub fn what_people_see_is_made_in_render(tree: &Tree) -> Vec<Finding> {
    const MADE_THERE: [&str; 6] = ["indicatif", "maud", "<svg", "<div", "<td", "\\x1b["];
    let elsewhere = |path: &str| {
        let is_source = is_manifest(path) || (is_rust(path) && path.contains("/src/"));
        is_source && !matches!(crate_of(path), Some("render") | None)
    };
    let in_file = |(path, text): (&str, &str)| {
        let found =
            |(index, word)| finding(path, index, format!("`{word}`: what people see is made in render"));
        lines_with(text, &MADE_THERE).into_iter().map(found).collect::<Vec<_>>()
    };
    tree.files(elsewhere).flat_map(in_file).collect()
}

/// Columns of text are aligned by `render::table`, so the command pads nothing.
pub fn columns_are_aligned_in_render(tree: &Tree) -> Vec<Finding> {
    let pads = |line: &str| {
        let mut formats = line.split('{').skip(1);
        formats.any(|rest| {
            let rest = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            rest.starts_with(":<") || rest.starts_with(":>")
        })
    };
    let in_file = |(path, text): (&str, &str)| {
        let padding = text.lines().enumerate().filter(|(_, line)| pads(line));
        let words = "columns of text are aligned by render::table";
        padding.map(|(index, _)| finding(path, index, words.to_owned())).collect::<Vec<_>>()
    };
    let prints = |path: &str| ["crates/cli/src/", "crates/daemon/src/"].iter().any(|of| path.starts_with(of));
    tree.files(|path| is_rust(path) && prints(path)).flat_map(in_file).collect()
}

/// Unsafe code stands only in the crates that talk to the kernel or to C.
pub fn unsafe_has_its_places(tree: &Tree) -> Vec<Finding> {
    let elsewhere = |path: &str| is_rust(path) && crate_of(path).is_some_and(|c| !UNSAFE_CRATES.contains(&c));
    let in_file = |(path, text): (&str, &str)| {
        let found = |index| finding(path, index, format!("unsafe code outside of {UNSAFE_CRATES:?}"));
        unsafe_lines(&lex(text).code).map(found).collect::<Vec<_>>()
    };
    tree.files(elsewhere).flat_map(in_file).collect()
}

/// Clippy wants a `SAFETY:` comment at each block; this wants a sentence in it.
pub fn unsafe_says_why_it_is_sound(tree: &Tree) -> Vec<Finding> {
    let in_file = |(path, text): (&str, &str)| {
        let comments = lex(text).comments;
        let reason_is_short = |(_, line): &(usize, &str)| {
            line.split_once("SAFETY:").is_some_and(|(_, reason)| reason.split_whitespace().count() < 3)
        };
        let found = |(index, _)| finding(path, index, "say in a sentence why this is sound");
        comments.lines().enumerate().filter(reason_is_short).map(found).collect::<Vec<_>>()
    };
    tree.files(is_rust).flat_map(in_file).collect()
}

/// A file that a watched program has mapped is reached through its root or the kernel's link, and what stands
/// there may be anything: `mapped_file` alone goes there.
pub fn mapped_files_are_opened_in_one_place(tree: &Tree) -> Vec<Finding> {
    const WAYS: [&str; 4] = ["/root{", "/map_files", ".map_file(", ".path_in_root("];
    let elsewhere = |path: &str| {
        let is_its_place = path.starts_with("crates/code/src/mapped_file") || path.starts_with(PROC);
        is_rust(path) && path.contains("/src/") && !is_its_place
    };
    let in_file = |(path, text): (&str, &str)| {
        let found = |(index, way)| finding(path, index, format!("`{way}`: use `mapped_file::open`"));
        lines_with(text, &WAYS).into_iter().map(found).collect::<Vec<_>>()
    };
    tree.files(elsewhere).flat_map(in_file).collect()
}

/// Where `/proc` is read.
const PROC: &str = "crates/sys/src/proc/";

/// Listings and formats of `/proc` stand in one place, below one root directory. Tests and studies may look
/// for themselves.
pub fn proc_is_read_in_one_place(tree: &Tree) -> Vec<Finding> {
    const WAYS: [&str; 3] = ["\"/proc/", "\"/proc\"", "\"proc/{"];
    let elsewhere = |path: &str| {
        let is_test = path.ends_with("tests.rs") || path.starts_with("crates/testing/");
        crate_of(path).is_some()
            && is_rust(path)
            && path.contains("/src/")
            && !is_test
            && !path.starts_with(PROC)
    };
    let in_file = |(path, text): (&str, &str)| {
        let code = text.split("#[cfg(test)]\n").next().unwrap_or_default();
        let found = |(index, way)| finding(path, index, format!("`{way}`: use `corewise_sys::proc`"));
        lines_with(code, &WAYS).into_iter().map(found).collect::<Vec<_>>()
    };
    tree.files(elsewhere).flat_map(in_file).collect()
}

/// Where processes are created, and why not all of it is `sys::launch`.
const PROCESSES: [(&str, &str); 6] = [
    ("crates/sys/src/launch.rs", "it starts all programs"),
    ("crates/sys/src/helper.rs", "witness, guardian and keeper execute nothing"),
    ("crates/topology/src/child.rs", "what reads untrusted files executes nothing"),
    ("crates/render/src/page/browser.rs", "the browser in which tests look at pages"),
    ("crates/cli/src/hostile/", "tests"),
    ("crates/cli/src/mistyped.rs", "a test"),
];

/// Programs inherit what corewise inherited, from whichever crate they are started: `sys::launch` sees to it.
/// Tests, examples and build scripts may start them otherwise.
pub fn programs_are_started_in_one_place(tree: &Tree) -> Vec<Finding> {
    const WAYS: [&str; 9] = [
        "process::Command",
        "Command::new",
        "posix_spawn",
        "execv",
        "unistd::fork",
        "libc::fork",
        "unsafe { fork",
        "SYS_clone",
        "vfork",
    ];
    let elsewhere = |path: &str| {
        let is_test = path.ends_with("tests.rs") || path.starts_with("crates/testing/");
        let is_its_place = PROCESSES.iter().any(|(place, _)| path.starts_with(place));
        is_rust(path) && path.contains("/src/") && !is_test && !is_its_place
    };
    let in_file = |(path, text): (&str, &str)| {
        let code = lex(text.split("#[cfg(test)]\n").next().unwrap_or_default()).code;
        let found = |(index, way)| finding(path, index, format!("`{way}`: use `corewise_sys::launch`"));
        lines_with(&code, &WAYS).into_iter().map(found).collect::<Vec<_>>()
    };
    tree.files(elsewhere).flat_map(in_file).collect()
}

/// The lines with the word `unsafe`.
fn unsafe_lines(code: &str) -> impl Iterator<Item = usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let has_word = move |line: &str| line.split(|c| !is_word(c)).any(|word| word == "unsafe");
    code.lines().enumerate().filter(move |(_, line)| has_word(line)).map(|(index, _)| index)
}

/// The lints of the workspace (documented unsafe blocks, documented items) hold in every crate.
pub fn every_crate_takes_the_common_lints(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in
        tree.files(is_manifest).filter(|(_, text)| !text.contains("[lints]\nworkspace = true"))
    {
        findings.push(finding(path, text.lines().count(), "add `[lints] workspace = true`"));
    }
    for (path, text) in tree.files(|path| path == "Cargo.toml") {
        if !text.contains("undocumented_unsafe_blocks = \"deny\"") {
            findings.push(finding(path, 0, "clippy must deny undocumented unsafe blocks"));
        }
    }
    findings
}

/// A policy's file starts with the problem, the approach, its source and its limits.
pub fn policies_start_with_an_essay(tree: &Tree) -> Vec<Finding> {
    const ESSAY_LINES_MIN: usize = 4;
    let is_policy = |path: &str| {
        is_rust(path) && path.starts_with("crates/core/src/policy/") && !path.ends_with("/tests.rs")
    };
    let essay_lines = |text: &str| text.lines().take_while(|line| line.starts_with("//!")).count();
    let short = tree.files(is_policy).filter(|(_, text)| essay_lines(text) < ESSAY_LINES_MIN);
    let found = |(path, _)| finding(path, 0, format!("an essay of {ESSAY_LINES_MIN} lines of `//!` or more"));
    short.map(found).collect()
}

#[test]
fn a_dependency_upwards_is_found() {
    let live = ("crates/live/Cargo.toml", "[dependencies]\ncorewise-core.workspace = true\n");
    let cli = ("crates/cli/Cargo.toml", "[dependencies]\ncorewise-live.workspace = true\n");
    check(crates_depend_downwards, &[live, cli], &[]);
    let core = ("crates/core/Cargo.toml", "[dependencies]\ncorewise-live = { path = \"../live\" }\n");
    check(crates_depend_downwards, &[core], &["crates/core/Cargo.toml:2: core must not depend on live"]);
    check(crates_depend_downwards, &[("crates/new/Cargo.toml", "")], &["crates/new/Cargo.toml:1: say"]);
}

#[test]
fn an_impure_crate_is_found() {
    let pure = ("crates/core/src/a.rs", "use std::time::Duration; // not std::fs\n");
    let other = ("crates/sys/src/a.rs", "use std::fs;\n");
    let terminal = ("crates/render/src/terminal/mod.rs", "print!();\n");
    check(pure_crates_are_pure, &[pure, other, terminal], &[]);
    let page = ("crates/render/src/page/mod.rs", "print!();\n");
    check(pure_crates_are_pure, &[page], &["crates/render/src/page/mod.rs:1"]);
    let impure = ["use std::fs;", "let now = Instant::now();", "eprintln!();", "use std::{env, fs};"];
    for (line, name) in impure.iter().flat_map(|line| PURE_CRATES.map(|name| (line, name))) {
        let path = format!("crates/{name}/src/a.rs");
        check(pure_crates_are_pure, &[(&path, &format!("\n{line}"))], &[&format!("{path}:2")]);
    }
}

#[test]
fn html_and_progress_outside_of_render_are_found() {
    let page = "fn f() -> &'static str {\n    \"<td>1</td>\"\n}\n";
    check(what_people_see_is_made_in_render, &[("crates/render/src/page.rs", page)], &[]);
    let cli = [("crates/cli/src/a.rs", page), ("crates/cli/Cargo.toml", "indicatif.workspace = true\n")];
    check(what_people_see_is_made_in_render, &cli, &["crates/cli/Cargo.toml:1", "crates/cli/src/a.rs:2"]);
    let own_line = "\n\neprint!(\"\\r\\x1b[K{done}\");\n";
    check(
        what_people_see_is_made_in_render,
        &[("crates/cli/src/a.rs", own_line)],
        &["crates/cli/src/a.rs:3"],
    );
}

#[test]
fn columns_that_the_command_aligns_are_found() {
    let own = "fn f() {\n    println!(\"{:>8}\", 7);\n    println!(\"{name:<9}{seconds:.2}\");\n}\n";
    check(columns_are_aligned_in_render, &[("crates/render/src/table.rs", own)], &[]);
    check(
        columns_are_aligned_in_render,
        &[("crates/cli/src/a.rs", own)],
        &["crates/cli/src/a.rs:2", "crates/cli/src/a.rs:3"],
    );
}

#[test]
fn unsafe_code_in_the_wrong_place_is_found() {
    let file = "#![forbid(unsafe_code)]\nfn f() {\n    unsafe { g() }\n}\n";
    check(unsafe_has_its_places, &[("crates/sys/src/a.rs", file)], &[]);
    check(unsafe_has_its_places, &[("crates/cli/src/a.rs", file)], &["crates/cli/src/a.rs:3"]);
}

#[test]
fn another_way_to_a_mapped_file_is_found() {
    let text = "fn f() {\n    File::open(format!(\"/proc/{pid}/root{path}\"));\n}\n";
    check(mapped_files_are_opened_in_one_place, &[("crates/code/src/mapped_file.rs", text)], &[]);
    let path = "crates/code/src/store.rs";
    check(mapped_files_are_opened_in_one_place, &[(path, text)], &["crates/code/src/store.rs:2"]);
}

#[test]
fn another_way_to_proc_is_found() {
    let text = "fn f() {\n    read(format!(\"/proc/{pid}/stat\"));\n}\n";
    let test = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
    let path = "crates/sys/src/task.rs";
    check(proc_is_read_in_one_place, &[("crates/sys/src/proc/mod.rs", text), (path, &test)], &[]);
    check(proc_is_read_in_one_place, &[(path, text)], &["crates/sys/src/task.rs:2"]);
    let below_a_root = "    read(root.join(format!(\"proc/{pid}/stat\")));\n";
    check(proc_is_read_in_one_place, &[(path, below_a_root)], &["crates/sys/src/task.rs:1"]);
}

#[test]
fn another_way_to_start_a_program_is_found() {
    let text = "fn f() {\n    std::process::Command::new(\"sh\").spawn();\n}\n";
    let test = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
    let (place, example) = ("crates/sys/src/launch.rs", "crates/sys/examples/a.rs");
    let path = "crates/live/src/lib.rs";
    check(programs_are_started_in_one_place, &[(place, text), (example, text), (path, &test)], &[]);
    check(programs_are_started_in_one_place, &[(path, text)], &["crates/live/src/lib.rs:2"; 2]);
    let forks = "    match unsafe { fork() }? {\n";
    check(programs_are_started_in_one_place, &[(path, forks)], &["crates/live/src/lib.rs:1"]);
}

#[test]
fn an_empty_safety_comment_is_found() {
    let sound = ("a.rs", "// SAFETY: the pointer comes from a live reference.\n");
    check(unsafe_says_why_it_is_sound, &[sound], &[]);
    check(unsafe_says_why_it_is_sound, &[("a.rs", "\n// SAFETY: fine\n")], &["a.rs:2"]);
}

#[test]
fn a_crate_without_the_common_lints_is_found() {
    let workspace = ("Cargo.toml", "undocumented_unsafe_blocks = \"deny\"\n");
    let member = ("crates/a/Cargo.toml", "[lints]\nworkspace = true\n");
    check(every_crate_takes_the_common_lints, &[workspace, member], &[]);
    let bare = [("Cargo.toml", ""), ("crates/a/Cargo.toml", "[package]\n")];
    check(every_crate_takes_the_common_lints, &bare, &["crates/a/Cargo.toml:2", "Cargo.toml:1"]);
}

#[test]
fn a_policy_without_an_essay_is_found() {
    let essay = ("crates/core/src/policy/a.rs", "//! 1\n//! 2\n//! 3\n//! 4\n");
    check(policies_start_with_an_essay, &[essay], &[]);
    let short = ("crates/core/src/policy/b.rs", "//! Short.\nfn f() {}\n");
    check(policies_start_with_an_essay, &[short], &["crates/core/src/policy/b.rs:1"]);
}
