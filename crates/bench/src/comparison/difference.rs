//! Where two outputs differ.

use std::fmt::{Display, Formatter};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

/// The number of characters of a line that an error shows.
const LINE_MAX: usize = 80;

/// The first line in which two outputs differ.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    line: usize,
    expected: Option<String>,
    found: Option<String>,
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let words =
            |line: &Option<String>| line.as_ref().map_or("the end".to_owned(), |line| format!("`{line}`"));
        write!(f, "line {} is {} instead of {}", self.line, words(&self.found), words(&self.expected))
    }
}

/// Compares two outputs from their beginnings.
pub fn first_difference(expected: &File, found: &File) -> std::io::Result<Option<Difference>> {
    let reader = |mut file| -> std::io::Result<BufReader<&File>> {
        Seek::seek(&mut file, SeekFrom::Start(0))?;
        Ok(BufReader::new(file))
    };
    let (mut expected, mut found) = (reader(expected)?, reader(found)?);
    for line in 1.. {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        expected.read_until(b'\n', &mut one)?;
        found.read_until(b'\n', &mut other)?;
        if one != other {
            return Ok(Some(Difference { line, expected: shown(&one), found: shown(&other) }));
        }
        if one.is_empty() {
            break;
        }
    }
    Ok(None)
}

/// Returns the beginning of a line; `None` at the end of the output.
fn shown(line: &[u8]) -> Option<String> {
    (!line.is_empty()).then(|| String::from_utf8_lossy(line).trim_end().chars().take(LINE_MAX).collect())
}
