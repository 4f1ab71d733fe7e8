//! Branch records in software: emulates on private copies what a stopped thread would do next.
//!
//! Problem: branch-record hardware (LBR, BRBE) is missing in most virtual machines and many processors.
//! Approach: a thread is stopped now and then, its registers are read, and its next N branches are emulated
//! on copies of the pages that they touch; then the thread continues as if nothing had happened. None of its
//! registers and bytes is ever written.
//!
//! A whole emulator of x86 is not needed, because the processor itself is available: branches, calls, the
//! stack and string operations are executed directly ([`machine`]), any other instruction runs natively as a
//! *thunk* ([`thunk`]), which is the instruction itself with its memory operand replaced by a pointer into
//! the copy. The way to execute an instruction, its operation ([`translator`]), is stored with the decoded
//! code for the counters ([`corewise_code`]), and is made in advance while threads run
//! ([`Emulator::look_ahead`]).
//!
//! The idea follows shadow execution of instrumented copies (Wallace & Hazelwood, "SuperPin", CGO 2007;
//! Moseley et al., "Shadow Profiling", CGO 2007), without the fork; windows are those of Moseley et al.,
//! "Dynamic Run-time Architecture Techniques for Enabling Continuous Optimization" (CF 2005), section 3.
//!
//! Limits. A window ends at a system call, at instructions that cannot be emulated (gathers, XSAVE, CPUID,
//! transactions, very long string operations) and at code that is in no file. Other threads' writes during a
//! window are not seen, and a restartable sequence (rseq) is not seen to restart. x86-64 only.

mod guest;
pub mod machine;
pub mod memory;
pub mod native;
pub(super) mod sampler;
pub mod state;
mod strings;
pub mod thunk;
pub mod translator;
mod vector_layout;

pub use guest::{Guest, Page};
pub use vector_layout::VectorLayout;

use crate::trace::{Limits, Trace};
use corewise_code::{AddressSpace, CodeStore};
use corewise_paths::window::End;
use machine::{Flowed, Machine, Stop};
use rustc_hash::FxHashSet;
use translator::{Action, Translator};

/// The number of instructions that are prepared after one window: a function or two.
const AHEAD_MAX: usize = 2000;
/// When this many are prepared, the record of prepared code is cleared.
const LOOKED_AT_MAX: usize = 1 << 20;

/// Emulates threads, one window after the other.
pub struct Emulator {
    code: CodeStore<Translator>,
    machine: Machine,
    /// Where code was prepared, by process.
    looked_at: FxHashSet<(u32, u64)>,
}

impl Emulator {
    /// Makes an emulator without code.
    pub fn new() -> nix::Result<Emulator> {
        let translator = Translator::new()?;
        let machine = Machine::new(translator.arena());
        Ok(Emulator { code: CodeStore::new(translator), machine, looked_at: FxHashSet::default() })
    }

    /// Emulates a thread of a process, starting from its registers, until a limit or an instruction that
    /// cannot be emulated.
    pub fn window(
        &mut self,
        guest: &mut dyn Guest,
        (pid, space): (u32, &AddressSpace),
        regs: &libc::user_regs_struct,
        limits: &Limits,
        trace: &mut Trace,
    ) {
        let mut code = self.code.view(pid, space);
        trace.begin(regs.rip);
        if code.in_file(regs.rip).is_none() {
            trace.end(regs.rip, End::NoFile);
            return;
        }
        self.machine.begin(guest, regs);
        loop {
            let here = self.machine.state.ip;
            let operation = code.decoded(here).ok_or(Stop::Memory);
            match operation.and_then(|operation| self.machine.step(guest, operation)) {
                Ok(Flowed::Next) => trace.instructions += 1,
                Ok(flowed) => {
                    let to = self.machine.state.ip;
                    let taken = flowed == Flowed::Taken;
                    if taken && code.in_file(to).is_none() {
                        trace.end(here, End::NoFile);
                        return;
                    }
                    trace.branch(here, taken.then_some(to));
                }
                Err(stop) => {
                    trace.end(here, stop.into());
                    return;
                }
            }
            if let Some(end) = trace.at_limit(limits) {
                trace.end(self.machine.state.ip, end);
                return;
            }
        }
    }

    /// Makes plans for code that a thread may reach after a window, so that later windows find them ready.
    pub fn look_ahead(&mut self, (pid, space): (u32, &AddressSpace), trace: &Trace) {
        if self.looked_at.len() > LOOKED_AT_MAX {
            self.looked_at.clear();
        }
        let mut code = self.code.view(pid, space);
        let mut left: Vec<u64> = trace.transfers.iter().flat_map(|&(from, to)| [from, to]).collect();
        left.push(trace.end);
        let mut budget = AHEAD_MAX;
        while let Some(start) = left.pop() {
            let mut here = start;
            while budget > 0 && code.in_file(here).is_some() && self.looked_at.insert((pid, here)) {
                let Some(operation) = code.decoded(here) else { break };
                budget -= 1;
                match operation.action {
                    Action::Jump(by) | Action::JumpIf(_, by) | Action::Call(by) => {
                        left.push(here.wrapping_add_signed(by));
                    }
                    _ => {}
                }
                if matches!(operation.action, Action::Jump(_) | Action::JumpTo(_) | Action::Return(_)) {
                    break;
                }
                here = here.wrapping_add(operation.length.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
