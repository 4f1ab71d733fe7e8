//! Rules about the size of things, and about what must not stay in the tree.

use crate::lexer::lex;
use crate::{Finding, Tree, check, finding, is_rust};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const LINE_COLUMNS_MAX: usize = 110;

/// Rust, C and the shell scripts: everything that people write and read as code.
fn is_code(path: &str) -> bool {
    [".rs", ".c", ".h", ".sh"].iter().any(|end| path.ends_with(end)) || path == "dev" || path == ".ci/run"
}

/// From the line of `fn` to the closing brace, at most [`FUNCTION_LINES_MAX`] lines.
pub fn functions_are_short(tree: &Tree) -> Vec<Finding> {
    let in_file = |(path, text): (&str, &str)| {
        let too_long = functions(&lex(text).code).into_iter().filter(|f| f.lines > FUNCTION_LINES_MAX);
        let found = |f: Function| {
            finding(path, f.line_index, format!("{} has {} of {FUNCTION_LINES_MAX} lines", f.name, f.lines))
        };
        too_long.map(found).collect::<Vec<_>>()
    };
    tree.files(is_rust).flat_map(in_file).collect()
}

/// A test ends early by `skip!` and its like alone: one that merely returns looks as if it had passed.
pub fn tests_say_what_they_skip(tree: &Tree) -> Vec<Finding> {
    const SILENT: [&str; 5] = ["return;", "return }", "return,", "return println!", "return eprintln!"];
    let in_file = |(path, text): (&str, &str)| {
        let code = lex(text).code;
        let lines: Vec<&str> = code.lines().collect();
        let is_test = |f: &Function| f.line_index > 0 && lines[f.line_index - 1].trim() == "#[test]";
        let body = |f: Function| lines[f.line_index..f.line_index + f.lines].join("\n");
        let tests = functions(&code).into_iter().filter(is_test);
        let silent = |f: Function| {
            let line_index = f.line_index;
            lines_with(&body(f), &SILENT).into_iter().map(move |(index, word)| (line_index + index, word))
        };
        let found = |(index, word)| finding(path, index, format!("`{word}` in a test: say why with skip!"));
        tests.flat_map(silent).map(found).collect::<Vec<_>>()
    };
    tree.files(is_rust).flat_map(in_file).collect()
}

struct Function {
    name: String,
    line_index: usize,
    lines: usize,
}

/// Every function with a body. `code` holds no comments or literals, so braces are braces.
fn functions(code: &str) -> Vec<Function> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let name: String = code[at + 3..].chars().take_while(|&c| is_word(c)).collect();
        if name.is_empty() || code[..at].ends_with(is_word) {
            continue;
        }
        if let Some(length) = length_through_body(&code[at..]) {
            let line_index = code[..at].matches('\n').count();
            found.push(Function { name, line_index, lines: code[at..at + length].lines().count() });
        }
    }
    found
}

