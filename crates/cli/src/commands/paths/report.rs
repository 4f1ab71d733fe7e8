//! `corewise paths report`: the hot functions and paths of a recording.

use super::file;
use anyhow::Result;
use corewise_code::elf::ElfProgram;
use corewise_paths::estimate::Estimator;
use corewise_paths::export::stacks::Callee;
use corewise_paths::graph::Graph;
use corewise_paths::path::{Path, Step};
use corewise_paths::window::{End, Recording};
use corewise_render::terminal::{self, Name};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Show the hot functions and paths of a recording
///
/// A function's share is of the samples, so of the time; a path's share is of all executions of paths,
/// estimated from the windows (docs/paths.md).
#[derive(Debug, clap::Args)]
pub struct Report {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How many functions and paths to show
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is shown.
#[derive(Serialize)]
struct Summary {
    evidence: &'static str,
    command: Vec<String>,
    backend: String,
    period_ns: u64,
    branches_max: u32,
    /// Samples with a window.
    windows: usize,
    /// Samples without one, by reason.
    without_window: BTreeMap<String, u64>,
    /// Why windows ended.
    ended: BTreeMap<String, u64>,
    /// Windows that disagree with the code of their files; they are left out.
    contradicting: usize,
    /// Different paths that were estimated to be executed at all.
    different_paths: usize,
    functions: Vec<HotFunction>,
    paths: Vec<HotPath>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct HotFunction {
    share: f64,
    name: String,
    module: String,
}

#[derive(Serialize)]
struct HotPath {
    share: f64,
    function: String,
    /// Bytes between the function's first instruction and the path's.
    offset: u64,
    module: String,
    /// The outcomes of its branches: T taken, N not taken, J and an address for an indirect jump.
    outcomes: String,
    /// The first instruction of each basic block, as linked.
    blocks: Vec<u64>,
    instructions: u32,
}

impl Report {
    /// Prints; the exit status.
    pub fn execute(self) -> Result<u8> {
        let recording = file::read_recording(&self.file)?;
        let program = ElfProgram::open(&recording.modules)?;
        let summary = summary(recording, &program, self.top);
        let text =
            if self.json { serde_json::to_string_pretty(&summary)? + "\n" } else { describe(&summary) };
        terminal::print(&text)?;
        Ok(0)
    }
}

/// The report for people, with the ten hottest of everything.
#[cfg(test)]
pub fn of(recording: Recording) -> Result<String> {
    let program = ElfProgram::open(&recording.modules)?;
    Ok(describe(&summary(recording, &program, 10)))
}

fn summary(recording: Recording, program: &ElfProgram, top: usize) -> Summary {
    let mut estimator = Estimator::new(program);
    let mut contradicting = 0;
    let mut ended: BTreeMap<String, u64> = BTreeMap::new();
    let mut functions: BTreeMap<Callee, u64> = BTreeMap::new();
    for window in &recording.windows {
        contradicting += usize::from(estimator.add(window, None).is_err());
        *ended.entry(reason(&window.ended)).or_default() += 1;
        *functions.entry(Callee::at(window.start, program)).or_default() += 1;
    }
    let estimate = estimator.estimate();
    let mut functions: Vec<(Callee, u64)> = functions.into_iter().collect();
    functions.sort_by_key(|(callee, count)| (Reverse(*count), *callee));
    let windows = recording.windows.len();
    let hot_function = |(callee, count): (Callee, u64)| HotFunction {
        share: count as f64 / windows as f64,
        name: callee.name(&recording, program),
        module: recording.modules[callee.module.0 as usize].path.clone(),
    };
    let functions = functions.into_iter().take(top).map(hot_function).collect();
    let mut graph = Graph::new(program);
    let profile = &estimate.profile;
    let paths = profile.hottest().into_iter().take(top).map(|(path, _)| {
        let share = profile.flow(path);
        hot_path(path, share, &recording, program, &mut graph)
    });
    let paths = paths.collect();
    let mut notes = recording.notes.clone();
    notes.extend(program.unreadable().iter().map(|error| format!("{error}: its code is not in any path")));
    Summary {
        evidence: "measured windows, estimated paths",
        command: recording.command,
        backend: recording.backend,
        period_ns: recording.period_ns,
        branches_max: recording.branches_max,
        windows,
        without_window: recording.without_window,
        ended,
        contradicting,
        different_paths: profile.paths.len(),
        functions,
        paths,
        notes,
    }
}

fn hot_path(
    path: &Path,
    share: f64,
    recording: &Recording,
    program: &ElfProgram,
    graph: &mut Graph<'_>,
) -> HotPath {
    let callee = Callee::at(path.start, program);
    let blocks = graph.blocks_of(path).unwrap_or_default();
    let outcome = |step: &Step| match step {
        Step::Taken => "T".to_owned(),
        Step::NotTaken => "N".to_owned(),
        Step::To(address) => format!("J{address:x} "),
    };
    HotPath {
        share,
        function: callee.name(recording, program),
        offset: path.start.address - callee.start.unwrap_or(path.start.address),
        module: recording.modules[path.start.module.0 as usize].path.clone(),
        outcomes: path.steps.iter().map(outcome).collect::<String>().trim_end().to_owned(),
        instructions: blocks.iter().map(|block| block.instructions).sum(),
        blocks: blocks.iter().map(|block| block.start.address).collect(),
    }
}

/// Why a window ended, in the words of the recording.
fn reason(end: &End) -> String {
    match end {
        End::Full => "full".to_owned(),
        End::SystemCall => "system call".to_owned(),
        End::Unsupported(mnemonic) => format!("cannot be emulated: {mnemonic}"),
        End::Memory => "memory that cannot be read".to_owned(),
        End::InstructionCap => "instruction cap".to_owned(),
        End::NoFile => "code in no file".to_owned(),
        End::Interrupted => "signal".to_owned(),
        End::Hardware => "hardware".to_owned(),
    }
}

fn describe(summary: &Summary) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_description(&mut text, summary);
    text
}

fn write_description(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    writeln!(
        out,
        "{}: {} windows of {} branches by {}, one each {:.1} ms of CPU time",
        Name(&summary.command.join(" ")),
        summary.windows,
        summary.branches_max,
        Name(&summary.backend),
        summary.period_ns as f64 / 1e6
    )?;
    let listed = |counts: &BTreeMap<String, u64>, of: u64| {
        let mut counts: Vec<_> = counts.iter().collect();
        counts.sort_by_key(|(_, count)| Reverse(**count));
        let shown = |(reason, count): (&String, &u64)| {
            format!("{} {}", Name(reason), percent(*count as f64 / of.max(1) as f64))
        };
        counts.into_iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "windows ended: {}", listed(&summary.ended, summary.windows as u64))?;
    if !summary.without_window.is_empty() {
        let samples = summary.windows as u64 + summary.without_window.values().sum::<u64>();
        writeln!(out, "samples without a window: {}", listed(&summary.without_window, samples))?;
    }
    if summary.contradicting > 0 {
        writeln!(out, "windows that contradict the files' code: {}", summary.contradicting)?;
    }
    summary.notes.iter().try_for_each(|note| writeln!(out, "note: {}", Name(note)))?;
    writeln!(out, "\nhot functions (share of the time)")?;
    for HotFunction { share, name, module } in &summary.functions {
        writeln!(out, "{:>8}  {}  {}", percent(*share), Name(name), Name(file_name(module)))?;
    }
    writeln!(
        out,
        "\nhot paths (share of all executions of paths; {} different ones estimated)",
        summary.different_paths
    )?;
    for path in &summary.paths {
        writeln!(
            out,
            "{:>8}  {}+{:#x}  {} blocks, {} instructions  {}",
            percent(path.share),
            Name(&path.function),
            path.offset,
            path.blocks.len(),
            path.instructions,
            path.outcomes
        )?;
    }
    Ok(())
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
