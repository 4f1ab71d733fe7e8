//! What the commands print: thrown away, shown, or kept to be compared.

use super::RunError;
use super::processes::words_of;
use corewise_core::comparison::{Plan, Printed, Variant, Workload};
use corewise_core::time::parse_duration;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::process::{ExitStatus, Stdio};

/// Bytes of the end of standard error that an error tells.
const SAID_MAX: u64 = 400;
/// Bytes of a line that are searched at once.
const SEARCHED_MAX: u64 = 1 << 20;
/// Characters of a line that an error tells.
const LINE_MAX: usize = 80;

/// The streams of the present run, and what is compared with them.
#[derive(Debug)]
pub struct Outputs {
    show: bool,
    compare: bool,
    /// What is read from what is printed.
    patterns: Vec<(Printed, Regex)>,
    /// What the present run has said on standard error.
    said: File,
    /// What each application has printed, if that is compared or read.
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
    /// For runs of a plan, whose output is shown, or as the plan wants it compared or read.
    pub fn new(show: bool, plan: &Plan) -> Result<Outputs, RunError> {
        let said = tempfile::tempfile()?;
        let pattern = |printed: &Printed| {
            let wrong = |source| RunError::Pattern { name: printed.name.clone(), source };
            // A line's ends are those of the pattern.
            let pattern = RegexBuilder::new(&printed.pattern).multi_line(true).build().map_err(wrong)?;
            Ok((printed.clone(), pattern))
        };
        let patterns = plan.printed.iter().map(pattern).collect::<Result<_, RunError>>()?;
        let compare = plan.same_output;
        Ok(Outputs { show, compare, patterns, said, printed: Vec::new(), reference: None })
    }

    /// For a run of a workload.
    pub fn of_run(&mut self, workload: &Workload) -> Result<Streams<'_>, RunError> {
        let is_kept = self.compare || !self.patterns.is_empty();
        let files = if is_kept { workload.applications.len() } else { 0 };
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

    /// What is read from what a run of the variant has printed. What is not there is an error, or nothing if
    /// it may be missing.
    pub fn figures(&self, variant: &Variant, may_miss: bool) -> Result<BTreeMap<String, f64>, RunError> {
        let mut logs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (printed, pattern) in &self.patterns {
            for (application, file) in variant.workload.applications.iter().zip(&self.printed) {
                let figures = printed.figures(&values(file, pattern)?);
                if figures.is_empty() && !may_miss {
                    let (name, application) = (printed.name.clone(), application.name.clone());
                    return Err(RunError::NotPrinted { name, application, variant: variant.name.clone() });
                }
                for (name, value) in figures {
                    logs.entry(name).or_default().push(value.ln());
                }
            }
        }
        let mean = |(name, logs): (String, Vec<f64>)| {
            let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
            (logs.len() == self.printed.len() && mean.is_finite()).then_some((name, mean))
        };
        Ok(logs.into_iter().filter_map(mean).collect())
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

/// The numbers that a pattern finds, line by line: a plain one as it is, a time with its unit in seconds.
fn values(mut file: &File, pattern: &Regex) -> std::io::Result<Vec<f64>> {
    file.seek(SeekFrom::Start(0))?;
    let (mut lines, mut line, mut values) = (BufReader::new(file), Vec::new(), Vec::new());
    while lines.by_ref().take(SEARCHED_MAX).read_until(b'\n', &mut line)? > 0 {
        let matches = pattern.captures_iter(&line).filter_map(|found| found.get(1).or(found.get(0)));
        values.extend(matches.filter_map(|found| number(std::str::from_utf8(found.as_bytes()).ok()?)));
        line.clear();
    }
    Ok(values)
}

/// A number, or the seconds of a time with its unit; what is not above 0 has no ratio.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain: Option<f64> = text.replace(',', "").parse().ok();
    let spaceless = || text.replace(char::is_whitespace, "").replace('µ', "u");
    let value = plain.or_else(|| Some(parse_duration(&spaceless()).ok()?.as_secs_f64()))?;
    (value.is_finite() && value > 0.0).then_some(value)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn numbers_and_times_with_units_are_read_as_benchmarks_print_them() {
        // Of wrk, of redis-benchmark and of ab.
        let text = "    99%    3.25ms\nRequests/sec:  12,345.60\nSET: 99.9 requests per second\n\
                    Requests/sec: nonsense\n  50%    750us\n";
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let found = |pattern: &str| {
            let pattern = RegexBuilder::new(pattern).multi_line(true).build().unwrap();
            values(&file, &pattern).unwrap()
        };
        assert_eq!(found(r"99%\s+(\S+)$"), [0.00325]);
        assert_eq!(found(r"Requests/sec:\s+(\S+)"), [12345.6]);
        assert_eq!(found(r"^\s+\d+%\s+(\S+)"), [0.00325, 0.00075]);
        assert_eq!(found(r"[0-9.]+ requests"), [0.0; 0], "all of the match is no number");
        assert_eq!(found(r"(-?0)"), [0.0; 0], "nothing has no ratio");
    }
}
