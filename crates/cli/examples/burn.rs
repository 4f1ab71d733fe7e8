//! A program whose threads have known needs, for trying and testing corewise.
//!
//! `burn SECONDS WHAT...` starts one thread for each WHAT: `fp` (floating-point arithmetic), `int` (integer
//! arithmetic), `spin` (busy-waiting), `sleep`, `pin` (integer arithmetic, pinned by itself to the last
//! PE), `spawner` (floating-point arithmetic; after half the time it starts a thread that sleeps), `churn`
//! (starts one `fp` thread after the other, each for a short time), `forker` (floating-point arithmetic;
//! again and again it starts a process that leaves another one behind), `shell` (floating-point arithmetic;
//! again and again it runs `sh -c "$BURN_SCRIPT"`). These two start nothing before the file `$BURN_AFTER`
//! exists, if that is set. A number and a star repeat: `8*fp`.
//! Each thread uses SECONDS of CPU time, however busy the machine is; `sleep` and `churn` last so long. At
//! the end it prints each thread's name and the PEs it may use.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::hint::{black_box, spin_loop};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

static FOREVER: AtomicBool = AtomicBool::new(true);

fn main() {
    let mut words = std::env::args().skip(1);
    let seconds: f64 = words.next().and_then(|word| word.parse().ok()).expect("usage: burn SECONDS WHAT...");
    let seconds = Duration::from_secs_f64(seconds);
    let mut threads = Vec::new();
    for word in words {
        let (count, what) = word.split_once('*').unwrap_or(("1", &word));
        for _ in 0..count.parse().expect("a number before the star") {
            threads.push(start(what, seconds));
        }
    }
    for thread in threads {
        println!("{}", thread.join().expect("the thread does not panic"));
    }
}

/// Starts a thread; it returns its name and mask.
fn start(what: &str, seconds: Duration) -> JoinHandle<String> {
    let name = what.to_owned();
    let work = move || {
        let mut child = None;
        match name.as_str() {
            "fp" => burn_fp(seconds),
            "int" => burn_int(seconds),
            "spin" => spin(seconds),
            "sleep" => sleep(seconds),
            "pin" => {
                pin();
                burn_int(seconds);
            }
            "spawner" => {
                burn_fp(seconds / 2);
                child = Some(start("sleep", seconds));
                burn_fp(seconds);
            }
            "churn" => churn(seconds),
            "forker" => fork(seconds, "sleep 2 &"),
            "shell" => fork(seconds, &std::env::var("BURN_SCRIPT").expect("BURN_SCRIPT is set")),
            other => panic!("`{other}` is none of fp, int, spin, sleep, pin, spawner, churn, forker, shell"),
        }
        let child = child.map(|child| "\n".to_owned() + &child.join().expect("the thread does not panic"));
        format!("{name} {}{}", mask(), child.unwrap_or_default())
    };
    Builder::new().name(what.to_owned()).spawn(work).expect("a thread can be started")
}

/// CPU time that this thread has used.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux counts CPU time").into()
}

fn burn_fp(until: Duration) {
    let mut x = [1.0f64, 1.1, 1.2, 1.3];
    while used() < until {
        for _ in 0..200_000 {
            for value in &mut x {
                *value = *value * 0.999_999 + 1e-6;
            }
        }
        black_box(&mut x);
    }
}

fn burn_int(until: Duration) {
    let mut x = [1u64, 2, 3, 4];
    while used() < until {
        for _ in 0..200_000 {
            for value in &mut x {
                // Rotations keep the compiler from turning this into SIMD.
                *value = value.rotate_left(7) ^ (*value >> 3).wrapping_add(black_box(0x9e37));
            }
        }
        black_box(&mut x);
    }
}

fn spin(until: Duration) {
    while used() < until {
        for _ in 0..1_000_000 {
            if !FOREVER.load(Ordering::Relaxed) {
                return;
            }
            spin_loop();
        }
    }
}

/// Short lives around the time after which a thread is judged, so that some end while they are being bound.
fn churn(until: Duration) {
    let started = Instant::now();
    for round in 0.. {
        if started.elapsed() >= until {
            return;
        }
        let brief = start("fp", Duration::from_millis(60 + 35 * (round % 7)));
        brief.join().expect("the thread does not panic");
    }
}

/// The shell ends at once and leaves what the script starts, which has inherited this thread's PEs.
fn fork(until: Duration, script: &str) {
    let start = std::env::var_os("BURN_AFTER").map(PathBuf::from);
    while used() < until && start.as_ref().is_some_and(|file| !file.exists()) {
        burn_fp(used() + Duration::from_millis(5));
    }
    while used() < until {
        burn_fp(used() + Duration::from_millis(40));
        Command::new("sh").args(["-c", script]).status().expect("a shell can be started");
    }
}

fn pin() {
    let last =
        (0..CpuSet::count()).rfind(|&pe| mask_set().is_set(pe).unwrap_or(false)).expect("one PE is allowed");
    let mut set = CpuSet::new();
    set.set(last).expect("the PE is within the set");
    sched_setaffinity(Pid::from_raw(0), &set).expect("a thread may narrow itself");
}

fn mask_set() -> CpuSet {
    sched_getaffinity(Pid::from_raw(0)).expect("a thread knows its own mask")
}

fn mask() -> String {
    let set = mask_set();
    let pes: Vec<String> =
        (0..CpuSet::count()).filter(|&pe| set.is_set(pe).unwrap_or(false)).map(|pe| pe.to_string()).collect();
    pes.join(",")
}
