//! What to measure next.

use super::findings::rows;
use super::plan::{Plan, Record, Subject};
use crate::interference::{Model, Table, choose_for_cells};
use crate::random::Random;
use crate::stats::median;
use std::collections::{BTreeMap, BTreeSet};

/// The next run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Next {
    /// What runs.
    pub subject: Subject,
    /// The number of pairs that are measured.
    pub measured: usize,
    /// How exactly unseen pairs are predicted, and how exactly they are measured, once that is known.
    pub errors: Option<(f64, f64)>,
}

/// Returns what to run next; `None` if that would teach nothing.
///
/// Programs alone are first, round by round in random order; then each program in two pairs, a ring; then the
/// pair of which the model is least sure. A pair that is begun is finished.
pub fn next(plan: &Plan, records: &[Record]) -> Option<Next> {
    let mut runs = BTreeMap::<Subject, u32>::new();
    records.iter().for_each(|record| *runs.entry(record.subject).or_default() += 1);
    let made = |subject: &Subject| runs.get(subject).copied().unwrap_or(0);
    let shuffled = |stream: u64| {
        let mut order: Vec<usize> = (0..plan.programs.len()).collect();
        Random::new(plan.seed, stream).shuffle(&mut order);
        order
    };
    let is_pair = |subject: &Subject| matches!(subject, Subject::Pair(..));
    let measured: BTreeSet<Subject> = runs.keys().copied().filter(is_pair).collect();
    let run = |subject, errors| Some(Next { subject, measured: measured.len(), errors });
    for round in 0..plan.runs {
        let due = shuffled(u64::from(round)).into_iter().map(Subject::Alone);
        if let Some(subject) = due.into_iter().find(|subject| made(subject) <= round) {
            return run(subject, None);
        }
    }
    if let Some(begun) = measured.iter().find(|pair| made(pair) < plan.runs) {
        return run(*begun, None);
    }
    let order = shuffled(u64::from(u32::MAX));
    let neighbours = order.iter().zip(order.iter().cycle().skip(1));
    let mut ring = neighbours.map(|(&a, &b)| Subject::Pair(a.min(b), a.max(b)));
    if let Some(pair) = ring.find(|pair| !measured.contains(pair)) {
        return run(pair, None);
    }
    let mut left: Vec<Subject> = plan.subjects().into_iter().filter(is_pair).collect();
    left.retain(|pair| !measured.contains(pair));
    Random::new(plan.seed, u64::MAX).shuffle(&mut left);
    let table = Table::new(&rows(plan, records)).ok();
    let Some(table) = table.filter(|_| !plan.every && !left.is_empty()) else {
        return run(*left.first()?, None);
    };
    let (form, error) = choose_for_cells(&table);
    let noise = median(&table.cells.iter().map(|cell| difference(cell.variance)).collect::<Vec<_>>())?;
    if error <= noise {
        return None;
    }
    let model = Model::fit(&table, &table.cells, form);
    let doubt = |pair: &Subject| doubt(plan, &table, &model, *pair);
    run(left.into_iter().max_by(|one, other| doubt(one).total_cmp(&doubt(other)))?, Some((error, noise)))
}

/// Returns by how much two measurements with this variance differ on average (of normal noise). A prediction
/// that errs as much as a measurement is as far from a measured value.
fn difference(variance: f64) -> f64 {
    2.0 * (variance / std::f64::consts::PI).sqrt()
}

/// Returns how unsure the model is of a pair: the larger deviation of the two directions.
///
/// A sensitivity has a posterior; the pressure of a neighbour is as unsure as pressures differ, less with
/// each measurement of it.
fn doubt(plan: &Plan, table: &Table, model: &Model, pair: Subject) -> f64 {
    let Subject::Pair(a, b) = pair else { return 0.0 };
    let one = |program: usize, beside: usize| {
        let (program, beside) = (&plan.programs[program].name, &plan.programs[beside].name);
        let program = table.programs.iter().position(|name| name == program)?;
        let column = table.columns.iter().position(|column| column.injector == *beside)?;
        let (sensitivity, pressure) = (&model.programs[program], &model.columns[column]);
        let seen = table.cells.iter().filter(|cell| cell.column == column).count() as f64;
        let differ = |factor: usize| {
            let squares =
                model.columns.iter().map(|one| (one.factors[factor] - model.mean.factors[factor]).powi(2));
            squares.sum::<f64>() / model.columns.len() as f64
        };
        let unsure = sensitivity
            .factors
            .iter()
            .enumerate()
            .map(|(factor, value)| (1.0 + value * value) * differ(factor) / (1.0 + seen));
        Some((model.doubt(sensitivity, pressure).powi(2) + unsure.sum::<f64>()).sqrt())
    };
    let directions = [one(a, b), one(b, a)];
    // A pair of which nothing is known is first.
    directions.into_iter().map(|doubt| doubt.unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
}
