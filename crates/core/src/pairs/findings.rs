//! What the runs amount to.

use super::plan::{Plan, Record, Subject};
use crate::interference::{Column, Model, Row, Table, choose_for_cells};
use crate::profile::Measurement;
use crate::stats::trimmed_mean;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is known of all programs and pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The names of the programs.
    pub programs: Vec<String>,
    /// The time of each alone, in seconds; `None` if it has not run.
    pub alone: Vec<Option<Measurement>>,
    /// All pairs of which something is known, by the indices of the programs.
    pub pairs: Vec<Pair>,
    /// The mean relative error of predictions of pairs that are left out; `None` if nothing is predicted.
    pub prediction_error: Option<f64>,
}

/// What is known of a pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The first program.
    pub a: usize,
    /// The second program; the same one in a pair of two copies.
    pub b: usize,
    /// Whether the pair ran; otherwise the model predicts it, and the figures have no intervals.
    pub measured: bool,
    /// The gain of both at once over one after the other: 0.1 is 10 % more work in the same time.
    pub gain: Measurement,
    /// The time of each beside the other over its time alone.
    pub slowdowns: [Measurement; 2],
}

/// Returns the mean with its interval; of one or two values the range.
fn figure(values: &[f64]) -> Option<Measurement> {
    let repetitions = values.len() as u32;
    if let Some(found) = trimmed_mean(values) {
        return Some(Measurement { value: found.value, low: found.low, high: found.high, repetitions });
    }
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    (repetitions > 0).then(|| Measurement { value: (low + high) / 2.0, low, high, repetitions })
}

/// Returns half the width of an interval, relative to its value.
fn relative(figure: &Measurement) -> f64 {
    (figure.high - figure.low) / 2.0 / figure.value
}

/// Returns a time over another one; errors add up as those of independent figures do.
fn over(time: Measurement, alone: &Measurement) -> Measurement {
    let value = time.value / alone.value;
    let half = value * relative(&time).hypot(relative(alone));
    Measurement { value, low: (value - half).max(value / 10.0), high: value + half, ..time }
}

/// Returns the times of what ran, by program.
fn times(records: &[Record]) -> BTreeMap<Subject, Vec<Vec<f64>>> {
    let mut times = BTreeMap::<Subject, Vec<Vec<f64>>>::new();
    for record in records {
        let of = times.entry(record.subject).or_insert_with(|| vec![Vec::new(); record.seconds.len()]);
        of.iter_mut().zip(&record.seconds).for_each(|(all, seconds)| all.push(*seconds));
    }
    times
}

/// Returns the time of each program alone.
fn alone(plan: &Plan, times: &BTreeMap<Subject, Vec<Vec<f64>>>) -> Vec<Option<Measurement>> {
    let of = |index| figure(times.get(&Subject::Alone(index))?.first()?);
    (0..plan.programs.len()).map(of).collect()
}

/// Returns the measured pairs.
fn measured(plan: &Plan, records: &[Record]) -> Vec<Pair> {
    let times = times(records);
    let alone = alone(plan, &times);
    let pair = |(subject, times): (&Subject, &Vec<Vec<f64>>)| {
        let Subject::Pair(a, b) = *subject else { return None };
        let (alone_a, alone_b) = (alone[a].as_ref()?, alone[b].as_ref()?);
        let [first, second] = times.as_slice() else { return None };
        // Two copies differ by chance only.
        let both = [&first[..], &second[..]].concat();
        let (first, second) = if a == b { (&both, &both) } else { (first, second) };
        let slowdowns = [over(figure(first)?, alone_a), over(figure(second)?, alone_b)];
        Some(Pair { a, b, measured: true, gain: gain(&slowdowns), slowdowns })
    };
    times.iter().filter_map(pair).collect()
}

/// Returns what both at once gain.
fn gain(slowdowns: &[Measurement; 2]) -> Measurement {
    let [first, second] = slowdowns;
    let value = 1.0 / first.value + 1.0 / second.value - 1.0;
    let half = (relative(first) / first.value).hypot(relative(second) / second.value);
    let repetitions = first.repetitions.min(second.repetitions);
    Measurement { value, low: value - half, high: value + half, repetitions }
}

/// Returns the measured slowdowns as rows of a table for [`crate::interference`].
pub fn rows(plan: &Plan, records: &[Record]) -> Vec<Row> {
    let row = |program: usize, beside: usize, slowdown: Measurement| Row {
        program: plan.programs[program].name.clone(),
        injector: plan.programs[beside].name.clone(),
        place: Some(format!("{},{}", plan.pes[0], plan.pes[1])),
        slowdown: slowdown.value,
        low: Some(slowdown.low),
        high: Some(slowdown.high),
        ..Row::default()
    };
    let rows = measured(plan, records).into_iter().flat_map(|pair| {
        let Pair { a, b, slowdowns: [first, second], .. } = pair;
        let reverse = (a != b).then(|| row(b, a, second));
        [Some(row(a, b, first)), reverse].into_iter().flatten()
    });
    rows.collect()
}

/// Returns what the runs amount to: measured pairs, and predictions of the others.
pub fn findings(plan: &Plan, records: &[Record]) -> Findings {
    let mut pairs = measured(plan, records);
    let rows = rows(plan, records);
    let mut prediction_error = None;
    if let Ok(table) = Table::new(&rows) {
        let (form, error) = choose_for_cells(&table);
        let model = Model::fit(&table, &table.cells, form);
        let predicted = predicted(plan, &table, &model, &rows[0].place, &pairs);
        if !predicted.is_empty() {
            prediction_error = Some(error);
        }
        pairs.extend(predicted);
        pairs.sort_by_key(|pair| (pair.a, pair.b));
    }
    let programs = plan.programs.iter().map(|program| program.name.clone()).collect();
    Findings { programs, alone: alone(plan, &times(records)), pairs, prediction_error }
}

/// Returns predictions of the pairs that are not measured, of programs that the model knows.
fn predicted(
    plan: &Plan,
    table: &Table,
    model: &Model,
    place: &Option<String>,
    measured: &[Pair],
) -> Vec<Pair> {
    let slowdown = |program: usize, beside: usize| {
        let name = &plan.programs[program].name;
        let program = table.programs.iter().position(|known| known == name)?;
        let injector = plan.programs[beside].name.clone();
        let pressure = model.column(table, &Column { injector, place: place.clone() })?;
        let value = model.slowdown(&model.programs[program], pressure, 1.0);
        Some(Measurement { value, low: value, high: value, repetitions: 0 })
    };
    let pair = |subject| {
        let Subject::Pair(a, b) = subject else { return None };
        if measured.iter().any(|pair| (pair.a, pair.b) == (a, b)) {
            return None;
        }
        let slowdowns = [slowdown(a, b)?, slowdown(b, a)?];
        Some(Pair { a, b, measured: false, gain: gain(&slowdowns), slowdowns })
    };
    plan.subjects().into_iter().filter_map(pair).collect()
}
