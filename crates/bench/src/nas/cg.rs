//! CG, "conjugate gradient": the smallest eigenvalue of a large sparse matrix (RNR-94-007, §2.2).
//!
//! The matrix is a sum of outer products of random sparse vectors, weighted geometrically, plus a diagonal.
//! Each round of inverse iteration solves A·z = x by 25 steps of the conjugate gradient method and takes the
//! next x from z. A product of the matrix and a vector reads the vector at places that nothing predicts,
//! which is what NPB means by irregular communication: most of what a thread reads was written by others.
//!
//! Each member makes its own rows of the matrix, so that they lie in memory near its PE.

use super::problem::{Problem, close_to};
use super::random::Random;
use super::team::Team;
use corewise_core::calibrate::NasRun;
use corewise_core::kernels::ProblemClass;
use std::iter::zip;
use std::ops::Range;
use std::time::Instant;

/// Steps of the conjugate gradient method for each round.
const STEPS: usize = 25;

/// The matrix's condition, roughly; NPB's rcond.
const CONDITION: f64 = 0.1;

/// So many sums run along a row of the matrix, so that no addition waits for the one before.
const LANES: usize = 4;

/// NPB's tolerance for ζ.
const EPSILON: f64 = 1e-10;

/// CG at one size.
pub struct Cg {
    /// Rows of the matrix.
    rows: usize,
    /// Elements of each random vector.
    elements: usize,
    /// Rounds of inverse iteration.
    rounds: usize,
    /// What is subtracted from the diagonal.
    shift: f64,
    /// The published result.
    zeta: f64,
}

impl Cg {
    /// The problem of a class, if it is built in.
    pub fn of(class: ProblemClass) -> Option<Self> {
        let (rows, elements, rounds, shift, zeta) = match class {
            ProblemClass::S => (1_400, 7, 15, 10.0, 8.5971775078648),
            ProblemClass::W => (7_000, 8, 15, 12.0, 10.362595087124),
            ProblemClass::A => (14_000, 11, 15, 20.0, 17.130235054029),
            ProblemClass::B => (75_000, 13, 75, 60.0, 22.712745482631),
            ProblemClass::C => return None,
        };
        Some(Self { rows, elements, rounds, shift, zeta })
    }

    /// About the elements of a row of the matrix, without those that fall together.
    fn row_elements(&self) -> usize {
        self.elements * (self.elements + 1)
    }
}

impl Problem for Cg {
    fn seed(&self) -> u64 {
        314_159_265
    }

    fn bytes(&self, threads: u64) -> u64 {
        // A row's vectors hold one element more if they lack the diagonal; a vector may grow to twice its
        // length while it is made.
        let matrix = self.rows * (self.elements + 1) * (self.elements + 1) * 12 * 2;
        (matrix + self.rows * (self.elements + 1) * 32 + self.rows * 40) as u64
            + threads * self.rows as u64 * 9
    }

    fn operations(&self) -> f64 {
        let element = self.row_elements() as f64;
        let row = 3.0 + element + STEPS as f64 * (5.0 + element) + 3.0;
        2.0 * self.rounds as f64 * self.rows as f64 * row
    }

    fn run(&self, team: &Team, seed: u64) -> NasRun {
        let vectors = Vectors::random(self, seed);
        let by_row = vectors.by_row(self.rows);
        let matrix: Vec<Rows> =
            team.each(team.shares(self.rows), |rows| Rows::of(rows, &vectors, &by_row, self.shift));
        drop((vectors, by_row));
        let mut solver = Solver::new(team, &matrix, self.rows);
        solver.round();
        solver.x.fill(1.0);
        let start = Instant::now();
        let mut inner = 0.0;
        for _ in 0..self.rounds {
            inner = solver.round();
        }
        let elapsed = start.elapsed();
        NasRun { elapsed, verified: close_to(self.shift + 1.0 / inner, self.zeta, EPSILON) }
    }
}

/// Sparse vectors, one after the other: where they begin, and the places and values of their elements.
struct Vectors {
    starts: Vec<usize>,
    elements: Vec<(u32, f64)>,
}

