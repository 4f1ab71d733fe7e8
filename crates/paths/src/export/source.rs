//! Counts by function and source line, nested by inlining: the basis of profiles for compilers.
//!
//! Problem: a compiler that reads a profile has not inlined, unrolled or moved anything yet, so it needs
//! counts by place in the source; windows contain addresses. Approach: debug information gives the frames of
//! each instruction, which are a path down a tree of functions and inlined calls. A line's count is that of
//! its most frequent instruction: in optimised code each statement's instructions are spread over several
//! blocks, and a sum would count it once for each instruction (Chen, Li, Moseley: AutoFDO, CGO 2016). Limits:
//! no pseudo-probes, no calling contexts.

use super::counts::{Counts, Run};
use crate::program::Program;
use crate::window::{Location, ModuleId};
use corewise_core::code::Flow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A line within a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// Lines below the line at which the function was declared, modulo 65,536.
    pub offset: u16,
    /// Which of several blocks on that line (the base part of DWARF's discriminator).
    pub discriminator: u32,
}

/// A function and a line in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFrame {
    /// The function's linker name.
    pub function: String,
    /// The line: of the instruction for the innermost function, of the inlined call for the others.
    pub line: Line,
    /// How many copies of the instruction the optimiser made (for instance by unrolling a loop): each count
    /// represents as many.
    pub copies: u32,
}

/// A function and a line of its source, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The function's linker name.
    pub function: String,
    /// The source's path; empty if unknown.
    pub file: String,
    /// The line; 0 if the compiler names none.
    pub line: u64,
}

/// The lines from debug information.
pub trait Lines {
    /// Returns the function of an instruction and the functions inlined there, the outermost first; empty if
    /// unknown.
    fn frames(&self, at: Location) -> Vec<SourceFrame>;

    /// Returns the same for display: each function with the line of the inlined call or, at last, of the
    /// instruction.
    fn places(&self, at: Location) -> Vec<Place>;
}

/// The counts of a function, or of one inlined call of it.
#[derive(Debug, Default)]
pub struct FunctionCounts {
    /// Executed instructions, without those of inlined functions.
    instructions: u64,
    /// The counts of its lines.
    pub lines: BTreeMap<Line, LineCount>,
    /// Inlined functions, by the line of the call and the function's name.
    pub inlined: BTreeMap<(Line, String), FunctionCounts>,
}

/// How often a line was executed.
#[derive(Debug, Default)]
pub struct LineCount {
    /// The count of its most frequent instruction.
    pub count: u64,
    /// The called functions.
    pub callees: BTreeMap<String, u64>,
}

impl FunctionCounts {
    /// Returns the executed instructions, including those of inlined functions.
    pub fn total(&self) -> u64 {
        self.instructions + self.inlined.values().map(FunctionCounts::total).sum::<u64>()
    }
}

/// All functions of a module that are not inlined, and how often each was entered.
#[derive(Debug, Default)]
pub struct SourceCounts {
    /// By linker name.
    pub functions: BTreeMap<String, FunctionCounts>,
    heads: BTreeMap<String, u64>,
}

impl SourceCounts {
    /// Sorts counts of addresses by source.
    pub fn new(counts: &Counts, module: ModuleId, program: &dyn Program, lines: &dyn Lines) -> SourceCounts {
        let mut functions: BTreeMap<String, FunctionCounts> = BTreeMap::new();
        for (address, count) in instructions(counts, module, program) {
            let frames = lines.frames(Location { module, address });
            let copies = frames.last().map_or(1, |frame| u64::from(frame.copies));
            if let Some((function, line)) = place_of(&mut functions, frames) {
                function.instructions += count * copies;
                let line = function.lines.entry(line).or_default();
                line.count = line.count.max(count * copies);
            }
        }
        let heads = entries(counts, module, program, lines, &mut functions);
        SourceCounts { functions, heads }
    }

