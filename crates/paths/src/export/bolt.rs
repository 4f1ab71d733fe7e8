//! BOLT's pre-aggregated profile: `perf2bolt -pa -p PROFILE -o OUT FILE`, then `llvm-bolt -data=OUT`.
//!
//! Format (LLVM 19, `DataAggregator.cpp`, `parseAggregatedLBREntry`): `B from to count mispredictions` for a
//! taken branch, `F first last count` for a run of instructions without one. Addresses are hexadecimal,
//! without `0x`, as linked; 0 is outside the program. `f` is a run that was entered from outside its
//! function: if it starts after a call, BOLT then knows that the call's block leads to it. The format cannot
//! express that mispredictions are unknown, so they are 0.

use super::counts::Counts;
use super::format::{Format, Needs, Writer};
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// `--format bolt`.
pub const FORMAT: Format = Format {
    name: "bolt",
    about: "For `perf2bolt -pa`, which makes what `llvm-bolt -data` reads",
    writer: Writer::Module(|of, out| write(of.counts, out)),
    needs: Needs::Relocations,
};

/// Writes the profile.
pub fn write(counts: &Counts, out: &mut dyn Write) -> Result<()> {
    for ((from, to), count) in &counts.transfers {
        writeln!(out, "B {:x} {:x} {count} 0", from.unwrap_or(0), to.unwrap_or(0))?;
    }
    let mut runs: BTreeMap<(u64, u64, char), u64> = BTreeMap::new();
    for (run, count) in &counts.runs {
        let kind = if run.from_outside { 'f' } else { 'F' };
        *runs.entry((run.first.address, run.last, kind)).or_default() += count;
    }
    for ((first, last, kind), count) in runs {
        writeln!(out, "{kind} {first:x} {last:x} {count}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::export::counts::Counts;
    use crate::export::fixture::{self, EXECUTABLE};

    #[test]
    fn runs_behind_a_call_come_from_outside() {
        let counts = Counts::new(&fixture::two_modules(), EXECUTABLE, &fixture::program());
        insta::assert_snapshot!(fixture::text(|out| super::write(&counts, out)));
    }
}
