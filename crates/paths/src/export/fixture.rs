//! A small made-up recording and its program.

use super::counts::Counts;
use super::source::{Line, Lines, Place, SourceCounts, SourceFrame};
use crate::program::{Function, Program};
use crate::window::{BranchRecording, End, Location, Module, ModuleId, Transfer, Window};
use corewise_core::code::{Flow, Instruction, StackMove, Store, Unit};
use std::collections::BTreeMap;

pub const EXECUTABLE: ModuleId = ModuleId(0);
pub const LIBRARY: ModuleId = ModuleId(1);

/// An address in the executable.
pub fn at(address: u64) -> Location {
    Location { module: EXECUTABLE, address }
}

fn in_library(address: u64) -> Location {
    Location { module: LIBRARY, address }
}

/// A window in the executable, with its numbers of instructions and branches.
pub fn window(
    start: u64,
    transfers: &[(u64, u64)],
    end: u64,
    (instructions, branches): (u32, u32),
) -> Window {
    let transfers = transfers.iter().map(|(from, to)| Transfer { from: at(*from), to: at(*to) }).collect();
    Window {
        tid: 7,
        time_ns: 1_000_000,
        start: at(start),
        transfers,
        end: at(end),
        instructions: Some(instructions),
        branches: Some(branches),
        ended: End::Full,
        period_ns: None,
    }
}

/// A recording of these windows, 10 ms apart.
pub fn recording(mut windows: Vec<Window>) -> BranchRecording {
    for (index, window) in windows.iter_mut().enumerate() {
        window.time_ns += 10_000_000 * index as u64;
    }
    let module = |path: &str, id: &str| Module { path: path.to_owned(), build_id: Some(id.to_owned()) };
    BranchRecording {
        version: BranchRecording::VERSION,
        command: vec!["./program".to_owned()],
        backend: "shadow".to_owned(),
        period_ns: 10_000_000,
        branches_max: 16,
        modules: vec![module("/opt/program", "aa01"), module("/usr/lib/libshared.so", "bb02")],
        windows,
        without_window: BTreeMap::new(),
        notes: Vec::new(),
    }
}

/// A call of `work` that leaves it by the branch around its call.
const CALL_AND_BACK: [(u64, u64); 4] =
    [(0x1108, 0x1200), (0x1204, 0x1218), (0x121c, 0x110c), (0x1114, 0x1100)];

/// `main` (0x1100..0x1140) loops over calls of `work` (0x1200..0x1220), which calls `helper` of the library:
/// one window that starts in main, and one that starts in helper and so shows its callers only by returns.
pub fn two_modules() -> BranchRecording {
    let first = window(0x1100, &CALL_AND_BACK, 0x1108, (9, 5));
    let second = Window {
        start: in_library(0x5000),
        transfers: vec![
            Transfer { from: in_library(0x5008), to: at(0x1218) },
            Transfer { from: at(0x121c), to: at(0x110c) },
            Transfer { from: at(0x1114), to: at(0x1100) },
            Transfer { from: at(0x1108), to: at(0x1200) },
            Transfer { from: at(0x1210), to: in_library(0x5000) },
        ],
        end: in_library(0x5000),
        ..window(0, &[], 0, (14, 6))
    };
    let mut recording = recording(vec![first, second.clone(), second]);
    recording.windows[2].tid = 8;
    recording
}

/// The code of [`two_modules`]: every instruction has four bytes.
pub struct MadeUp(Vec<(ModuleId, Function)>);

/// The program of [`two_modules`].
pub fn program() -> MadeUp {
    let function =
        |name: &str, start, end| Function { name: (!name.is_empty()).then(|| name.to_owned()), start, end };
    MadeUp(vec![
        (EXECUTABLE, function("main", 0x1100, 0x1140)),
        (EXECUTABLE, function("work", 0x1200, 0x1220)),
        (LIBRARY, function("", 0x5000, 0x5010)),
    ])
}

impl Program for MadeUp {
    fn instruction(&self, at: Location) -> Option<Instruction> {
        self.function(at)?;
        let flow = match at.address {
            0x1108 => Flow::Call(0x1200 - 0x1108),
            0x1210 => Flow::CallAnywhere,
            0x1114 => Flow::Branch(0x1100 - 0x1114),
            0x1204 => Flow::Branch(0x14),
            0x121c | 0x5008 => Flow::Return,
            _ => Flow::Next,
        };
        Some(Instruction {
            length: 4,
            flow,
            unit: Unit::None,
            loads: false,
            store: Store::None,
            reads: 0,
            writes: 0,
            address: 0,
            slot: None,
            waits: false,
            reads_clock: false,
            repeats: false,
            stack: StackMove::NONE,
        })
    }

    fn function(&self, at: Location) -> Option<&Function> {
        let holds = |function: &Function| (function.start..function.end).contains(&at.address);
        self.0
            .iter()
            .find(|(module, function)| *module == at.module && holds(function))
            .map(|(_, function)| function)
    }
}

/// Four instructions per line; the last line of `work` is an inlined `step`.
pub struct MadeUpLines;

impl Lines for MadeUpLines {
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

    /// The functions begin at the lines 10 and 20 of `made_up.c`.
    fn places(&self, at: Location) -> Vec<Place> {
        let begins = if at.address < 0x1200 { 10 } else { 20 };
        let place = |frame: SourceFrame| Place {
            function: frame.function,
            file: "/src/made_up.c".to_owned(),
            line: begins + u64::from(frame.line.offset),
        };
        self.frames(at).into_iter().map(place).collect()
    }
}

/// The executable of [`two_modules`] by its source.
pub fn source() -> SourceCounts {
    let program = program();
    SourceCounts::new(&Counts::new(&two_modules(), EXECUTABLE, &program), EXECUTABLE, &program, &MadeUpLines)
}

/// Returns the output of an exporter.
pub fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}
