//! The table of the grid: where corewise gains and where it loses.

use crate::cells::{Programs, cells};
use crate::parallel;
use corewise_core::observe::Event;
use corewise_core::observe::Input;
use corewise_core::plan::{Action, SettingKind};
use corewise_sim::grid::{Cell, Outcome, Way, run};
use corewise_sim::scenario::Scenario;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

/// The share by which corewise may take longer than unchanged programs before the cell is listed as a loss.
const LOSS_MIN: f64 = 0.05;

/// With one thread each, larger machines take so long that it is never the best choice.
const ONE_THREAD_PES_MAX: usize = 8;

#[derive(Default)]
struct Options {
    is_quick: bool,
    only: Option<String>,
    seeds: Option<u64>,
    unchanged: Option<PathBuf>,
    trace: bool,
    folder: Option<PathBuf>,
}

/// The times of a cell, by way, in seconds, sorted; and what corewise changed.
struct Line<'a> {
    cell: &'a Cell,
    seconds: BTreeMap<Way, Vec<f64>>,
    /// Changed spin counts and turns a run.
    changes: [f64; 2],
}

pub fn main(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let options = options(arguments)?;
    let programs = programs(options.folder.as_deref().ok_or("name the folder of the programs")?)?;
    let mut cells = cells(&programs, options.is_quick)?;
    if let Some(pattern) = &options.only {
        cells.retain(|cell| is_meant(&cell.to_string(), pattern));
    }
    let seeds = options.seeds.unwrap_or(if options.is_quick { 3 } else { 5 });
    if options.trace {
        return trace(&cells, options.seeds.unwrap_or(1));
    }
    let mut known = options.unchanged.as_deref().map(Known::read).unwrap_or_default();
    let tasks: Vec<(&Cell, Way, u64)> = cells
        .iter()
        .flat_map(|cell| ways(cell).into_iter().map(move |way| (cell, way)))
        .flat_map(|(cell, way)| (1..=seeds).map(move |seed| (cell, way, seed)))
        .collect();
    let new: Vec<_> = tasks.iter().copied().filter(|task| !known.has(*task)).collect();
    let outcomes = parallel::map(&new, |&(cell, way, seed)| run(cell, way, seed, |_, _| {}));
    let mut changes: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (task, outcome) in new.into_iter().zip(outcomes) {
        let outcome = outcome?;
        known.note(task, outcome.seconds);
        if task.1 == Way::Corewise {
            let sums = changes.entry(task.0.to_string()).or_default();
            for (sum, count) in sums.iter_mut().zip(counts(&outcome)) {
                *sum += count / seeds as f64;
            }
        }
    }
    if let Some(file) = &options.unchanged {
        known.write(file)?;
    }
    let lines: Vec<Line> = cells
        .iter()
        .map(|cell| Line {
            cell,
            seconds: known.times(cell, seeds),
            changes: changes.get(&cell.to_string()).copied().unwrap_or_default(),
        })
        .collect();
    print(&lines, seeds);
    Ok(())
}

fn options(arguments: &[String]) -> Result<Options, Box<dyn Error>> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--quick" => options.is_quick = true,
            "--trace" => options.trace = true,
            "--only" => options.only = Some(value()?.clone()),
            "--seeds" => options.seeds = Some(value()?.parse()?),
            "--unchanged" => options.unchanged = Some(value()?.into()),
            folder => options.folder = Some(folder.into()),
        }
    }
    Ok(options)
}

/// Reads all programs of a folder.
pub fn programs(folder: &Path) -> Result<Programs, Box<dyn Error>> {
    let mut programs = Programs::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let scenario = Scenario::parse(&std::fs::read_to_string(&path)?)?;
            programs.insert(scenario.name.clone(), scenario);
        }
    }
    Ok(programs)
}

/// Returns whether a name holds all words of a pattern.
fn is_meant(name: &str, pattern: &str) -> bool {
    pattern.split_whitespace().all(|word| name.split_whitespace().any(|of| of == word))
}

/// Returns the ways in which a cell's programs can wait.
fn ways(cell: &Cell) -> Vec<Way> {
    let mut ways = vec![Way::Unchanged, Way::Passive, Way::OneThread, Way::Corewise];
    ways.retain(|way| *way != Way::OneThread || cell.shape.pes <= ONE_THREAD_PES_MAX);
    ways
}

/// Returns how many spin counts and turns were changed.
pub fn counts(outcome: &Outcome) -> [f64; 2] {
    [SettingKind::SpinCount, SettingKind::Turns].map(|kind| {
        let of_kind = outcome.changes.iter().filter(|change| change.kind() == Some(kind));
        of_kind.filter(|change| !change.change.gives_back()).count() as f64
    })
}

/// Times that are known, by cell, limit, way and seed.
#[derive(Default)]
struct Known(BTreeMap<String, f64>);

