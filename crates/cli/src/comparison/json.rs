//! A comparison as JSON: for other tools, and to be continued.
//!
//! What hyperfine's `--export-json` has stands where it has it (`results[]`), so that whatever reads that
//! reads this; what hyperfine does not know is in further fields and below `corewise`.

use super::{Comparison, EVIDENCE, command_line};
use anyhow::{Context, Result, bail};
use corewise_core::comparison::{Effect, Findings, Metric, VariantFindings};
use corewise_core::profile::Evidence;
use corewise_sys::input;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

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

/// A variant as hyperfine has it, then what it does not.
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
    /// Against the baseline; empty for the baseline.
    effects: BTreeMap<Metric, Effect>,
}

#[derive(Serialize, Deserialize)]
struct Ours<C> {
    format: String,
    version: u32,
    evidence: Evidence,
    comparison: C,
}

/// What is read of a document.
#[derive(Deserialize)]
struct Read {
    corewise: Ours<Comparison>,
}

/// The document.
pub fn write(comparison: &Comparison, findings: &Findings) -> String {
    let entries = findings.variants.iter().enumerate();
    let document = Document {
        results: entries.map(|(index, found)| entry(comparison, index, found)).collect(),
        corewise: Ours { format: FORMAT.to_owned(), version: VERSION, evidence: EVIDENCE, comparison },
        noise_floor: findings.noise_floor.iter().copied().collect(),
        blocks: findings.blocks,
        notes: &findings.notes,
    };
    // Maps with names as keys, and numbers: nothing that JSON has not.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn entry<'a>(comparison: &Comparison, index: usize, found: &'a VariantFindings) -> Entry<'a> {
    let plan = &comparison.plan;
    let runs = || comparison.trials.iter().filter(|trial| plan.variant_of(trial.arm) == index);
    Entry {
        command: command_line(&plan.variants[index]),
        mean: found.wall.map(|wall| wall.mean),
        stddev: found.wall.and_then(|wall| wall.deviation),
        median: found.wall.map(|wall| wall.median),
        user: found.user_seconds,
        system: found.system_seconds,
        min: found.wall.map(|wall| wall.min),
        max: found.wall.map(|wall| wall.max),
        times: runs().map(|trial| trial.run.wall_seconds).collect(),
        exit_codes: runs().map(|trial| trial.run.exit_code).collect(),
        name: &found.name,
        effects: found.effects.iter().copied().collect(),
    }
}

/// Reads a comparison that is to be continued.
pub fn read(path: &Path) -> Result<Comparison> {
    let shown = path.display();
    let text = input::read_text(path, input::DATA_MAX)
        .with_context(|| format!("cannot read the comparison {shown}: give a file of `compare --json`"))?;
    parse(&text).with_context(|| format!("{shown} is no comparison that can be continued"))
}

/// What [`read`] makes of a file's text.
pub fn parse(text: &str) -> Result<Comparison> {
    let read: Read = serde_json::from_str(text).context("give a file of `corewise compare --json`")?;
    let ours = read.corewise;
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
