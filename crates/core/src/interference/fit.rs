//! Fits a form to cells: expectation-maximisation of a factor model with missing entries.
//!
//! Problem: few programs, few neighbours, noise, and cells that nobody has measured; least squares would
//! fit the noise. Approach: each program's sensitivities `a` are drawn from N(0, 1), so that given the
//! columns they have a normal posterior that stays near 0 for a program of which little is known. Given
//! these posteriors, the base and the pressures of each column are a ridge regression towards the mean
//! column. Both steps are repeated. Source: M. Tipping, C. Bishop, J. R. Stat. Soc. B 61(3), 1999; missing
//! entries: A. Ilin, T. Raiko, JMLR 11, 2010. Limits: the noise is given by the form, not estimated; the
//! rotation of several factors has no meaning, so single pressures of them are not to be interpreted.

use super::form::{Factors, Form};
use super::table::{Cell, Column, Table};
use crate::random::Random;
use serde::{Deserialize, Serialize};

/// The maximum number of factors.
pub const FACTORS_MAX: usize = 3;
/// The base and the factors.
const TERMS: usize = FACTORS_MAX + 1;
/// *Measured*: more do not change predictions of the published tables.
const ITERATIONS: usize = 25;
/// How strongly the pressures of a column are drawn to the mean column, in measurements.
const RIDGE: f64 = 1.0;
/// The same of its base, which every measurement tells.
const RIDGE_OF_BASE: f64 = 0.001;

/// The values of all factors; those that a form lacks are 0.
type Vector = [f64; FACTORS_MAX];
type Matrix = [Vector; FACTORS_MAX];

/// A fitted model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its form.
    pub form: Form,
    /// What each neighbour does, in the table's order.
    pub columns: Vec<Pressure>,
    /// What a neighbour does of which nothing is known.
    pub mean: Pressure,
    /// What each program suffers, in the table's order.
    pub programs: Vec<Sensitivity>,
}

/// What a neighbour does to programs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pressure {
    /// Its effect on a program with mean sensitivities, on the form's scale.
    pub base: f64,
    /// What each sensitivity adds.
    pub factors: Vector,
}

/// How sensitive a program is; 0 is the mean program.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivity {
    /// For each factor, in standard deviations of programs.
    pub factors: Vector,
    /// The remaining variance of each.
    pub variances: Vector,
}

/// A measurement at the greatest intensity, on the form's scale.
#[derive(Clone, Copy)]
struct Seen {
    program: usize,
    column: usize,
    value: f64,
    noise: f64,
}

impl Seen {
    fn of(form: Form, cell: &Cell) -> Seen {
        /// A smaller share of the effect tells nothing about the whole.
        const SHARE_MIN: f64 = 0.02;
        let share = form.dose.share(cell.intensity).max(SHARE_MIN);
        let full = (1.0 + (cell.slowdown - 1.0) / share).max(0.05);
        Seen {
            program: cell.program,
            column: cell.column,
            value: form.scale.of(full),
            noise: (form.noise + cell.variance) / share.powi(2),
        }
    }
}

/// What is known of a program's sensitivities: their mean and their second moments.
#[derive(Clone, Copy)]
struct Posterior {
    mean: Vector,
    moments: Matrix,
    covariance: Matrix,
}

impl Model {
    /// Fits a form to some cells of a table.
    pub fn fit(table: &Table, cells: &[Cell], form: Form) -> Model {
        let seen: Vec<Seen> = cells.iter().map(|cell| Seen::of(form, cell)).collect();
        let of_program = groups(&seen, table.programs.len(), |one| one.program);
        let of_column = groups(&seen, table.columns.len(), |one| one.column);
        let mut model = Model::start(&of_program, &of_column, form);
        let changes = matches!(form.factors, Factors::Several(_));
        for _ in 0..if changes { ITERATIONS } else { 1 } {
            let posteriors = model.posteriors(&of_program);
            if changes {
                let pressure = |seen: &Vec<Seen>| model.pressure_by(seen, &posteriors);
                model.columns = of_column.iter().map(pressure).collect();
                model.mean = mean(&model.columns);
            }
        }
        model.programs = model.posteriors(&of_program).iter().map(Sensitivity::of).collect();
        model
    }

