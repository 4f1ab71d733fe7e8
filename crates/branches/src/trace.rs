//! A window during its recording, in addresses of its process.

use corewise_paths::window::End;

/// The length limits of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Control-transfer instructions, taken or not.
    pub branches_max: u32,
    /// Instructions.
    pub instructions_max: u32,
}

/// A window in addresses of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The first instruction.
    pub start: u64,
    /// The taken transfers.
    pub transfers: Vec<(u64, u64)>,
    /// The instruction that would be executed next.
    pub end: u64,
    /// Instructions executed.
    pub instructions: u32,
    /// Control-transfer instructions executed.
    pub branches: u32,
    /// Why it ended.
    pub ended: End,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { start: 0, transfers: Vec::new(), end: 0, instructions: 0, branches: 0, ended: End::Full }
    }
}

impl Trace {
    /// Starts a new window.
    pub fn begin(&mut self, start: u64) {
        self.start = start;
        self.transfers.clear();
        (self.instructions, self.branches) = (0, 0);
    }

    /// Adds a branch, with its target if it was taken.
    pub fn branch(&mut self, from: u64, to: Option<u64>) {
        self.instructions += 1;
        self.branches += 1;
        self.transfers.extend(to.map(|to| (from, to)));
    }

    /// Ends before the instruction at `end`.
    pub fn end(&mut self, end: u64, ended: End) {
        self.end = end;
        self.ended = ended;
    }

    /// Returns the limit that was reached.
    pub fn at_limit(&self, limits: &Limits) -> Option<End> {
        if self.branches >= limits.branches_max {
            return Some(End::Full);
        }
        (self.instructions >= limits.instructions_max).then_some(End::InstructionCap)
    }
}
