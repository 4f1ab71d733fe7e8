//! A program of sequential and parallel phases with fixed work, as `corewise sim` simulates it: for comparing
//! a real machine with the model of it.
//!
//! `phases rate` prints how many steps of the work a PE does in a millisecond. `phases RATE ROUNDS SERIAL
//! PARALLEL THREADS` works with that rate: in each of the rounds the first thread works for SERIAL ms, then
//! each of the threads for PARALLEL ms, counted on a PE of that rate. A thread that waits sleeps. At the end
//! it prints the seconds that all took.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

fn main() {
    let words: Vec<f64> = std::env::args().skip(1).map_while(|word| word.parse().ok()).collect();
    match words.as_slice() {
        [] if std::env::args().nth(1).as_deref() == Some("rate") => println!("{:.1}", rate()),
        &[rate, rounds, serial, parallel, threads] => {
            let begin = Instant::now();
            run(rounds as usize, (serial * rate) as u64, (parallel * rate) as u64, threads as usize);
            println!("{:.6}", begin.elapsed().as_secs_f64());
        }
        _ => panic!("usage: phases rate | phases RATE ROUNDS SERIAL PARALLEL THREADS"),
    }
}

fn run(rounds: usize, serial: u64, parallel: u64, threads: usize) {
    let barrier = Barrier::new(threads);
    let thread = |master: bool| {
        for _ in 0..rounds {
            if master {
                work(serial);
            }
            barrier.wait();
            work(parallel);
            barrier.wait();
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| thread(false));
        }
        thread(true);
    });
}

/// Dependent integer operations, which need nothing that PEs share but issue slots.
fn work(steps: u64) {
    let mut x = 1u64;
    for step in 0..steps {
        x = (x ^ (x >> 13)).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(step);
    }
    black_box(x);
}

/// Steps per millisecond: the best of many short windows, as other work only slows them.
fn rate() -> f64 {
    const STEPS: u64 = 1_000_000;
    let window = |_| {
        let begin = Instant::now();
        work(black_box(STEPS));
        begin.elapsed()
    };
    let best = (0..200).map(window).min().unwrap_or(Duration::MAX);
    STEPS as f64 / (1e3 * best.as_secs_f64())
}