    /// Starts at the mean of each column, with random pressures of the size of the residuals.
    fn start(of_program: &[Vec<Seen>], of_column: &[Vec<Seen>], form: Form) -> Model {
        let all = average(of_program.iter().flatten().map(|one| one.value)).unwrap_or(0.0);
        let base = |seen: &Vec<Seen>| average(seen.iter().map(|one| one.value)).unwrap_or(all);
        let bases: Vec<f64> = of_column.iter().map(base).collect();
        let residual = |one: &Seen| one.value - bases[one.column];
        let means = of_program.iter().filter_map(|seen| average(seen.iter().map(residual)));
        let of_programs = average(means.map(|mean| mean.powi(2))).unwrap_or(0.0).sqrt();
        let residuals = of_program.iter().flatten().map(residual);
        let of_all = average(residuals.map(|value| value.powi(2))).unwrap_or(0.0).sqrt();
        let mut random = Random::new(1, 0);
        let mut pressures =
            || match form.factors {
                Factors::None => Vector::default(),
                Factors::Alike => [of_programs, 0.0, 0.0],
                Factors::Several(count) => {
                    let size = of_all / (count as f64).sqrt();
                    std::array::from_fn(|index| {
                        if index < count { size * (1.0 + 0.5 * random.normal()) } else { 0.0 }
                    })
                }
            };
        let columns: Vec<Pressure> =
            bases.iter().map(|&base| Pressure { base, factors: pressures() }).collect();
        Model { form, mean: mean(&columns), columns, programs: Vec::new() }
    }

    fn posteriors(&self, of_program: &[Vec<Seen>]) -> Vec<Posterior> {
        of_program.iter().map(|seen| self.posterior(seen)).collect()
    }

    /// Returns what measurements of one program tell about its sensitivities.
    fn posterior(&self, seen: &[Seen]) -> Posterior {
        let mut precision: Matrix = std::array::from_fn(unit);
        let mut sum = Vector::default();
        for one in seen {
            let Pressure { base, factors } = self.columns[one.column];
            for row in 0..FACTORS_MAX {
                sum[row] += factors[row] * (one.value - base) / one.noise;
                for column in 0..FACTORS_MAX {
                    precision[row][column] += factors[row] * factors[column] / one.noise;
                }
            }
        }
        let covariance: Matrix = std::array::from_fn(|index| solve(precision, unit(index)));
        let mean: Vector = std::array::from_fn(|row| dot(&covariance[row], &sum));
        let moment = |row: usize, column: usize| covariance[row][column] + mean[row] * mean[column];
        let moments = std::array::from_fn(|row| std::array::from_fn(|column| moment(row, column)));
        Posterior { mean, moments, covariance }
    }

    /// Returns the pressure that fits measurements of one column best, given the posteriors of the programs.
    fn pressure_by(&self, seen: &[Seen], posteriors: &[Posterior]) -> Pressure {
        let mean: [f64; TERMS] = std::array::from_fn(|term| match term {
            0 => self.mean.base,
            factor => self.mean.factors[factor - 1],
        });
        let ridge = |term| if term == 0 { RIDGE_OF_BASE } else { RIDGE };
        let mut matrix: [[f64; TERMS]; TERMS] =
            std::array::from_fn(|row| std::array::from_fn(|term| if row == term { ridge(row) } else { 0.0 }));
        let mut sum: [f64; TERMS] = std::array::from_fn(|term| ridge(term) * mean[term]);
        for one in seen {
            let Posterior { mean, moments, .. } = &posteriors[one.program];
            let weight = self.form.noise / one.noise;
            let moment = |row: usize, column: usize| match (row, column) {
                (0, 0) => 1.0,
                (0, factor) | (factor, 0) => mean[factor - 1],
                (row, column) => moments[row - 1][column - 1],
            };
            for (row, (entries, sum)) in matrix.iter_mut().zip(&mut sum).enumerate() {
                *sum += weight * moment(0, row) * one.value;
                for (column, entry) in entries.iter_mut().enumerate() {
                    *entry += weight * moment(row, column);
                }
            }
        }
        let [base, factors @ ..] = solve(matrix, sum);
        Pressure { base, factors }
    }

