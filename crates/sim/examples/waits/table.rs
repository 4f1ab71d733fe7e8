//! The table of copies of one program: the median over the seeds, with the smallest and the largest time.
//!
//! With `--pes` the machine has one cache and so many PEs. What is cut off by `stop.time` counts as that and
//! is marked by `>`. The last column is how many spin counts and turns corewise changed a run.

use crate::grid::counts;
use crate::parallel;
use corewise_sim::grid::{Cell, Condition, SHAPES, Way, run};
use corewise_sim::scenario::Scenario;
use std::error::Error;

const WAYS: [Way; 4] = [Way::Unchanged, Way::Passive, Way::OneThread, Way::Corewise];

struct Options {
    pes: usize,
    copies: Vec<usize>,
    runs: Option<u32>,
    files: Vec<String>,
}

pub fn main(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let options = options(arguments)?;
    let shape = SHAPES.iter().find(|shape| shape.pes == options.pes);
    let shape = shape.ok_or("there is no machine with so many PEs")?;
    println!("| program | copies | unchanged | passive | one thread each | corewise | changes a run |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for file in &options.files {
        let scenario = Scenario::parse(&std::fs::read_to_string(file)?)?;
        for &copies in &options.copies {
            let cell = Cell::new(&[&scenario], *shape, Condition::Copies(copies), 1.0);
            line(&cell.ok_or("it has no application")?, copies, options.runs.unwrap_or(scenario.runs))?;
        }
    }
    Ok(())
}

fn options(arguments: &[String]) -> Result<Options, Box<dyn Error>> {
    let mut options = Options { pes: 2, copies: vec![1, 2, 4], runs: None, files: Vec::new() };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--pes" => options.pes = value()?.parse()?,
            "--runs" => options.runs = Some(value()?.parse()?),
            "--copies" => options.copies = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            _ => options.files.push(argument.clone()),
        }
    }
    Ok(options)
}

fn line(cell: &Cell, copies: usize, runs: u32) -> Result<(), Box<dyn Error>> {
    let tasks: Vec<(Way, u64)> =
        WAYS.iter().flat_map(|&way| (1..=u64::from(runs)).map(move |seed| (way, seed))).collect();
    let mut outcomes = parallel::map(&tasks, |&(way, seed)| run(cell, way, seed, |_, _| {})).into_iter();
    let (mut cells, mut changes) = (Vec::new(), String::new());
    for _ in WAYS {
        let (mut seconds, mut sums) = (Vec::new(), [0.0; 2]);
        for outcome in outcomes.by_ref().take(runs as usize) {
            let outcome = outcome?;
            seconds.push(outcome.seconds);
            sums.iter_mut().zip(counts(&outcome)).for_each(|(sum, count)| *sum += count / f64::from(runs));
        }
        cells.push(words(seconds, cell.limit().as_secs_f64()));
        changes = format!("{:.1} spin counts, {:.1} turns", sums[0], sums[1]);
    }
    println!("| `{}` | {copies} | {} | {changes} |", cell.programs.join("+"), cells.join(" | "));
    Ok(())
}

fn words(mut seconds: Vec<f64>, limit: f64) -> String {
    seconds.sort_by(f64::total_cmp);
    let (least, most) = (seconds[0], seconds[seconds.len() - 1]);
    let median = (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0;
    let mark = if seconds[seconds.len() / 2] >= limit { "> " } else { "" };
    format!("{mark}{median:.2} ({least:.2} to {most:.2})")
}
