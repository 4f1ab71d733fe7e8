//! Rule: plain present-day English, with one word for each thing.
//!
//! The rule looks for phrases in code, comments and pages alike, in any case; `_` parts the words of a name.
//! Old names in files of users must still be read, so lines by which serde does that may have them. Limit:
//! the rule misses a phrase that is broken over two lines.

use crate::{Finding, Tree, check, finding, is_rust};

/// Phrases, and what to write instead.
const PHRASES: [(&str, &str); 22] = [
    ("told", "reported, printed, or what the variable holds: `stderr`, `events`"),
    ("whom", "the noun: the thread that"),
    ("whoever", "the noun: the process that, every thread that"),
    ("give way", "yield"),
    ("gives way", "yields"),
    ("gave way", "yielded"),
    ("giving way", "yielding"),
    ("hold up", "delay"),
    ("holds up", "delays"),
    ("held up", "delayed"),
    ("holding up", "delaying"),
    ("all the same", "nevertheless"),
    ("done so much more", "adds to the work that is done"),
    ("from which on", "above which, or at least"),
    ("mitigation", "a change of waits"),
    ("mitigations", "changes of waits"),
    ("cured", "changed"),
    ("shortened waits", "short waits"),
    ("take turn", "serve: turns are for gangs"),
    ("pa turn", "`stay`: turns are for gangs"),
    ("rr turn", "`stay`: turns are for gangs"),
    ("turns of its loop", "iterations"),
];

/// Words that no name of a function contains, and what to write instead.
const NOT_IN_NAMES: [(&str, &str); 1] = [("who", "the noun: a_resting_thread_keeps_its_pe")];

/// Where a phrase may stay: the file, the phrase, and why.
const EXCEPTIONS: [(&str, &str, &str); 11] = [
    ("ARCHITECTURE.md", "all the same", "means: the same to all"),
    ("CHANGELOG.md", "told", "the former name of a key"),
    ("CHANGELOG.md", "held up", "a published text"),
    ("CHANGELOG.md", "pa turn", "a published text"),
    ("crates/core/src/engine/config.rs", "mitigations", "the former name of a key"),
    ("crates/core/src/policy/tests.rs", "pa turn", "the former name of a parameter"),
    ("crates/core/src/policy/tests.rs", "rr turn", "the former name of a parameter"),
    ("crates/cli/tests/live/guard.rs", "told", "`not_told` is a value in reports"),
    ("docs/metrics.md", "told", "`not_told` is a value of a metric's label"),
    ("studies/compare/real", "told", "`not_told` is a value in reports"),
    ("studies/debian/inside.sh", "whom", "`--kill-whom` is an option of systemctl"),
];

/// It has them all, in its table.
const THIS_FILE: &str = "crates/testing/tests/tidy/words.rs";

/// Code, pages, interfaces, units, settings, and scripts, which may have no ending.
fn is_written_by_people(path: &str, text: &str) -> bool {
    const ENDINGS: [&str; 11] =
        ["rs", "c", "h", "md", "varlink", "service", "socket", "toml", "yml", "py", "sh"];
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    ending.map_or(text.starts_with("#!"), |ending| ENDINGS.contains(&ending))
}

/// No phrase of the table is used.
pub fn english_is_plain(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others = tree.files(|path| path != THIS_FILE);
    for (path, text) in others.filter(|(path, text)| is_written_by_people(path, text)) {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !is_old_name(line)) {
            let words = words(line);
            let may_stay = |phrase| EXCEPTIONS.iter().any(|&(file, of, _)| (file, of) == (path, phrase));
            let used = PHRASES.iter().filter(|(phrase, _)| words.contains(&format!(" {phrase} ")));
            let used = used.filter(|(phrase, _)| !may_stay(*phrase)).chain(in_name(path, line));
            findings.extend(
                used.map(|(phrase, instead)| finding(path, index, format!("`{phrase}`: write {instead}"))),
            );
        }
    }
    findings
}

/// The words of [`NOT_IN_NAMES`] in the name of the function that a line declares.
fn in_name(path: &str, line: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let declared = line.split_once("fn ").filter(|_| is_rust(path)).map_or("", |(_, rest)| rest);
    let name = words(declared.split(['(', '<']).next().unwrap_or_default());
    NOT_IN_NAMES.iter().filter(move |(word, _)| name.contains(&format!(" {word} ")))
}

/// Whether serde reads something under another name by this line.
fn is_old_name(line: &str) -> bool {
    line.contains("#[serde(") && ["alias = ", "rename = "].iter().any(|attribute| line.contains(attribute))
}

/// The words of a line in lower case, each between two spaces.
fn words(line: &str) -> String {
    let words = line.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    format!(" {} ", words.map(str::to_lowercase).collect::<Vec<_>>().join(" "))
}

#[test]
fn a_phrase_of_the_table_is_found() {
    for line in ["// Told by it.", "fn is_told() {}", "# A gang gives\tway", "fn who_rests_waits() {}"] {
        check(english_is_plain, &[("a.rs", &format!("\n{line}\n"))], &["a.rs:2: `"]);
    }
    for line in ["retold", "#[serde(default, alias = \"told\")]", "// who rests", "fn whole() { who() }"] {
        check(english_is_plain, &[("a.rs", line)], &[]);
    }
    check(english_is_plain, &[("CHANGELOG.md", "was `told`"), ("a.json", "told")], &[]);
    check(english_is_plain, &[("CHANGELOG.md", "whoever"), ("b.h", "TOLD_NS")], &["CHANGELOG.md:1", "b.h:1"]);
    let others = [("a.varlink", "# is told"), ("b/measure", "#!/bin/sh\n# whoever"), ("c.toml", "# told")];
    check(english_is_plain, &others, &["a.varlink:1", "b/measure:2", "c.toml:1"]);
    check(english_is_plain, &[(".gitignore", "told"), ("LICENSE", "whom"), ("recorded.txt", "told")], &[]);
}
