//! The summary of a recording: its hot functions and paths, and its quality.

use crate::estimate::Estimator;
use crate::export::stacks::Callee;
use crate::graph::Graph;
use crate::path::{Path, Step};
use crate::program::Program;
use crate::window::{BranchRecording, End};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The summary of a recording.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The evidence of the figures.
    pub evidence: &'static str,
    /// The command.
    pub command: Vec<String>,
    /// The sampler.
    pub backend: String,
    /// Mean CPU time between two samples, in ns.
    pub period_ns: u64,
    /// The requested number of branches per window.
    pub branches_max: u32,
    /// The number of samples with a window.
    pub windows: usize,
    /// The number of samples without one, by reason.
    pub without_window: BTreeMap<String, u64>,
    /// Why windows ended.
    pub ended: BTreeMap<String, u64>,
    /// The number of windows that disagree with the code of their files; they are left out.
    pub contradicting: usize,
    /// The number of different paths with an estimated flow.
    pub different_paths: usize,
    /// The functions with the most time.
    pub functions: Vec<HotFunction>,
    /// The most executed paths.
    pub paths: Vec<HotPath>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A function and its share of the time.
#[derive(Debug, Clone, Serialize)]
pub struct HotFunction {
    /// The function.
    #[serde(skip)]
    pub callee: Callee,
    /// Its share of the time.
    pub share: f64,
    /// Its name for display.
    pub name: String,
    /// The path of its file.
    pub module: String,
}

/// A path and its share of all executions.
#[derive(Debug, Serialize)]
pub struct HotPath {
    /// Its share of all executions of paths.
    pub share: f64,
    /// Its function's name for display.
    pub function: String,
    /// Bytes between the function's first instruction and the path's.
    pub offset: u64,
    /// The path of its file.
    pub module: String,
    /// The outcomes of its branches: T taken, N not taken, J and an address for an indirect jump.
    pub outcomes: String,
    /// The first instruction of each basic block, as linked.
    pub blocks: Vec<u64>,
    /// Instructions executed.
    pub instructions: u32,
}

impl Summary {
    /// Summarises a recording, with this many functions and paths.
    pub fn new(recording: &BranchRecording, program: &dyn Program, top: usize) -> Summary {
        let mut estimator = Estimator::new(program);
        let mut contradicting = 0;
        let mut ended: BTreeMap<String, u64> = BTreeMap::new();
        let mut functions: BTreeMap<Callee, u64> = BTreeMap::new();
        let mut time = 0;
        for window in &recording.windows {
            contradicting += usize::from(estimator.add(window, None).is_err());
            *ended.entry(reason(&window.ended)).or_default() += 1;
            *functions.entry(Callee::at(window.start, program)).or_default() += recording.time_of(window);
            time += recording.time_of(window);
        }
        let estimate = estimator.estimate();
        let mut functions: Vec<(Callee, u64)> = functions.into_iter().collect();
        functions.sort_by_key(|(callee, count)| (Reverse(*count), *callee));
        let hot_function = |(callee, count): (Callee, u64)| HotFunction {
            callee,
            share: count as f64 / time as f64,
            name: callee.name(recording, program),
            module: recording.modules[callee.module.0 as usize].path.clone(),
        };
        let functions = functions.into_iter().take(top).map(hot_function).collect();
        let mut graph = Graph::new(program);
        let profile = &estimate.profile;
        let paths = profile.hottest().into_iter().take(top).map(|(path, _)| {
            let share = profile.flow(path);
            hot_path(path, share, recording, program, &mut graph)
        });
        let paths = paths.collect();
        Summary {
            evidence: "measured windows, estimated paths",
            command: recording.command.clone(),
            backend: recording.backend.clone(),
            period_ns: recording.period_ns,
            branches_max: recording.branches_max,
            windows: recording.windows.len(),
            without_window: recording.without_window.clone(),
            ended,
            contradicting,
            different_paths: profile.paths.len(),
            functions,
            paths,
            notes: recording.notes.clone(),
        }
    }
}

fn hot_path(
    path: &Path,
    share: f64,
    recording: &BranchRecording,
    program: &dyn Program,
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

/// Describes why a window ended, in the words of the recording.
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
