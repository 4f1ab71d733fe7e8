//! Printing results and errors. A reader that closed the pipe (`| head`) has seen enough: that is no error.

use std::io::{ErrorKind, Result, Write};

/// Writes the text to standard output.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// An error with its causes, each told once: what an error's own text says already is left out.
pub fn in_words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = |texts: &[&str]| {
            let mut texts = texts.iter().rev();
            let root = anyhow::Error::msg((*texts.next().unwrap()).to_owned());
            in_words(&texts.fold(root, |error, text| error.context((*text).to_owned())))
        };
        assert_eq!(
            error(&["cannot read a: no such file; check the path", "no such file"]),
            "cannot read a: no such file; check the path"
        );
        assert_eq!(error(&["cannot read a", "no such file"]), "cannot read a: no such file");
    }
}
