//! What each term of the model is good for: the error without it.

use super::choice::GROUPS;
use super::form::{Dose, Factors, Form};
use super::question::{KNOWN_MAX, Question, errors, folds, sets};
use super::table::{Errors, Table};
use serde::{Deserialize, Serialize};

/// The model without a term.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// What is dropped.
    pub dropped: String,
    /// The errors then: for programs that are left out, of which two cells are known.
    pub errors: Errors,
}

/// Returns the errors of a form, and those without each of its terms.
pub fn terms(table: &Table, form: Form) -> Vec<Term> {
    let term = |dropped: String, table: &Table, form| Some(Term { dropped, errors: errors_of(table, form)? });
    let mut terms: Vec<Option<Term>> = vec![term("nothing".to_owned(), table, form)];
    let mut factors = form.factors;
    while let Some(simpler) = factors.simpler() {
        factors = simpler;
        let name = match factors {
            Factors::None => "everything about the program".to_owned(),
            Factors::Alike => "the pressures of neighbours: one sensitivity for all".to_owned(),
            Factors::Several(count) => format!("all but {count} sensitivities × pressures"),
        };
        terms.push(term(name, table, Form { factors, ..form }));
    }
    if form.dose != Dose::Proportional {
        let name = "the saturation of the intensity".to_owned();
        terms.push(term(name, table, Form { dose: Dose::Proportional, ..form }));
    }
    let joined = table.without_places();
    if joined.columns.len() < table.columns.len() {
        terms.push(term("the place".to_owned(), &joined, form));
    }
    terms.into_iter().flatten().collect()
}

fn errors_of(table: &Table, form: Form) -> Option<Errors> {
    let sets = sets(table, Question::Program);
    let is_wanted = |set: usize| sets[set].len() == KNOWN_MAX;
    let folds = folds(table, &table.cells, Question::Program, GROUPS);
    let judged = folds.iter().flat_map(|fold| fold.judge(table, Question::Program, form, is_wanted));
    errors(&judged.collect::<Vec<_>>())
}