impl Known {
    fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| {
            let (key, seconds) = line.rsplit_once('\t')?;
            Some((key.to_owned(), seconds.parse().ok()?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Writes what does not depend on corewise.
    fn write(&self, file: &Path) -> std::io::Result<()> {
        let corewise = format!("\t{:?}\t", Way::Corewise);
        let kept = self.0.iter().filter(|(key, _)| !key.contains(&corewise));
        std::fs::write(file, kept.map(|(key, seconds)| format!("{key}\t{seconds}\n")).collect::<String>())
    }

    fn key((cell, way, seed): (&Cell, Way, u64)) -> String {
        format!("{cell}\t{:?}\t{way:?}\t{seed}", cell.limit())
    }

    fn has(&self, task: (&Cell, Way, u64)) -> bool {
        self.0.contains_key(&Self::key(task))
    }

    fn note(&mut self, task: (&Cell, Way, u64), seconds: f64) {
        self.0.insert(Self::key(task), seconds);
    }

    fn times(&self, cell: &Cell, seeds: u64) -> BTreeMap<Way, Vec<f64>> {
        let times = |way: Way| {
            let of = |seed| self.0.get(&Self::key((cell, way, seed))).copied();
            let mut times: Vec<f64> = (1..=seeds).filter_map(of).collect();
            times.sort_by(f64::total_cmp);
            (way, times)
        };
        ways(cell).into_iter().map(times).collect()
    }
}

impl Line<'_> {
    fn median(&self, way: Way) -> Option<f64> {
        let seconds = self.seconds.get(&way).filter(|seconds| !seconds.is_empty())?;
        Some((seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0)
    }

    /// Returns how much longer corewise takes than unchanged programs.
    fn ratio(&self) -> Option<f64> {
        Some(self.median(Way::Corewise)? / self.median(Way::Unchanged)?)
    }

    fn best_static(&self) -> Option<f64> {
        let all = [Way::Passive, Way::OneThread].into_iter().filter_map(|way| self.median(way));
        all.min_by(f64::total_cmp)
    }

    fn cell_text(&self, way: Way) -> String {
        let limit = self.cell.limit().as_secs_f64();
        self.median(way).map_or("-".to_owned(), |seconds| {
            format!("{}{seconds:.2}", if seconds >= limit { ">" } else { "" })
        })
    }

    fn words(&self) -> String {
        let best = if self.median(Way::OneThread) < self.median(Way::Passive) {
            Way::OneThread
        } else {
            Way::Passive
        };
        let best = if self.median(Way::OneThread).is_none() { Way::Passive } else { best };
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.2}"));
        let over_best = self.median(Way::Corewise).zip(self.best_static()).map(|(own, best)| own / best);
        let range = self.seconds.get(&Way::Corewise).filter(|seconds| !seconds.is_empty());
        let range = range.map_or(String::new(), |all| format!("{:.2}..{:.2}", all[0], all[all.len() - 1]));
        format!(
            "{:<34} {:>7} {:>7} {:>13} {:>7} {:<5} {:>6} {:>6}  {:.1}/{:.1}",
            self.cell.to_string(),
            self.cell_text(Way::Unchanged),
            self.cell_text(Way::Corewise),
            range,
            self.cell_text(best),
            if best == Way::OneThread { "one" } else { "pass." },
            number(self.ratio()),
            number(over_best),
            self.changes[0],
            self.changes[1],
        )
    }
}

fn print(lines: &[Line], seeds: u64) {
    println!("simulated; medians of {seeds} seeds, seconds; changes a run: spin counts/turns");
    println!(
        "{:<34} {:>7} {:>7} {:>13} {:>13} {:>6} {:>6}  changes",
        "cell", "unch.", "corew.", "range", "best static", "/unch.", "/best"
    );
    lines.iter().for_each(|line| println!("{}", line.words()));
    let mut losses: Vec<&Line> =
        lines.iter().filter(|line| line.ratio().is_some_and(|ratio| ratio > 1.0 + LOSS_MIN)).collect();
    losses.sort_by(|a, b| b.ratio().unwrap_or(0.0).total_cmp(&a.ratio().unwrap_or(0.0)));
    println!(
        "\nslower than unchanged by more than {:.0} %: {} of {}",
        100.0 * LOSS_MIN,
        losses.len(),
        lines.len()
    );
    losses.iter().for_each(|line| println!("{}", line.words()));
    println!("\ngeometric means, corewise / unchanged and corewise / best static:");
    means("all", lines, |_| true);
    let mut groups: Vec<String> = Vec::new();
    for line in lines {
        for group in [format!("on {}", line.cell.shape.name), line.condition()] {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    groups.sort_by_key(|group| !group.starts_with("on "));
    for group in groups {
        means(&group, lines, |line| {
            group == format!("on {}", line.cell.shape.name) || group == line.condition()
        });
    }
}

impl Line<'_> {
    fn condition(&self) -> String {
        let name = self.cell.to_string();
        name.rsplit(' ').next().unwrap_or_default().to_owned()
    }
}

fn means(name: &str, lines: &[Line], is_in: impl Fn(&Line) -> bool) {
    let of = |ratio: &dyn Fn(&Line) -> Option<f64>| {
        let logs: Vec<f64> = lines.iter().filter(|l| is_in(l)).filter_map(ratio).map(f64::ln).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
    };
    let unchanged = of(&|line| line.ratio());
    let best = of(&|line| Some(line.median(Way::Corewise)? / line.best_static()?));
    let count = lines.iter().filter(|line| is_in(line)).count();
    println!("{name:<16} {unchanged:.3} {best:.3}  ({count} cells)");
}

/// Prints what corewise changed in one run of each cell, and each reading of processes before.
fn trace(cells: &[Cell], seed: u64) -> Result<(), Box<dyn Error>> {
    for cell in cells {
        println!("{cell}, seed {seed}");
        let outcome = run(cell, Way::Corewise, seed, |input, actions| {
            if let Input::Events(batch) = input {
                for event in batch.events.iter().filter(|event| matches!(event, Event::Process(_))) {
                    println!("  {:.3} {event:?}", batch.at.as_secs_f64());
                }
            }
            for Action { thread, change, reason } in actions {
                println!("    {thread} {change:?}: {reason}");
            }
        })?;
        println!("  {:.3} s", outcome.seconds);
        for change in &outcome.changes {
            println!(
                "  {:.3} {} {:?}: {}",
                change.at.as_secs_f64(),
                change.program,
                change.change,
                change.reason
            );
        }
    }
    Ok(())
}
