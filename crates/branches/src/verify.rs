//! Compares `shadow` with `step`: does a thread do what the emulation predicted?
//!
//! At each sample a window is emulated; then the thread really executes the same number of instructions, one
//! by one, and the two are compared. Only programs with one thread can always agree, because others see other
//! threads' writes.

use super::ptrace::Status;
use super::shadow::sampler::Shadow;
use super::step::Stepper;
use super::trace::{Limits, Trace};
use super::tracer::{Sampler, Stopped};
use super::{BranchError, Options, Progress, Recorded, Target, record};
use corewise_code::AddressSpace;
use corewise_paths::window::End;
use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Verification {
    /// The number of windows that were compared to their end.
    pub compared: usize,
    /// The number of windows that a signal cut short; not compared.
    pub interrupted: usize,
    /// Each window that differed: where, and what the emulation had executed there.
    pub mismatches: Vec<String>,
}

struct Checked {
    shadow: Shadow,
    stepper: Stepper,
    stepped: Trace,
    windows_max: usize,
    stop: Arc<AtomicBool>,
    result: Verification,
}

/// Records a command like [`super::record`] with `shadow`, and compares each window, up to `windows_max`.
pub fn verify(
    command: &[std::ffi::OsString],
    options: &Options,
    windows_max: usize,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<(Recorded, Verification), BranchError> {
    let shadow =
        Shadow::new().map_err(|errno| BranchError::System { what: "cannot make room for thunks", errno })?;
    let mut checked = Checked {
        shadow,
        stepper: Stepper::default(),
        stepped: Trace::default(),
        windows_max,
        stop: Arc::clone(&options.stop),
        result: Verification::default(),
    };
    let target = Target::Command(command);
    let recorded = record::record(target, options, "shadow", &mut checked, on_progress)?;
    Ok((recorded, checked.result))
}

impl Sampler for Checked {
    fn sample(
        &mut self,
        thread: &Stopped<'_>,
        limits: &Limits,
        trace: &mut Trace,
    ) -> Result<Option<Status>, Errno> {
        self.shadow.sample(thread, limits, trace)?;
        if trace.instructions == 0 {
            return Ok(None);
        }
        let limits = Limits { branches_max: u32::MAX, instructions_max: trace.instructions };
        let left = self.stepper.sample(thread, &limits, &mut self.stepped)?;
        let stepped = &self.stepped;
        if stepped.ended == End::Interrupted {
            self.result.interrupted += 1;
        } else if (&stepped.transfers, stepped.end) == (&trace.transfers, trace.end) {
            self.result.compared += 1;
        } else {
            self.result.compared += 1;
            self.result.mismatches.push(difference(thread, trace, stepped));
        }
        if self.result.compared >= self.windows_max {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(left)
    }

    fn prepare(&mut self, pid: i32, space: &AddressSpace, trace: &Trace) {
        self.shadow.prepare(pid, space, trace);
    }
}

/// Returns the first difference, and the instructions that the emulation executed before it since the last
/// branch.
fn difference(thread: &Stopped<'_>, shadow: &Trace, stepped: &Trace) -> String {
    let same =
        shadow.transfers.iter().zip(&stepped.transfers).take_while(|(ours, real)| ours == real).count();
    let from = same.checked_sub(1).map_or(shadow.start, |last| shadow.transfers[last].1);
    let ours = shadow.transfers.get(same);
    let to = ours.map_or(shadow.end, |transfer| transfer.0);
    let hexadecimal = |transfer: Option<&(u64, u64)>| {
        transfer.map_or("none".to_owned(), |(from, to)| format!("{from:#x} -> {to:#x}"))
    };
    let mapping = thread
        .space
        .find(from)
        .map(|mapping| format!("{:?} +{:#x}", mapping.backing, from - mapping.start + mapping.offset));
    format!(
        "transfer {same} of {}: emulated {}, executed {} ({} of {} instructions, ended {:?}/{:?})\n{}\n{}",
        shadow.transfers.len(),
        hexadecimal(ours),
        hexadecimal(stepped.transfers.get(same)),
        stepped.instructions,
        shadow.instructions,
        shadow.ended,
        stepped.ended,
        mapping.unwrap_or_default(),
        disassembly(thread.pid, from, to)
    )
}

/// Returns the instructions from one address to another, at most 40.
fn disassembly(pid: i32, from: u64, to: u64) -> String {
    let mut bytes = vec![0; (to.wrapping_sub(from).min(400) + 15) as usize];
    let remote = RemoteIoVec { base: from as usize, len: bytes.len() };
    let length = process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(&mut bytes)], &[remote]);
    bytes.truncate(length.unwrap_or(0));
    let mut formatter = NasmFormatter::new();
    let mut text = String::new();
    for instruction in Decoder::with_ip(64, &bytes, from, DecoderOptions::NONE).iter().take(40) {
        text += &format!("  {:x} ", instruction.ip());
        formatter.format(&instruction, &mut text);
        text.push('\n');
        if instruction.ip() >= to {
            break;
        }
    }
    text
}
