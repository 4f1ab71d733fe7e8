//! How well the simulated table agrees with the measured one.
//!
//! Three shares: figures within a factor of [`WITHIN`] of the measured ones; gains (a way's time over the
//! unchanged one) within it; and rows in which every two ways that differ by [`DIFFERENT_FROM`] or more
//! measured are in the same order. What is cut off in both tables says little, and is counted apart.

use crate::grid::programs;
use crate::parallel;
use corewise_sim::grid::{Cell, Condition, SHAPES, Way, run};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

const WITHIN: f64 = 1.5;
const DIFFERENT_FROM: f64 = 1.15;
const LIMIT: Duration = Duration::from_secs(12);
const WAYS: [Way; 4] = [Way::Unchanged, Way::Passive, Way::OneThread, Way::Corewise];

/// A row of the measured table, and what is simulated.
struct Row {
    name: String,
    copies: usize,
    measured: [f64; 4],
    simulated: [f64; 4],
}

pub fn main(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (mut runs, mut folder) = (9, None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--runs" => runs = arguments.next().ok_or("a value is missing")?.parse()?,
            path => folder = Some(path),
        }
    }
    let folder = Path::new(folder.ok_or("name the folder of the programs")?);
    let programs = programs(folder)?;
    let mut rows = measured(&std::fs::read_to_string(folder.join("measured.csv"))?)?;
    rows.retain(|row| programs.contains_key(&row.name));
    let mut cells = Vec::new();
    for row in &rows {
        let cell = Cell::new(&[&programs[&row.name]], SHAPES[0], Condition::Copies(row.copies), 1.0);
        cells.push(cell.ok_or("a scenario has no application")?.at_most(LIMIT));
    }
    let tasks: Vec<(usize, usize, u64)> = (0..rows.len())
        .flat_map(|row| (0..WAYS.len()).map(move |way| (row, way)))
        .flat_map(|(row, way)| (1..=runs).map(move |seed| (row, way, seed)))
        .collect();
    let outcomes = parallel::map(&tasks, |&(row, way, seed)| run(&cells[row], WAYS[way], seed, |_, _| {}));
    let mut outcomes = outcomes.into_iter();
    for row in &mut rows {
        for simulated in &mut row.simulated {
            let seconds: Result<Vec<f64>, _> =
                outcomes.by_ref().take(runs as usize).map(|outcome| outcome.map(|of| of.seconds)).collect();
            *simulated = median(seconds?);
        }
    }
    print(&rows);
    Ok(())
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0
}

fn measured(text: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let [name, copies, ways @ ..] = &fields[..] else { return Err("a line is short".into()) };
            let mut measured = [0.0; 4];
            for (figure, text) in measured.iter_mut().zip(ways) {
                *figure = text.trim_start_matches('>').parse()?;
            }
            Ok(Row { name: (*name).to_owned(), copies: copies.parse()?, measured, simulated: [0.0; 4] })
        })
        .collect()
}

fn is_close(simulated: f64, measured: f64) -> bool {
    (simulated / measured).max(measured / simulated) <= WITHIN
}

fn is_cut_off(seconds: f64) -> bool {
    seconds >= LIMIT.as_secs_f64() - 0.01
}

/// How often something is so.
#[derive(Default)]
struct Share(usize, usize);

impl Share {
    fn add(&mut self, holds: bool) {
        self.0 += usize::from(holds);
        self.1 += 1;
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} ({:.0} %)", self.0, self.1, 100.0 * self.0 as f64 / self.1.max(1) as f64)
    }
}

impl Row {
    /// Returns the pairs of ways that differ, measured, with whether they are in the right order.
    fn pairs(&self) -> Vec<(Way, Way, bool)> {
        let ways = || WAYS.iter().zip(self.simulated.iter().zip(&self.measured));
        let pairs = ways().flat_map(|first| ways().map(move |second| (first, second)));
        let differ = pairs.filter(|((_, (_, first)), (_, (_, second)))| **second >= DIFFERENT_FROM * **first);
        differ.map(|((first, (a, _)), (second, (b, _)))| (*first, *second, a < b)).collect()
    }
}

fn print(rows: &[Row]) {
    println!("seconds, simulated / measured, and their ratio where it is beyond {WITHIN}");
    let (mut sizes, mut informative, mut gains) = (Share::default(), Share::default(), Share::default());
    let (mut pairs, mut whole_rows) = (Share::default(), Share::default());
    for row in rows {
        let mut line = format!("{:<15} x{}", row.name, row.copies);
        for (way, (&simulated, &measured)) in row.simulated.iter().zip(&row.measured).enumerate() {
            let close = is_close(simulated, measured);
            sizes.add(close);
            if !(is_cut_off(simulated) && is_cut_off(measured)) {
                informative.add(close);
            }
            if way > 0 {
                gains.add(is_close(simulated / row.simulated[0], measured / row.measured[0]));
            }
            let ratio = if close { String::new() } else { format!(" ({:.2})", simulated / measured) };
            line += &format!("  {:>19}", format!("{simulated:.2} / {measured:.2}{ratio}"));
        }
        let of_row = row.pairs();
        of_row.iter().for_each(|(.., is_right)| pairs.add(*is_right));
        whole_rows.add(of_row.iter().all(|(.., is_right)| *is_right));
        for (faster, slower, _) in of_row.iter().filter(|(.., is_right)| !is_right) {
            line += &format!("  not {faster:?} < {slower:?}");
        }
        println!("{line}");
    }
    for (way, of) in WAYS.iter().enumerate() {
        let several = rows.iter().filter(|row| row.copies > 1);
        let known = several.filter(|row| !is_cut_off(row.simulated[way]) && !is_cut_off(row.measured[way]));
        let logs: Vec<f64> = known.map(|row| (row.simulated[way] / row.measured[way]).ln()).collect();
        let mean = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
        println!("simulated / measured, several copies, {of:?}: geometric mean {mean:.2} of {}", logs.len());
    }
    println!("figures within {WITHIN}: {sizes}; without what is cut off in both: {informative}");
    println!("gains over unchanged within {WITHIN}: {gains}");
    println!("pairs of ways in the measured order: {pairs}; rows with all pairs: {whole_rows}");
}
