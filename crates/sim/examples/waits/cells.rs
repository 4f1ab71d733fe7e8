//! The cells of the grid: all of them, and those that are run after each change.

use corewise_sim::grid::{Cell, Condition, SHAPES};
use corewise_sim::scenario::Scenario;
use std::collections::BTreeMap;
use std::time::Duration;

/// Programs by their names.
pub type Programs = BTreeMap<String, Scenario>;

use Condition::{Copies, Disturbed, FourPes, HalfAPe, HalfThePes, Hog, Stolen};

/// Programs on machines under conditions: every combination is a cell.
struct Block {
    shapes: &'static [&'static str],
    programs: &'static [&'static str],
    conditions: &'static [Condition],
}

const ALONE: Condition = Copies(1);

/// Programs that wait every 10 to 40 µs, in a library whose spin count can be changed.
const FINE: &[&str] = &["regions", "cg", "stencil"];
/// All programs.
const PROGRAMS: &[&str] = &[
    "regions",
    "cg",
    "stencil",
    "tasks",
    "coarse",
    "gm",
    "wavefront",
    "pipeline",
    "products",
    "regions-clang",
    "pipeline-clang",
];
/// One of each kind of waits.
const KINDS: &[&str] = &["regions", "stencil", "coarse", "wavefront", "products", "regions-clang"];
/// Kinds of waits that are affordable on many PEs.
const AFFORDABLE: &[&str] = &["stencil", "tasks", "coarse", "wavefront", "products"];
const PAIRS: &[&str] = &["regions+stencil", "cg+coarse", "wavefront+cg", "products+regions"];
const COPIES: &[Condition] = &[ALONE, Copies(2), Copies(4), Copies(8)];
const BESIDE: &[Condition] = &[Hog, Disturbed, Stolen, HalfAPe, HalfThePes];

const QUICK: &[Block] = &[
    Block { shapes: &["2"], programs: PROGRAMS, conditions: &[ALONE, Copies(2), Copies(4)] },
    Block { shapes: &["2"], programs: KINDS, conditions: BESIDE },
    Block { shapes: &["4"], programs: KINDS, conditions: &[Copies(2), Hog, Disturbed] },
    Block { shapes: &["16"], programs: KINDS, conditions: &[ALONE, Copies(2), Hog] },
    Block { shapes: &["64"], programs: &["stencil", "coarse", "products"], conditions: &[Copies(2)] },
    Block { shapes: &["8smt", "4+4"], programs: &["stencil", "coarse"], conditions: &[ALONE, Copies(2)] },
    Block { shapes: &["2", "4"], programs: PAIRS, conditions: &[ALONE] },
    Block { shapes: &["64"], programs: &["serial"], conditions: &[FourPes] },
];

const FULL: &[Block] = &[
    Block { shapes: &["2", "4"], programs: PROGRAMS, conditions: COPIES },
    Block { shapes: &["2", "4"], programs: PROGRAMS, conditions: BESIDE },
    Block { shapes: &["16"], programs: PROGRAMS, conditions: &[ALONE, Copies(2), Copies(4), Hog] },
    Block { shapes: &["16"], programs: KINDS, conditions: &[Copies(8), Disturbed, Stolen] },
    Block { shapes: &["16"], programs: KINDS, conditions: &[HalfAPe, HalfThePes] },
    Block {
        shapes: &["2x8", "8smt", "4+4"],
        programs: KINDS,
        conditions: &[ALONE, Copies(2), Copies(4), Hog],
    },
    Block { shapes: &["64"], programs: FINE, conditions: &[ALONE, Copies(2), Hog] },
    Block { shapes: &["64"], programs: AFFORDABLE, conditions: &[Copies(4), Copies(8), Disturbed] },
    Block { shapes: &["64"], programs: AFFORDABLE, conditions: &[HalfAPe, HalfThePes] },
    Block { shapes: &["256"], programs: AFFORDABLE, conditions: &[ALONE, Copies(2), Copies(8), Hog] },
    Block { shapes: &["2", "4", "16", "8smt"], programs: PAIRS, conditions: &[ALONE] },
    Block { shapes: &["16", "64"], programs: &["serial", "coarse", "stencil"], conditions: &[FourPes] },
];

/// Returns the part of each program that is run on a machine: larger machines cost more.
fn part(pes: usize) -> f64 {
    match pes {
        0..=16 => 1.0,
        17..=64 => 0.5,
        _ => 0.2,
    }
}

/// Returns the cells, each once.
pub fn cells(programs: &Programs, is_quick: bool) -> Result<Vec<Cell>, String> {
    let mut cells: Vec<Cell> = Vec::new();
    for Block { shapes, programs: names, conditions } in if is_quick { QUICK } else { FULL } {
        for shape in SHAPES.iter().filter(|shape| shapes.contains(&shape.name)) {
            for name in *names {
                let found: Option<Vec<&Scenario>> = name.split('+').map(|name| programs.get(name)).collect();
                let found = found.ok_or_else(|| format!("there is no {name}.toml"))?;
                for &condition in *conditions {
                    let part = part(shape.pes);
                    let cell = Cell::new(&found, *shape, condition, part);
                    let cell = cell.ok_or_else(|| format!("{name} is no program"))?;
                    let limit = limit(&cell, part);
                    cells.push(cell.at_most(limit));
                }
            }
        }
    }
    Ok(cells)
}

/// Returns the time after which a cell's runs are cut off: some times what the copies need one after the
/// other.
fn limit(cell: &Cell, part: f64) -> Duration {
    let alone = 1.3 * part.max(0.3);
    let longer = match cell.condition {
        Copies(copies) => copies as f64 * cell.programs.len() as f64,
        Hog | Disturbed | Stolen | HalfThePes => 2.0,
        HalfAPe => 2.0 * cell.shape.pes as f64,
        FourPes => cell.shape.pes as f64 / 4.0,
    };
    Duration::from_secs_f64((3.0 * alone * longer).min(40.0))
}
