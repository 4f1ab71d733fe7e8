//! Measures the share of a program's time in which the floating-point unit is really busy, by single steps.
//!
//! Problem. The crate `counters` estimates the FPU usage of clock samples from the program's code; without
//! hardware counters there is nothing to compare the estimate with.
//!
//! Approach. Each thread is stopped at random instants of its CPU time in user mode, and then really executes
//! the following code, one instruction at a time. The unit counts as busy at that instant if floating-point
//! arithmetic is among the next [`IN_FLIGHT`] instructions: as many as a processor has in flight after the
//! one that waits to retire. A system call ends them, and each repetition of a string instruction is one.
//!
//! Limits. This shares with the estimate the definition of arithmetic ([`corewise_code`]) and the number of
//! instructions in flight, but not how they are determined. Latencies are unknown here, too.

use super::ptrace::Status;
use super::step::{Step, step};
use super::trace::{Limits, Trace};
use super::tracer::{Sampler, Stopped};
use super::{BranchError, Options, Target, record};
use corewise_code::{Backing, Code, CodeStore, Flow, Unit};
use corewise_paths::window::End;
use corewise_sys::proc::Proc;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;

/// The number of instructions in flight.
pub const IN_FLIGHT: u32 = 48;

/// Runtimes whose threads busy-wait in their own code.
const RUNTIMES: [&str; 3] = ["libgomp.so", "libomp.so", "libiomp5.so"];

/// How often the unit was busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Busy {
    /// The number of instants, without those of `runtime`.
    pub instants: u64,
    /// The number with floating-point arithmetic in flight.
    pub float: u64,
    /// The number with floating-point or integer vector arithmetic in flight.
    pub vector: u64,
    /// The number of instants in the code of an OpenMP runtime: its threads mostly wait there.
    pub runtime: u64,
}

struct Stepping {
    code: CodeStore,
    busy: Busy,
    instants_max: u64,
}

/// Executes a command, and kills it after `instants_max` instants.
pub fn busy(command: &[OsString], options: &Options, instants_max: u64) -> Result<Busy, BranchError> {
    let mut stepping = Stepping { code: CodeStore::default(), busy: Busy::default(), instants_max };
    record::record(Target::Command(command), options, "busy", &mut stepping, &mut |_| {})?;
    Ok(stepping.busy)
}

impl Sampler for Stepping {
    fn sample(
        &mut self,
        thread: &Stopped<'_>,
        _: &Limits,
        trace: &mut Trace,
    ) -> Result<Option<Status>, Errno> {
        if self.busy.instants + self.busy.runtime >= self.instants_max {
            kill_descendants(std::process::id());
            return Ok(None);
        }
        trace.begin(thread.registers.rip);
        if is_in_runtime(thread) {
            self.busy.runtime += 1;
            return Ok(None);
        }
        self.code.begin_epoch();
        let (mut float, mut vector) = (false, false);
        let mut code = self.code.view(thread.pid as u32, thread.space);
        let mut here = thread.registers.rip;
        for _ in 0..IN_FLIGHT {
            let Some(instruction) = code.instruction(here) else {
                // It may have been mapped just now.
                trace.end(here, End::NoFile);
                return Ok(None);
            };
            let (is_float, is_vector) = match instruction.unit {
                Unit::None | Unit::Move => (false, false),
                Unit::Integer => (false, true),
                Unit::Float => (true, true),
            };
            float |= is_float;
            vector |= is_vector;
            if float || instruction.flow == Flow::Kernel {
                break;
            }
            match step(thread.tid)? {
                Step::To(to) => here = to,
                Step::Interrupted(status) => return Ok(Some(status)),
            }
        }
        self.busy.instants += 1;
        self.busy.float += u64::from(float);
        self.busy.vector += u64::from(vector);
        Ok(None)
    }
}

/// Kills a process and all its descendants.
fn kill_descendants(pid: u32) {
    for child in Proc::own().children(pid).unwrap_or_default() {
        kill_descendants(child);
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(child as i32), Signal::SIGKILL);
    }
}

fn is_in_runtime(thread: &Stopped<'_>) -> bool {
    let mapping = thread.space.find(thread.registers.rip);
    mapping.is_some_and(|mapping| match &mapping.backing {
        Backing::File(_, path) => RUNTIMES.iter().any(|runtime| path.contains(runtime)),
        Backing::Memory => false,
    })
}
