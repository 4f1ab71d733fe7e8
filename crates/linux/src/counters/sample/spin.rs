//! Does a thread wait busily at a sampled instruction?
//!
//! Two signs, either of which is enough. A loop through the instruction that holds a PAUSE (YIELD, WFE) and
//! stores nothing outside the stack: libgomp, pthread spin locks, `std::hint::spin_loop`. Or a loop that
//! stores nothing and carries no value from one turn to the next: it does the same each time, so only
//! somebody else can end it. Such is a bare `while (!flag);`.
//!
//! What a loop carries is found by following each register through one turn: register A feeds B if B's value
//! at the end is computed from A's at the start. A register that feeds itself, directly or through others,
//! is progress (a counter, a pointer that advances).
//!
//! Limits: loops longer than [`LOOP_LENGTH_MAX`]; waiting by system calls (those samples are the kernel's);
//! unoptimised code without PAUSE, which keeps what it loads on the stack.

use crate::code::{Code, Flow, Instruction, Store, Unit};

/// Instructions in the longest loop that is taken for a wait.
const LOOP_LENGTH_MAX: usize = 32;

/// Instructions looked at before giving up: bounds the ways through branchy code.
const STEPS_MAX: usize = 128;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::tests::Snippet;

    fn check(name: &str, hex: &str, expected: bool) {
        assert_eq!(is_waiting(&mut Snippet::new(hex), Snippet::BASE), expected, "{name}");
    }

    #[test]
    fn waiting_loops_are_recognised() {
        for (name, hex) in [
            ("1: mov eax,[rdi]; test eax,eax; je 1b", "8b0785c074fac3"),
            ("1: test eax,eax; mov eax,[rdi]; je 1b (entered in its middle)", "85c08b0774fac3"),
            ("libgomp: pause, a counter of turns, a flag", "f3904883c0014839c274068b0f39f174efc3"),
            ("pthread_spin_lock", "f0ff0f7501c3f390833f007ff3ebf7"),
            ("1: xor eax,eax; lock cmpxchg [rdi],ecx; jne 1b", "31c0f00fb10f75f8c3"),
            ("pause in a function with a stack frame", "e8070000008b0785c074f5c3554889e5f3905dc3"),
            ("1: rdtsc; shl rdx,32; or rax,rdx; cmp rax,rsi; jb 1b", "0f3148c1e2204809d04839f072f2c3"),
        ] {
            check(name, hex, true);
        }
    }

    #[test]
    fn loops_that_get_on_are_no_waiting() {
        for (name, hex) in [
            ("1: inc rax; cmp byte [rax],0; jne 1b", "48ffc080380075f8c3"),
            ("1: mov rax,[rax]; test rax,rax; jne 1b", "488b004885c075f8c3"),
            ("1: lea edx,[rax+1]; lock cmpxchg [rdi],edx; jne 1b; jmp 1b", "8d5001f00fb11775f7ebf5"),
            ("a counter on the stack", "8b45fc83c0018945fc83f86475f2c3"),
            ("1: mov eax,[rdi]; mov [rsi],eax; test eax,eax; je 1b", "8b07890685c074f8c3"),
            ("Fibonacci numbers around three registers", "4889d14889c2488d04114839f072f1c3"),
            ("a sum of doubles", "f20f100cc7f20f58c148ffc04839c875efc3"),
            ("no loop at all", "9090c3"),
        ] {
            check(name, hex, false);
        }
    }
}
