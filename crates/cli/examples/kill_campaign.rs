//! Faults by chance against `corewise run`, and a look at every thread that lives on.
//!
//! `kill_campaign COREWISE BURN SEED FAULTS [KIND...]` starts runs that bind threads every few milliseconds,
//! lower spin counts, or let programs take turns. It does to each what one of [`kinds`] says at a random
//! moment, and looks once corewise and its guardian are gone whether a thread is narrower than its cpuset,
//! `SCHED_IDLE` or not at nice level 0, a spin count is not the program's own, a session is not at its own
//! nice level, or memory was written that is no longer a library's. It prints how often each kind was done
//! and found something changed, and ends with 1 if anything was left so. A KIND may end with `*`: all whose
//! names begin so. FAULTS is a number, or two with a dash: `55-57` does only these of the faults that follow
//! from the seed. Everything follows from it but the moment at which the machine gets to it. Each run has
//! a cpuset, a runtime directory and a session of its own; nothing outside of them is touched, but by
//! kinds that are done only where they are named. Needs root, the PEs 0 and 1, and cgroups with cpusets.
//!
//! Threads that pin themselves (`pin`, and `tail` by taskset) are narrow by their own wish; how many of them
//! were widened is counted apart.

#[path = "campaign/changes.rs"]
mod changes;
#[path = "campaign/cpuset.rs"]
mod cpuset;
#[path = "campaign/freezer.rs"]
mod freezer;
#[path = "campaign/kinds.rs"]
mod kinds;
#[path = "campaign/program.rs"]
mod program;
#[path = "campaign/round.rs"]
mod round;
#[path = "campaign/still.rs"]
mod still;

use corewise_core::random::Random;
use kinds::Kind;
use round::{Outcome, Tools};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let usage = "usage: kill_campaign COREWISE BURN SEED FAULTS [KIND...]";
    let (corewise, burn) = (words.next().expect(usage), words.next().expect(usage));
    let seed: u64 = words.next().and_then(|word| word.parse().ok()).expect(usage);
    let faults = words.next().and_then(|word| range(&word)).expect(usage);
    let chosen: Vec<String> = words.collect();
    let is_chosen = |kind: &Kind| match chosen.is_empty() {
        true => !kind.touches_others,
        false => chosen.iter().any(|name| match name.strip_suffix('*') {
            Some(beginning) => kind.name.starts_with(beginning) && !kind.touches_others,
            None => name == kind.name,
        }),
    };
    let (kinds, others): (Vec<&Kind>, Vec<&Kind>) =
        kinds::all().partition(|kind| is_chosen(kind) && kind.why_not().is_none());
    let names: Vec<&str> = kinds::all().map(|kind| kind.name).collect();
    assert!(!kinds.is_empty(), "the kinds are: {}", names.join(", "));
    let tools = match Tools::new(corewise, burn) {
        Ok(tools) => tools,
        Err(why) => {
            println!("no campaign here: {why}");
            return ExitCode::from(77);
        }
    };
    let mut sums: BTreeMap<&str, Outcome> = BTreeMap::new();
    for fault in faults {
        let kind = kind_of(seed, fault, &kinds);
        let outcome = round::carry_out(&tools, kind, Random::new(seed, fault));
        for line in &outcome.left {
            println!("fault {fault} ({}): {line}", kind.name);
        }
        sums.entry(kind.name).or_default().add(outcome);
    }
    for kind in others.into_iter().filter(|kind| kind.touches_others) {
        let why = kind.why_not().unwrap_or("done only if it is named, as it touches others".to_owned());
        println!("{:36} {why}", kind.name);
    }
    report(seed, &sums)
}

fn range(text: &str) -> Option<std::ops::Range<u64>> {
    match text.split_once('-') {
        Some((first, last)) => Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1),
        None => Some(0..text.parse().ok()?),
    }
}

/// Each kind comes once before one comes again.
fn kind_of<'a>(seed: u64, fault: u64, kinds: &[&'a Kind]) -> &'a Kind {
    let place = fault % kinds.len() as u64;
    let mut order = kinds.to_vec();
    Random::new(seed, 1_000_000 + fault - place).shuffle(&mut order);
    order[place as usize]
}

fn report(seed: u64, sums: &BTreeMap<&str, Outcome>) -> ExitCode {
    let mut total = Outcome::default();
    println!(
        "{:36} {:>6} {:>7} {:>8} {:>5} {:>5} {:>7}",
        "kind", "faults", "changed", "threads", "left", "said", "widened"
    );
    let line = |name: &str, sum: &Outcome| {
        let Outcome { faults, changed, threads, left, said, widened } = sum;
        println!("{name:36} {faults:6} {changed:7} {threads:8} {:5} {said:5} {widened:7}", left.len());
    };
    for (name, sum) in sums {
        line(name, sum);
        total.add(sum.clone());
    }
    line(&format!("seed {seed}: {} kinds", sums.len()), &total);
    ExitCode::from(u8::from(!total.left.is_empty()))
}
