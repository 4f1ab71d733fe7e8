//! Programs of many processes that live for some milliseconds: all is counted, and watching them wakes nobody
//! for each.
//!
//! One test only, as the BPF source follows all children of this process.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::CounterReading;
use corewise_counters::CounterSource;
use corewise_counters::sample::{RATE_HZ, SampleSource};
use corewise_discovery as discovery;
use corewise_discovery::{Choice, Discovery, Extent, Options, Root};
use corewise_sys::proc::Proc;
use corewise_testing::skip;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet as KernelMask, sched_getaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::process::Command;
use std::time::{Duration, Instant};

const PROCESSES: usize = 60;

fn allowed() -> CpuSet {
    let mask = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..KernelMask::count()).filter(|&pe| mask.is_set(pe) == Ok(true)).map(|pe| PeId(pe as u32)).collect()
}

/// Each uses the PE for about so long, on a fast machine as on a slow one: a clock of its own, which it has
/// where there is no BPF, ticks at least once in that time.
const PROCESS: Duration = Duration::from_millis(10);

/// A process whose program counts so far.
fn counting(to: u64) -> String {
    format!("awk 'BEGIN {{ while (i++ < {to}) x += i * .5 }}'")
}

/// How far a process counts in the time [`PROCESS`], while it has a PE.
fn counted_by_a_process() -> u64 {
    const MANY: u64 = 1_000_000;
    let used = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
        Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
    };
    let time = |_| {
        let before = used();
        assert!(Command::new("sh").args(["-c", &counting(MANY)]).status().unwrap().success());
        used() - before
    };
    let shortest = (0..3).map(time).min().unwrap();
    (MANY as f64 * PROCESS.div_duration_f64(shortest)) as u64
}

/// What became of a program's samples, and how often its watcher woke up.
struct Watched {
    /// In user code: all that the source took, and those reported with the ends of threads.
    taken: u64,
    reported: u64,
    threads_reported: usize,
    wake_ups: u32,
    time: Duration,
    source: SampleSource,
}

/// Follows short processes as corewise does, with one observation, after they have all ended.
fn watch(choice: Choice) -> Option<Watched> {
    let program = format!("for i in $(seq $0); do {}; done", counting(counted_by_a_process()));
    let own = std::process::id();
    let (roots, excluded) = (vec![Root::ChildrenOf(own)], vec![own]);
    let options = Options { roots, excluded, proc: Proc::at("/proc"), extent: Extent::Command, choice };
    let mut discovery = match discovery::open(&options) {
        Ok((discovery, _)) => discovery,
        Err(refused) if choice == Choice::Bpf && refused.to_string().contains("not permitted") => {
            skip!(Bpf, "{refused}");
        }
        Err(error) => panic!("{error}"),
    };
    let stopped = ["-c", "kill -STOP $$; exec sh -c \"$0\" \"$1\"", &program, &PROCESSES.to_string()];
    let mut shell = Command::new("sh").args(stopped).spawn().unwrap();
    let pid = Pid::from_raw(shell.id() as i32);
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    let mut source = SampleSource::new(shell.id(), &allowed(), RATE_HZ, discovery.clock_filter()).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    let started = Instant::now();
    let mut wake_ups = 0;
    while shell.try_wait().unwrap().is_none() {
        nap(&*discovery, &source, Duration::from_millis(100));
        wake_ups += 1;
        discovery.refresh().unwrap();
        source.drain();
    }
    let time = started.elapsed();
    let (reported, threads_reported) = observe(&mut *discovery, &mut source);
    Some(Watched { taken: source.cost().user_samples, reported, threads_reported, wake_ups, time, source })
}

fn nap(discovery: &dyn Discovery, source: &SampleSource, most: Duration) {
    let timeout = discovery.refresh_within().map_or(most, |within| within.min(most));
    let wakers = discovery.wake_fds().into_iter().chain(source.wake_fd());
    let mut descriptors: Vec<_> = wakers.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = PollTimeout::try_from(timeout + Duration::from_millis(1)).unwrap();
    poll(&mut descriptors, timeout).unwrap();
}

/// The user samples and the number of the threads that have readings.
fn observe(discovery: &mut dyn Discovery, source: &mut SampleSource) -> (u64, usize) {
    let facts = discovery.threads().unwrap();
    source.drain();
    assert!(facts.iter().all(|thread| thread.ended), "{facts:?}");
    let mut readings: Vec<_> = facts.iter().filter_map(|thread| source.last(thread.tid)).collect();
    readings.extend(source.unclaimed(&HashSet::new()).into_iter().map(|(_, reading)| reading));
    assert!(facts.iter().all(|thread| source.last(thread.tid).is_none()), "each is reported once");
    let user = |reading: &CounterReading| match reading {
        CounterReading::Sample(sample) => sample.judged + sample.spinning + sample.unknown,
        other => panic!("{other:?}"),
    };
    (readings.iter().map(user).sum(), readings.len())
}

#[test]
fn short_processes_are_counted_whole_without_a_wake_up_for_each() {
    for choice in [Choice::Bpf, Choice::Poll] {
        let Some(watched) = watch(choice) else { continue };
        let Watched { taken, reported, threads_reported, wake_ups, time, source } = watched;
        assert!(taken > 0, "{choice:?}: ten milliseconds of CPU time each leave samples");
        assert_eq!(reported, taken, "{choice:?}: {threads_reported} threads reported");
        let mut after = [PollFd::new(source.wake_fd().unwrap(), PollFlags::POLLIN)];
        assert_eq!(
            poll(&mut after, PollTimeout::ZERO),
            Ok(0),
            "{choice:?}: nothing wakes after the last end"
        );
        // Once for each time that news are looked for, and for full rings.
        let most = time.as_millis().div_ceil(20) as u32 + 10;
        assert!(choice == Choice::Poll || wake_ups <= most, "{wake_ups} wake-ups in {time:?}");
    }
}
