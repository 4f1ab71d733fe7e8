//! The file of a comparison: JSON, for other tools and for continuing.
//!
//! The fields of hyperfine's `--export-json` (`results[]`) have the same names and places, so that tools for
//! that format can read the file. Other results are in additional fields and below `corewise`.
//!
//! While a comparison runs, its file starts with a line that contains the plan, and grows by a line for each
//! run ([`Kept`]). If corewise is killed, the finished runs are in the file, and the comparison can be
//! continued from it. At the end the whole document replaces it.

use crate::whole_file::{self, Stream};
use anyhow::{Context, Result, bail};
use corewise_core::comparison::{Effect, Findings, Metric, Summary, Trial, VariantFindings};
use corewise_core::profile::Evidence;
use corewise_render::comparison::{Comparison, EVIDENCE, command_line};
use corewise_sys::input;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

const FORMAT: &str = "corewise comparison";
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    results: Vec<Entry<'a>>,
    corewise: Ours<&'a Comparison>,
    noise_floor: BTreeMap<Metric, Effect>,
    blocks: usize,
    notes: &'a [String],
}

/// A variant: hyperfine's fields, then corewise's.
#[derive(Serialize)]
struct Entry<'a> {
    command: String,
    mean: Option<f64>,
    stddev: Option<f64>,
    median: Option<f64>,
    user: f64,
    system: f64,
    min: Option<f64>,
    max: Option<f64>,
    times: Vec<f64>,
    exit_codes: Vec<i32>,
    name: &'a str,
    /// All figures; in runs of a fixed time `times` contains the times of one completion.
    figures: BTreeMap<Metric, Summary>,
    /// The effects relative to the baseline; empty for the baseline.
    effects: BTreeMap<Metric, Effect>,
}

#[derive(Serialize, Deserialize)]
struct Ours<C> {
    format: String,
    version: u32,
    evidence: Evidence,
    comparison: C,
}

impl<C> Ours<C> {
    fn of(comparison: C) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, evidence: EVIDENCE, comparison }
    }
}

/// The first line of the file of an unfinished comparison.
#[derive(Serialize)]
struct Begun<'a> {
    corewise: Ours<&'a Comparison>,
}

/// The part of a document that is read.
#[derive(Deserialize)]
struct Read {
    corewise: Ours<Comparison>,
}

/// Returns the document.
pub fn write(comparison: &Comparison, findings: &Findings) -> String {
    let entries = findings.variants.iter().enumerate();
    let document = Document {
        results: entries.map(|(index, found)| entry(comparison, index, found)).collect(),
        corewise: Ours::of(comparison),
        noise_floor: findings.noise_floor.iter().cloned().collect(),
        blocks: findings.blocks,
        notes: &findings.notes,
    };
    // Maps with names as keys, and numbers: JSON can represent them.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn entry<'a>(comparison: &Comparison, index: usize, found: &'a VariantFindings) -> Entry<'a> {
    let plan = &comparison.plan;
    let runs = || comparison.trials.iter().filter(|trial| plan.variant_of(trial.arm) == index);
    Entry {
        command: command_line(&plan.variants[index]),
        mean: found.wall().map(|wall| wall.mean),
        stddev: found.wall().and_then(|wall| wall.deviation),
        median: found.wall().map(|wall| wall.median),
        user: found.user_seconds,
        system: found.system_seconds,
        min: found.wall().map(|wall| wall.min),
        max: found.wall().map(|wall| wall.max),
        times: runs().map(|trial| trial.run.wall_seconds).collect(),
        exit_codes: runs().map(|trial| trial.run.exit_code).collect(),
        name: &found.name,
        figures: found.summaries.iter().cloned().collect(),
        effects: found.effects.iter().cloned().collect(),
    }
}

/// Reads a comparison that is to be continued.
pub fn read(path: &Path) -> Result<Comparison> {
    let shown = path.display();
    let text = input::read_text(path, input::DATA_MAX)
        .with_context(|| format!("cannot read the comparison {shown}: give a file of `compare --json`"))?;
    parse(&text).with_context(|| format!("{shown} is not a comparison that can be continued"))
}

/// Parses the text of a file, for [`read`].
pub fn parse(text: &str) -> Result<Comparison> {
    let document = serde_json::from_str::<Read>(text);
    let read = document.or_else(|error| read_lines(text).ok_or(error));
    let ours = read.context("give a file of `corewise compare --json`")?.corewise;
    if ours.format != FORMAT || ours.version != VERSION {
        bail!(
            "its format is `{}` version {}, and not `{FORMAT}` version {VERSION}: use the corewise that \
             wrote it",
            ours.format,
            ours.version
        );
    }
    ours.comparison.plan.check()?;
    ours.comparison.plan.check_trials(&ours.comparison.trials)?;
    Ok(ours.comparison)
}

