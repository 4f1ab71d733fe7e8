//! Records windows by single steps.
//!
//! The thread really executes the window, one instruction at a time, which is slow and changes its timing.
//! This serves to verify the other samplers.
//!
//! Some virtual machines accept `PTRACE_SINGLEBLOCK` and then step single instructions, and a step could as
//! well be more than one. So a step's return code is not trusted: the thread's new address must be possible
//! after the instruction, and only then does it count as executed.

use super::event::SIGNALS;
use super::ptrace::{self, Status};
use super::trace::{Limits, Trace};
use super::tracer::{Sampler, Stopped};
use corewise_code::{Code, CodeStore, Flow};
use corewise_paths::window::End;
use nix::errno::Errno;

/// Executes windows step by step.
#[derive(Default)]
pub struct Stepper {
    code: CodeStore,
}

/// The result of a step.
pub(super) enum Step {
    /// To this address.
    To(u64),
    /// A status other than a step's.
    Interrupted(Status),
}

impl Sampler for Stepper {
    fn sample(
        &mut self,
        thread: &Stopped<'_>,
        limits: &Limits,
        trace: &mut Trace,
    ) -> Result<Option<Status>, Errno> {
        let mut code = self.code.view(thread.pid as u32, thread.space);
        let mut here = thread.registers.rip;
        trace.begin(here);
        loop {
            if let Some(end) = trace.at_limit(limits) {
                trace.end(here, end);
                return Ok(None);
            }
            let stop = match (code.in_file(here), code.instruction(here)) {
                (None, _) => Some(End::NoFile),
                (_, None) => Some(End::Memory),
                (_, Some(instruction)) if instruction.flow == Flow::Kernel => Some(End::SystemCall),
                _ => None,
            };
            if let Some(end) = stop {
                trace.end(here, end);
                return Ok(None);
            }
            let instruction = code.instruction(here).expect("it was just there");
            let next = here.wrapping_add(instruction.length.into());
            let to = match step(thread.tid)? {
                Step::To(to) => to,
                Step::Interrupted(status) => {
                    trace.end(here, End::Interrupted);
                    return Ok(Some(status));
                }
            };
            if !may_lead(instruction.flow, (here, next), to) {
                trace.end(here, End::Interrupted);
                return Ok(None);
            }
            match instruction.flow {
                Flow::Next if to == here => continue,
                Flow::Next => trace.instructions += 1,
                Flow::Branch(by) if to == next && here.wrapping_add_signed(by) != next => {
                    trace.branch(here, None);
                }
                Flow::Jump(_)
                | Flow::Branch(_)
                | Flow::Call(_)
                | Flow::JumpThrough(_)
                | Flow::CallThrough(_)
                | Flow::JumpAnywhere
                | Flow::CallAnywhere
                | Flow::Return
                | Flow::Kernel => {
                    if code.in_file(to).is_none() {
                        trace.end(here, End::NoFile);
                        return Ok(None);
                    }
                    trace.branch(here, Some(to));
                }
            }
            here = to;
        }
    }
}

/// Returns whether an instruction, with the address of the next, may lead to an address.
fn may_lead(flow: Flow, (here, next): (u64, u64), to: u64) -> bool {
    let target = |displacement: i64| here.wrapping_add_signed(displacement);
    match flow {
        // A repeated string operation stops after each element.
        Flow::Next => to == next || to == here,
        Flow::Jump(by) | Flow::Call(by) => to == target(by),
        Flow::Branch(by) => to == target(by) || to == next,
        Flow::JumpThrough(_)
        | Flow::CallThrough(_)
        | Flow::JumpAnywhere
        | Flow::CallAnywhere
        | Flow::Return
        | Flow::Kernel => true,
    }
}

/// Executes one instruction of a stopped thread.
pub(super) fn step(tid: i32) -> Result<Step, Errno> {
    loop {
        ptrace::single_step(tid)?;
        match ptrace::wait(tid)? {
            Status::Signal(libc::SIGTRAP) if ptrace::is_of_step(tid)? => {
                return Ok(Step::To(ptrace::registers(tid)?.rip));
            }
            // From a clock: it interrupted the step before it began.
            Status::Signal(signal)
                if SIGNALS.contains(&signal) && ptrace::signal_descriptor(tid)?.is_some() => {}
            status => return Ok(Step::Interrupted(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::needs;

    #[test]
    fn a_step_over_a_system_call_is_a_step() {
        needs!(Ptrace);
        let endless = "while :; do kill -0 $$; done";
        let mut shell = std::process::Command::new("sh").args(["-c", endless]).spawn().unwrap();
        let tid = shell.id() as i32;
        ptrace::seize(tid).unwrap();
        ptrace::interrupt(tid).unwrap();
        ptrace::wait(tid).unwrap();
        let (mut calls, mut odd) = (0, None);
        while calls < 20 && odd.is_none() {
            match step(tid).unwrap() {
                // The number of the system call that it was in; all ones after anything else.
                Step::To(_) => calls += u32::from(ptrace::registers(tid).unwrap().orig_rax != u64::MAX),
                // The stop that was asked for may be reported once more.
                Step::Interrupted(Status::Event(libc::PTRACE_EVENT_STOP, _)) => {}
                Step::Interrupted(status) => odd = Some(status),
            }
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(odd.is_none(), "after {calls} system calls: {odd:?}");
    }
}