impl Vectors {
    /// As many vectors as the matrix has rows; vector i holds ½ at place i.
    fn random(cg: &Cg, seed: u64) -> Self {
        let mut random = Random::at(seed, 1);
        let places = cg.rows.next_power_of_two() as f64;
        let (mut starts, mut elements) = (vec![0], Vec::with_capacity(cg.rows * (cg.elements + 1)));
        for row in 0..cg.rows as u32 {
            let start = elements.len();
            while elements.len() < start + cg.elements {
                let (value, place) = (random.next(), (places * random.next()) as u32);
                let taken = |&(other, _): &(u32, f64)| other == place;
                if (place as usize) < cg.rows && !elements[start..].iter().any(taken) {
                    elements.push((place, value));
                }
            }
            match elements[start..].iter_mut().find(|(place, _)| *place == row) {
                Some((_, value)) => *value = 0.5,
                None => elements.push((row, 0.5)),
            }
            starts.push(elements.len());
        }
        Self { starts, elements }
    }

    fn vector(&self, index: usize) -> &[(u32, f64)] {
        &self.elements[self.starts[index]..self.starts[index + 1]]
    }

    /// The transposition: for each place, the vectors that have an element there, and its value.
    fn by_row(&self, rows: usize) -> Self {
        let mut starts = vec![0; rows + 1];
        for &(place, _) in &self.elements {
            starts[place as usize + 1] += 1;
        }
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut elements = vec![(0, 0.0); self.elements.len()];
        for index in 0..rows {
            for &(place, value) in self.vector(index) {
                elements[next[place as usize]] = (index as u32, value);
                next[place as usize] += 1;
            }
        }
        Self { starts, elements }
    }
}

/// Consecutive rows of the matrix in compressed form.
struct Rows {
    /// Their numbers.
    range: Range<usize>,
    /// Where each begins, and where the last ends.
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Rows {
    fn of(range: Range<usize>, vectors: &Vectors, by_row: &Vectors, shift: f64) -> Self {
        let order = by_row.starts.len() - 1;
        let ratio = CONDITION.powf(1.0 / order as f64);
        let mut rows = Self { range: range.clone(), starts: vec![0], columns: vec![], values: vec![] };
        // One row, spread out: the sum at each column, and which columns it has.
        let (mut sums, mut present) = (vec![0.0; order], vec![false; order]);
        for row in range {
            let first = rows.columns.len();
            let mut add = |column: u32, value: f64| {
                sums[column as usize] += value;
                if !std::mem::replace(&mut present[column as usize], true) {
                    rows.columns.push(column);
                }
            };
            for &(index, value) in by_row.vector(row) {
                let scaled = value * ratio.powi(index as i32);
                for &(column, other) in vectors.vector(index as usize) {
                    add(column, other * scaled);
                }
            }
            add(row as u32, CONDITION - shift);
            rows.columns[first..].sort_unstable();
            for &column in &rows.columns[first..] {
                rows.values.push(std::mem::take(&mut sums[column as usize]));
                present[column as usize] = false;
            }
            rows.starts.push(rows.columns.len());
        }
        rows
    }

    /// The product with a vector.
    fn times(&self, vector: &[f64], product: &mut [f64]) {
        for (bounds, product) in self.starts.windows(2).zip(product) {
            let (columns, values) = (&self.columns[bounds[0]..bounds[1]], &self.values[bounds[0]..bounds[1]]);
            let (columns, last_columns) = columns.as_chunks::<LANES>();
            let (values, last_values) = values.as_chunks::<LANES>();
            let mut sums = [0.0; LANES];
            for (columns, values) in columns.iter().zip(values) {
                for lane in 0..LANES {
                    sums[lane] += values[lane] * vector[columns[lane] as usize];
                }
            }
            let last = last_columns.iter().zip(last_values);
            let last: f64 = last.map(|(&column, value)| value * vector[column as usize]).sum();
            *product = sums.iter().sum::<f64>() + last;
        }
    }
}

/// The vectors of the conjugate gradient method, named as in the specification.
struct Solver<'a> {
    team: &'a Team<'a>,
    matrix: &'a [Rows],
    x: Vec<f64>,
    z: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
    r: Vec<f64>,
}

