//! The unsymbolised profile of LLVM's `llvm-profgen`, from which it makes the sample profile that `clang
//! -fprofile-sample-use` reads: `llvm-profgen --binary=FILE --unsymbolized-profile=PROFILE --use-offset=0
//! --output=OUT`.
//!
//! Format (LLVM 19, `PerfReader.cpp`, `UnsymbolizedProfileReader`): the number of ranges, a line
//! `first-last:count` for each, the number of branches, a line `from->to:count` for each; addresses in
//! hexadecimal, with `--use-offset=0` as linked. A branch from outside has the source 0; its target, if it is
//! a function's first instruction, is counted as an entry. Branches to the outside are not used.

use super::counts::Counts;
use super::format::{Format, Needs, Writer};
use std::io::{Result, Write};

/// `--format llvm-profgen`.
pub const FORMAT: Format = Format {
    name: "llvm-profgen",
    about: "For `llvm-profgen --unsymbolized-profile`, which makes what `clang -fprofile-sample-use` reads",
    writer: Writer::Module(|of, out| write(of.counts, out)),
    needs: Needs::Lines,
};

/// Writes the profile.
pub fn write(counts: &Counts, out: &mut dyn Write) -> Result<()> {
    let ranges = counts.ranges();
    writeln!(out, "{}", ranges.len())?;
    for ((first, last), count) in ranges {
        writeln!(out, "{first:x}-{last:x}:{count}")?;
    }
    let inward = counts.transfers.iter().filter_map(|((from, to), count)| Some((from, to.as_ref()?, count)));
    writeln!(out, "{}", inward.clone().count())?;
    for (from, to, count) in inward {
        writeln!(out, "{:x}->{to:x}:{count}", from.unwrap_or(0))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::export::counts::Counts;
    use crate::export::fixture::{self, EXECUTABLE};

    #[test]
    fn ranges_and_branches_are_counted_and_listed() {
        let counts = Counts::new(&fixture::two_modules(), EXECUTABLE, &fixture::program());
        insta::assert_snapshot!(fixture::text(|out| super::write(&counts, out)));
    }

    #[test]
    fn no_windows_give_a_valid_profile() {
        assert_eq!(fixture::text(|out| super::write(&Counts::default(), out)), "0\n0\n");
    }
}
