//! Runs one of our NAS benchmarks on chosen PEs and prints its time and rate:
//!
//! ```text
//! cargo run --release -p corewise-bench --example nas -- CG A --pes 0,1
//! ```

use corewise_bench::nas;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::kernels::{Nas, ProblemClass};
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        [nas, class, "--pes", pes] => run(nas, class, pes),
        _ => Err("usage: nas CG|EP|FT|IS|MG S|W|A|B --pes LIST".into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the result was the published one.
fn run(nas: &str, class: &str, pes: &str) -> Result<bool, Box<dyn Error>> {
    let known = Nas::ALL.into_iter().find(|known| known.name() == nas);
    let nas = known.ok_or_else(|| format!("`{nas}` is none of the NAS benchmarks"))?;
    let class = match class {
        "S" => ProblemClass::S,
        "W" => ProblemClass::W,
        "A" => ProblemClass::A,
        "B" => ProblemClass::B,
        _ => return Err(format!("`{class}` is none of S, W, A, B").into()),
    };
    let pes: Vec<PeId> = pes.parse::<CpuSet>()?.iter().collect();
    let run = nas::run(nas, class, &pes)?;
    let seconds = run.elapsed.as_secs_f64();
    let mops = nas::operations(nas, class)? / seconds / 1e6;
    let result = if run.verified { "verified" } else { "WRONG" };
    println!("{} {class:?} {} threads {seconds:9.3} s {mops:9.1} Mop/s {result}", nas.name(), pes.len());
    Ok(run.verified)
}
