//! `studies/guard/measure`: the cost of harmful policies under the guard, and the remaining gain of helpful
//! ones.

use corewise_core::stats::{median, quantile};
use corewise_sim::guarding::{FRIENDS, Foe, Outcome, against, with_friend};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A gain below this share is none.
const GAIN_MIN: f64 = 0.02;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |place: usize, other| arguments.get(place).map_or(other, |word| word.parse().expect("a number"));
    let (seeds, seconds) = (number(0, 250), number(1, 60));
    let is_wanted = |name: &str| arguments.len() < 3 || arguments[2..].iter().any(|word| word == name);
    let time = Duration::from_secs(seconds);
    println!("simulated: {seeds} seeds for each policy, {seconds} s each");
    println!("\npolicy    without guard: mean  with guard: mean    worst     reverted after: median    p95");
    let mut all = Vec::new();
    for foe in Foe::ALL.into_iter().filter(|foe| is_wanted(foe.name())) {
        let outcomes = of_seeds(seeds, |seed| against(seed, foe, time).expect("a scenario"));
        tell_foe(foe.name(), &outcomes);
        all.extend(outcomes);
    }
    tell_foe("all", &all);
    println!(
        "\npolicy    seeds that gain  gain without guard: mean  with guard: mean   kept   kept of the gains"
    );
    let mut all = Vec::new();
    for name in FRIENDS.into_iter().filter(|name| is_wanted(name)) {
        let outcomes = of_seeds(seeds, |seed| with_friend(seed, name, time).expect("a scenario"));
        tell_friend(name, &outcomes);
        all.extend(outcomes);
    }
    tell_friend("all", &all);
}

fn of_seeds(seeds: u64, run: impl Fn(u64) -> Outcome + Sync) -> Vec<Outcome> {
    let taken = AtomicU64::new(1);
    let work = || {
        let next = || Some(taken.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed <= seeds);
        std::iter::from_fn(next).map(|seed| (seed, run(seed))).collect::<Vec<_>>()
    };
    let mut outcomes: Vec<(u64, Outcome)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..std::thread::available_parallelism().map_or(1, usize::from))
            .map(|_| scope.spawn(work))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    outcomes.sort_by_key(|(seed, _)| *seed);
    if std::env::var_os("EACH").is_some() {
        outcomes.iter().for_each(|(seed, outcome)| println!("  {seed} {outcome:?}"));
    }
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    100.0 * values.sum::<f64>() / count
}

fn tell_foe(name: &str, outcomes: &[Outcome]) {
    let after: Vec<f64> =
        outcomes.iter().filter_map(|outcome| outcome.findings.taken_back_after_seconds).collect();
    let worst = outcomes.iter().map(|outcome| outcome.guarded).fold(0.0, f64::min);
    println!(
        "{name:<9} {:>19.1} % {:>15.2} % {:>6.2} % {:>19.2} s of {} {:>6.2} s",
        mean(outcomes.iter().map(|outcome| outcome.unguarded)),
        mean(outcomes.iter().map(|outcome| outcome.guarded)),
        100.0 * worst,
        median(&after).unwrap_or(f64::NAN),
        after.len(),
        quantile(&after, 0.95).unwrap_or(f64::NAN),
    );
}

fn tell_friend(name: &str, outcomes: &[Outcome]) {
    let gaining: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.unguarded >= GAIN_MIN).collect();
    let kept = gaining.iter().filter(|outcome| outcome.guarded > outcome.unguarded / 2.0).count();
    let without = mean(gaining.iter().map(|outcome| outcome.unguarded));
    let with = mean(gaining.iter().map(|outcome| outcome.guarded));
    println!(
        "{name:<9} {:>9} of {} {:>22.1} % {:>15.1} % {kept:>6} {:>15.1} %",
        gaining.len(),
        outcomes.len(),
        without,
        with,
        100.0 * with / without,
    );
}
