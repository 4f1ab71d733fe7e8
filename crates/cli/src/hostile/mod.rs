//! Every reader of an input, given what anybody could write: no panic, no hang, no end of memory.
//!
//! Problem: recordings, profiles, scenarios and machines come from others, and corewise may be root.
//! Approach: sound inputs are changed by chance, most of their structure kept ([`mutate`]), and given to what
//! reads them, and to what is made of them then ([`targets`]). A seed fixes the change, so a failure is a
//! name and a seed: `COREWISE_FUZZ_CASE=NAME:SEED` repeats it. The test tries the same cases every time;
//! `./dev fuzz SECONDS` goes on to others for as long as is wished, from `COREWISE_FUZZ_SEED` on. Limits:
//! changes are blind (no coverage guides them), and what a sound but hostile input asks for (a simulation of
//! a year) is not run.

mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

/// No case may need more memory than this, all other tests together included.
const MEMORY_MAX: usize = 3 << 30;
/// Nor more time, on a machine that does much else.
const TIME_MAX: Duration = Duration::from_secs(60);

#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, MEMORY_MAX);

/// The case that runs now: since when, and which.
static RUNNING: Mutex<Option<(Instant, String)>> = Mutex::new(None);

/// Ends everything if a case never ends.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let running = RUNNING.lock().unwrap().clone();
            if let Some((since, case)) = running.filter(|(since, _)| since.elapsed() > TIME_MAX) {
                eprintln!("{case} takes longer than {} s", since.elapsed().as_secs());
                std::process::abort();
            }
        }
    });
}

/// Runs a case; how it failed.
fn failure(target: &Target, seed: u64) -> Option<String> {
    let case = format!("COREWISE_FUZZ_CASE={}:{seed}", target.name);
    // For the case that nothing can be told afterwards.
    let _ = std::fs::write(std::env::temp_dir().join("corewise-fuzz-case"), &case);
    *RUNNING.lock().unwrap() = Some((Instant::now(), case.clone()));
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

/// The cases to run, one of each target in turn.
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
