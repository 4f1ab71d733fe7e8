//! The LLVM sample profile as text, which `clang -fprofile-sample-use` reads directly: `function:total:head`,
//! then for each source line `offset[.discriminator]: count [callee:count …]`, with inlined functions
//! indented below the line of their call (`SampleProfReader.h`).
//!
//! `llvm-profgen` makes the same from the output of [`super::llvm_profgen`]; this format is for machines
//! without `llvm-profgen`.

use super::format::{Format, Needs, Writer};
use super::source::{FunctionCounts, Line, LineCount, SourceCounts};
use std::io::{Result, Write};

/// `--format autofdo`.
pub const FORMAT: Format = Format {
    name: "autofdo",
    about: "What `clang -fprofile-sample-use` reads, made without LLVM's tools; needs debug information",
    writer: Writer::Module(|of, out| write(&of.source()?, out)),
    needs: Needs::Lines,
};

/// Writes the profile.
pub fn write(source: &SourceCounts, out: &mut dyn Write) -> Result<()> {
    for (name, counts) in source.hottest() {
        writeln!(out, "{name}:{}:{}", counts.total(), source.head(name))?;
        write_function(counts, 1, out)?;
    }
    Ok(())
}

fn write_function(of: &FunctionCounts, depth: usize, out: &mut dyn Write) -> Result<()> {
    let indent = " ".repeat(depth);
    for (line, LineCount { count, callees }) in &of.lines {
        write!(out, "{indent}{}: {count}", shown(*line))?;
        for (callee, count) in callees {
            write!(out, " {callee}:{count}")?;
        }
        writeln!(out)?;
    }
    for ((line, function), counts) in &of.inlined {
        writeln!(out, "{indent}{}: {function}:{}", shown(*line), counts.total())?;
        write_function(counts, depth + 1, out)?;
    }
    Ok(())
}

fn shown(line: Line) -> String {
    match line.discriminator {
        0 => line.offset.to_string(),
        discriminator => format!("{}.{discriminator}", line.offset),
    }
}

#[cfg(test)]
mod tests {
    use crate::export::fixture;

    #[test]
    fn inlined_functions_stand_below_the_line_of_their_call() {
        insta::assert_snapshot!(fixture::text(|out| super::write(&fixture::source(), out)));
    }
}
