//! `corewise sim --fuzz`: checks the invariants on random scenarios.

use crate::parallel::in_parallel;
use anyhow::{Result, bail};
use corewise_sim::fuzz::{self, Tally};
use rayon::prelude::*;
use std::fmt::Write;
use std::num::{NonZeroU16, NonZeroUsize};
use std::panic::catch_unwind;
use std::thread;

/// The number of failing seeds that are printed; further ones are only counted.
const FAILURES_SHOWN: usize = 10;

/// A seed that failed, with the problem.
type Failure = (u64, String);

/// Consecutive seeds.
#[derive(Debug, Clone, Copy)]
pub struct Seeds {
    /// The first seed.
    pub first: u64,
    /// Their number.
    pub count: u64,
}

/// The result of several seeds.
#[derive(Debug, Default)]
struct Findings {
    steps: u64,
    events: u64,
    simulated_ns: u64,
    /// A sum, so that it does not depend on the grouping of seeds.
    fingerprint: u64,
    failures: Vec<Failure>,
}

impl Findings {
    fn and(mut self, other: Findings) -> Findings {
        self.steps += other.steps;
        self.events += other.events;
        self.simulated_ns += other.simulated_ns;
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
        self.failures.extend(other.failures);
        self
    }
}

/// Tries all seeds; the exit status is 1 if one failed.
pub fn execute(seeds: Seeds, policies: &[String], jobs: Option<NonZeroU16>) -> Result<u8> {
    let known = fuzz::policies();
    if let Some(unknown) = policies.iter().find(|policy| !known.contains(&policy.as_str())) {
        bail!("there is no policy `{unknown}`; there are: {}", known.join(", "));
    }
    let chosen: Vec<&str> = policies.iter().map(String::as_str).collect();
    let policies = if chosen.is_empty() { known } else { chosen };
    let jobs = match jobs {
        Some(jobs) => jobs.into(),
        None => thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let findings = try_all(seeds, &policies, jobs)?;
    corewise_render::terminal::print(&describe(seeds, &findings))?;
    Ok(u8::from(!findings.failures.is_empty()))
}

fn try_all(seeds: Seeds, policies: &[&str], jobs: NonZeroUsize) -> Result<Findings> {
    let one = |number: u64| {
        let seed = seeds.first.wrapping_add(number);
        try_one(seed, fuzz::policy_of(seed, policies))
    };
    let all = || (0..seeds.count).into_par_iter().map(one).reduce(Findings::default, Findings::and);
    in_parallel(jobs, all)
}

fn try_one(seed: u64, policy: &str) -> Findings {
    let failure = |problem: String| {
        let command = format!("corewise sim --fuzz 1 --seed {seed} --policy {policy}");
        let failures = vec![(seed, format!("{problem}\n  again: {command}"))];
        Findings { failures, ..Findings::default() }
    };
    match catch_unwind(|| fuzz::run(seed, policy)) {
        Ok(Ok(Tally { steps, events, simulated_ns, fingerprint })) => {
            Findings { steps, events, simulated_ns, fingerprint, failures: Vec::new() }
        }
        Ok(Err(error)) => failure(error.to_string()),
        Err(_) => failure("it panicked, see above".to_owned()),
    }
}

fn describe(seeds: Seeds, findings: &Findings) -> String {
    let mut text = String::new();
    for (seed, problem) in findings.failures.iter().take(FAILURES_SHOWN) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "seed {seed}: {problem}");
    }
    if let ([(seed, _)], 1) = (findings.failures.as_slice(), seeds.count) {
        let _ = writeln!(text, "\n{}", fuzz::scenario(*seed));
    }
    let last = seeds.first.wrapping_add(seeds.count - 1);
    let _ = writeln!(
        text,
        "simulated: seeds {} to {last}: {} failed; {} steps, {} events, {:.0} s, fingerprint {:016x}",
        seeds.first,
        findings.failures.len(),
        findings.steps,
        findings.events,
        findings.simulated_ns as f64 / 1e9,
        findings.fingerprint,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_printed_in_the_order_of_seeds_with_a_command_to_repeat_them() {
        let failures = (5..25).map(|seed| (seed, format!("broken\n  again: {seed}"))).collect();
        let text = describe(Seeds { first: 5, count: 30 }, &Findings { failures, ..Findings::default() });
        assert!(text.starts_with("seed 5: broken\n  again: 5\nseed 6: broken\n"), "{text}");
        assert!(text.contains("seed 14") && !text.contains("seed 15"), "{text}");
        assert!(text.contains("simulated: seeds 5 to 34: 20 failed;"), "{text}");
    }

    #[test]
    fn a_single_seed_that_failed_shows_its_scenario() {
        let findings = try_one(7, "no such policy");
        let text = describe(Seeds { first: 7, count: 1 }, &findings);
        assert!(text.contains("again: corewise sim --fuzz 1 --seed 7 --policy no such policy"), "{text}");
        assert!(text.contains("\nname = 'seed 7'\n") && text.contains("1 failed"), "{text}");
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let seeds = Seeds { first: 1, count: 6 };
        let printed = |jobs| {
            let jobs = NonZeroUsize::new(jobs).unwrap();
            describe(seeds, &try_all(seeds, &fuzz::policies(), jobs).unwrap())
        };
        assert_eq!(printed(1), printed(3));
        assert!(printed(1).contains("seeds 1 to 6: 0 failed"), "{}", printed(1));
    }
}
