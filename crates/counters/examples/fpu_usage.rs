//! Runs a command under the counter source `sample` and prints what it says of each thread, as tab-separated
//! values: `fpu_usage [--seconds CPU_SECONDS] [--rate HZ] -- COMMAND [ARGS]`. The command is killed after
//! that much CPU time. Used by `studies/fpu-usage`.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::{CounterReading, SampleReading};
use corewise_counters::CounterSource;
use corewise_counters::sample::{RATE_HZ, SampleSource};
use nix::sched::{CpuSet as KernelMask, sched_getaffinity};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

struct Options {
    seconds: f64,
    rate_hz: u64,
    command: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = parse(std::env::args().skip(1))?;
    let pid = start_stopped(&options.command)?;
    let mut source = SampleSource::new(pid.as_raw() as u32, &allowed()?, options.rate_hz, None)?;
    kill(pid, Signal::SIGCONT)?;
    let mut judging = Duration::ZERO;
    let ended = loop {
        std::thread::sleep(Duration::from_millis(100));
        let began = cpu_time()?;
        source.drain();
        judging += cpu_time()? - began;
        if waitpid(pid, Some(WaitPidFlag::WNOHANG))? != WaitStatus::StillAlive {
            break true;
        }
        let samples: u64 = readings(&mut source).iter().map(|(_, reading)| count(reading)).sum();
        if samples as f64 > options.seconds * options.rate_hz as f64 {
            break false;
        }
    };
    source.drain();
    if !ended {
        killpg(pid, Signal::SIGKILL)?;
        waitpid(pid, None)?;
    }
    print(&mut source, options.rate_hz, judging);
    Ok(())
}

/// CPU time of this thread: unlike the wall clock, no matter how busy the machine is.
fn cpu_time() -> nix::Result<Duration> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?))
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let mut options = Options { seconds: f64::INFINITY, rate_hz: RATE_HZ, command: Vec::new() };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => options.seconds = arguments.next().ok_or("--seconds needs a number")?.parse()?,
            "--rate" => options.rate_hz = arguments.next().ok_or("--rate needs a number")?.parse()?,
            "--" => break,
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    options.command = arguments.collect();
    if options.command.is_empty() {
        return Err("usage: fpu_usage [--seconds S] [--rate HZ] -- COMMAND [ARGS]".into());
    }
    Ok(options)
}

/// Starts a shell in a process group of its own that stops itself and, once continued, becomes the command.
fn start_stopped(command: &[String]) -> Result<Pid, Box<dyn Error>> {
    let child = Command::new("sh")
        .args(["-c", "kill -STOP $$; exec \"$@\"", "sh"])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pid = Pid::from_raw(child.id() as i32);
    waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
    Ok(pid)
}

fn allowed() -> Result<CpuSet, Box<dyn Error>> {
    let mask = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..KernelMask::count()).filter(|&pe| mask.is_set(pe) == Ok(true)).map(|pe| PeId(pe as u32)).collect())
}

fn readings(source: &mut SampleSource) -> Vec<(u32, SampleReading)> {
    let reading = |source: &mut SampleSource, tid| match source.read(tid) {
        Some(CounterReading::Sample(reading)) => Some((tid, reading)),
        _ => None,
    };
    source.tids().into_iter().filter_map(|tid| reading(source, tid)).collect()
}

fn count(reading: &SampleReading) -> u64 {
    reading.judged + reading.spinning + reading.kernel + reading.unknown
}

/// One line per thread, the busiest first, and a line `all`; then what it cost.
fn print(source: &mut SampleSource, rate_hz: u64, judging: Duration) {
    let mut threads = readings(source);
    threads.sort_by_key(|(_, reading)| std::cmp::Reverse(count(reading)));
    let all = threads.iter().fold(SampleReading::default(), |sum, (_, thread)| SampleReading {
        judged: sum.judged + thread.judged,
        spinning: sum.spinning + thread.spinning,
        yielding: sum.yielding + thread.yielding,
        kernel: sum.kernel + thread.kernel,
        unknown: sum.unknown + thread.unknown,
        unseen: sum.unseen + thread.unseen,
        fp: sum.fp + thread.fp,
        vector: sum.vector + thread.vector,
        memory: sum.memory + thread.memory,
        branches: sum.branches + thread.branches,
    });
    println!("thread\tcpu_s\tjudged\tfp\tvector\tmemory\tbranches\tspinning\tkernel\tunknown\tunseen");
    let lines = threads.iter().map(|(tid, reading)| (tid.to_string(), reading));
    for (name, reading) in std::iter::once(("all".to_owned(), &all)).chain(lines) {
        let samples = count(reading).max(1) as f64;
        let judged = reading.judged.max(1) as f64;
        println!(
            "{name}\t{:.2}\t{}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}",
            samples / rate_hz as f64,
            reading.judged,
            reading.fp / judged,
            reading.vector / judged,
            reading.memory / judged,
            reading.branches / judged,
            reading.spinning as f64 / samples,
            reading.kernel as f64 / samples,
            reading.unknown as f64 / samples,
            reading.unseen / judged,
        );
    }
    let cost = source.cost();
    eprintln!(
        "{} user samples, {} at instructions not judged before; {:.0} ns per sample in drain; notes: {:?}",
        cost.user_samples,
        cost.judged_anew,
        judging.as_nanos() as f64 / count(&all).max(1) as f64,
        source.notes()
    );
}
