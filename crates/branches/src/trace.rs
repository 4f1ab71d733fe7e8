//! A window during its recording, in addresses of its process.

use super::options::{LONG_BRANCHES, LONG_PER_SECOND_MAX, Options};
use corewise_paths::window::End;

/// The length limits of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Control-transfer instructions, taken or not.
    pub branches_max: u32,
    /// Instructions.
    pub instructions_max: u32,
}

/// The instructions of a long window for each of its branches, at most.
const LONG_INSTRUCTIONS: u32 = 16;
/// At low rates one window in this many is long.
const LONG_ONE_IN: u32 = 8;

/// The limits of one window after the other: now and then a long one.
#[derive(Debug)]
pub struct Lengths {
    usual: Limits,
    long: Limits,
    /// One in this many is long; 0: none.
    long_one_in: u32,
    count: u32,
}

impl Lengths {
    /// Starts with windows of these options.
    pub fn new(options: &Options) -> Lengths {
        let branches_max = options.branches_max.max(LONG_BRANCHES);
        let instructions_max = options.instructions_max.max(branches_max * LONG_INSTRUCTIONS);
        let long = Limits { branches_max, instructions_max };
        let usual = Limits { branches_max: options.branches_max, instructions_max: options.instructions_max };
        let rate = options.period.as_secs_f64().recip();
        let by_rate = (rate / f64::from(LONG_PER_SECOND_MAX)).ceil() as u32;
        let long_one_in = options.long_one_in.unwrap_or(by_rate.max(LONG_ONE_IN));
        // The first comes after half of that, so that short recordings have some, too.
        Lengths { usual, long, long_one_in, count: long_one_in / 2 }
    }

    /// Returns the limits of the next window.
    pub fn draw(&mut self) -> Limits {
        self.count = self.count.wrapping_add(1);
        if self.count.checked_rem(self.long_one_in) == Some(0) { self.long } else { self.usual }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_window_in_so_many_is_long() {
        let long = |options: Options| {
            let mut lengths = Lengths::new(&options);
            let limits = (0..800).map(move |_| lengths.draw().branches_max);
            limits.filter(|&branches| branches == LONG_BRANCHES).count()
        };
        let asked = |one_in| long(Options { long_one_in: Some(one_in), ..Options::default() });
        assert_eq!([0, 1, 2, 8].map(asked), [0, 800, 400, 100]);
        let at = |rate: u32| {
            long(Options { period: Duration::from_secs(1) / rate, long_one_in: None, ..Options::default() })
        };
        assert_eq!([20, 100, 500].map(at), [100, 100, 32]);
    }
}
