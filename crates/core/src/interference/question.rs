//! What is asked of a model: parts of a table that it has not seen.

use super::fit::Model;
use super::form::Form;
use super::table::{Cell, Errors, Table};
use crate::random::Random;
use serde::Serialize;
use std::collections::BTreeSet;

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// A program. One that is an injector, too, is left out as both.
    Program,
    /// An injector at all its places; as a program, too, if it is one.
    Injector,
    /// A cell.
    Cell,
}

/// How many cells of what is left out are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// So many, whichever they are: the mean over all choices.
    Any(usize),
    /// So many: those of which the rest of the table says that they tell most.
    Best(usize),
    /// All others.
    Others,
}

/// The largest number of cells that are known of what is left out.
pub(super) const KNOWN_MAX: usize = 2;
/// The number of choices of known cells that are tried; drawn ones, if there are more.
const SETS_MAX: usize = 30;

/// A part of a table to learn from, and what is then asked.
pub(super) struct Fold {
    pub train: Vec<Cell>,
    pub tests: Vec<Test>,
}

/// What is asked of one program, injector or cell.
pub(super) struct Test {
    /// The index of the set that is known.
    pub set: usize,
    known: Vec<Cell>,
    asked: Vec<Cell>,
}

/// A prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    pub set: usize,
    pub measured: f64,
    pub predicted: f64,
}

impl Judged {
    /// Returns the size of the relative error.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }
}

/// Returns the errors of predictions.
pub(super) fn errors(judged: &[Judged]) -> Option<Errors> {
    Errors::of(judged.iter().map(|one| (one.measured, one.predicted)))
}

/// Returns the sets of columns (or of programs, for an injector) that may be known of what is left out.
pub(super) fn sets(table: &Table, question: Question) -> Vec<Vec<usize>> {
    let count = match question {
        Question::Program => table.columns.len(),
        Question::Injector => table.programs.len(),
        Question::Cell => return vec![Vec::new()],
    };
    let mut random = Random::new(1, 1);
    let mut drawn = |mut sets: Vec<Vec<usize>>| {
        if sets.len() > SETS_MAX {
            random.shuffle(&mut sets);
            sets.truncate(SETS_MAX);
            sets.sort();
        }
        sets
    };
    let ones = drawn((0..count).map(|one| vec![one]).collect());
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other]));
    let pairs = drawn(pairs.collect());
    [vec![Vec::new()], ones, pairs].concat()
}

/// Splits cells in at most so many groups, each of which is left out once.
pub(super) fn folds(table: &Table, cells: &[Cell], question: Question, groups: usize) -> Vec<Fold> {
    if question == Question::Cell {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        Random::new(1, 2).shuffle(&mut order);
        let groups = groups.min(cells.len());
        let is_in = |index: usize, group: usize| order[index] % groups == group;
        let part = |group, inside: bool| {
            let chosen = cells.iter().enumerate().filter(|(index, _)| is_in(*index, group) == inside);
            chosen.map(|(_, cell)| *cell).collect::<Vec<Cell>>()
        };
        let fold = |group| {
            let test = Test { set: 0, known: Vec::new(), asked: part(group, true) };
            Fold { train: part(group, false), tests: vec![test] }
        };
        return (0..groups).map(fold).collect();
    }
    let sets = sets(table, question);
    let names: BTreeSet<&str> = cells.iter().map(|cell| name(table, cell, question)).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let groups = groups.min(names.len());
    let fold = |group| {
        let left: Vec<&str> = names.iter().skip(group).step_by(groups).copied().collect();
        let is_left = |name: &str| left.contains(&name);
        let is_seen = |cell: &&Cell| {
            !is_left(&table.programs[cell.program]) && !is_left(&table.columns[cell.column].injector)
        };
        let of_left = cells.iter().filter(|cell| is_left(name(table, cell, question)));
        Fold {
            train: cells.iter().filter(is_seen).copied().collect(),
            tests: tests(&of_left.copied().collect::<Vec<_>>(), question, &sets),
        }
    };
    (0..groups).map(fold).collect()
}

/// Returns the name of that part of a cell that a question leaves out.
fn name<'a>(table: &'a Table, cell: &Cell, question: Question) -> &'a str {
    match question {
        Question::Injector => &table.columns[cell.column].injector,
        _ => &table.programs[cell.program],
    }
}

/// Returns what is asked of the cells that are left out, for each program or column among them.
fn tests(left: &[Cell], question: Question, sets: &[Vec<usize>]) -> Vec<Test> {
    // What is left out, and the index by which its cells differ.
    let of = |cell: &Cell| match question {
        Question::Injector => (cell.column, cell.program),
        _ => (cell.program, cell.column),
    };
    let items: BTreeSet<usize> = left.iter().map(|cell| of(cell).0).collect();
    let mut tests = Vec::new();
    for item in items {
        let of_item = || left.iter().filter(|cell| of(cell).0 == item);
        for (index, set) in sets.iter().enumerate() {
            let part = |is_known| {
                let chosen = of_item().filter(|cell| set.contains(&of(cell).1) == is_known);
                chosen.copied().collect::<Vec<Cell>>()
            };
            let (known, asked) = (part(true), part(false));
            let there: BTreeSet<usize> = known.iter().map(|cell| of(cell).1).collect();
            if there.len() == set.len() {
                tests.push(Test { set: index, known, asked });
            }
        }
    }
    tests
}

impl Fold {
    /// Fits a form to what is seen, and predicts the rest, where the known set is wanted.
    pub fn judge(
        &self,
        table: &Table,
        question: Question,
        form: Form,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Vec<Judged> {
        let model = Model::fit(table, &self.train, form);
        let mut judged = Vec::new();
        for test in self.tests.iter().filter(|test| is_wanted(test.set)) {
            let (of_program, of_column) = match question {
                Question::Program => (Some(model.sensitivity(&test.known)), None),
                Question::Injector => (None, Some(model.pressure(&test.known))),
                Question::Cell => (None, None),
            };
            judged.extend(test.asked.iter().map(|cell| {
                let program = of_program.unwrap_or(model.programs[cell.program]);
                let beside = of_column.unwrap_or(model.columns[cell.column]);
                let predicted = model.slowdown(&program, &beside, cell.intensity);
                Judged { set: test.set, measured: cell.slowdown, predicted }
            }));
        }
        judged
    }
}