    /// Returns how often a function was entered.
    pub fn head(&self, function: &str) -> u64 {
        self.heads.get(function).copied().unwrap_or(0)
    }

    /// Returns the functions, those with the most instructions first.
    pub fn hottest(&self) -> Vec<(&str, &FunctionCounts)> {
        let mut functions: Vec<(&str, &FunctionCounts)> =
            self.functions.iter().map(|(name, counts)| (name.as_str(), counts)).collect();
        functions.sort_by_key(|(name, counts)| (Reverse(counts.total()), *name));
        functions
    }
}

/// Counts how often each instruction was executed. Instructions of the same functions that were not executed
/// have a count of 0, which tells the compiler more than none.
fn instructions(counts: &Counts, module: ModuleId, program: &dyn Program) -> BTreeMap<u64, u64> {
    let mut instructions = BTreeMap::new();
    for ((first, last), count) in counts.ranges() {
        let mut address = first;
        while address <= last
            && let Some(instruction) = program.instruction(Location { module, address })
        {
            *instructions.entry(address).or_default() += count;
            address += u64::from(instruction.length);
        }
    }
    for (start, end) in executed_functions(counts, program) {
        let mut address = start;
        while address < end
            && let Some(instruction) = program.instruction(Location { module, address })
        {
            instructions.entry(address).or_default();
            address += u64::from(instruction.length);
        }
    }
    instructions
}

/// Returns the functions that runs begin in: first address, and the one after the last.
fn executed_functions(counts: &Counts, program: &dyn Program) -> BTreeSet<(u64, u64)> {
    let function = |run: &Run| program.function(run.first).map(|function| (function.start, function.end));
    counts.runs.keys().filter_map(function).collect()
}

/// Returns the node of the tree for an instruction's frames.
fn place_of(
    functions: &mut BTreeMap<String, FunctionCounts>,
    frames: Vec<SourceFrame>,
) -> Option<(&mut FunctionCounts, Line)> {
    let mut frames = frames.into_iter();
    let SourceFrame { function, mut line, .. } = frames.next()?;
    let mut counts = functions.entry(function).or_default();
    for inner in frames {
        counts = counts.inlined.entry((line, inner.function)).or_default();
        line = inner.line;
    }
    Some((counts, line))
}

fn is_call(flow: Flow) -> bool {
    match flow {
        Flow::Call(_) | Flow::CallThrough(_) | Flow::CallAnywhere => true,
        Flow::Next
        | Flow::Jump(_)
        | Flow::Branch(_)
        | Flow::JumpThrough(_)
        | Flow::JumpAnywhere
        | Flow::Return
        | Flow::Kernel => false,
    }
}

/// Counts how often each function was entered. Calls are added to their lines, too.
fn entries(
    counts: &Counts,
    module: ModuleId,
    program: &dyn Program,
    lines: &dyn Lines,
    functions: &mut BTreeMap<String, FunctionCounts>,
) -> BTreeMap<String, u64> {
    let mut heads = BTreeMap::new();
    for ((from, to), count) in &counts.transfers {
        let Some(to) = to.map(|address| Location { module, address }) else { continue };
        let is_entry = program.function(to).is_some_and(|function| function.start == to.address);
        let Some(callee) = lines.frames(to).into_iter().next().filter(|_| is_entry) else { continue };
        let Some(from) = from.map(|address| Location { module, address }) else {
            *heads.entry(callee.function).or_default() += count;
            continue;
        };
        let is_call = program.instruction(from).is_some_and(|instruction| is_call(instruction.flow));
        // A loop may lead to a function's first instruction.
        if !is_call && program.function(from) == program.function(to) {
            continue;
        }
        *heads.entry(callee.function.clone()).or_default() += count;
        if is_call && let Some((function, line)) = place_of(functions, lines.frames(from)) {
            let line = function.lines.entry(line).or_default();
            *line.callees.entry(callee.function).or_default() += count;
        }
    }
    heads
}