impl<'a> Solver<'a> {
    fn new(team: &'a Team<'a>, matrix: &'a [Rows], order: usize) -> Self {
        // Not cloned: memory that only the kernel has cleared is taken near the member that writes it first.
        let zeros = || vec![0.0; order];
        Self { team, matrix, x: vec![1.0; order], z: zeros(), p: zeros(), q: zeros(), r: zeros() }
    }

    /// One round of inverse iteration; returns x·z.
    fn round(&mut self) -> f64 {
        let mut rho = self.begin();
        for _ in 0..STEPS {
            let alpha = rho / self.multiply();
            let before = rho;
            rho = self.advance(alpha);
            self.change_direction(rho / before);
        }
        self.residual();
        let (x, z) = (&self.x, &self.z);
        let products = self.team.each(self.team.shares(x.len()), |share| {
            (dot(&x[share.clone()], &z[share.clone()]), dot(&z[share.clone()], &z[share]))
        });
        let (inner, square) =
            products.into_iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let scale = 1.0 / square.sqrt();
        let parts = zip(self.team.split(&mut self.x, 1), self.team.shares(z.len()));
        self.team.each(parts, |(x, share)| {
            x.iter_mut().zip(&z[share]).for_each(|(x, z)| *x = scale * z);
        });
        inner
    }

    /// z = 0, r = p = x; returns r·r.
    fn begin(&mut self) -> f64 {
        let (team, x) = (self.team, &self.x);
        let vectors = zip(team.split(&mut self.z, 1), team.split(&mut self.p, 1));
        let vectors = zip(vectors, team.split(&mut self.r, 1));
        let parts = zip(vectors, team.shares(x.len()));
        let sums = team.each(parts, |(((z, p), r), share)| {
            let x = &x[share];
            z.fill(0.0);
            p.copy_from_slice(x);
            r.copy_from_slice(x);
            dot(x, x)
        });
        sums.into_iter().sum()
    }

    /// q = A·p; returns p·q.
    fn multiply(&mut self) -> f64 {
        let p = &self.p;
        let parts = zip(self.matrix, self.team.split(&mut self.q, 1));
        let sums = self.team.each(parts, |(rows, q)| {
            rows.times(p, q);
            dot(&p[rows.range.clone()], q)
        });
        sums.into_iter().sum()
    }

    /// z += α·p, r −= α·q; returns r·r.
    fn advance(&mut self, alpha: f64) -> f64 {
        let (team, p, q) = (self.team, &self.p, &self.q);
        let vectors = zip(team.split(&mut self.z, 1), team.split(&mut self.r, 1));
        let parts = zip(vectors, team.shares(p.len()));
        let sums = team.each(parts, |((z, r), share)| {
            z.iter_mut().zip(&p[share.clone()]).for_each(|(z, p)| *z += alpha * p);
            r.iter_mut().zip(&q[share]).for_each(|(r, q)| *r -= alpha * q);
            dot(r, r)
        });
        sums.into_iter().sum()
    }

    /// p = r + β·p.
    fn change_direction(&mut self, beta: f64) {
        let r = &self.r;
        let parts = zip(self.team.split(&mut self.p, 1), self.team.shares(r.len()));
        self.team.each(parts, |(p, share)| {
            p.iter_mut().zip(&r[share]).for_each(|(p, r)| *p = r + beta * *p);
        });
    }

    /// ‖x − A·z‖, which the specification wants computed in each round and nothing depends on.
    fn residual(&mut self) -> f64 {
        let (x, z) = (&self.x, &self.z);
        let parts = zip(self.matrix, self.team.split(&mut self.r, 1));
        let sums = self.team.each(parts, |(rows, r)| {
            rows.times(z, r);
            r.iter().zip(&x[rows.range.clone()]).map(|(r, x)| (x - r) * (x - r)).sum::<f64>()
        });
        std::hint::black_box(sums.into_iter().sum::<f64>().sqrt())
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}
