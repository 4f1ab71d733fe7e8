//! `studies/compare/coverage`: how often the intervals of a comparison contain the truth, for several
//! kinds of noise and numbers of blocks, and which differences they find.

use corewise_core::comparison::{Effect, Verdict, effect, effect_on_mean};
use corewise_core::random::Random;
use corewise_core::stats::median;

/// One kind of noise: the time of a run whose undisturbed time is 1.
struct Noise {
    name: &'static str,
    time: fn(&mut Random) -> f64,
}

/// What adds to times, never takes away, has this shape.
fn exponential(random: &mut Random) -> f64 {
    -(1.0 - random.unit()).ln()
}

const NOISES: [Noise; 7] = [
    Noise { name: "normal, 2 %", time: |random| 1.0 + 0.02 * random.normal() },
    Noise { name: "skewed (exponential, 5 %)", time: |random| 1.0 + 0.05 * exponential(random) },
    Noise { name: "very skewed (its third power)", time: |random| 1.0 + 0.05 * exponential(random).powi(3) },
    Noise { name: "heavy tail (Pareto, 1.5)", time: |random| (exponential(random) / 1.5).exp() },
    Noise { name: "two states, 1 and 1.3", time: |random| if random.unit() < 0.3 { 1.3 } else { 1.0 } },
    Noise { name: "two states, 1 and 20", time: |random| if random.unit() < 0.5 { 20.0 } else { 1.0 } },
    Noise {
        name: "1 %, one in ten twice as long",
        time: |random| (1.0 + 0.01 * random.normal()) * if random.unit() < 0.1 { 2.0 } else { 1.0 },
    },
];

fn main() {
    let trials = std::env::args().nth(1).map_or(5_000, |word| word.parse::<u64>().expect("a number"));
    println!(
        "simulated: {trials} comparisons each; the true ratio is 1, then the `detectable` one of the first"
    );
    println!(
        "noise                           blocks  holds 1  difference  of mean  of either  median width   \
         found of `detectable`"
    );
    for Noise { name, time } in NOISES {
        for blocks in [6, 8, 12, 20, 40] {
            let pairs = |seed: u64, ratio: f64| -> Vec<(f64, f64)> {
                let mut random = Random::new(seed, blocks);
                (0..blocks).map(|_| (ratio * time(&mut random), time(&mut random))).collect()
            };
            let one = |seed: u64, ratio: f64| {
                let logs: Vec<f64> = pairs(seed, ratio).iter().map(|(a, b)| (a / b).ln()).collect();
                effect(&logs).expect("enough blocks")
            };
            let differs = |effect: &Effect| effect.verdict != Verdict::Unclear;
            let mean_differs =
                |seed: u64| differs(&effect_on_mean(&pairs(seed, 1.0)).expect("enough blocks"));
            let share = |effects: &[Effect], is: &dyn Fn(&&Effect) -> bool| {
                100.0 * effects.iter().filter(is).count() as f64 / trials as f64
            };
            let equal: Vec<Effect> = (0..trials).map(|seed| one(seed, 1.0)).collect();
            let holds = share(&equal, &|effect| effect.low <= 1.0 && 1.0 <= effect.high);
            let claimed = share(&equal, &|effect| effect.verdict != Verdict::Unclear);
            let of_mean: Vec<bool> = (0..trials).map(mean_differs).collect();
            let percent = |count: usize| 100.0 * count as f64 / trials as f64;
            let mean = percent(of_mean.iter().filter(|differs| **differs).count());
            let either = equal.iter().zip(&of_mean).filter(|(typical, mean)| differs(typical) || **mean);
            let either = percent(either.count());
            let of = |part: fn(&Effect) -> f64| median(&equal.iter().map(part).collect::<Vec<_>>());
            let width = of(|effect| effect.high - effect.low).unwrap_or(f64::NAN);
            let detectable = of(|effect| effect.detectable.unwrap_or(f64::NAN)).unwrap_or(f64::NAN);
            // The promise of each comparison is checked with the next seed.
            let is_kept = |(seed, promise): (u64, &Effect)| {
                let ratio = 1.0 + promise.detectable.unwrap_or(f64::NAN);
                one(seed + trials, ratio).verdict == Verdict::More
            };
            let kept = (0..trials).zip(&equal).filter(|&pair| is_kept(pair)).count();
            let found = 100.0 * kept as f64 / trials as f64;
            print!(
                "{name:<31} {blocks:>6}  {holds:>5.1} %  {claimed:>8.1} %  {mean:>5.1} %  {either:>7.1} %"
            );
            print!("  {width:>12.3}");
            println!("  {found:>5.1} % of {:+.1} %", 100.0 * detectable);
        }
    }
}
