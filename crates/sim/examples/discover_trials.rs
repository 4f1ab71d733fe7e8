//! The study of discovery against planted truth; `studies/discover/README.md` says how to run it.
//!
//! `discover_trials trials COUNT NOISE` prints a table per shape, for measurements with that relative noise;
//! `discover_trials one SHAPE SEED` shows one trial with 10 %. Simulated: machines, noise and seconds
//! are a model's.

use corewise_sim::bench::Conditions;
use corewise_sim::bench::trials::{SHAPES, Trial, trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["trials", count, noise] => match (count.parse(), noise.parse()) {
            (Ok(count), Ok(noise)) => trials(count, noise),
            _ => usage(),
        },
        ["one", shape, seed] => match seed.parse() {
            Ok(seed) => one(shape, seed),
            Err(_) => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: discover_trials trials COUNT NOISE | discover_trials one SHAPE SEED");
    ExitCode::from(2)
}

fn trials(count: u64, noise: f64) -> ExitCode {
    let mut done: Vec<Trial> = Vec::new();
    for seed in 1..=count {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        let trial = trial(shape, Conditions { noise, ..Conditions::default() }, seed);
        if !trial.exact {
            eprintln!("not exact: seed {seed}, {shape}, {}\n{:#?}", trial.variant, trial.found);
        }
        done.push(trial);
    }
    println!(
        "| PEs | shape | trials | exact | pairs | groups | pair equivalents | / n log2 n | repetitions \
         | simulated s | contradicted |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for shape in SHAPES {
        let of_shape: Vec<&Trial> = done.iter().filter(|trial| trial.shape == shape).collect();
        row(shape, &of_shape);
    }
    let exact = done.iter().filter(|trial| trial.exact).count();
    println!("\n{exact} of {} trials exact, noise {noise}, simulated", done.len());
    ExitCode::from(u8::from(100 * exact < 99 * done.len()))
}

/// One line of the table: means over the trials of a shape, and the largest cost against n log2 n.
fn row(shape: &str, trials: &[&Trial]) {
    let Some(first) = trials.first() else { return };
    let count = trials.len();
    let mean =
        |value: &dyn Fn(&Trial) -> f64| trials.iter().map(|trial| value(trial)).sum::<f64>() / count as f64;
    let bound = first.pes as f64 * (first.pes as f64).log2();
    let equivalents = |trial: &Trial| trial.found.discovery.pair_equivalents as f64;
    let worst = trials.iter().map(|trial| equivalents(trial)).fold(0.0, f64::max) / bound;
    println!(
        "| {} | `{shape}` | {count} | {} | {:.0} | {:.0} | {:.0} | {worst:.2} | {:.0} | {:.0} | {} |",
        first.pes,
        trials.iter().filter(|trial| trial.exact).count(),
        mean(&|trial| trial.found.discovery.pair_measurements as f64),
        mean(&|trial| trial.found.discovery.group_measurements as f64),
        mean(&equivalents),
        mean(&|trial| trial.tally.runs as f64),
        mean(&|trial| trial.seconds),
        trials.iter().filter(|trial| trial.found.discovery.contradictions > 0).count(),
    );
}

fn one(shape: &str, seed: u64) -> ExitCode {
    let trial = trial(shape, Conditions::default(), seed);
    println!("{}\n{:#?}\n{:?}", trial.variant, trial.found, trial.tally);
    println!("{} PEs, exact: {}, {:.0} simulated seconds", trial.pes, trial.exact, trial.seconds);
    ExitCode::from(u8::from(!trial.exact))
}
