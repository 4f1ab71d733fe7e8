//! The output of the commands: discarded, shown, or stored for comparison.

use super::difference::first_difference;
use super::error::RunError;
use corewise_core::comparison::figure::{self, Ambiguous};
use corewise_core::comparison::{Plan, Printed, Variant, Workload};
use corewise_sys::launch::Stream;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::process::ExitStatus;

/// The number of bytes from the end of standard error that an error shows.
const SAID_MAX: u64 = 400;
/// The number of bytes of a line that are searched at once.
const SEARCHED_MAX: u64 = 1 << 20;
/// The streams of the present run, and the output that it is compared with.
#[derive(Debug)]
pub struct Outputs {
    show: bool,
    compare: bool,
    /// The figures that are extracted from the output.
    patterns: Vec<(Printed, Regex)>,
    /// Standard error of the present run.
    said: File,
    /// The output of each application, if it is compared or searched.
    printed: Vec<File>,
    /// The variant that ran first, with its output.
    reference: Option<(String, Vec<File>)>,
}

/// The standard streams of a run's processes.
#[derive(Debug)]
pub struct Streams<'a> {
    show: bool,
    said: &'a File,
    printed: &'a [File],
}

impl Outputs {
    /// Prepares for the runs of a plan; `show` passes their output through.
    pub fn new(show: bool, plan: &Plan) -> Result<Outputs, RunError> {
        let said = tempfile::tempfile()?;
        let pattern = |printed: &Printed| {
            let wrong = |source| RunError::Pattern { name: printed.name.clone(), source };
            // `^` and `$` of a pattern match at each line.
            let pattern = RegexBuilder::new(&printed.pattern).multi_line(true).build().map_err(wrong)?;
            Ok((printed.clone(), pattern))
        };
        let patterns = plan.printed.iter().map(pattern).collect::<Result<_, RunError>>()?;
        let compare = plan.same_output;
        Ok(Outputs { show, compare, patterns, said, printed: Vec::new(), reference: None })
    }

    /// Returns the streams of a run of a workload.
    pub fn of_run(&mut self, workload: &Workload) -> Result<Streams<'_>, RunError> {
        let is_kept = self.compare || !self.patterns.is_empty();
        let files = if is_kept { workload.applications.len() } else { 0 };
        self.printed = (0..files).map(|_| tempfile::tempfile()).collect::<Result<_, _>>()?;
        self.of_preparation()
    }

    /// Returns the streams of a command whose output is never compared.
    pub fn of_preparation(&self) -> Result<Streams<'_>, RunError> {
        self.said.set_len(0)?;
        (&self.said).seek(SeekFrom::Start(0))?;
        Ok(Streams { show: self.show, said: &self.said, printed: &self.printed })
    }

    /// Returns an error if an application has failed.
    pub fn check_exit(
        &self,
        workload: &Workload,
        of: &str,
        failure: Option<(usize, ExitStatus)>,
    ) -> Result<(), RunError> {
        let Some((index, status)) = failure else { return Ok(()) };
        let command = workload.applications[index].command.join(" ");
        Err(RunError::Failed { command, of: of.to_owned(), status, said: self.said()? })
    }

    /// Returns the end of standard error, with introductory words.
    fn said(&self) -> Result<String, RunError> {
        let mut file = &self.said;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SAID_MAX)))?;
        let mut bytes = Vec::new();
        file.take(SAID_MAX).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        Ok(if text.is_empty() { text } else { format!(" and said: {text}") })
    }

    /// Returns the figures extracted from the output of a run. A missing figure is an error unless
    /// `may_miss`.
    pub fn figures(&self, variant: &Variant, may_miss: bool) -> Result<BTreeMap<String, f64>, RunError> {
        let mut logs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (printed, pattern) in &self.patterns {
            for (application, file) in variant.workload.applications.iter().zip(&self.printed) {
                let ambiguous = |source| RunError::Ambiguous { name: printed.name.clone(), source };
                let figures = printed.figures(&values(file, pattern)?.map_err(ambiguous)?);
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

    /// Compares the output of a run with that of the first run.
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
    /// Returns standard input, output and error of the application of that index. The output of a preparation
    /// is not stored.
    pub fn of(&self, index: usize) -> std::io::Result<[Stream; 3]> {
        let out = match self.printed.get(index) {
            Some(file) => file.try_clone()?.into(),
            None if self.show => Stream::Inherited,
            None => Stream::null()?,
        };
        let error = if self.show { Stream::Inherited } else { self.said.try_clone()?.into() };
        Ok([Stream::null()?, out, error])
    }
}

/// Returns the numbers that a pattern finds, line by line: plain ones as they are, times with a unit in
/// seconds.
fn values(mut file: &File, pattern: &Regex) -> std::io::Result<Result<Vec<f64>, Ambiguous>> {
    file.seek(SeekFrom::Start(0))?;
    let (mut lines, mut line, mut values) = (BufReader::new(file), Vec::new(), Vec::new());
    while lines.by_ref().take(SEARCHED_MAX).read_until(b'\n', &mut line)? > 0 {
        let matches = pattern.captures_iter(&line).filter_map(|found| found.get(1).or(found.get(0)));
        let texts = matches.filter_map(|found| std::str::from_utf8(found.as_bytes()).ok());
        match texts.filter_map(|text| figure::value(text).transpose()).collect::<Result<Vec<f64>, _>>() {
            Ok(found) => values.extend(found),
            Err(ambiguous) => return Ok(Err(ambiguous)),
        }
        line.clear();
    }
    Ok(Ok(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn numbers_and_times_with_units_are_read_as_benchmarks_print_them() {
        // From wrk, redis-benchmark and ab.
        let text = "    99%    3.25ms\nRequests/sec:  12,345.60\nSET: 99.9 requests per second\n\
                    Requests/sec: nonsense\n  50%    750us\n";
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let found = |pattern: &str| {
            let pattern = RegexBuilder::new(pattern).multi_line(true).build().unwrap();
            values(&file, &pattern).unwrap().unwrap()
        };
        assert_eq!(found(r"99%\s+(\S+)$"), [0.00325]);
        assert_eq!(found(r"Requests/sec:\s+(\S+)"), [12345.6]);
        assert_eq!(found(r"^\s+\d+%\s+(\S+)"), [0.00325, 0.00075]);
        assert_eq!(found(r"[0-9.]+ requests"), [0.0; 0], "the whole match is not a number");
        assert_eq!(found(r"(-?0)"), [0.0; 0], "0 has no ratio");
    }
}
