//! Makes a PE slower, as an emulated asymmetric machine needs it, and measures whether the executor sees it:
//!
//! ```text
//! slow_pe --pe 1 --share 0.5 --period 2ms [--reference 0] -- 10s
//! ```
//!
//! A real-time thread, bound to the PE, takes the share of each period; everything else on the PE gets the
//! rest. Its own CPU time shows how much it really took. With `--reference` the speed of the PE relative
//! to the reference is measured meanwhile, with both at work, and printed beside the planted one; without,
//! the PE is only held, for instance while `corewise calibrate` runs. Needs the right to real-time
//! scheduling.

use corewise_bench::executor::{LiveExecutor, Options};
use corewise_core::calibrate::{Executor, Task};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::kernels::Kernel;
use corewise_core::stats::quantile;
use corewise_core::time::parse_duration;
use corewise_sys::affinity;
use corewise_sys::real_time::RealTime;
use corewise_sys::signals;
use nix::errno::Errno;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The window of a repetition.
const WINDOW: Duration = Duration::from_millis(20);

/// Above all real-time threads that the executor may use.
const PRIORITY: i32 = 10;

struct Arguments {
    pe: PeId,
    share: f64,
    period: Duration,
    reference: Option<PeId>,
    length: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = parse(std::env::args().skip(1))?;
    let interrupted = signals::asked_to_end()?;
    let stop = Arc::new(AtomicBool::new(false));
    let taken_ns = Arc::new(AtomicU64::new(0));
    let hold = {
        let (stop, taken_ns) = (Arc::clone(&stop), Arc::clone(&taken_ns));
        let Arguments { pe, share, period, .. } = arguments;
        std::thread::spawn(move || hold(pe, share, period, &taken_ns, &stop))
    };
    let measured = match arguments.reference {
        Some(reference) => measure(&arguments, reference, &interrupted, &taken_ns),
        None => {
            let until = Instant::now() + arguments.length;
            while Instant::now() < until && !interrupted.load(Ordering::Relaxed) && !hold.is_finished() {
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }
    };
    stop.store(true, Ordering::Relaxed);
    let share = hold.join().expect("the holding thread does not panic")?;
    println!("taken over all the time: {share:.4} of PE {}", arguments.pe);
    measured
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments {
        pe: PeId(1),
        share: 0.5,
        period: Duration::from_millis(2),
        reference: None,
        length: Duration::from_secs(10),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--pe" => arguments.pe = PeId(value()?.parse()?),
            "--share" => arguments.share = value()?.parse()?,
            "--period" => arguments.period = parse_duration(&value()?)?,
            "--reference" => arguments.reference = Some(PeId(value()?.parse()?)),
            "--" => arguments.length = parse_duration(&value()?)?,
            other => return Err(format!("slow_pe does not know {other}; see its source").into()),
        }
    }
    // More would be cut by the kernel's throttling of real-time threads.
    if !(0.0..=0.9).contains(&arguments.share) {
        return Err("the share must be within 0 and 0.9".into());
    }
    Ok(arguments)
}

/// Takes the share of each period until it has to stop. Returns the share that it took.
fn hold(
    pe: PeId,
    share: f64,
    period: Duration,
    taken_ns: &AtomicU64,
    stop: &AtomicBool,
) -> Result<f64, Errno> {
    affinity::bind_self(pe)?;
    let _real_time = RealTime::enter(PRIORITY)?;
    let (begin, before) = (Instant::now(), cpu_time()?);
    let mut wake = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    while !stop.load(Ordering::Relaxed) {
        let until = cpu_time()? + period.mul_f64(share);
        let mut now = cpu_time()?;
        while now < until {
            for _ in 0..8 {
                std::hint::spin_loop();
            }
            now = cpu_time()?;
        }
        taken_ns.store((now - before).as_nanos() as u64, Ordering::Relaxed);
        // Absolute, so that a late waking does not move the ones after it.
        wake += period;
        let flags = ClockNanosleepFlags::TIMER_ABSTIME;
        clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &wake.into())?;
    }
    Ok((cpu_time()? - before).div_duration_f64(begin.elapsed()))
}

/// CPU time of this thread.
fn cpu_time() -> Result<Duration, Errno> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?))
}

/// Measures the speed of the slow PE by that of the reference, kernel by kernel.
fn measure(
    arguments: &Arguments,
    reference: PeId,
    interrupted: &Arc<AtomicBool>,
    taken_ns: &AtomicU64,
) -> Result<(), Box<dyn Error>> {
    let mut executor = LiveExecutor::open(Options {
        pes: Some([arguments.pe, reference].into_iter().collect::<CpuSet>()),
        under_load: true,
        // Below the thread that holds the PE, above everybody else's work.
        realtime: true,
        interrupted: Arc::clone(interrupted),
        ..Options::default()
    })?;
    let kernels = [Kernel::IntAdd, Kernel::FpAdd];
    for kernel in kernels {
        let (begin, before) = (Instant::now(), taken_ns.load(Ordering::Relaxed));
        let (mut ratios, mut lost, mut elapsed) = (Vec::new(), [0.0; 2], 0.0);
        let mut rates = [0.0; 2];
        while begin.elapsed() < arguments.length / kernels.len() as u32 && !executor.interrupted() {
            let tasks = [Task::new(arguments.pe, kernel, 0), Task::new(reference, kernel, 0)];
            let runs = executor.run(&tasks, WINDOW)?.runs;
            ratios.push(runs[0].rate() / runs[1].rate());
            for (index, run) in runs.iter().enumerate() {
                rates[index] += run.rate();
                lost[index] += run.lost.as_secs_f64();
            }
            elapsed += runs[0].elapsed.as_secs_f64();
        }
        let taken = Duration::from_nanos(taken_ns.load(Ordering::Relaxed) - before);
        let planted = 1.0 - taken.div_duration_f64(begin.elapsed());
        let at = |q| quantile(&ratios, q).unwrap_or(f64::NAN);
        println!(
            "{:8} emulated: planted {planted:.4}, median of {} windows {:.4} ({:.4} to {:.4}), of mean rates \
             {:.4}; lost {:.3} of PE {}, {:.3} of PE {reference}",
            kernel.name(),
            ratios.len(),
            at(0.5),
            at(0.05),
            at(0.95),
            rates[0] / rates[1],
            lost[0] / elapsed,
            arguments.pe,
            lost[1] / elapsed,
        );
    }
    Ok(())
}
