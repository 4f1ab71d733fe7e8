//! Folded stacks, one a line, for flame graphs (`flamegraph.pl`, `inferno-flamegraph`, speedscope): the calls
//! that windows show, `outermost;…;innermost count`. Each window has [`UNITS_PER_WINDOW`] units, which its
//! instructions share, as each stands for the same time.

use super::stacks::{self, Callee};
use super::{Format, Needs, Writer};
use crate::program::Program;
use crate::window::Recording;
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// What a window, which is a sample of time, counts for.
pub const UNITS_PER_WINDOW: f64 = 100.0;

/// `--format folded`.
pub const FORMAT: Format = Format {
    name: "folded",
    about: "Folded stacks, for flame graphs",
    writer: Writer::Recording(write),
    needs: Needs::Nothing,
};

/// Writes the stacks.
pub fn write(recording: &Recording, program: &dyn Program, out: &mut dyn Write) -> Result<()> {
    let mut stacks: BTreeMap<Vec<Callee>, f64> = BTreeMap::new();
    for window in &recording.windows {
        let pieces = stacks::pieces(window, program);
        let all: u32 = pieces.iter().map(|piece| piece.instructions).sum();
        for piece in pieces {
            let share = f64::from(piece.instructions) / f64::from(all);
            *stacks.entry(piece.stack).or_default() += UNITS_PER_WINDOW * share;
        }
    }
    for (stack, units) in stacks.iter().filter(|(_, units)| units.round() >= 1.0) {
        // A semicolon separates, so none may be in a name.
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
