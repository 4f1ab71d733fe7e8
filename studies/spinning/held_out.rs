//! Waits in Rust: held_out_rs spin|yielding|channel. The waiting thread's share is printed as the C programs
//! do.
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// CPU time of the calling thread, in seconds.
fn cpu() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
/// CPU time of the process, in seconds.
fn process_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_ascii_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}
fn tell(waited: f64) {
    let Ok(path) = std::env::var("TRUTH") else { return };
    let tid = std::fs::read_link("/proc/thread-self").unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    writeln!(file, "{} {waited:.6} {:.6}", tid.file_name().unwrap().display(), cpu()).unwrap();
}
#[inline(never)]
fn work(n: u64) -> f64 {
    (0..n).fold(std::hint::black_box(1.0), |x, _| x * 1.0000001 + 0.5)
}
fn main() {
    let kind = std::env::args().nth(1).unwrap_or_default();
    let (done, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (ended, seen) = (done.clone(), made.clone());
    let waiter = std::thread::spawn(move || {
        let (mut last, mut waited) = (0, 0.0);
        while !ended.load(Relaxed) {
            let began = cpu();
            let mut step = 0;
            while seen.load(Acquire) == last && !ended.load(Relaxed) {
                match kind.as_str() {
                    "spin" => std::hint::spin_loop(),
                    "backoff" => {
                        // As crossbeam's Backoff::spin.
                        for _ in 0..1 << step.min(6) {
                            std::hint::spin_loop();
                        }
                        step = (step + 1).min(7);
                    }
                    _ => {}
                }
            }
            waited += cpu() - began;
            last = seen.load(Acquire);
            std::hint::black_box(work(200_000));
        }
        tell(waited);
    });
    while process_cpu() < 1.5 {
        std::hint::black_box(work(1_500_000));
        made.fetch_add(1, Release);
    }
    done.store(true, Relaxed);
    waiter.join().unwrap();
    tell(0.0);
}
