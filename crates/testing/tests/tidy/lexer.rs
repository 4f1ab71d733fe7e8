//! Tells code from comments and string literals in Rust and C, which is all that the rules need to know.

/// A source text twice, each of the same shape as the original (every line and column where it was): once
/// with everything but code blanked, once with everything but comments.
pub struct Lexed {
    pub code: String,
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Literal,
}

pub fn lex(text: &str) -> Lexed {
    let mut lexed = Lexed { code: String::new(), comments: String::new() };
    let mut rest = text;
    while !rest.is_empty() {
        let before = lexed.code.chars().next_back();
        let (part, length) = next_part(rest, before);
        for c in rest[..length].chars() {
            let blank = if c == '\n' { '\n' } else { ' ' };
            lexed.code.push(if part == Part::Code { c } else { blank });
            lexed.comments.push(if part == Part::Comment { c } else { blank });
        }
        rest = &rest[length..];
    }
    lexed
}

/// What the text begins with and for how many bytes.
fn next_part(text: &str, before: Option<char>) -> (Part, usize) {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let first_length = text.chars().next().map_or(0, char::len_utf8);
    if text.starts_with("//") {
        (Part::Comment, text.find('\n').unwrap_or(text.len()))
    } else if text.starts_with("/*") {
        (Part::Comment, block_comment_length(text))
    } else if text.starts_with('"') {
        (Part::Literal, quoted_length(text, '"').unwrap_or(text.len()))
    } else if let Some(length) = raw_string_length(text).filter(|_| !in_word) {
        (Part::Literal, length)
    } else if let Some(length) = character_length(text) {
        (Part::Literal, length)
    } else {
        (Part::Code, first_length)
    }
}

/// Block comments nest in Rust.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a literal between two quotes, with the quotes; a backslash takes the next character with it.
fn quoted_length(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// `r"…"`, `r#"…"#` and the like, also after `b` and `c`.
fn raw_string_length(text: &str) -> Option<usize> {
    let after_prefix = text.strip_prefix(['b', 'c']).unwrap_or(text).strip_prefix('r')?;
    let body = after_prefix.trim_start_matches('#');
    let hashes = &after_prefix[..after_prefix.len() - body.len()];
    let inside = body.strip_prefix('"')?;
    let end = format!("\"{hashes}");
    let start = text.len() - inside.len();
    Some(inside.find(&end).map_or(text.len(), |at| start + at + end.len()))
}

/// `'a'` or `'\n'`, but not the lifetime `'a`.
fn character_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let is_character = inside.starts_with('\\') || inside.chars().nth(1) == Some('\'');
    is_character.then(|| quoted_length(text, '\'')).flatten()
}

#[test]
fn code_comments_and_literals_are_distinguished() {
    let check = |text: &str, code: &str, comments: &str| {
        let lexed = lex(text);
        assert_eq!((lexed.code.trim_end(), lexed.comments.trim()), (code, comments), "{text}");
        assert_eq!(lexed.code.chars().count(), text.chars().count(), "{text}");
    };
    check("let a = 1; // one", "let a = 1;", "// one");
    check("a /* x /* y */ z */ b", "a                   b", "/* x /* y */ z */");
    check(r#"f("//", "\"")"#, "f(    ,     )", "");
    check(r##"r#"a"b"# + x"##, "         + x", "");
    check("'\"' + '\\'' + b", "    +      + b", "");
    check("fn f<'a>(x: &'a str) // é", "fn f<'a>(x: &'a str)", "// é");
    check("for\"x\"", "for", "");
}
