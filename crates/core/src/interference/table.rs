//! Tables of slowdowns.

use crate::stats::{median, quantile};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};

/// A measured slowdown, as a table has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Row {
    /// Who measured it, or on which machine.
    #[serde(default, alias = "machine")]
    pub team: Option<String>,
    /// The program that is slowed down.
    pub program: String,
    /// What runs beside it.
    pub injector: String,
    /// Where that runs.
    #[serde(default)]
    pub place: Option<String>,
    /// How intense it is, above 0, in any unit.
    #[serde(default)]
    pub intensity: Option<f64>,
    /// The time beside it over the time alone.
    pub slowdown: f64,
    /// The lower end of the 95 % interval.
    #[serde(default)]
    pub low: Option<f64>,
    /// The upper end.
    #[serde(default)]
    pub high: Option<f64>,
}

/// A neighbour: an injector at a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The injector.
    pub injector: String,
    /// Where it runs.
    pub place: Option<String>,
}

impl Display for Column {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{} at {place}", self.injector),
            None => f.write_str(&self.injector),
        }
    }
}

/// What is known of a program beside a neighbour of some intensity: the median of all who measured it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// The index of the program.
    pub program: usize,
    /// The index of the column.
    pub column: usize,
    /// The intensity, as a share of the greatest one of the injector, 0..1.
    pub intensity: f64,
    /// The slowdown.
    pub slowdown: f64,
    /// The variance of its logarithm, by the interval; 0 if no interval is known.
    pub variance: f64,
}

/// A table with one cell for each program beside each neighbour that was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The programs, in alphabetical order.
    pub programs: Vec<String>,
    /// The neighbours, in alphabetical order.
    pub columns: Vec<Column>,
    /// The cells, by program, column and intensity.
    pub cells: Vec<Cell>,
    /// The number of teams or machines.
    pub teams: usize,
    /// How far each team's value is from the mean of the others: no model of the data errs by less.
    pub ceiling: Option<Errors>,
}

/// Why a table cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TableError {
    /// A number is out of its range.
    #[error("{program} beside {injector}: {what} is {value}: write a number from {low} to {high}")]
    Range {
        /// The program.
        program: String,
        /// The injector.
        injector: String,
        /// The column.
        what: &'static str,
        /// The number.
        value: f64,
        /// The minimum.
        low: f64,
        /// The maximum.
        high: f64,
    },
    /// Too little for a model.
    #[error("{programs} programs beside {columns} neighbours: give a table of at least 4 beside 3")]
    TooSmall {
        /// The number of programs.
        programs: usize,
        /// The number of injectors at their places.
        columns: usize,
    },
    /// Too much for this method.
    #[error("{0} rows are too many: give a table of at most {max}", max = ROWS_MAX)]
    TooLarge(usize),
}

/// A check of more would take hours.
const ROWS_MAX: usize = 20_000;
/// The half-width of a 95 % interval, in standard deviations.
const HALF: f64 = 1.96;

impl Table {
    /// Checks rows, and joins those of the same program, neighbour and intensity.
    pub fn new(rows: &[Row]) -> Result<Table, TableError> {
        if rows.len() > ROWS_MAX {
            return Err(TableError::TooLarge(rows.len()));
        }
        rows.iter().try_for_each(check_row)?;
        let table = Self::joined(rows);
        let (programs, columns) = (table.programs.len(), table.columns.len());
        if programs < 4 || columns < 3 {
            return Err(TableError::TooSmall { programs, columns });
        }
        Ok(table)
    }

