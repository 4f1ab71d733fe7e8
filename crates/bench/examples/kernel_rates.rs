//! What each kernel of calibration does on this machine:
//!
//! ```text
//! cargo run --release -p corewise-bench --example kernel_rates -- [WHAT]…
//!
//! kernels   each kernel's rate, operations per cycle, and the length of a chunk
//! memory    bandwidth and latency by size of region
//! pairs     two threads that meet, on PEs 0 and 1
//! ```
//!
//! Without an argument, all of them. Figures are medians of repetitions of 20 ms, with the range from the
//! first to the third quartile; on a machine with other load, the quartiles show it. Single threads
//! run on PE 0.

use corewise_bench::kernels::{Loop, Role, SharedLines, facts, prepare, vector_unit};
use corewise_core::kernels::Kernel;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const REPETITIONS: usize = 15;
const WINDOW: Duration = Duration::from_millis(20);

fn main() {
    pin(0);
    println!("measured; vector unit: {}", vector_unit().unwrap_or("none"));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    for (what, print) in [("kernels", kernels as fn()), ("memory", memory), ("pairs", pairs)] {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == what) {
            print();
        }
    }
}

/// Keeps the calling thread on a PE.
fn pin(pe: usize) {
    let mut set = CpuSet::new();
    set.set(pe).expect("the PE's number is small");
    if let Err(errno) = sched_setaffinity(Pid::from_raw(0), &set) {
        eprintln!("kernel_rates: cannot use PE {pe}: {errno}");
        std::process::exit(1);
    }
}

/// Rates in units of work per second.
struct Rates {
    median: f64,
    quartiles: (f64, f64),
    /// Time of an average chunk.
    chunk: Duration,
}

impl Rates {
    fn of(mut rates: Vec<f64>, chunk: Duration) -> Self {
        rates.sort_by(f64::total_cmp);
        let at = |share: f64| rates[((rates.len() - 1) as f64 * share).round() as usize];
        Self { median: at(0.5), quartiles: (at(0.25), at(0.75)), chunk }
    }
}

/// Runs a kernel alone.
fn measure(kernel: Kernel, region_bytes: u64) -> Option<Rates> {
    let mut made = match prepare(kernel, region_bytes, None) {
        Ok(made) => made,
        Err(error) => {
            println!("{error}");
            return None;
        }
    };
    let stop = AtomicBool::new(false);
    run(&mut *made, &stop);
    let (mut rates, mut chunks, start) = (Vec::new(), 0, Instant::now());
    for _ in 0..REPETITIONS {
        let (rate, more) = run(&mut *made, &stop);
        rates.push(rate);
        chunks += more;
    }
    Some(Rates::of(rates, start.elapsed() / chunks))
}

/// Runs chunks for a window; returns work per second, and the number of chunks.
fn run(made: &mut dyn Loop, stop: &AtomicBool) -> (f64, u32) {
    let (mut work, mut chunks, start) = (0.0, 0, Instant::now());
    while start.elapsed() < WINDOW {
        work += made.chunk(stop);
        chunks += 1;
    }
    (work / start.elapsed().as_secs_f64(), chunks)
}

fn kernels() {
    let clock = measure(Kernel::IntAddChain, 0).map_or(f64::NAN, |rates| rates.median);
    println!("\nclock by int-add-chain: {:.3} GHz\n", clock / 1e9);
    println!("kernel         unit         10⁹/s       quartiles     per cycle   chunk µs   read written op");
    for facts in facts().into_iter().filter(|facts| !facts.kernel.needs_partner()) {
        let kernel = facts.kernel;
        let region_bytes = if kernel.needs_region() { 16 << 10 } else { 0 };
        let Some(rates) = measure(kernel, region_bytes) else { continue };
        println!(
            "{:<14} {:<11} {:>7.3} {:>8.3}–{:<8.3} {:>10.3} {:>10.1} {:>6} {:>7} {:>2}",
            kernel.name(),
            kernel.unit(),
            rates.median / 1e9,
            rates.quartiles.0 / 1e9,
            rates.quartiles.1 / 1e9,
            rates.median / clock,
            rates.chunk.as_secs_f64() * 1e6,
            facts.bytes_read,
            facts.bytes_written,
            facts.operations,
        );
    }
    let timer = (0..1000).map(|_| Instant::now().elapsed()).min().unwrap_or_default();
    println!("reading the time once a chunk costs {timer:?} at least");
}

fn memory() {
    println!(
        "\nregion KiB   read GB/s   write GB/s   copy GB/s   load ns   (read's quartiles; its chunk µs)"
    );
    for shift in 12..=27 {
        let bytes = 1 << shift;
        let all = [Kernel::Read, Kernel::Write, Kernel::Copy, Kernel::LoadLatency]
            .map(|kernel| measure(kernel, bytes));
        let [Some(read), Some(write), Some(copy), Some(load)] = all else { continue };
        println!(
            "{:>10} {:>11.2} {:>12.2} {:>11.2} {:>9.2}   ({:.2}–{:.2}; {:.0})",
            bytes >> 10,
            read.median / 1e9,
            write.median / 1e9,
            copy.median / 1e9,
            1e9 / load.median,
            read.quartiles.0 / 1e9,
            read.quartiles.1 / 1e9,
            read.chunk.as_secs_f64() * 1e6,
        );
    }
}

fn pairs() {
    println!("\nkernel         unit         ns per unit   quartiles");
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.needs_partner()) {
        let rates = (0..REPETITIONS).map(|_| run_pair(kernel)).collect();
        let rates = Rates::of(rates, Duration::ZERO);
        let (low, high) = (1e9 / rates.quartiles.1, 1e9 / rates.quartiles.0);
        println!(
            "{:<14} {:<11} {:>10.1}     {low:.1}–{high:.1}",
            kernel.name(),
            kernel.unit(),
            1e9 / rates.median
        );
    }
}

/// Runs a kernel on PEs 0 and 1; returns the work of both per second.
fn run_pair(kernel: Kernel) -> f64 {
    let lines = Arc::new(SharedLines::default());
    let (stop, start) = (AtomicBool::new(false), Barrier::new(2));
    let work = |pe, role| {
        pin(pe);
        let mut made =
            prepare(kernel, 0, Some((lines.clone(), role))).expect("a pair needs nothing but lines");
        start.wait();
        let (rate, _) = run(&mut *made, &stop);
        stop.store(true, Ordering::Relaxed);
        rate
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| work(1, Role::Second));
        work(0, Role::First) + second.join().expect("it panics where this thread does")
    })
}
