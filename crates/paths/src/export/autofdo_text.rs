//! The LLVM sample profile as text, which `clang -fprofile-sample-use` reads as it is:
//! `function:total:head`, then for each source line `offset[.discriminator]: count [callee:count …]`, and
//! functions that were inlined indented below the line of their call (`SampleProfReader.h`).
//!
//! It is what `llvm-profgen` makes of [`super::llvm_profgen`]'s output, for those who have no
//! `llvm-profgen`. A line's count is that of its most frequent instruction: optimised code has each
//! statement's instructions spread over several blocks, and a sum would count it as often as it has
//! instructions (Chen, Li, Moseley: AutoFDO, CGO 2016). Limits: no pseudo-probes, no calling contexts.

use super::counts::{Counts, Run};
use super::{Format, Needs, Writer};
use crate::program::Program;
use crate::window::{Location, ModuleId};
use corewise_core::code::Flow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Result, Write};

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
    /// How many copies of the instruction the optimiser made of one (as unrolling a loop does): each count
    /// stands for so many.
    pub copies: u32,
}

/// What debug information says.
pub trait Lines {
    /// The function of an instruction and what was inlined there, the outermost first; empty if not known.
    fn frames(&self, at: Location) -> Vec<SourceFrame>;
}

/// The counts of a function, or of one inlined call of it.
#[derive(Debug, Default)]
struct FunctionCounts {
    /// Executed instructions, those of inlined functions left out.
    instructions: u64,
    lines: BTreeMap<Line, LineCount>,
    inlined: BTreeMap<(Line, String), FunctionCounts>,
}

#[derive(Debug, Default)]
struct LineCount {
    count: u64,
    callees: BTreeMap<String, u64>,
}

impl FunctionCounts {
    fn total(&self) -> u64 {
        self.instructions + self.inlined.values().map(FunctionCounts::total).sum::<u64>()
    }

    fn write(&self, depth: usize, out: &mut dyn Write) -> Result<()> {
        let indent = " ".repeat(depth);
        for (line, LineCount { count, callees }) in &self.lines {
            write!(out, "{indent}{}: {count}", shown(*line))?;
            for (callee, count) in callees {
                write!(out, " {callee}:{count}")?;
            }
            writeln!(out)?;
        }
        for ((line, function), counts) in &self.inlined {
            writeln!(out, "{indent}{}: {function}:{}", shown(*line), counts.total())?;
            counts.write(depth + 1, out)?;
        }
        Ok(())
    }
}

fn shown(line: Line) -> String {
    match line.discriminator {
        0 => line.offset.to_string(),
        discriminator => format!("{}.{discriminator}", line.offset),
    }
}

/// `--format autofdo`.
pub const FORMAT: Format = Format {
    name: "autofdo",
    about: "What `clang -fprofile-sample-use` reads, made without LLVM's tools; needs debug information",
    writer: Writer::Module(|of, out| write(of.counts, of.module, of.program, &*of.file.lines()?, out)),
    needs: Needs::Lines,
};

/// Writes the profile.
pub fn write(
    counts: &Counts,
    module: ModuleId,
    program: &dyn Program,
    lines: &dyn Lines,
    out: &mut dyn Write,
) -> Result<()> {
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
    let mut functions: Vec<(String, FunctionCounts)> = functions.into_iter().collect();
    functions.sort_by_key(|(name, counts)| (Reverse(counts.total()), name.clone()));
    for (name, counts) in functions {
        writeln!(out, "{name}:{}:{}", counts.total(), heads.get(&name).copied().unwrap_or(0))?;
        counts.write(1, out)?;
    }
    Ok(())
}

/// How often each instruction was executed. Those of the same functions that were not have a count of 0,
/// which tells the compiler more than none.
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

/// The functions that runs begin in: first address, and the one behind the last.
fn executed_functions(counts: &Counts, program: &dyn Program) -> BTreeSet<(u64, u64)> {
    let function = |run: &Run| program.function(run.first).map(|function| (function.start, function.end));
    counts.runs.keys().filter_map(function).collect()
}

/// The place in the tree that an instruction's frames lead to.
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

/// How often each function was entered. Calls are written to their lines, too.
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
        let flow = program.instruction(from).map(|instruction| instruction.flow);
        let is_call = matches!(flow, Some(Flow::Call(_) | Flow::CallThrough(_) | Flow::CallAnywhere));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{self, EXECUTABLE};

    /// Four instructions a line; the last line of `work` is an inlined `step`.
    struct MadeUp;

    impl Lines for MadeUp {
        fn frames(&self, at: Location) -> Vec<SourceFrame> {
            let frame = |function: &str, offset, discriminator| SourceFrame {
                function: function.to_owned(),
                line: Line { offset, discriminator },
                copies: if discriminator == 3 { 2 } else { 1 },
            };
            let line = |start: u64| ((at.address - start) / 0x10) as u16;
            match at.address {
                0x1100..0x1140 => vec![frame("main", line(0x1100), 0)],
                0x1200..0x1210 => vec![frame("work", line(0x1200), 3)],
                0x1210..0x1220 => vec![frame("work", 1, 0), frame("step", 2, 0)],
                _ => Vec::new(),
            }
        }
    }

    #[test]
    fn inlined_functions_stand_below_the_line_of_their_call() {
        let program = fixture::program();
        let counts = Counts::new(&fixture::two_modules(), EXECUTABLE, &program);
        insta::assert_snapshot!(fixture::text(|out| write(&counts, EXECUTABLE, &program, &MadeUp, out)));
    }
}
