//! Printing results. A reader that closed the pipe (`| head`) has seen enough: that is no error.

use std::io::{ErrorKind, Result, Write};

/// Writes the text to standard output.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