    /// Joins the rows of a table that need not be large enough yet.
    pub fn joined(rows: &[Row]) -> Table {
        let column = |row: &Row| Column { injector: row.injector.clone(), place: row.place.clone() };
        let columns: BTreeSet<Column> = rows.iter().map(column).collect();
        let columns: Vec<Column> = columns.into_iter().collect();
        let programs: BTreeSet<&String> = rows.iter().map(|row| &row.program).collect();
        let programs: Vec<String> = programs.into_iter().cloned().collect();
        let teams: BTreeSet<&String> = rows.iter().filter_map(|row| row.team.as_ref()).collect();
        let mut greatest = BTreeMap::<&str, f64>::new();
        for row in rows {
            let most = greatest.entry(&row.injector).or_default();
            *most = most.max(row.intensity.unwrap_or(1.0));
        }
        let mut joined = BTreeMap::<(usize, usize, u64), Vec<&Row>>::new();
        for row in rows {
            let intensity = row.intensity.unwrap_or(greatest[row.injector.as_str()]);
            // Positive numbers are in the order of their bits.
            let intensity = (intensity / greatest[row.injector.as_str()]).to_bits();
            // Both are in their lists.
            let program = programs.binary_search(&row.program).unwrap_or_default();
            let place = columns.binary_search(&column(row)).unwrap_or_default();
            joined.entry((program, place, intensity)).or_default().push(row);
        }
        let cell = |(&(program, column, intensity), rows): (&(usize, usize, u64), &Vec<&Row>)| {
            let of = |value: &dyn Fn(&Row) -> Option<f64>| {
                median(&rows.iter().filter_map(|row| value(row)).collect::<Vec<_>>())
            };
            let deviation = of(&|row| Some((row.high? / row.low?).ln() / (2.0 * HALF)));
            Cell {
                program,
                column,
                intensity: f64::from_bits(intensity),
                slowdown: of(&|row| Some(row.slowdown)).unwrap_or(1.0),
                variance: deviation.unwrap_or(0.0).powi(2),
            }
        };
        let cells = joined.iter().map(cell).collect();
        let ceiling = Errors::of(joined.values().flat_map(|rows| by_the_others(rows)));
        Table { cells, teams: teams.len(), ceiling, columns, programs }
    }

    /// Returns the table with all places of an injector in one column.
    pub(super) fn without_places(&self) -> Table {
        let injectors: BTreeSet<&String> = self.columns.iter().map(|column| &column.injector).collect();
        let injectors: Vec<&String> = injectors.into_iter().collect();
        let joined =
            |column: usize| injectors.binary_search(&&self.columns[column].injector).unwrap_or_default();
        let columns = injectors.iter().map(|name| Column { injector: (*name).clone(), place: None });
        let cells = self.cells.iter().map(|cell| Cell { column: joined(cell.column), ..*cell });
        Table { columns: columns.collect(), cells: cells.collect(), ..self.clone() }
    }
}

fn check_row(row: &Row) -> Result<(), TableError> {
    const SLOWDOWNS: (f64, f64) = (0.01, 1000.0);
    let check = |what, value: Option<f64>, (low, high): (f64, f64)| match value {
        Some(value) if !(low..=high).contains(&value) => Err(TableError::Range {
            program: row.program.clone(),
            injector: row.injector.clone(),
            what,
            value,
            low,
            high,
        }),
        _ => Ok(()),
    };
    check("the slowdown", Some(row.slowdown), SLOWDOWNS)?;
    check("the intensity", row.intensity, (1e-6, 1e12))?;
    check("the lower end of the interval", row.low, (SLOWDOWNS.0, row.slowdown))?;
    check("the upper end of the interval", row.high, (row.slowdown, SLOWDOWNS.1))
}

/// Returns each team's value with the mean of the other teams'.
fn by_the_others(rows: &[&Row]) -> Vec<(f64, f64)> {
    let by_others = |row: &&Row| {
        let others = rows.iter().filter(|other| other.team != row.team && other.team.is_some());
        let others: Vec<f64> = others.map(|other| other.slowdown).collect();
        row.team.as_ref()?;
        let mean = others.iter().sum::<f64>() / others.len() as f64;
        (!others.is_empty()).then_some((row.slowdown, mean))
    };
    rows.iter().filter_map(by_others).collect()
}

/// How far predictions are from what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// The number of predictions.
    pub predictions: usize,
    /// The mean of the relative error's size, 0 to infinity.
    pub mean: f64,
    /// Its 90th percentile.
    pub p90: f64,
    /// The share of the variance of the slowdowns that is predicted; below 0 if their mean would be better.
    pub r_squared: f64,
}

impl Errors {
    /// Compares measured values, each with its prediction; `None` without any.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Errors> {
        let pairs: Vec<(f64, f64)> = pairs.into_iter().collect();
        let errors: Vec<f64> =
            pairs.iter().map(|(measured, predicted)| (predicted / measured - 1.0).abs()).collect();
        let count = pairs.len() as f64;
        let mean = pairs.iter().map(|(measured, _)| measured).sum::<f64>() / count;
        let total: f64 = pairs.iter().map(|(measured, _)| (measured - mean).powi(2)).sum();
        let left: f64 = pairs.iter().map(|(measured, predicted)| (measured - predicted).powi(2)).sum();
        Some(Errors {
            predictions: pairs.len(),
            p90: quantile(&errors, 0.9)?,
            mean: errors.iter().sum::<f64>() / count,
            r_squared: if total > 0.0 { 1.0 - left / total } else { 0.0 },
        })
    }
}