/// Reads the lines of an unfinished comparison as one document. The last line may be incomplete.
fn read_lines(text: &str) -> Option<Read> {
    let mut lines = text.lines();
    let mut begun: Read = serde_json::from_str(lines.next()?).ok()?;
    let trials = lines.map_while(|line| serde_json::from_str(line).ok());
    begun.corewise.comparison.trials.extend(trials);
    Some(begun)
}

/// The file of an unfinished comparison: it contains every run as soon as it has been made.
pub struct Kept {
    path: PathBuf,
    /// The plan and the earlier runs.
    begun: String,
    /// Opened at the first run: until then the file stays as it was.
    file: Option<Stream>,
}

impl Kept {
    /// Returns `None` if nothing can be stored, because the path is not a file but, for instance, a pipe.
    pub fn new(path: &Path, comparison: &Comparison) -> Option<Kept> {
        let before = Comparison { trials: Vec::new(), ..comparison.clone() };
        let begun = Begun { corewise: Ours::of(&before) };
        let lines = std::iter::once(serde_json::to_string(&begun))
            .chain(comparison.trials.iter().map(serde_json::to_string));
        // Maps with names as keys, and numbers: JSON can represent them.
        let begun = lines.map(|line| line.unwrap_or_default() + "\n").collect();
        whole_file::may_grow(path).then(|| Kept { path: path.to_owned(), begun, file: None })
    }

    /// Adds a run.
    pub fn add(&mut self, trial: &Trial) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                whole_file::write(&self.path, self.begun.as_bytes())?;
                self.file.insert(whole_file::append(&self.path)?)
            }
        };
        file.write_all((serde_json::to_string(trial)? + "\n").as_bytes())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_render::comparison::fixture::comparison;
    use serde_json::Value;

    /// The fields that hyperfine's own scripts read (scripts/plot_*.py, advanced_statistics.py).
    #[derive(serde::Deserialize)]
    struct HyperfineExport {
        results: Vec<HyperfineResult>,
    }

    #[derive(serde::Deserialize)]
    struct HyperfineResult {
        command: String,
        mean: f64,
        stddev: Option<f64>,
        median: f64,
        user: f64,
        system: f64,
        min: f64,
        max: f64,
        times: Vec<f64>,
        exit_codes: Vec<Option<i32>>,
    }

    #[test]
    fn what_reads_hyperfines_export_reads_ours() {
        let comparison = comparison();
        let text = write(&comparison, &comparison.findings());
        let export: HyperfineExport = serde_json::from_str(&text).unwrap();
        let [baseline, other] = export.results.as_slice() else { panic!("two variants") };
        assert_eq!((baseline.command.as_str(), baseline.times.len()), ("prog 'a b'", 20));
        assert_eq!((other.times.len(), other.exit_codes.len()), (10, 10));
        assert!(other.min <= other.median && other.median <= other.max && other.stddev.unwrap() > 0.0);
        assert!((other.mean / baseline.mean - 1.1).abs() < 0.01);
        assert_eq!((other.user, other.system), (0.5, 0.0));
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_a_changed_one_is_refused() {
        let comparison = comparison();
        let text = write(&comparison, &comparison.findings());
        assert_eq!(parse(&text).unwrap(), comparison);
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["corewise"]["evidence"], "measured");
        assert_eq!(document["corewise"]["comparison"]["trials"][0]["energy_joules"], Value::Null, "not 0");
        assert_eq!(document["results"][1]["effects"]["wall"]["verdict"], "more");
        let refused = |pointer: &str, value: Value, words: &str| {
            let mut document = document.clone();
            *document.pointer_mut(pointer).unwrap() = value;
            let error = format!("{:#}", parse(&document.to_string()).unwrap_err());
            assert!(error.contains(words), "no `{words}` in {error}");
        };
        refused("/corewise/version", 9.into(), "use the corewise that wrote it");
        refused("/corewise/comparison/plan/variants", Value::Array(Vec::new()), "nothing to run");
        refused("/corewise/comparison/trials/3/arm", 99.into(), "run 4 is not the one");
        refused("/corewise/comparison/trials", "x".into(), "give a file of `corewise compare --json`");
    }
}
