//! Judges the model by programs, injectors and cells that it has not seen.
//!
//! The form is chosen without what is asked: for each group that is left out, once more by cross-validation
//! within the rest (for cells, without all cells of their programs). So the errors are those of the whole
//! method, with its choice.

use super::choice::{Choices, choices};
use super::fit::Model;
use super::form::Form;
use super::question::{Fold, Judged, KNOWN_MAX, Known, Question, errors, folds, sets};
use super::table::{Cell, Errors, Table};
use serde::Serialize;
use std::collections::BTreeMap;

/// Groups of programs or injectors that are left out: each alone up to this number.
const GROUPS: usize = 10;
/// The same of the cells of a group of programs.
const GROUPS_OF_CELLS: usize = 60;

/// How well the model predicts a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The number of programs.
    pub programs: usize,
    /// The number of neighbours: injectors at their places.
    pub neighbours: usize,
    /// The number of cells.
    pub cells: usize,
    /// The number of teams or machines.
    pub teams: usize,
    /// Each team's value, predicted by the mean of the others'; `None` without several teams.
    pub ceiling: Option<Errors>,
    /// The form that is chosen for the whole table.
    pub form: Form,
    /// That form, fitted to all cells, on these cells.
    pub in_sample: Option<Errors>,
    /// What is left out, and how well it is predicted.
    pub answers: Vec<Answer>,
}

/// How well something that is left out is predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// What is left out.
    pub left_out: Question,
    /// What is known of it.
    pub known: Known,
    /// The errors.
    pub errors: Errors,
    /// The form that was chosen most often.
    pub form: Form,
    /// For [`Known::Best`]: what was chosen to be known, most often.
    pub best: Vec<String>,
}

/// Predictions, each choice of a form, and of a set.
#[derive(Default)]
struct Collected {
    judged: Vec<Judged>,
    chosen: Vec<(Form, Option<usize>)>,
}

/// Judges the model by a table.
pub fn check(table: &Table) -> Check {
    let form = super::choose(table);
    let model = Model::fit(table, &table.cells, form);
    let own = |cell: &Cell| {
        let (program, beside) = (&model.programs[cell.program], &model.columns[cell.column]);
        (cell.slowdown, model.slowdown(program, beside, cell.intensity))
    };
    let mut answers = of_parts(table, Question::Program);
    answers.extend(of_parts(table, Question::Injector));
    answers.extend(of_cells(table));
    Check {
        programs: table.programs.len(),
        neighbours: table.columns.len(),
        cells: table.cells.len(),
        teams: table.teams,
        ceiling: table.ceiling,
        form,
        in_sample: Errors::of(table.cells.iter().map(own)),
        answers,
    }
}

/// Leaves out programs or injectors, of which none, one and two cells are known.
fn of_parts(table: &Table, question: Question) -> Vec<Answer> {
    let sets = sets(table, question);
    let mut collected = BTreeMap::<(usize, bool), Collected>::new();
    for fold in folds(table, &table.cells, question, GROUPS) {
        let choices: Choices = choices(table, &fold.train, question);
        for (known, choice) in choices.iter().enumerate() {
            let mut add = |is_best, form, set: Option<usize>| {
                let of_size = |index: usize| sets[index].len() == known;
                let is_wanted = |index| set.map_or_else(|| of_size(index), |set| set == index);
                let collected = collected.entry((known, is_best)).or_default();
                collected.judged.extend(fold.judge(table, question, form, is_wanted));
                collected.chosen.push((form, set));
            };
            add(false, choice.form, None);
            if known > 0 {
                add(true, choice.best.0, Some(choice.best.1));
            }
        }
    }
    let answer = |(&(known, is_best), collected): (&(usize, bool), &Collected)| {
        let known = if is_best { Known::Best(known) } else { Known::Any(known) };
        answer(table, question, known, collected, &sets)
    };
    debug_assert!(collected.len() <= 2 * KNOWN_MAX + 1, "none, and any or the best of each number");
    collected.iter().filter_map(answer).collect()
}

/// Leaves out cells of programs, with a form that is chosen without these programs.
fn of_cells(table: &Table) -> Option<Answer> {
    let mut collected = Collected::default();
    for Fold { train, .. } in folds(table, &table.cells, Question::Program, GROUPS) {
        let form = choices(table, &train, Question::Cell)[0].form;
        let left: Vec<Cell> = table.cells.iter().filter(|cell| !train.contains(cell)).copied().collect();
        for mut fold in folds(table, &left, Question::Cell, GROUPS_OF_CELLS) {
            fold.train.extend(&train);
            collected.judged.extend(fold.judge(table, Question::Cell, form, |_| true));
        }
        collected.chosen.push((form, None));
    }
    answer(table, Question::Cell, Known::Others, &collected, &[])
}

fn answer(
    table: &Table,
    left_out: Question,
    known: Known,
    collected: &Collected,
    sets: &[Vec<usize>],
) -> Option<Answer> {
    let form = most_often(collected.chosen.iter().map(|(form, _)| *form))?;
    let set = most_often(collected.chosen.iter().filter_map(|(_, set)| *set));
    let name = |index: &usize| match left_out {
        Question::Injector => table.programs[*index].clone(),
        _ => table.columns[*index].to_string(),
    };
    let best = set.map_or_else(Vec::new, |set| sets[set].iter().map(name).collect());
    Some(Answer { left_out, known, errors: errors(&collected.judged)?, form, best })
}

/// Returns the value that occurs most often; the first of several.
fn most_often<T: PartialEq + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let values: Vec<T> = values.collect();
    let count = |value: &T| values.iter().filter(|other| *other == value).count();
    let most = values.iter().map(count).max()?;
    values.iter().find(|value| count(value) == most).copied()
}
