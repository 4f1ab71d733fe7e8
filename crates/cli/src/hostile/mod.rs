//! Fuzzes every reader of untrusted input: no panic, no hang, no exhaustion of memory.
//!
//! Problem: recordings, profiles, scenarios and machines come from others, and corewise may run as root.
//! Approach: valid inputs are changed at random, keeping most of their structure ([`mutate`]), and given to
//! their readers and to the code that uses the result ([`targets`]). The change depends only on a seed, so a
//! failure is identified by a name and a seed: `COREWISE_FUZZ_CASE=NAME:SEED` repeats it. The test tries the
//! same cases every time; `./dev fuzz SECONDS` continues with others for that time, starting from
//! `COREWISE_FUZZ_SEED`. A case may take 10 s of CPU time. Limits: changes are blind (not guided by
//! coverage), and valid inputs that say that they are expensive (a simulation of a year) are not run.

mod mutate;
mod targets;

use corewise_sys::clock::process_cpu_time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

pub use targets::samples;

/// The memory limit for all tests together.
const MEMORY_MAX: usize = 3 << 30;
/// The limits per case: of CPU time, so that other load does not matter, and of time, for a case that waits.
const CPU_TIME_MAX: Duration = Duration::from_secs(10);
const TIME_MAX: Duration = Duration::from_secs(60);

#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, MEMORY_MAX);

/// The running case: when it began, the CPU time of this process by then, and its name.
static RUNNING: Mutex<Option<(Instant, Duration, String)>> = Mutex::new(None);

/// Ends the process if a case does not end.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let running = RUNNING.lock().unwrap().clone();
            let Some((began, cpu_before, case)) = running else { continue };
            let (time, cpu_time) = (began.elapsed(), process_cpu_time() - cpu_before);
            if cpu_time > CPU_TIME_MAX || time > TIME_MAX {
                eprintln!("{case} takes longer than {time:.0?}, {cpu_time:.0?} of them on a PE");
                std::process::abort();
            }
        }
    });
}

/// Runs a case; returns its failure.
fn failure(target: &Target, seed: u64) -> Option<String> {
    let case = format!("COREWISE_FUZZ_CASE={}:{seed}", target.name);
    // Record the case, as it may kill the process.
    let _ = std::fs::write(std::env::temp_dir().join("corewise-fuzz-case"), &case);
    *RUNNING.lock().unwrap() = Some((Instant::now(), process_cpu_time(), case.clone()));
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(seed)));
    *RUNNING.lock().unwrap() = None;
    let panic = result.err()?;
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panics");
    Some(format!("{case}: {text}"))
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().expect("a number"))
}

/// Returns the cases to run, cycling through the targets.
fn cases() -> Box<dyn Iterator<Item = (&'static Target, u64)>> {
    if let Ok(case) = std::env::var("COREWISE_FUZZ_CASE") {
        let (name, seed) = case.split_once(':').expect("NAME:SEED");
        let target = TARGETS.iter().find(|target| target.name == name).expect("the name of a target");
        return Box::new(std::iter::once((target, seed.parse().expect("a seed"))));
    }
    let all = |seed| TARGETS.iter().map(move |target| (target, seed));
    match number("COREWISE_FUZZ_SECONDS") {
        Some(seconds) => {
            let end = Instant::now() + Duration::from_secs(seconds);
            let first = number("COREWISE_FUZZ_SEED").unwrap_or(1_000_000);
            Box::new((first..).take_while(move |_| Instant::now() < end).flat_map(all))
        }
        None => {
            let cases = TARGETS.iter().map(|target| target.cases).max().unwrap_or(0);
            Box::new((0..cases).flat_map(all).filter(|(target, seed)| *seed < target.cases))
        }
    }
}

#[test]
fn no_input_breaks_its_reader() {
    watch();
    let mut failures = Vec::new();
    let mut count = 0u64;
    for (target, seed) in cases() {
        count += 1;
        failures.extend(failure(target, seed));
        if failures.len() == 20 {
            break;
        }
    }
    eprintln!("{count} inputs, {} failures", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn sound_inputs_are_understood() {
    for target in TARGETS {
        (target.sound)().unwrap_or_else(|error| panic!("{}: {error:#}", target.name));
    }
}
