//! Folded stacks, one per line, for flame graphs (`flamegraph.pl`, `inferno-flamegraph`, speedscope): the
//! calls that windows show, `outermost;…;innermost count`, in units; the mean window has
//! [`UNITS_PER_WINDOW`].

use super::format::{Format, Needs, Writer};
use super::stacks;
use crate::program::Program;
use crate::window::BranchRecording;
use std::io::{Result, Write};

/// The count of the mean window, which is a sample of time.
pub const UNITS_PER_WINDOW: f64 = 100.0;

/// `--format folded`.
pub const FORMAT: Format = Format {
    name: "folded",
    about: "Folded stacks, for flame graphs",
    writer: Writer::BranchRecording(write),
    needs: Needs::Nothing,
};

/// Writes the stacks.
pub fn write(recording: &BranchRecording, program: &dyn Program, out: &mut dyn Write) -> Result<()> {
    let units = UNITS_PER_WINDOW * recording.windows.len() as f64;
    let stacks = stacks::shares(recording, program).into_iter().map(|(stack, share)| (stack, share * units));
    for (stack, units) in stacks.filter(|(_, units)| units.round() >= 1.0) {
        // A semicolon is the separator, so names must not contain one.
        let names = stack.iter().map(|callee| callee.name(recording, program).replace(';', ":"));
        writeln!(out, "{} {units:.0}", names.collect::<Vec<_>>().join(";"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::export::fixture;

    #[test]
    fn a_window_is_shared_by_its_stacks() {
        let (recording, program) = (fixture::two_modules(), fixture::program());
        insta::assert_snapshot!(fixture::text(|out| super::write(&recording, &program, out)));
    }
}
