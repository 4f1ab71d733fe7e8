//! Windows from the processor's own branch records: LBR of Intel, LBRv2 and BRS of AMD, BRBE of Arm.
//!
//! The kernel samples a thread by its count of branches, with the records of the last taken ones (perf branch
//! stacks, `perf_event_open(2)`). A window begins at the target of the oldest record and ends at that of the
//! newest, because what came after that is not certain: the sample's own address is later by the interrupt's
//! delay. Filtered or lost records (addresses of zero, the kernel's) cut a window short.
//!
//! Limits. The hardware has 8 to 64 records, whatever is requested, and records neither branches that were
//! not taken nor the number of instructions. Mappings are read when a process is first sampled and when an
//! address is in none; a process that has ended before gives no windows. BRS needs a period that is a
//! multiple of its own, which the kernel ensures.

use super::collect::Collected;
use super::error::BranchError;
use super::options::{Options, Target};
use super::recorded::{Progress, Recorded};
use super::target::{Followed, Phase, Running};
use super::trace::Trace;
use corewise_code::AddressSpace;
use corewise_paths::window::End;
use corewise_sys::proc::Proc;
use nix::errno::Errno;
use perf_event::events::Hardware;
use perf_event::{Builder, Clock, SampleBranchFlag, SampleFlag, Sampler};
use perf_event_open_sys::bindings;
use rustc_hash::FxHashMap;
use std::io;

/// Pages of a ring buffer: some seconds of samples.
const RING_PAGES: usize = 128;

/// A sample as recorded by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    pid: u32,
    tid: u32,
    /// `CLOCK_MONOTONIC`, ns.
    time_ns: u64,
    /// Sources and targets, the newest first.
    branches: Vec<(u64, u64)>,
}

/// Returns why there are no branch records here, or nothing if there are.
pub fn probe() -> Result<(), String> {
    match event(0, None, 100, false).build() {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EACCES | Errno::EPERM) => format!(
                "reading branch records is not permitted ({error}): set kernel.perf_event_paranoid to 2 or \
                 less, or give corewise CAP_PERFMON"
            ),
            Some(Errno::ENOENT | Errno::ENODEV) => {
                format!("no hardware counters ({error}): most virtual machines have none")
            }
            _ => format!("the processor or its driver has no branch records ({error})"),
        }),
    }
}

fn event<'a>(pid: i32, pe: Option<usize>, rate_hz: u64, on_exec: bool) -> Builder<'a> {
    let mut builder = Builder::new(Hardware::BRANCH_INSTRUCTIONS);
    builder
        .observe_pid(pid)
        .inherit(true)
        .enabled(!on_exec)
        .enable_on_exec(on_exec)
        .exclude_kernel(true)
        .exclude_hv(true)
        .sample_frequency(rate_hz)
        .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::BRANCH_STACK)
        .branch_sample_type(SampleBranchFlag::USER | SampleBranchFlag::ANY)
        .clockid(Clock::MONOTONIC);
    match pe {
        Some(pe) => builder.one_cpu(pe),
        None => builder.any_cpu(),
    };
    builder
}

/// The record of one sample, without its header: pid, tid, time, the number of branches, the branches.
fn sample_of(bytes: &[u8]) -> Option<Sample> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let count = usize::try_from(u64_at(16)?).ok()?;
    let entries = bytes.get(24..24usize.checked_add(count.checked_mul(24)?)?)?.chunks_exact(24);
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    let branches = entries.map(|entry| (number(&entry[..8]), number(&entry[8..16]))).collect();
    Some(Sample { pid: u32_at(0)?, tid: u32_at(4)?, time_ns: u64_at(8)?, branches })
}

/// Returns the window of a sample's records, with at most this many transfers; `None` if there is none.
fn trace_of(sample: &Sample, transfers_max: usize) -> Option<Trace> {
    // User addresses are the lower half of the address space.
    let is_user = |address: u64| address != 0 && address >> 63 == 0;
    let known = sample.branches.iter().take_while(|(from, to)| is_user(*from) && is_user(*to));
    let mut transfers: Vec<(u64, u64)> = known.copied().take(transfers_max + 1).collect();
    transfers.reverse();
    let (_, start) = *transfers.first()?;
    let (_, end) = *transfers.last()?;
    transfers.remove(0);
    Some(Trace { start, transfers, end, ended: End::Hardware, ..Trace::default() })
}

