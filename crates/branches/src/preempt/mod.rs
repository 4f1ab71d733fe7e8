//! Emulates threads that were preempted, instead of stopping them.
//!
//! Problem: a thread that `ptrace` stops leaves its PE idle, and for each sample the kernel wakes two PEs:
//! another one for the tracer, then the thread's own again. In a virtual machine this takes several times as
//! long as the sample itself.
//!
//! Approach: a thread of corewise on each PE, of real-time priority, which sleeps most of the time. When it
//! wakes up, it has preempted whatever ran there: the preempted thread stays where it is, ready to continue,
//! and need not be woken. The kernel has saved its registers, and passes them on by BPF
//! (`src/bpf/preemption.bpf.c`). Its memory is read as for any other emulated thread ([`super::shadow`]).
//! When the sampler sleeps again, the thread continues. It is not traced, gets no signal, and needs nothing
//! if corewise is killed.
//!
//! Samples are taken by the wall clock of each PE, and so of each thread in proportion to its CPU time.
//!
//! Limits. It needs the rights for BPF, for real-time priorities and for reading the processes' memory (root
//! has them), and Linux 5.16. A thread of higher real-time priority is not preempted. The sampler of a PE
//! that has been idle for some time wakes up less often, so threads that move between idle PEs get fewer
//! samples.

mod extended;
mod kernel;
mod sampler;

use super::collect::Collected;
use super::error::BranchError;
use super::event::Periods;
use super::options::{Options, Target};
use super::recorded::{Progress, Recorded};
use super::target::{Followed, Phase, Running, is_alive};
use super::trace::Lengths;
use corewise_bpf::monotonic_ns;
use corewise_core::ids::PeId;
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use corewise_sys::real_time::RealTime;
use kernel::{Before, Kernel, Slots};
use nix::errno::Errno;
use sampler::{PeSampler, Sample};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Above all threads except those of high real-time priority.
const PRIORITY: i32 = 90;
/// After its PE was idle this many times in a row, a sampler sleeps longer,
const IDLE_WAKES: u32 = 8;
/// by this factor.
const IDLE_FACTOR: u32 = 4;

/// After sampling one process of many, which may have ten thousand mappings, a sampler sleeps at least this
/// many times as long as the sample took: no PE is used for more than 2 % of the time.
const RESTS: u32 = 49;
/// How often to check which processes a control group has.
const CGROUP_INTERVAL: Duration = Duration::from_millis(500);

/// The means of preempting threads, if this machine and user have them.
pub(super) struct Preempting {
    kernel: Kernel,
    slots: Slots,
}

