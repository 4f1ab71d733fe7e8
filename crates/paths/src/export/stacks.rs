//! The calls that a window shows.
//!
//! Problem: a window shows where a thread went, not its callers; people want to see time by caller. Approach:
//! calls within the window are seen as they happen, and a return to a frame without a seen call shows its
//! caller. So each piece of a window has the stack from the outermost function that the window reached, which
//! is the same for all pieces of a window. A window represents the time of one sample; its instructions share
//! it. Limits: callers to which the window did not return are unknown, and a jump to another function's first
//! instruction counts as that function in place of the old one.

use crate::demangled::demangled;
use crate::program::Program;
use crate::window::{BranchRecording, End, Location, ModuleId, Window};
use corewise_core::code::Flow;
use std::collections::BTreeMap;

/// A function, or code of a module outside functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Callee {
    /// The module.
    pub module: ModuleId,
    /// The function's first instruction, as linked.
    pub start: Option<u64>,
}

impl Callee {
    /// Returns the function at a location.
    pub fn at(location: Location, program: &dyn Program) -> Callee {
        let start = program.function(location).map(|function| function.start);
        Callee { module: location.module, start }
    }

    /// Returns its name for display: the function's in its source, `file+0x12` in a stripped file, `[file]`
    /// outside functions.
    pub fn name(self, recording: &BranchRecording, program: &dyn Program) -> String {
        let path = recording.modules.get(self.module.0 as usize).map_or("?", |module| &module.path);
        let file = path.rsplit('/').next().unwrap_or(path);
        let Some(start) = self.start else { return format!("[{file}]") };
        let function = program.function(Location { module: self.module, address: start });
        match function.and_then(|function| function.name.clone()) {
            Some(name) => demangled(&name),
            None => format!("{file}+{start:#x}"),
        }
    }
}

/// A part of a window with the same stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The functions, the outermost first.
    pub stack: Vec<Callee>,
    /// Instructions executed.
    pub instructions: u32,
}

/// Returns the pieces of a window, in the order of execution; none for windows in code that cannot be read.
pub fn pieces(window: &Window, program: &dyn Program) -> Vec<Piece> {
    let mut calls = Calls::default();
    let mut parts = Vec::new();
    for run in runs_of(window) {
        match run.from {
            None => calls.start(Callee::at(run.first, program)),
            Some(from) => calls.follow(from, run.first, program),
        }
        parts.push((calls.current, instructions_of(run, program)));
    }
    parts
        .into_iter()
        .filter(|(_, instructions)| *instructions > 0)
        .map(|(frame, instructions)| Piece { stack: calls.stack(frame), instructions })
        .collect()
}

/// Returns the share of the time of each stack, the outermost function first. A window represents the time of
/// its sample, which its instructions share.
pub fn shares(recording: &BranchRecording, program: &dyn Program) -> BTreeMap<Vec<Callee>, f64> {
    let mut stacks: BTreeMap<Vec<Callee>, f64> = BTreeMap::new();
    let time = |window: &Window| recording.time_of(window) as f64;
    let whole: f64 = recording.windows.iter().map(time).sum();
    for window in &recording.windows {
        let pieces = pieces(window, program);
        let all: u32 = pieces.iter().map(|piece| piece.instructions).sum();
        for piece in pieces {
            let share = f64::from(piece.instructions) / f64::from(all);
            *stacks.entry(piece.stack).or_default() += time(window) / whole * share;
        }
    }
    stacks
}

/// Instructions executed one after another.
struct Run {
    /// Where control came from; `None` for the first run of a window.
    from: Option<Location>,
    first: Location,
    /// Address of the last instruction.
    last: u64,
}

/// Returns the straight runs of a window, in the order of execution. The last one ends with the instruction
/// that the window stopped at: it was not emulated, but the thread executed it next.
fn runs_of(window: &Window) -> impl Iterator<Item = Run> {
    let starts = std::iter::once((None, window.start))
        .chain(window.transfers.iter().map(|transfer| (Some(transfer.from), transfer.to)));
    let ends = window.transfers.iter().map(|transfer| transfer.from).chain(std::iter::once(window.end));
    let count = window.transfers.len();
    let is_end_known = match window.ended {
        // A branch-record unit does not report where it was read; a signal leads to its handler.
        End::Hardware | End::Interrupted => false,
        End::Full
        | End::SystemCall
        | End::Unsupported(_)
        | End::Memory
        | End::InstructionCap
        | End::NoFile => true,
    };
    starts.zip(ends).enumerate().filter_map(move |(index, ((from, first), end))| {
        let is_run = first.module == end.module
            && if index == count {
                is_end_known && first.address < end.address
            } else {
                first.address <= end.address
            };
        is_run.then_some(Run { from, first, last: end.address })
    })
}

