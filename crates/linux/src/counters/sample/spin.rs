//! Does a thread wait busily at a sampled instruction?
//!
//! Two signs, either of which is enough. A loop through the instruction that holds a PAUSE (YIELD, WFE) and
//! stores nothing outside the stack: libgomp, pthread spin locks, `std::hint::spin_loop`. Or a loop that stores nothing
//! and carries no value from one turn to the next: it does the same each time, so only somebody else
//! can end it. Such is a bare `while (!flag);`.
//!
//! What a loop carries is found by following each register through one turn: register A feeds B if B's value
//! at the end is computed from A's at the start. A register that feeds itself, directly or through others, is progress (a
//! counter, a pointer that advances).
//!
//! Limits: loops longer than [`LOOP_LENGTH_MAX`]; waiting by system calls (those samples are the kernel's);
//! unoptimised code without PAUSE, which keeps what it loads on the stack.

use crate::code::{Code, Flow, Instruction, Store, Unit};

/// Instructions in the longest loop that is taken for a wait.
const LOOP_LENGTH_MAX: usize = 32;

/// Instructions looked at before giving up: bounds the ways through branchy code.
const STEPS_MAX: usize = 256;

struct Search<'a, C: Code> {
    code: &'a mut C,
    start: u64,
    steps: usize,
    path: Vec<Instruction>,
    /// Return addresses of the calls entered on the path.
    callers: Vec<u64>,
}

/// Whether the instruction at `address` lies in a busy-wait loop.
pub fn is_waiting<C: Code>(code: &mut C, address: u64) -> bool {
    Search { code, start: address, steps: 0, path: Vec::new(), callers: Vec::new() }.from(address)
}

impl<C: Code> Search<'_, C> {
    /// Follows every way on from `address`; true once one comes back to the start as a wait.
    fn from(&mut self, address: u64) -> bool {
        if address == self.start && !self.path.is_empty() {
            return is_wait(&self.path);
        }
        self.steps += 1;
        if self.path.len() == LOOP_LENGTH_MAX || self.steps > STEPS_MAX {
            return false;
        }
        let Some(instruction) = self.code.instruction(address) else { return false };
        if instruction.store == Store::Data || instruction.unit != Unit::None {
            return false;
        }
        let behind = address + u64::from(instruction.length);
        let at = |displacement: i64| address.wrapping_add_signed(displacement);
        self.path.push(instruction);
        let found = match instruction.flow {
            Flow::Next => self.from(behind),
            Flow::Jump(displacement) => self.from(at(displacement)),
            Flow::Branch(displacement) => self.from(at(displacement)) || self.from(behind),
            Flow::Call(displacement) => {
                self.callers.push(behind);
                let found = self.from(at(displacement));
                self.callers.pop();
                found
            }
            Flow::Return => match self.callers.pop() {
                Some(caller) => {
                    let found = self.from(caller);
                    self.callers.push(caller);
                    found
                }
                None => false,
            },
            Flow::CallThrough(_) | Flow::JumpThrough(_) => false,
            Flow::CallAnywhere | Flow::JumpAnywhere | Flow::Kernel => false,
        };
        self.path.pop();
        found
    }
}

fn is_wait(turn: &[Instruction]) -> bool {
    turn.iter().any(|instruction| instruction.waits)
        || (turn.iter().all(|instruction| instruction.store != Store::Stack) && !carries(turn))
}

/// Whether a register's value after a turn depends on its value before it, and the turn changes it.
fn carries(turn: &[Instruction]) -> bool {
    // feeds[r]: the registers whose values at the start of the turn enter r's value now.
    let mut feeds: [u32; 32] = std::array::from_fn(|register| 1 << register);
    let mut written = 0;
    for instruction in turn {
        let sources = members(instruction.reads).fold(0, |sources, register| sources | feeds[register]);
        for register in members(instruction.writes) {
            feeds[register] = sources;
        }
        written |= instruction.writes;
    }
    // What only passes through unchanged registers is no progress. Then: does any register reach itself?
    let mut reach = feeds.map(|sources| sources & written);
    for through in 0..32 {
        for register in 0..32 {
            if reach[register] & (1 << through) != 0 {
                reach[register] |= reach[through];
            }
        }
    }
    members(written).any(|register| reach[register] & (1 << register) != 0)
}

fn members(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |register| mask >> register & 1 == 1)
}