impl Preempting {
    /// Prepares them, or returns why that is impossible.
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
        let attach = |followed: &Followed| {
            if let Followed::Process(pid) = followed {
                may_be_read(*pid)?;
            }
            follow(&kernel, followed).map_err(unavailable).map(|()| followed.clone())
        };
        let (mut running, followed) = Running::start(target, options, attach)?;
        let mut looked_at = Instant::now();
        let rests = match followed {
            Followed::Command(_) | Followed::Process(_) => 0,
            Followed::Cgroup(_) | Followed::System => RESTS,
        };
        let is_over = AtomicBool::new(false);
        let mut collected = Collected::default();
        let ended = thread::scope(|scope| {
            let (sender, received) = mpsc::channel();
            // The samplers of PEs that are offline or forbidden end at once.
            let samplers: Vec<_> = affinity::all_pes()
                .iter()
                .map(|pe| {
                    let (slots, is_over, samples) = (&slots, &is_over, sender.clone());
                    scope.spawn(move || sample_pe(slots, pe, (options, rests), is_over, &samples))
                })
                .collect();
            let end = || {
                is_over.store(true, Ordering::Relaxed);
                samplers.iter().for_each(|sampler| sampler.thread().unpark());
            };
            loop {
                let phase = running.wait(options);
                received.try_iter().for_each(|sample| take_in(&mut collected, sample));
                on_progress(Progress { windows: collected.window_count(), processes: kernel.followed() });
                if matches!(followed, Followed::Cgroup(_)) && looked_at.elapsed() >= CGROUP_INTERVAL {
                    // If it fails, it is tried again.
                    let _ = follow(&kernel, &followed);
                    looked_at = Instant::now();
                }
                match phase {
                    Ok(Phase::Recorded) => {}
                    Ok(Phase::Late) => end(),
                    Ok(Phase::Over) | Err(_) => {
                        end();
                        drop(sender);
                        received.iter().for_each(|sample| take_in(&mut collected, sample));
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

fn follow(kernel: &Kernel, followed: &Followed) -> Result<(), String> {
    match followed {
        Followed::Command(pid) => kernel.follow(pid.as_raw() as u32),
        Followed::Process(pid) => kernel.follow_tree(*pid),
        Followed::Cgroup(group) => {
            let processes = group.processes().map_err(|error| error.to_string())?;
            kernel.follow_all(&processes)
        }
        Followed::System => kernel.follow_system(),
    }
}

fn may_be_read(pid: u32) -> Result<(), BranchError> {
    let memory = Proc::own().memory(pid, false);
    memory.map(drop).map_err(|error| {
        if !is_alive(pid) {
            return BranchError::NoProcess(pid);
        }
        let errno = error.raw_os_error().map_or(Errno::EPERM, Errno::from_raw);
        BranchError::Follow { pid, errno }
    })
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

/// Samples one PE until the end.
fn sample_pe(
    slots: &Slots,
    pe: PeId,
    (options, rests): (&Options, u32),
    is_over: &AtomicBool,
    samples: &Sender<Sample>,
) {
    if affinity::bind_self(pe).is_err() {
        return;
    }
    let Ok(_priority) = RealTime::enter(PRIORITY) else { return };
    let mut periods = Periods::new(options.period, monotonic_ns() ^ u64::from(pe.0));
    let mut sampler: Option<PeSampler<'_>> = None;
    let (mut idle, mut taken) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let period = periods.next() * if idle >= IDLE_WAKES { IDLE_FACTOR } else { 1 };
        thread::park_timeout(period.max(rests * taken));
        let woken = Instant::now();
        let before = slots.take(pe);
        idle = if before == Before::Idle { idle + 1 } else { 0 };
        let sample = match (before, &mut sampler) {
            (Before::Idle | Before::Other, _) => continue,
            (Before::InKernel, _) => Sample::Refused("in the kernel"),
            (Before::Followed(preempted), Some(sampler)) => sampler.sample(&preempted),
            (Before::Followed(preempted), None) => match PeSampler::new(slots, pe, Lengths::new(options)) {
                Ok(new) => sampler.insert(new).sample(&preempted),
                Err(_) => Sample::Refused("no memory for the emulator"),
            },
        };
        taken = woken.elapsed();
        // Nothing receives samples after the end.
        let _ = samples.send(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::super::shadow::VectorLayout;
    use super::super::shadow::state::State;
    use super::*;
    use corewise_testing::{Capability, or_skip};
    use extended::Components;
    use std::arch::asm;
    use std::sync::atomic::AtomicU8;

    /// Returns what a machine lacks that gives this reason.
    #[expect(clippy::ptr_arg, reason = "the errors are of this type")]
    pub(super) fn missing(reason: &String) -> Option<Capability> {
        let is_real_time = reason.starts_with("a real-time priority is not permitted");
        let is_bpf = ["not permitted", "a container", "CONFIG_"].iter().any(|word| reason.contains(word));
        is_real_time.then_some(Capability::RealTime).or(is_bpf.then_some(Capability::Bpf))
    }

    /// Runs with known registers until the byte is set, and returns whether they were still the same then.
    fn run_with_known_registers(end: &AtomicU8, values: &[u128; 4]) -> bool {
        let (low, high): (u64, u64);
        // SAFETY: it reads the byte and the four values, and names every register that it changes.
        unsafe {
            asm!(
                "movdqu xmm1, [{values}]",
                "movdqu xmm15, [{values} + 48]",
                "mov r8, 0x1111111111111111",
                "mov r15, 0x5555555555555555",
                "2:",
                "cmp byte ptr [{end}], 0",
                "je 2b",
                "movq r9, xmm15",
                end = in(reg) end.as_ptr(),
                values = in(reg) values.as_ptr(),
                out("r8") low, out("r15") high, out("r9") _, out("xmm1") _, out("xmm15") _,
            );
        }
        (low, high) == (0x1111_1111_1111_1111, 0x5555_5555_5555_5555)
    }

    #[test]
    fn a_preempted_threads_registers_are_what_they_are() {
        let Preempting { kernel, slots } = or_skip!(Preempting::prepare(), missing);
        kernel.follow(std::process::id()).unwrap();
        let pe = affinity::get(0).unwrap().last().unwrap();
        let values = [u128::MAX / 3, 1, 2, u128::MAX / 5];
        let (end, (sender, received)) = (AtomicU8::new(0), mpsc::channel());
        let found = thread::scope(|scope| {
            let spinning = scope.spawn(|| {
                affinity::bind_self(pe).unwrap();
                sender.send(nix::unistd::gettid().as_raw() as u32).unwrap();
                run_with_known_registers(&end, &values)
            });
            let tid = received.recv().unwrap();
            let slots = &slots;
            let looking = scope.spawn(move || {
                affinity::bind_self(pe).unwrap();
                let _priority = RealTime::enter(PRIORITY).unwrap();
                (0..1000).find_map(|_| {
                    thread::park_timeout(std::time::Duration::from_millis(2));
                    let Before::Followed(preempted) = slots.take(pe) else { return None };
                    if preempted.tid != tid {
                        return None;
                    }
                    let mut saved = [0; size_of::<kernel::Xsave>()];
                    let bytes = slots.take_xsave(pe, &mut saved);
                    let unmoved = slots.take(pe) == Before::Followed(preempted);
                    // It may have been preempted before it reached the loop.
                    let is_there = preempted.registers().r8 == 0x1111_1111_1111_1111;
                    (unmoved && is_there).then(|| (preempted, saved[..bytes].to_vec()))
                })
            });
            let found = looking.join().unwrap();
            end.store(1, Ordering::Relaxed);
            assert!(spinning.join().unwrap(), "its registers are as they were");
            found
        });
        let (preempted, saved) = found.expect("it was preempted while it ran in its loop");
        let registers = preempted.registers();
        assert_eq!(preempted.pid, std::process::id());
        assert_eq!(registers.r15, 0x5555_5555_5555_5555);
        assert_eq!((registers.cs, registers.orig_rax as i64), (0x33, -1));
        assert_ne!(registers.fs_base, 0);
        let layout = VectorLayout::of_this_machine();
        let (mut area, mut state) = (vec![0; layout.bytes], State::new());
        assert!(Components::of_this_machine().expand(&saved, &mut area));
        state.set_vectors(&area, &layout);
        let low = |number: usize| u128::from_le_bytes(state.vectors[number].0[..16].try_into().unwrap());
        assert_eq!((low(1), low(15)), (values[0], values[3]));
    }
}