fn instructions_of(run: Run, program: &dyn Program) -> u32 {
    let mut address = run.first.address;
    let mut count = 0;
    while address <= run.last
        && let Some(instruction) = program.instruction(Location { address, ..run.first })
    {
        count += 1;
        address += u64::from(instruction.length);
    }
    count
}

/// The frames that a window reached. A frame of an unknown function is a placeholder for a caller.
#[derive(Default)]
struct Calls {
    frames: Vec<(Option<Callee>, Option<usize>)>,
    current: usize,
}

impl Calls {
    fn start(&mut self, callee: Callee) {
        self.frames = vec![(Some(callee), None)];
        self.current = 0;
    }

    fn follow(&mut self, from: Location, to: Location, program: &dyn Program) {
        if self.frames.is_empty() {
            self.start(Callee::at(from, program));
        }
        let callee = Callee::at(to, program);
        match program.instruction(from).map(|instruction| instruction.flow) {
            Some(Flow::Call(_) | Flow::CallThrough(_) | Flow::CallAnywhere) => {
                self.frames.push((Some(callee), Some(self.current)));
                self.current = self.frames.len() - 1;
            }
            Some(Flow::Return) => {
                self.current = self.caller();
                self.be_in(callee);
            }
            Some(
                Flow::Next
                | Flow::Jump(_)
                | Flow::Branch(_)
                | Flow::JumpThrough(_)
                | Flow::JumpAnywhere
                | Flow::Kernel,
            )
            | None => self.be_in(callee),
        }
    }

    /// Returns the current frame's caller: a new placeholder if it has not been seen.
    fn caller(&mut self) -> usize {
        if let Some(caller) = self.frames[self.current].1 {
            return caller;
        }
        self.frames.push((None, None));
        let caller = self.frames.len() - 1;
        self.frames[self.current].1 = Some(caller);
        caller
    }

    /// Takes in that control is in this function now, on the same level of the stack.
    fn be_in(&mut self, callee: Callee) {
        match self.frames[self.current].0 {
            Some(known) if known == callee => {}
            None => self.frames[self.current].0 = Some(callee),
            Some(_) => {
                let caller = self.caller();
                self.frames.push((Some(callee), Some(caller)));
                self.current = self.frames.len() - 1;
            }
        }
    }

    fn stack(&self, frame: usize) -> Vec<Callee> {
        let callers = std::iter::successors(Some(frame), |frame| self.frames[*frame].1);
        let mut stack: Vec<Callee> = callers.filter_map(|frame| self.frames[frame].0).collect();
        stack.reverse();
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture::{self, at};

    #[test]
    fn the_runs_of_a_window_are_what_lies_between_its_transfers() {
        let window = fixture::window(0x100, &[(0x110, 0x140), (0x148, 0x100)], 0x110, (6, 3));
        let runs: Vec<(u64, u64)> = runs_of(&window).map(|run| (run.first.address, run.last)).collect();
        assert_eq!(runs, [(0x100, 0x110), (0x140, 0x148), (0x100, 0x110)]);
    }

    #[test]
    fn nothing_is_said_about_what_lies_behind_the_last_transfer() {
        let window = fixture::window(0x100, &[(0x110, 0x140)], 0x140, (3, 1));
        assert_eq!(runs_of(&window).count(), 1);
        let hardware = Window { ended: End::Hardware, end: fixture::at(0x150), ..window };
        assert_eq!(runs_of(&hardware).count(), 1);
    }

    fn described(window: &Window) -> Vec<String> {
        let (recording, program) = (fixture::two_modules(), fixture::program());
        let names = |piece: &Piece| {
            piece.stack.iter().map(|callee| callee.name(&recording, &program)).collect::<Vec<_>>().join(";")
        };
        let pieces = pieces(window, &program);
        pieces.iter().map(|piece| format!("{} {}", names(piece), piece.instructions)).collect()
    }

    #[test]
    fn a_return_shows_the_caller() {
        let recording = fixture::two_modules();
        assert_eq!(
            described(&recording.windows[1]),
            ["main;work;libshared.so+0x5000 3", "main;work 2", "main 3", "main 3", "main;work 5",]
        );
    }

    #[test]
    fn a_jump_to_another_function_takes_the_place_of_the_old_one() {
        // From the end of main's loop into work, as an optimised last call does, and back to main's caller.
        let window = fixture::window(0x1100, &[(0x1114, 0x1200), (0x121c, 0x1104)], 0x1108, (16, 3));
        assert_eq!(described(&window), ["main;main 6", "main;work 8", "main 2"]);
    }

    #[test]
    fn code_in_no_function_has_the_name_of_its_file() {
        let nowhere = Callee::at(at(0x10), &fixture::program());
        assert_eq!(nowhere.name(&fixture::two_modules(), &fixture::program()), "[program]");
    }
}