/// Records a target.
pub(super) fn record(
    target: Target<'_>,
    options: &Options,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Recorded, BranchError> {
    probe().map_err(|reason| BranchError::Unavailable { sampler: "lbr", reason })?;
    let rate_hz = (1.0 / options.period.as_secs_f64()).round().max(1.0) as u64;
    let attach = |followed: &Followed| {
        let (threads, is_command) = match followed {
            Followed::Command(pid) => (vec![pid.as_raw()], true),
            Followed::Process(pid) => (threads_of(*pid as i32), false),
            Followed::Cgroup(_) | Followed::System => {
                return Err(BranchError::OneProcessOnly(options.backend));
            }
        };
        let samplers = threads.into_iter().map(|thread| open(thread, rate_hz, is_command));
        samplers
            .collect::<io::Result<Vec<_>>>()
            .map(|all| all.into_iter().flatten().collect())
            .map_err(refused)
    };
    let (mut running, mut samplers): (_, Vec<Sampler>) = Running::start(target, options, attach)?;
    let mut lbr = Lbr { collected: Collected::default(), spaces: FxHashMap::default(), options };
    loop {
        let phase = running.wait(options)?;
        lbr.drain(&mut samplers);
        on_progress(Progress { windows: lbr.collected.window_count(), processes: lbr.spaces.len() });
        match phase {
            Phase::Recorded => {}
            Phase::Late => samplers.clear(),
            Phase::Over => break,
        }
    }
    let mut recording = lbr.collected.into_recording();
    recording.command = running.words;
    recording.backend = "lbr".to_owned();
    Ok(Recorded { recording, exit_status: running.exit_status, pauses: super::collect::Pauses::default() })
}

fn refused(error: io::Error) -> BranchError {
    BranchError::Unavailable { sampler: "lbr", reason: error.to_string() }
}

/// Opens one event and ring for each PE, as inherited events require.
fn open(tid: i32, rate_hz: u64, on_exec: bool) -> io::Result<Vec<Sampler>> {
    // SAFETY: asks for a number.
    let pes = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let mut samplers = Vec::new();
    for pe in 0..usize::try_from(pes).unwrap_or(1) {
        match event(tid, Some(pe), rate_hz, on_exec).build() {
            Ok(counter) => samplers.push(counter.sampled(RING_PAGES)?),
            // The PE is offline, or the thread has ended.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ESRCH)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(samplers)
}

fn threads_of(pid: i32) -> Vec<i32> {
    let threads = Proc::own().threads(pid as u32).ok().flatten().unwrap_or_default();
    threads.into_iter().map(|tid| tid as i32).collect()
}

struct Lbr<'a> {
    collected: Collected,
    spaces: FxHashMap<u32, AddressSpace>,
    options: &'a Options,
}

impl Lbr<'_> {
    fn drain(&mut self, samplers: &mut [Sampler]) {
        for sampler in samplers {
            while let Some(record) = sampler.next_record() {
                match record.ty() {
                    bindings::PERF_RECORD_SAMPLE => {
                        let sample = sample_of(&record.to_contiguous());
                        sample.into_iter().for_each(|sample| self.take(&sample));
                    }
                    bindings::PERF_RECORD_LOST => self.collected.without_window("lost"),
                    _ => {}
                }
            }
        }
    }

    fn take(&mut self, sample: &Sample) {
        let Some(trace) = trace_of(sample, self.options.branches_max as usize) else {
            return self.collected.without_window("in the kernel");
        };
        let known = self.spaces.get(&sample.pid).is_some_and(|space| space.find(trace.start).is_some());
        if !known {
            let Ok(space) = AddressSpace::of_process(sample.pid) else {
                return self.collected.without_window("thread ended");
            };
            self.spaces.insert(sample.pid, space);
        }
        let space = &self.spaces[&sample.pid];
        self.collected.add_hardware((sample.tid, sample.pid, sample.time_ns), space, &trace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(branches: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = [7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat();
        bytes.extend(99u64.to_ne_bytes());
        bytes.extend((branches.len() as u64).to_ne_bytes());
        for (from, to) in branches {
            bytes.extend([from.to_ne_bytes(), to.to_ne_bytes(), 1u64.to_ne_bytes()].concat());
        }
        bytes
    }

    #[test]
    fn records_are_understood() {
        let branches = [(0x30, 0x40), (0x20, 0x28), (0x10, 0x18)];
        let expected = Sample { pid: 7, tid: 8, time_ns: 99, branches: branches.to_vec() };
        assert_eq!(sample_of(&record(&branches)), Some(expected));
        let whole = record(&branches);
        for length in 0..whole.len() {
            assert_eq!(sample_of(&whole[..length]), None, "{length} bytes");
        }
        let mut lying = record(&[]);
        lying[16..24].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(sample_of(&lying), None);
    }

    #[test]
    fn a_window_goes_from_the_oldest_target_to_the_newest() {
        let window = |branches: &[(u64, u64)], max| trace_of(&sample_of(&record(branches)).unwrap(), max);
        let trace = window(&[(0x30, 0x40), (0x20, 0x28), (0x10, 0x18)], 32).unwrap();
        assert_eq!(
            (trace.start, trace.end, &trace.transfers[..]),
            (0x18, 0x40, &[(0x20, 0x28), (0x30, 0x40)][..])
        );
        assert_eq!(trace.ended, End::Hardware);
        let shorter = window(&[(0x30, 0x40), (0x20, 0x28), (0x10, 0x18)], 1).unwrap();
        assert_eq!((shorter.start, &shorter.transfers[..]), (0x28, &[(0x30, 0x40)][..]));
        let kernel = window(&[(0x30, 0x40), (0x20, 0x28), (u64::MAX - 5, 0x18), (1, 2)], 32).unwrap();
        assert_eq!((kernel.start, &kernel.transfers[..]), (0x28, &[(0x30, 0x40)][..]));
        assert_eq!(window(&[(0, 0x40)], 32), None);
        assert_eq!(window(&[], 32), None);
    }

    #[test]
    fn a_machine_without_branch_records_says_why() {
        if let Err(reason) = probe() {
            assert!(reason.contains('('), "{reason}");
            let command = [std::ffi::OsString::from("true")];
            let options = Options { backend: super::super::Backend::Lbr, ..Options::default() };
            let refused = super::super::record(Target::Command(&command), &options, &mut |_| {});
            assert!(refused.unwrap_err().to_string().contains(&reason));
        }
    }
}
