//! What the commands print: thrown away, shown, or kept to be compared.

use super::RunError;
use super::processes::words_of;
use corewise_core::comparison::Workload;
use std::fmt::{Display, Formatter};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::process::{ExitStatus, Stdio};

/// Bytes of the end of standard error that an error tells.
const SAID_MAX: u64 = 400;
/// Characters of a line that an error tells.
const LINE_MAX: usize = 80;

/// The streams of the present run, and what is compared with them.
#[derive(Debug)]
pub struct Outputs {
    show: bool,
    compare: bool,
    /// What the present run has said on standard error.
    said: File,
    /// What each application has printed, if that is compared.
    printed: Vec<File>,
    /// The variant that was run first, with what it printed.
    reference: Option<(String, Vec<File>)>,
}

/// The standard streams of a run's processes.
#[derive(Debug)]
pub struct Streams<'a> {
    show: bool,
    said: &'a File,
    printed: &'a [File],
}

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

impl Outputs {
    /// For runs whose output is shown, or compared.
    pub fn new(show: bool, compare: bool) -> Result<Outputs, RunError> {
        let said = tempfile::tempfile()?;
        Ok(Outputs { show, compare, said, printed: Vec::new(), reference: None })
    }

    /// For a run of a workload.
    pub fn of_run(&mut self, workload: &Workload) -> Result<Streams<'_>, RunError> {
        let files = if self.compare { workload.applications.len() } else { 0 };
        self.printed = (0..files).map(|_| tempfile::tempfile()).collect::<Result<_, _>>()?;
        self.of_preparation()
    }

    /// For a command whose output is never compared.
    pub fn of_preparation(&self) -> Result<Streams<'_>, RunError> {
        self.said.set_len(0)?;
        (&self.said).seek(SeekFrom::Start(0))?;
        Ok(Streams { show: self.show, said: &self.said, printed: &self.printed })
    }

    /// An error, if an application has failed.
    pub fn check_exit(
        &self,
        workload: &Workload,
        of: &str,
        failure: Option<(usize, ExitStatus)>,
    ) -> Result<(), RunError> {
        let Some((index, status)) = failure else { return Ok(()) };
        let command = words_of(&workload.applications[index].command);
        Err(RunError::Failed { command, of: of.to_owned(), status, said: self.said()? })
    }

    /// The end of what was said, with what leads to it.
    fn said(&self) -> Result<String, RunError> {
        let mut file = &self.said;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SAID_MAX)))?;
        let mut bytes = Vec::new();
        file.take(SAID_MAX).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        Ok(if text.is_empty() { text } else { format!(" and said: {text}") })
    }

    /// Compares what a run of the variant has printed with what the first run did.
    pub fn compare(&mut self, variant: &str) -> Result<(), RunError> {
        if !self.compare {
            return Ok(());
        }
        let printed = std::mem::take(&mut self.printed);
        let Some((baseline, expected)) = &self.reference else {
            self.reference = Some((variant.to_owned(), printed));
            return Ok(());
        };
        for (expected, found) in expected.iter().zip(&printed) {
            if let Some(difference) = first_difference(expected, found)? {
                let (variant, baseline) = (variant.to_owned(), baseline.clone());
                return Err(RunError::Output { variant, baseline, difference });
            }
        }
        Ok(())
    }
}

impl Streams<'_> {
    /// Standard input, output and error of the application of that index. A preparation has none: its output
    /// is not kept.
    pub fn of(&self, index: usize) -> std::io::Result<(Stdio, Stdio, Stdio)> {
        let out = match self.printed.get(index) {
            Some(file) => file.try_clone()?.into(),
            None if self.show => Stdio::inherit(),
            None => Stdio::null(),
        };
        let error = if self.show { Stdio::inherit() } else { self.said.try_clone()?.into() };
        Ok((Stdio::null(), out, error))
    }
}

fn first_difference(expected: &File, found: &File) -> std::io::Result<Option<Difference>> {
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

/// The beginning of a line; `None` where there is none.
fn shown(line: &[u8]) -> Option<String> {
    (!line.is_empty()).then(|| String::from_utf8_lossy(line).trim_end().chars().take(LINE_MAX).collect())
}
