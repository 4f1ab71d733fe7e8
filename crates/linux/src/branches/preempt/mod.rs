//! Emulating threads that were preempted, instead of stopping them.
//!
//! The problem: a thread that `ptrace` stops leaves its PE idle, and for each sample the kernel wakes two
//! PEs: another one for the tracer, then the thread's own again. In a virtual machine this takes several
//! times as long as the sample itself.
//!
//! The approach: a thread of corewise on each PE, of real-time priority, which sleeps most of the time. When
//! it wakes, whatever ran there has been preempted: it stays where it is, ready to go on, and nobody needs to
//! wake it. Its registers the kernel has saved, and hands out by BPF (`src/bpf/preemption.bpf.c`). Its memory
//! is read as for any other emulated thread ([`super::shadow`]). When the sampler sleeps again, the thread
//! goes on. It is not traced, gets no signal, and needs nothing should corewise be killed.
//!
//! Samples are taken by the clock on the wall of each PE, hence of each thread in proportion to its CPU time.
//!
//! Limits. It takes the rights for BPF, for real-time priorities and to read the processes' memory (root has
//! them), and Linux 5.16. A thread of higher real-time priority is not preempted. An idle PE's sampler wakes
//! less often, up to [`IDLE_FACTOR_MAX`] times, so that threads which hop between idle PEs get fewer samples.

mod extended;
mod kernel;
mod sampler;

use super::collect::{Collected, now_ns};
use super::event::Periods;
use super::target::{Phase, Running};
use super::trace::Limits;
use super::{BranchError, Options, Progress, Recorded, Target};
use crate::binding::affinity;
use crate::real_time::RealTime;
use corewise_core::ids::PeId;
use kernel::{Kernel, Slots};
use nix::errno::Errno;
use sampler::{PeSampler, Sample};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

/// Above everything that is not of high real-time priority itself.
const PRIORITY: i32 = 90;
/// How much longer a sampler sleeps where it has nothing to do.
const IDLE_FACTOR_MAX: u32 = 4;

/// What it takes to preempt threads, if this machine and user have it.
pub(super) struct Preempting {
    kernel: Kernel,
    slots: Slots,
}

impl Preempting {
    /// Prepares it, or says why it is impossible.
    pub fn prepare() -> Result<Preempting, String> {
        let (kernel, slots) = Kernel::open()?;
        let trial = || RealTime::enter(PRIORITY).map(drop);
        thread::scope(|scope| scope.spawn(trial).join().expect("system calls do not panic"))
            .map_err(|errno| format!("a real-time priority is not permitted ({errno})"))?;
        Ok(Preempting { kernel, slots })
    }

    /// Records a target.
    pub fn record(
        self,
        target: Target<'_>,
        options: &Options,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Recorded, BranchError> {
        let Preempting { kernel, slots } = self;
        let unavailable = |reason| BranchError::Unavailable { sampler: "shadow", reason };
        let attach = |pid: i32, is_command| {
            let pid = pid as u32;
            if is_command {
                return kernel.follow(pid).map_err(unavailable);
            }
            let memory = std::fs::File::open(format!("/proc/{pid}/mem"));
            memory.map_err(|error| {
                let errno = error.raw_os_error().map_or(Errno::EPERM, Errno::from_raw);
                BranchError::Follow { pid, errno }
            })?;
            kernel.follow_tree(pid).map_err(unavailable)
        };
        let (mut running, ()) = Running::start(target, options, attach)?;
        let is_over = AtomicBool::new(false);
        let mut collected = Collected::default();
        let ended = thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            // Those of PEs that are offline or forbidden end at once.
            let samplers: Vec<_> = affinity::all_pes()
                .iter()
                .map(|pe| {
                    let (slots, is_over, tell) = (&slots, &is_over, tell.clone());
                    scope.spawn(move || sample_pe(slots, pe, options, is_over, &tell))
                })
                .collect();
            let end = || {
                is_over.store(true, Ordering::Relaxed);
                samplers.iter().for_each(|sampler| sampler.thread().unpark());
            };
            loop {
                let phase = running.wait(options);
                told.try_iter().for_each(|sample| take_in(&mut collected, sample));
                on_progress(Progress { windows: collected.window_count(), processes: kernel.followed() });
                match phase {
                    Ok(Phase::Recorded) => {}
                    Ok(Phase::Late) => end(),
                    Ok(Phase::Over) | Err(_) => {
                        end();
                        drop(tell);
                        told.iter().for_each(|sample| take_in(&mut collected, sample));
                        return phase;
                    }
                }
            }
        });
        ended?;
        let pauses = std::mem::take(&mut collected.pauses);
        let mut recording = collected.into_recording();
        recording.command = running.words;
        recording.backend = "shadow".to_owned();
        Ok(Recorded { recording, exit_status: running.exit_status, pauses })
    }
}

fn take_in(collected: &mut Collected, sample: Sample) {
    match sample {
        Sample::Taken(taken) => {
            collected.add(taken.source, &taken.space, &taken.trace);
            collected.pauses.add(taken.pause);
        }
        Sample::Refused(reason) => collected.without_window(reason),
    }
}

/// Samples one PE until all is over.
fn sample_pe(slots: &Slots, pe: PeId, options: &Options, is_over: &AtomicBool, tell: &Sender<Sample>) {
    if affinity::bind_self(pe).is_err() {
        return;
    }
    let Ok(_priority) = RealTime::enter(PRIORITY) else { return };
    let limits = Limits { branches_max: options.branches_max, instructions_max: options.instructions_max };
    let mut periods = Periods::new(options.period, now_ns() ^ u64::from(pe.0));
    let mut sampler = None;
    let mut idle_factor = 1;
    while !is_over.load(Ordering::Relaxed) {
        thread::park_timeout(periods.next() * idle_factor);
        let Some(preempted) = slots.take(pe) else {
            idle_factor = (2 * idle_factor).min(IDLE_FACTOR_MAX);
            continue;
        };
        idle_factor = 1;
        if sampler.is_none() {
            sampler = PeSampler::new(slots, pe, limits).ok();
        }
        let sample = match &mut sampler {
            Some(sampler) => sampler.sample(&preempted),
            None => Sample::Refused("no memory for the emulator"),
        };
        // Nobody listens to what comes after the end.
        let _ = tell.send(sample);
    }
}