/// The bytes from `fn` to the end of the body; `None` for a declaration, which ends at a semicolon instead.
fn length_through_body(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' => depth -= 1,
            '}' => {
                depth -= 1;
                if depth <= 0 {
                    return Some(at + 1);
                }
            }
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// At most [`FILE_LINES_MAX`] lines: a longer file holds more than one thing.
pub fn files_are_short(tree: &Tree) -> Vec<Finding> {
    let with_lines = tree.files(is_code).map(|(path, text)| (path, text.lines().count()));
    let too_long = with_lines.filter(|&(_, lines)| lines > FILE_LINES_MAX);
    too_long
        .map(|(path, lines)| finding(path, 0, format!("the file has {lines} of {FILE_LINES_MAX} lines")))
        .collect()
}

/// At most [`LINE_COLUMNS_MAX`] characters.
pub fn lines_are_narrow(tree: &Tree) -> Vec<Finding> {
    let in_file = |(path, text): (&str, &str)| {
        let wide = text.lines().map(|line| line.chars().count()).enumerate();
        wide.filter(|&(_, columns)| columns > LINE_COLUMNS_MAX)
            .map(|(index, columns)| {
                finding(path, index, format!("the line has {columns} of {LINE_COLUMNS_MAX} columns"))
            })
            .collect::<Vec<_>>()
    };
    tree.files(is_code).flat_map(in_file).collect()
}

/// No stubs, no switched-off tests, no dead code, no debugging output, no notes to oneself.
pub fn nothing_is_left_for_later(tree: &Tree) -> Vec<Finding> {
    const IN_CODE: [&str; 7] = [
        "todo!",
        "unimplemented!",
        "dbg!",
        "#[ignore",
        "allow(dead_code",
        "allow(unused",
        "expect(dead_code",
    ];
    const IN_COMMENTS: [&str; 3] = ["TODO", "FIXME", "XXX"];
    let in_file = |(path, text): (&str, &str)| {
        let lexed = lex(text);
        let code = lines_with(&lexed.code, &IN_CODE);
        let comments = lines_with(&lexed.comments, &IN_COMMENTS);
        let found = |(index, word)| finding(path, index, format!("`{word}`: do it now or file an issue"));
        code.into_iter().chain(comments).map(found).collect::<Vec<_>>()
    };
    tree.files(is_rust).flat_map(in_file).collect()
}

/// The lines that hold one of the words, with the word.
pub fn lines_with<'w>(text: &str, words: &[&'w str]) -> Vec<(usize, &'w str)> {
    let in_line = |(index, line): (usize, &str)| {
        words.iter().filter(|word| line.contains(**word)).map(|&word| (index, word)).collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(in_line).collect()
}

#[test]
fn a_long_function_is_found() {
    let function =
        |lines: usize| format!("fn a(x: [u8; 2]);\n\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
    check(functions_are_short, &[("a.rs", &function(70))], &[]);
    check(functions_are_short, &[("a.rs", &function(71))], &["a.rs:3: f has 71"]);
}

#[test]
fn a_test_that_returns_silently_is_found() {
    let test = |line: &str| format!("#[test]\nfn a() {{\n    {line}\n}}\n");
    for line in ["skip!(Root, \"return;\");", "let a = || return 1; // return;"] {
        check(tests_say_what_they_skip, &[("a.rs", &test(line))], &[]);
    }
    for line in ["return;", "let Some(b) = c() else { return };", "if d { return println!(\"skipped\"); }"] {
        check(tests_say_what_they_skip, &[("a.rs", &test(line))], &["a.rs:3: `return"]);
    }
    check(tests_say_what_they_skip, &[("a.rs", "fn no_test() {\n    return;\n}\n")], &[]);
}

#[test]
fn a_long_file_is_found() {
    check(files_are_short, &[("a.rs", &"\n".repeat(600)), ("a.json", &"\n".repeat(999))], &[]);
    check(files_are_short, &[("a.c", &"\n".repeat(601))], &["a.c:1: the file has 601"]);
}

#[test]
fn a_wide_line_is_found() {
    check(lines_are_narrow, &[("a.rs", &"é".repeat(110))], &[]);
    check(lines_are_narrow, &[("dev", &format!("\n{}", "x".repeat(111)))], &["dev:2: the line has 111"]);
}

#[test]
fn what_is_left_for_later_is_found() {
    check(nothing_is_left_for_later, &[("a.rs", "f(\"todo!\"); // dbg! prints")], &[]);
    check(nothing_is_left_for_later, &[("a.rs", "fn f() {\n    todo!()\n}")], &["a.rs:2: `todo!`"]);
    check(nothing_is_left_for_later, &[("a.rs", "#[ignore]\nfn f() {}")], &["a.rs:1: `#[ignore`"]);
    check(nothing_is_left_for_later, &[("a.rs", "#![allow(dead_code)]")], &["a.rs:1: `allow(dead_code`"]);
    let note = format!("// {}ME: later", "FIX");
    check(nothing_is_left_for_later, &[("a.rs", &note)], &["a.rs:1: `FIX"]);
}