    /// Returns the sensitivity of a program of which these cells are known.
    pub fn sensitivity(&self, known: &[Cell]) -> Sensitivity {
        let seen: Vec<Seen> = known.iter().map(|cell| Seen::of(self.form, cell)).collect();
        Sensitivity::of(&self.posterior(&seen))
    }

    /// Returns the pressure of a neighbour of which these cells are known, beside programs of the model.
    pub fn pressure(&self, known: &[Cell]) -> Pressure {
        let posterior = |one: &Sensitivity| Posterior {
            mean: one.factors,
            moments: std::array::from_fn(|row| {
                std::array::from_fn(|column| {
                    let variance = if row == column { one.variances[row] } else { 0.0 };
                    variance + one.factors[row] * one.factors[column]
                })
            }),
            covariance: Matrix::default(),
        };
        let posteriors: Vec<Posterior> = self.programs.iter().map(posterior).collect();
        let seen: Vec<Seen> = known.iter().map(|cell| Seen::of(self.form, cell)).collect();
        if matches!(self.form.factors, Factors::Several(_)) || known.is_empty() {
            return self.pressure_by(&seen, &posteriors);
        }
        let residual = |one: &Seen| one.value - dot(&self.programs[one.program].factors, &self.mean.factors);
        let base = seen.iter().map(residual).sum::<f64>() / seen.len() as f64;
        Pressure { base, ..self.mean }
    }

    /// Predicts the slowdown of a program beside a neighbour.
    pub fn slowdown(&self, program: &Sensitivity, beside: &Pressure, intensity: f64) -> f64 {
        let full = self.form.scale.slowdown(beside.base + dot(&program.factors, &beside.factors));
        1.0 + (full - 1.0) * self.form.dose.share(intensity)
    }

    /// Returns the standard deviation of a prediction on the form's scale that comes from what is not known
    /// of the program.
    pub fn doubt(&self, program: &Sensitivity, beside: &Pressure) -> f64 {
        let variance = program.variances.iter().zip(&beside.factors).map(|(left, by)| left * by * by);
        variance.sum::<f64>().sqrt()
    }

    /// Returns the neighbour of this name and place, if the model knows it.
    pub fn column(&self, table: &Table, column: &Column) -> Option<&Pressure> {
        self.columns.get(table.columns.iter().position(|known| known == column)?)
    }
}

impl Sensitivity {
    fn of(posterior: &Posterior) -> Sensitivity {
        let variances = std::array::from_fn(|factor| posterior.covariance[factor][factor]);
        Sensitivity { factors: posterior.mean, variances }
    }
}

/// Returns measurements in groups.
fn groups(seen: &[Seen], count: usize, group: impl Fn(&Seen) -> usize) -> Vec<Vec<Seen>> {
    let mut groups = vec![Vec::new(); count];
    seen.iter().for_each(|one| groups[group(one)].push(*one));
    groups
}

/// Returns the mean; `None` without values.
fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then_some(sum / count)
}

/// Returns the mean of all columns.
fn mean(columns: &[Pressure]) -> Pressure {
    let of = |value: &dyn Fn(&Pressure) -> f64| average(columns.iter().map(value)).unwrap_or(0.0);
    Pressure {
        base: of(&|one| one.base),
        factors: std::array::from_fn(|factor| of(&|one| one.factors[factor])),
    }
}

fn dot(one: &Vector, other: &Vector) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn unit<const N: usize>(index: usize) -> [f64; N] {
    std::array::from_fn(|other| if other == index { 1.0 } else { 0.0 })
}

/// Solves equations with a symmetric, positive definite matrix, by elimination.
fn solve<const N: usize>(mut matrix: [[f64; N]; N], mut sum: [f64; N]) -> [f64; N] {
    for pivot in 0..N {
        let above = matrix[pivot];
        for row in pivot + 1..N {
            let share = matrix[row][pivot] / above[pivot];
            for (entry, above) in matrix[row].iter_mut().zip(above) {
                *entry -= share * above;
            }
            sum[row] -= share * sum[pivot];
        }
    }
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| matrix[row][column] * sum[column]).sum();
        sum[row] = (sum[row] - known) / matrix[row][row];
    }
    sum
}
