//! The choice of a form by cross-validation.

use super::form::Form;
use super::question::{Judged, KNOWN_MAX, Question, folds, sets};
use super::table::{Cell, Table};

/// The number of groups that are left out, one after another, to choose a form.
pub(super) const GROUPS: usize = 6;
/// The same of cells: with few of them left out, what is asked is as it will be.
const GROUPS_OF_CELLS: usize = 18;

/// The best forms for a question, by how many cells are known of what is left out.
pub(super) type Choices = Vec<Choice>;

/// The best form, if so many cells are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    /// The form that errs least on average over all sets of known cells.
    pub form: Form,
    /// Its mean relative error.
    pub error: f64,
    /// The set that tells most, with the form for it.
    pub best: (Form, usize),
}

/// Returns the form that predicts best the programs of which two cells are known.
pub fn choose(table: &Table) -> Form {
    choices(table, &table.cells, Question::Program)[KNOWN_MAX].form
}

/// Returns the form that predicts best the cells that are left out, and its mean relative error.
pub fn choose_for_cells(table: &Table) -> (Form, f64) {
    let choice = choices(table, &table.cells, Question::Cell)[0];
    (choice.form, choice.error)
}

/// Returns the forms that err least on these cells, which are left out group by group.
pub(super) fn choices(table: &Table, cells: &[Cell], question: Question) -> Choices {
    let groups = if question == Question::Cell { GROUPS_OF_CELLS } else { GROUPS };
    let folds = folds(table, cells, question, groups);
    let sets = sets(table, question);
    let forms = Form::all(table);
    // For each form and set: the mean error, and the number of predictions.
    let judged = |form: &Form| {
        let judged: Vec<Judged> =
            folds.iter().flat_map(|fold| fold.judge(table, question, *form, |_| true)).collect();
        let mut sums = vec![(0.0, 0); sets.len()];
        for one in &judged {
            sums[one.set] = (sums[one.set].0 + one.error(), sums[one.set].1 + 1);
        }
        sums
    };
    let errors: Vec<Vec<(f64, usize)>> = forms.iter().map(judged).collect();
    let most_known = sets.iter().map(Vec::len).max().unwrap_or(0);
    let choice = |known: usize| {
        let of_size = |index: &usize| sets[*index].len() == known;
        let error_of_all = |form: &usize| {
            let (sum, count) = (0..sets.len()).filter(of_size).fold((0.0, 0), |(sum, count), set| {
                (sum + errors[*form][set].0, count + errors[*form][set].1)
            });
            mean(sum, count)
        };
        let error_of_one = |(form, set): &(usize, usize)| mean(errors[*form][*set].0, errors[*form][*set].1);
        let form = least((0..forms.len()).collect(), error_of_all);
        let each =
            (0..forms.len()).flat_map(|form| (0..sets.len()).filter(of_size).map(move |set| (form, set)));
        let (best, set) = least(each.collect(), error_of_one);
        Choice { form: forms[form], error: error_of_all(&form), best: (forms[best], set) }
    };
    (0..=most_known).map(choice).collect()
}

/// Returns the mean; infinite without values, which say nothing for a form.
fn mean(sum: f64, count: usize) -> f64 {
    if count == 0 { f64::INFINITY } else { sum / count as f64 }
}

/// Returns the first of those with the smallest error. There is at least one.
fn least<T>(of: Vec<T>, error: impl Fn(&T) -> f64) -> T {
    let errors: Vec<f64> = of.iter().map(error).collect();
    let best = (0..of.len()).min_by(|one, other| errors[*one].total_cmp(&errors[*other]));
    of.into_iter().nth(best.unwrap_or(0)).expect("there is a form")
}
