//! The counter source `sample` on real threads of a real process.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::{CounterReading, SampleReading};
use corewise_counters::CounterSource;
use corewise_counters::sample::events::SampleError;
use corewise_counters::sample::{RATE_HZ, SampleSource};
use corewise_testing::{Capability, is_refusal, or_skip};
use nix::sched::{CpuSet as KernelMask, sched_getaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn compiled(directory: &Path) -> String {
    let program = directory.join("burners").to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/burners.c");
    let status = Command::new("cc").args(["-O2", "-pthread", "-o", &program, source]).status();
    assert!(status.expect("the C compiler runs").success());
    program
}

fn missing(error: &SampleError) -> Option<Capability> {
    match error {
        SampleError::Open { source, .. } if is_refusal(source) => Some(Capability::Perf),
        _ => None,
    }
}

fn allowed() -> CpuSet {
    let mask = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..KernelMask::count()).filter(|&pe| mask.is_set(pe) == Ok(true)).map(|pe| PeId(pe as u32)).collect()
}

/// Samples the program as the child of a shell until it ends; its thread ids by kind, and the source.
fn sampled(program: &str, output: &Path) -> Result<(HashMap<String, u32>, SampleSource), SampleError> {
    // The last command keeps the shell from executing the program in its own process.
    let script = "kill -STOP $$; exec sh -c '\"$0\"; true' \"$0\"";
    let mut shell = Command::new("sh")
        .args(["-c", script, program])
        .stdout(Stdio::from(std::fs::File::create(output).unwrap()))
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(shell.id() as i32);
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    let mut source = match SampleSource::new(shell.id(), &allowed(), RATE_HZ, None) {
        Ok(source) => source,
        Err(error) => {
            shell.kill().unwrap();
            shell.wait().unwrap();
            return Err(error);
        }
    };
    kill(pid, Signal::SIGCONT).unwrap();
    while waitpid(pid, Some(WaitPidFlag::WNOHANG)).unwrap() == WaitStatus::StillAlive {
        std::thread::sleep(Duration::from_millis(50));
        source.drain();
    }
    source.drain();
    let kinds = std::fs::read_to_string(output).unwrap();
    let kinds = kinds.lines().map(|line| line.split_once(' ').unwrap());
    Ok((kinds.map(|(kind, tid)| (kind.to_owned(), tid.parse().unwrap())).collect(), source))
}

/// LLVM's runtime (Debian: libomp-19-dev) waits in some 70 instructions a round, with calls.
#[test]
fn threads_that_wait_in_libomp_are_spinning() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("team").to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/team.c");
    let status = Command::new("clang-19").args(["-O2", "-fopenmp", "-o", &program, source]).status();
    assert!(status.expect("clang-19 runs").success(), "libomp-19-dev is installed");
    let (tids, mut source) = or_skip!(sampled(&program, &directory.path().join("output")), missing);
    let mut shares = |kind: &str| -> (f64, u64) {
        let Some(CounterReading::Sample(reading)) = source.read(tids[kind]) else { panic!("{kind}") };
        let user = reading.judged + reading.spinning + reading.unknown;
        assert!(2 * reading.yielding >= reading.spinning, "that runtime's waits yield: {reading:?}");
        (reading.spinning as f64 / user as f64, user)
    };
    let (waiting, samples) = shares("waiting");
    // What its waits call is not known to be of them (docs/spinning.md). Where others keep the PEs busy, it
    // gets little time to wait in.
    assert!(waiting > 0.3 || samples < 20, "{waiting} of {samples}");
    let (working, _) = shares("working");
    assert!(working < 0.5, "{working}");
}

#[test]
fn threads_of_one_process_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path());
    let (tids, mut source) = or_skip!(sampled(&program, &directory.path().join("output")), missing);
    let mut reading = |kind: &str| -> SampleReading {
        match source.read(tids[kind]) {
            Some(CounterReading::Sample(reading)) => reading,
            other => panic!("{kind}: {other:?}"),
        }
    };
    let (float, integer, waiting) = (reading("float"), reading("integer"), reading("waiting"));
    let (indirect, copying) = (reading("indirect"), reading("copying"));
    let share = |sum: f64, reading: &SampleReading| sum / reading.judged as f64;
    assert_eq!(waiting.yielding, 0, "it waits in code of its own: {waiting:?}");
    for burning in [&float, &integer, &indirect, &copying] {
        assert!(burning.judged > RATE_HZ / 4, "half a second of CPU time gives samples: {burning:?}");
        assert!(burning.spinning <= burning.judged / 20, "{burning:?}");
        assert!(burning.unknown <= burning.judged / 20, "{burning:?}");
    }
    assert!(share(float.fp, &float) > 0.9, "{float:?}");
    assert!(share(float.vector, &float) > 0.9, "{float:?}");
    assert!(share(integer.fp, &integer) < 0.1, "{integer:?}");
    assert!(share(integer.vector, &integer) < 0.1, "{integer:?}");
    assert!(share(indirect.fp, &indirect) > 0.8, "behind function pointers: {indirect:?}");
    assert!(
        share(copying.vector, &copying) < 0.2,
        "a repeated instruction, an addition behind it: {copying:?}"
    );
    assert!(waiting.spinning > 9 * (waiting.judged + waiting.unknown), "{waiting:?}");

    let polling = reading("polling");
    assert!(polling.spinning > 9 * (polling.judged + polling.unknown), "{polling:?}");
    // In the kernel it also leaves and enters. Without its registers it is not known to wait there.
    let yielding = reading("yielding");
    let least = if cfg!(target_arch = "x86_64") { yielding.kernel } else { 0 };
    assert!(yielding.spinning > least, "{yielding:?}");

    let on: u32 = source.ran_on(tids["float"]).values().sum();
    assert_eq!(u64::from(on), float.judged + float.spinning + float.kernel + float.unknown);
    assert!(source.ran_on(tids["float"]).is_empty(), "counts begin anew");
    assert!(source.last(tids["float"]).is_some(), "its end was seen and is reported on request");
    assert_eq!((source.last(tids["float"]), source.read(tids["float"])), (None, None));
}

#[test]
fn a_running_process_is_sampled_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path());
    let mut running = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
    let kinds = BufReader::new(running.stdout.take().unwrap());
    // All threads have announced themselves: they are running.
    let tids: HashMap<String, u32> = kinds
        .lines()
        .take(7)
        .map(|line| line.unwrap().split_once(' ').map(|(kind, tid)| (kind.to_owned(), tid.parse().unwrap())))
        .map(Option::unwrap)
        .collect();
    let source = SampleSource::attach(&[running.id()], &allowed(), RATE_HZ, None);
    running.wait().unwrap();
    let mut source = or_skip!(source, missing);
    source.drain();
    let Some(CounterReading::Sample(float)) = source.read(tids["float"]) else { panic!("no reading") };
    assert!(float.judged > 0 && float.fp > 0.9 * float.judged as f64, "{float:?}");
}
