//! Faults by chance against `corewise run`, and a look at every thread that lives on.
//!
//! `kill_campaign COREWISE BURN SEED FAULTS [KIND...]` starts runs that bind threads every few milliseconds,
//! does to each what one of [`KINDS`] says at a random moment, and looks whether a thread is narrower than
//! its cpuset once corewise and its guardian are gone. It prints how often each kind was done, and ends with
//! 1 if a thread was left narrow. Everything follows from the seed but the moment at which the machine gets
//! to it. Each run has a cpuset, a runtime directory and a session of its own; nothing outside of them is
//! touched. Needs root, the PEs 0 and 1, and cgroups with cpusets.
//!
//! Threads that pin themselves (`pin`, and `tail` by taskset) are narrow by their own wish; how many of them
//! were given more is told apart.

#[path = "campaign/cpuset.rs"]
mod cpuset;
#[path = "campaign/kinds.rs"]
mod kinds;
#[path = "campaign/round.rs"]
mod round;

use corewise_core::random::Random;
use kinds::{KINDS, Kind};
use round::{Outcome, Tools};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let usage = "usage: kill_campaign COREWISE BURN SEED FAULTS [KIND...]";
    let (corewise, burn) = (words.next().expect(usage), words.next().expect(usage));
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect(usage);
    let (seed, faults) = (number(), number());
    let chosen: Vec<String> = words.collect();
    let kinds: Vec<&Kind> = KINDS
        .iter()
        .filter(|kind| chosen.is_empty() || chosen.iter().any(|name| name == kind.name))
        .collect();
    assert!(!kinds.is_empty(), "the kinds are: {}", KINDS.map(|kind| kind.name).join(", "));
    let tools = match Tools::new(corewise, burn) {
        Ok(tools) => tools,
        Err(why) => {
            println!("no campaign here: {why}");
            return ExitCode::from(77);
        }
    };
    let mut sums: BTreeMap<&str, Outcome> = BTreeMap::new();
    let mut order = Vec::new();
    for fault in 0..faults {
        if order.is_empty() {
            order = kinds.clone();
            Random::new(seed, 1_000_000 + fault).shuffle(&mut order);
        }
        let kind = order.pop().expect("it was filled in the lines above");
        let outcome = round::carry_out(&tools, kind, Random::new(seed, fault));
        for line in &outcome.narrow {
            println!("fault {fault} ({}): {line}", kind.name);
        }
        sums.entry(kind.name).or_default().add(outcome);
    }
    report(seed, &sums)
}

fn report(seed: u64, sums: &BTreeMap<&str, Outcome>) -> ExitCode {
    let mut total = Outcome::default();
    println!(
        "{:28} {:>6} {:>6} {:>8} {:>7} {:>7}",
        "kind", "faults", "bound", "threads", "narrow", "widened"
    );
    let line = |name: &str, sum: &Outcome| {
        let Outcome { faults, bound, threads, narrow, widened } = sum;
        println!("{name:28} {faults:6} {bound:6} {threads:8} {:7} {widened:7}", narrow.len());
    };
    for (name, sum) in sums {
        line(name, sum);
        total.add(sum.clone());
    }
    line(&format!("seed {seed}: {} kinds", sums.len()), &total);
    ExitCode::from(u8::from(!total.narrow.is_empty()))
}
