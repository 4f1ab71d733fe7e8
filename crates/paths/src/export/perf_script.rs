//! Branch stacks as `perf script -F ip,brstack --show-mmap-events` prints them, for tools that read these:
//! `llvm-profgen --binary=FILE --perfscript=SCRIPT`.
//!
//! A line is a sample: the address where the window stopped and its transfers, the newest first, as
//! `from/to/misprediction/-/-/0` (LLVM 19, `PerfReader.cpp`, `isLBRSample` and `extractLBRStack`). The module
//! of the profile is at its addresses as linked, as its `PERF_RECORD_MMAP2` line says; the others are moved
//! away so that nothing in them looks like part of it.
//!
//! The format has no weights. Heavier windows are therefore written more often: [`COPIES`] times on average;
//! the remainder of rounding is carried on to the next window. Limits: the runs before the first and after
//! the last transfer are lost, as with a branch-record unit. A line has up to 1,024 entries, which
//! `llvm-profgen` reads as well as the 32 of a branch-record unit.

use super::counts::{Counts, UNITS_PER_WINDOW};
use super::format::{Format, Needs, Segment, Writer};
use crate::window::{BranchRecording, Location, ModuleId};
use std::io::{Result, Write};

/// How often the average window is written.
pub const COPIES: f64 = 4.0;

/// Other modules are moved up by multiples of this many bytes.
const DISTANCE: u64 = 1 << 40;

/// `--format perf-script`.
pub const FORMAT: Format = Format {
    name: "perf-script",
    about: "Branch stacks as `perf script` prints them, for `llvm-profgen --perfscript`",
    writer: Writer::Module(|of, out| write(of.recording, of.counts, of.module, of.file.segment()?, out)),
    needs: Needs::Lines,
};

/// Writes the profile.
pub fn write(
    recording: &BranchRecording,
    counts: &Counts,
    module: ModuleId,
    segment: Segment,
    out: &mut dyn Write,
) -> Result<()> {
    let path = recording.modules.get(module.0 as usize).map_or("", |module| module.path.as_str());
    let Segment { address, size, offset } = segment;
    let pid = recording.windows.first().map_or(1, |window| window.tid);
    writeln!(
        out,
        "PERF_RECORD_MMAP2 {pid}/{pid}: [{address:#x}({size:#x}) @ {offset:#x} 00:00 0 0]: r-xp {path}"
    )?;
    let mapped = |location: Location| {
        let distance = if location.module == module { 0 } else { DISTANCE };
        location.address + distance * (1 + u64::from(location.module.0))
    };
    let mut owed = 0.0;
    for (window, weight) in recording.windows.iter().zip(&counts.weights) {
        owed += COPIES * weight / UNITS_PER_WINDOW;
        // A sum of shares may miss a whole number by a rounding error.
        let copies = f64::floor(owed + 1e-6);
        owed -= copies;
        let touches = |location: Location| location.module == module;
        if !window.transfers.iter().any(|transfer| touches(transfer.from) || touches(transfer.to)) {
            continue;
        }
        let mut line = format!("{:>16x}", mapped(window.end));
        for transfer in window.transfers.iter().rev() {
            line += &format!("  {:#x}/{:#x}/-/-/-/0", mapped(transfer.from), mapped(transfer.to));
        }
        line.push('\n');
        for _ in 0..copies as u64 {
            out.write_all(line.as_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{self, EXECUTABLE};

    const TEXT: Segment = Segment { address: 0x1000, size: 0x800, offset: 0x1000 };

    #[test]
    fn a_line_is_a_window_and_other_modules_lie_elsewhere() {
        let recording = fixture::two_modules();
        let counts = Counts::new(&recording, EXECUTABLE, &fixture::program());
        insta::assert_snapshot!(fixture::text(|out| write(&recording, &counts, EXECUTABLE, TEXT, out)));
    }

    #[test]
    fn heavier_windows_are_written_more_often() {
        let light = fixture::window(0x1100, &[(0x1110, 0x1100)], 0x1100, (30, 1));
        let heavy = fixture::window(0x1200, &[(0x1210, 0x1200)], 0x1200, (10, 1));
        let recording = fixture::recording(vec![light, heavy]);
        let counts = Counts { weights: vec![500.0, 1500.0], ..Counts::default() };
        let text = fixture::text(|out| write(&recording, &counts, EXECUTABLE, TEXT, out));
        let lines = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!((lines("0x1110/"), lines("0x1210/")), (2, 6));
    }
}
