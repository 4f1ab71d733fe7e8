//! `corewise paths accuracy`: compares recordings with the truth, and varies period, runs and branches.

use super::file;
use super::truth::ExactCounts;
use crate::outputs::{JsonOutput, OutputFile};
use crate::whole_file;
use anyhow::{Context, Result, bail};
use corewise_code::elf::ElfProgram;
use corewise_paths::modules::ModuleTable;
use corewise_paths::study::{Grid, study};
use corewise_paths::window::{BranchRecording, Module, ModuleId};
use corewise_render::paths::{Study, accuracy};
use corewise_render::table::Table;
use std::fmt::Write;
use std::path::PathBuf;

/// The factors by which the periods of the study are longer.
const ONE_IN: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// The lengths of windows in the study, up to that of the recordings.
const BRANCHES: [usize; 5] = [4, 8, 16, 32, 64];

/// Compare recordings with the truth: how accurate the estimated path profile is
///
/// The measure is that of the path-profiling paper: the share of the paths with at least 0.125 % of the flow
/// that are also among the same number of hottest paths of the estimate, weighted by flow. Several recordings
/// are runs of the same command.
#[derive(Debug, clap::Args)]
pub struct Accuracy {
    /// Exact counts by `corewise paths truth`
    #[arg(long, value_name = "FILE")]
    truth: PathBuf,
    /// Recordings of the same program
    #[arg(required = true, value_name = "RECORDING")]
    recordings: Vec<PathBuf>,
    /// Write a page with the plots of the study
    #[arg(long, value_name = "FILE")]
    html: Option<OutputFile>,
    #[command(flatten)]
    json: JsonOutput,
}

impl Accuracy {
    /// Prints the result; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        if let Some(path) = &self.html {
            whole_file::check_writable(path)?;
        }
        let truth: ExactCounts =
            file::read(&self.truth, "file of `corewise paths truth`", ExactCounts::VERSION)?;
        let mut table = ModuleTable::default();
        truth.modules.iter().for_each(|module| _ = table.id(module));
        let mut runs = Vec::new();
        for path in &self.recordings {
            let mut recording = file::read_recording(path)?;
            let context = || format!("cannot compare {} with the truth", path.display());
            check(&recording, &truth.modules).with_context(context)?;
            table.adopt(&mut recording);
            runs.push(recording);
        }
        let study = studied(&truth, &runs, table.modules())?;
        if let Some(path) = &self.html {
            whole_file::write(path, accuracy::render(&study).as_bytes())?;
        }
        self.json.show(&study, || describe(&study))?;
        Ok(0)
    }
}

/// Checks that the recording is of the same files as the truth.
fn check(recording: &BranchRecording, traced: &[Module]) -> Result<()> {
    for module in &recording.modules {
        if let Some(other) = traced.iter().find(|m| m.path == module.path && m.build_id != module.build_id) {
            bail!("it is of another build of {}: record both with the same file", other.path);
        }
    }
    if !recording.modules.iter().any(|module| traced.contains(module)) {
        let names: Vec<&str> = traced.iter().map(|module| module.path.as_str()).collect();
        bail!("it has no window in the files of the truth: {}", names.join(", "));
    }
    Ok(())
}

fn studied(truth: &ExactCounts, runs: &[BranchRecording], modules: &[Module]) -> Result<Study> {
    let Some(first) = runs.first() else { bail!("there is no recording") };
    if let Some(other) = runs.iter().find(|run| run.period_ns != first.period_ns) {
        bail!(
            "the recordings have different periods ({} ms and {} ms): compare them one by one",
            first.period_ns as f64 / 1e6,
            other.period_ns as f64 / 1e6
        );
    }
    let program = ElfProgram::open(modules)?;
    let longest = runs.iter().map(|run| run.branches_max as usize).min().unwrap_or(0);
    let mut branches: Vec<usize> = BRANCHES.into_iter().filter(|n| *n < longest).collect();
    branches.push(longest);
    let traced = truth.modules.len();
    let rows = |one_in: Vec<usize>, used: Vec<usize>| {
        let grid = Grid { one_in, runs: used, branches: branches.clone() };
        let wanted = |module: ModuleId| (module.0 as usize) < traced;
        study(&program, &truth.profile, runs, &grid, wanted)
    };
    let mut notes = truth.notes.clone();
    if truth.without_identity > 0 {
        let lost = truth.without_identity;
        notes.push(format!("{lost} executed paths are only in the total of the truth, not in an entry"));
    }
    Ok(Study {
        evidence: "measured windows beside emulated truth",
        command: truth.command.clone(),
        backend: first.backend.clone(),
        by_period: rows(ONE_IN.into(), vec![runs.len()]),
        by_runs: rows(vec![1], (1..=runs.len()).collect()),
        notes,
    })
}

/// Formats a table of all runs.
fn describe(study: &Study) -> String {
    let runs = study.whole().next().map_or(0, |row| row.runs);
    let command = study.command.join(" ");
    let mut text = format!("{command}: {runs} runs by {} ({})\n", study.backend, study.evidence);
    let mut table = Table::new(">>>>>>>");
    table.row([
        "branches",
        "windows",
        "accuracy",
        "hot paths found",
        "edge overlap",
        "path overlap",
        "unique paths",
    ]);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    for row in study.whole() {
        let agreement = &row.agreement;
        table.row([
            row.branches.to_string(),
            row.windows.to_string(),
            percent(agreement.accuracy),
            format!("{} of {}", agreement.hot_found, agreement.hot_paths),
            percent(agreement.edge_overlap),
            percent(agreement.path_overlap),
            row.paths_seen_whole.to_string(),
        ]);
    }
    text += &table.to_string();
    for note in &study.notes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "note: {note}");
    }
    text
}
