//! Printing: the only access to the terminal. What is said on standard error never waits for its reader while
//! corewise holds something ([`corewise_sys::standard_error`]).
//!
//! Programs, threads, files and their contents may have arbitrary names. Names with control characters could
//! control the terminal, and names with line feeds could forge lines of output. So everything that is printed
//! passes through [`printable`], and names are wrapped in [`Name`].

pub mod keys;
pub mod live;
pub mod progress;

use corewise_sys::standard_error;
use std::borrow::Cow;
use std::error::Error;
use std::fmt::{Display, Formatter, Write as _};
use std::io::{ErrorKind, Result, Write};

/// Writes the text to standard output. A closed pipe (`| head`) is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(printable(&for_people(text)).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a message to standard error, as standard output belongs to the command. Lines after the first are
/// indented, as a message may contain a name with a line feed. A closed standard error is not an error.
pub fn message(text: impl Display) {
    let text = for_people(&format!("corewise: {text}")).replace('\n', "\n    ");
    standard_error::say(&format!("{}\n", printable(text.trim_end())));
}

/// Formats an error with its causes. A cause that is already part of the text before it is left out.
pub fn describe_error(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.to_string();
        next = error.source();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    for_people(&text)
}

/// Leaves out the kernel's numbers of errors, and the names of temporary files behind them: the words before
/// them say as much.
fn for_people(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once(')').map_or(part, |(_, rest)| rest);
        let path = rest.strip_prefix(" at path \"").and_then(|path| path.split_once('"'));
        plain.push_str(path.map_or(rest, |(_, rest)| rest));
    }
    plain
}

/// Writes a line of JSON to standard error.
pub fn message_json(json: &str) {
    standard_error::say(&format!("{}\n", printable(json)));
}

/// Returns the text with its lines and tabs, but with other invisible and control characters escaped as in
/// JSON, so that JSON stays valid.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| matches!(c, '\n' | '\t') || !is_invisible(c);
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut spelled = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) { spelled.push(c) } else { spell(c, &mut spelled) }
    }
    spelled.into()
}

fn spell(c: char, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\u{:04x}", u32::from(c));
}

/// Returns whether a character is a control character, or one of Unicode's marks of direction and zero width.
pub fn is_invisible(c: char) -> bool {
    let is_mark = matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() || is_mark
}

/// An untrusted text that must stay within its line.
pub struct Name<'a>(pub &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if !self.0.chars().any(is_invisible) {
            return f.pad(self.0);
        }
        let mut spelled = String::new();
        for c in self.0.chars() {
            if is_invisible(c) { spell(c, &mut spelled) } else { spelled.push(c) }
        }
        f.pad(&spelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        let name = "a\u{1b}[2J\u{9b}31m\r\u{7f}\u{202e}b\tü\n";
        assert_eq!(printable(name), "a\\u001b[2J\\u009b31m\\u000d\\u007f\\u202eb\tü\n");
        assert_eq!(printable("plain"), "plain");
        assert_eq!(format!("{:<12}|", Name("a\nb\u{1b}")), "a\\u000ab\\u001b|");
        assert_eq!(format!("{:<4}|{:>4}|", Name("ab"), Name("ab")), "ab  |  ab|");
        let json = serde_json::to_string(name).unwrap();
        assert_eq!(serde_json::from_str::<String>(&printable(&json)).unwrap(), name);
    }

    #[test]
    fn numbers_of_errors_and_temporary_names_are_left_out() {
        let text = "a: No such file (os error 2); b: Busy (os error 16) at path \"/x/.corewise-1\": c";
        assert_eq!(for_people(text), "a: No such file; b: Busy: c");
        assert_eq!(for_people("plain"), "plain");
    }

    /// An error and its cause.
    #[derive(Debug)]
    struct Caused(&'static str, Option<Box<Caused>>);

    impl Display for Caused {
        fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn a_cause_is_named_once() {
        let described = |text, cause| describe_error(&Caused(text, Some(Box::new(Caused(cause, None)))));
        let whole = "cannot read a: no such file; check the path";
        assert_eq!(described(whole, "no such file"), whole);
        assert_eq!(described("cannot read a", "no such file"), "cannot read a: no such file");
    }
}
