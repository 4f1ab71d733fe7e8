//! MG, "multigrid": Poisson's equation on a periodic cube (RNR-94-007, §2.2).
//!
//! The right side is +1 at ten places and −1 at ten others. Each round is one V-cycle: the residual is
//! restricted to ever coarser grids, solved roughly on the coarsest, and the correction interpolated and
//! smoothed on the way back. Every operator combines the 27 neighbours of a point. The fine grids demand
//! memory bandwidth, the coarse ones quick synchronisation, as members share the planes of a grid.
//!
//! A grid has one layer of points around it that repeats the opposite side, so that operators need no special
//! case. Points lie with x next to each other, then y, then z; a plane is what one z has.

use super::problem::{Problem, close_to};
use super::random::Random;
use super::team::Team;
use corewise_core::calibrate::NasRun;
use corewise_core::kernels::ProblemClass;
use std::iter::zip;
use std::time::Instant;

/// The operator A by distance: the point, its 6 neighbours by faces, 12 by edges, 8 by corners. The second is
/// 0 and left out.
const A: [f64; 4] = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];

/// So many places of the right side are +1, and as many −1.
const CHARGES: usize = 10;

/// NPB's tolerance for the norm.
const EPSILON: f64 = 1e-8;

/// MG at one size.
pub struct Mg {
    /// The finest grid has 2 to the power of this points along each axis.
    levels: usize,
    rounds: usize,
    /// The smoother by distance: the point, neighbours by faces and by edges; those by corners have 0.
    smoother: [f64; 3],
    /// The published norm of the residual.
    norm: f64,
}

impl Mg {
    /// The problem of a class, if it is built in.
    pub fn of(class: ProblemClass) -> Option<Self> {
        let first = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0];
        let second = [-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0];
        let (levels, rounds, smoother, norm) = match class {
            ProblemClass::S => (5, 4, first, 0.5307707005734e-04),
            ProblemClass::W => (7, 4, first, 0.6467329375339e-05),
            ProblemClass::A => (8, 4, first, 0.2433365309069e-05),
            ProblemClass::B => (8, 20, second, 0.1800564401355e-05),
            ProblemClass::C => return None,
        };
        Some(Self { levels, rounds, smoother, norm })
    }

    fn points(&self) -> f64 {
        (1u64 << (3 * self.levels)) as f64
    }
}

impl Problem for Mg {
    fn seed(&self) -> u64 {
        314_159_265
    }

    fn bytes(&self, _: u64) -> u64 {
        let grid = |level: usize| ((1u64 << level) + 2).pow(3) * 8;
        grid(self.levels) + (1..=self.levels).map(|level| 2 * grid(level)).sum::<u64>()
    }

    fn operations(&self) -> f64 {
        58.0 * self.rounds as f64 * self.points()
    }

    fn run(&self, team: &Team, seed: u64) -> NasRun {
        let grids = || (1..=self.levels).map(Grid::zero).collect::<Vec<_>>();
        let mut solver = Solver { team, smoother: self.smoother, u: grids(), r: grids() };
        let right = charges(team, self.levels, seed);
        solver.fine_residual(&right);
        solver.cycle(&right);
        solver.fine_residual(&right);
        solver.fine().0.clear(team);
        let start = Instant::now();
        solver.fine_residual(&right);
        for _ in 0..self.rounds {
            solver.cycle(&right);
            solver.fine_residual(&right);
        }
        let norm = (solver.fine().1.square(team) / self.points()).sqrt();
        NasRun { elapsed: start.elapsed(), verified: close_to(norm, self.norm, EPSILON) }
    }
}

/// A cube of points with its repeated layer.
struct Grid {
    /// Points along each axis, with the layer.
    size: usize,
    points: Vec<f64>,
}

impl Grid {
    fn zero(level: usize) -> Self {
        let size = (1 << level) + 2;
        Self { size, points: vec![0.0; size * size * size] }
    }

    /// The points along x at a place.
    #[inline]
    fn row(&self, z: usize, y: usize) -> &[f64] {
        &self.points[(z * self.size + y) * self.size..][..self.size]
    }

    fn clear(&mut self, team: &Team) {
        let parts = team.split(&mut self.points, 1);
        team.each(parts, |part| part.fill(0.0));
    }

    /// Lets the members set the inner planes, each given its z, and then repeats them around.
    fn set(&mut self, team: &Team, set: impl Fn(usize, &mut [f64]) + Sync) {
        let (size, plane) = (self.size, self.size * self.size);
        let (first, rest) = self.points.split_at_mut(plane);
        let (inner, last) = rest.split_at_mut(plane * (size - 2));
        let parts = zip(team.split(inner, plane), team.shares(size - 2));
        team.each(parts, |(planes, share)| {
            for (points, z) in planes.chunks_exact_mut(plane).zip(share) {
                set(z + 1, points);
                for row in points.chunks_exact_mut(size) {
                    row[0] = row[size - 2];
                    row[size - 1] = row[1];
                }
                points.copy_within(plane - 2 * size..plane - size, 0);
                points.copy_within(size..2 * size, plane - size);
            }
        });
        let inner = &*inner;
        let (low, high) = (&inner[..plane], &inner[plane * (size - 3)..]);
        let parts = zip(team.split(first, size), team.split(last, size));
        team.each(zip(parts, team.shares(size)), |((first, last), rows)| {
            first.copy_from_slice(&high[rows.start * size..rows.end * size]);
            last.copy_from_slice(&low[rows.start * size..rows.end * size]);
        });
    }

    /// For each x along a row: the sums of the four neighbours in y and z by faces and of those by edges.
    #[inline]
    fn around(&self, z: usize, y: usize, faces: &mut [f64], edges: &mut [f64]) {
        let rows = [self.row(z, y - 1), self.row(z, y + 1), self.row(z - 1, y), self.row(z + 1, y)];
        sum_rows(rows, faces);
        let below = [self.row(z - 1, y - 1), self.row(z - 1, y + 1)];
        let above = [self.row(z + 1, y - 1), self.row(z + 1, y + 1)];
        sum_rows([below[0], below[1], above[0], above[1]], edges);
    }

    /// The sum of the squares of the inner points.
    fn square(&self, team: &Team) -> f64 {
        let sums = team.each(team.shares(self.size - 2), |share| {
            let rows = share.flat_map(|z| (1..self.size - 1).map(move |y| self.row(z + 1, y)));
            let square = |row: &[f64]| row[1..self.size - 1].iter().map(|point| point * point).sum::<f64>();
            rows.map(square).sum::<f64>()
        });
        sums.into_iter().sum()
    }
}

#[inline]
fn sum_rows(rows: [&[f64]; 4], sums: &mut [f64]) {
    let [first, second, third, fourth] = rows;
    let (first, second) = (first.iter().zip(second), third.iter().zip(fourth));
    for (sum, ((a, b), (c, d))) in sums.iter_mut().zip(first.zip(second)) {
        *sum = a + b + c + d;
    }
}

/// The solution and the residual on every grid, the coarsest first.
struct Solver<'a> {
    team: &'a Team<'a>,
    smoother: [f64; 3],
    u: Vec<Grid>,
    r: Vec<Grid>,
}

impl Solver<'_> {
    /// The finest solution and residual.
    fn fine(&mut self) -> (&mut Grid, &mut Grid) {
        let top = self.u.len() - 1;
        (&mut self.u[top], &mut self.r[top])
    }

    fn fine_residual(&mut self, right: &Grid) {
        let team = self.team;
        let (u, r) = self.fine();
        residual(team, u, Some(right), r);
    }

    /// One V-cycle.
    fn cycle(&mut self, right: &Grid) {
        let (team, top) = (self.team, self.u.len() - 1);
        for level in (0..top).rev() {
            let (coarse, fine) = self.r.split_at_mut(level + 1);
            restrict(team, &fine[0], &mut coarse[level]);
        }
        self.u[0].clear(team);
        smooth(team, self.smoother, &self.r[0], &mut self.u[0]);
        for level in 1..=top {
            let (coarse, fine) = self.u.split_at_mut(level);
            let (coarse, fine) = (&coarse[level - 1], &mut fine[0]);
            if level < top {
                fine.clear(team);
            }
            interpolate(team, coarse, fine);
            residual(team, fine, (level == top).then_some(right), &mut self.r[level]);
            smooth(team, self.smoother, &self.r[level], fine);
        }
    }
}

/// r = v − A·u, or r −= A·u without a right side.
fn residual(team: &Team, u: &Grid, right: Option<&Grid>, r: &mut Grid) {
    let size = u.size;
    r.set(team, |z, plane| {
        let (mut faces, mut edges) = (vec![0.0; size], vec![0.0; size]);
        for y in 1..size - 1 {
            u.around(z, y, &mut faces, &mut edges);
            let row = &mut plane[y * size..][..size];
            if let Some(right) = right {
                row.copy_from_slice(right.row(z, y));
            }
            let points = u.row(z, y).array_windows().zip(faces.array_windows()).zip(edges.array_windows());
            for (r, ((u, faces), edges)) in row[1..].iter_mut().zip(points) {
                let [_, u, _]: &[f64; 3] = u;
                let ([left, _, right], [before, edge, after]): (&[f64; 3], &[f64; 3]) = (faces, edges);
                *r = *r - A[0] * u - A[2] * (edge + left + right) - A[3] * (before + after);
            }
        }
    });
}

/// u += S·r.
fn smooth(team: &Team, smoother: [f64; 3], r: &Grid, u: &mut Grid) {
    let (size, [point, face, edge]) = (r.size, smoother);
    u.set(team, |z, plane| {
        let (mut faces, mut edges) = (vec![0.0; size], vec![0.0; size]);
        for y in 1..size - 1 {
            r.around(z, y, &mut faces, &mut edges);
            let points = r.row(z, y).array_windows().zip(faces.array_windows()).zip(&edges[1..]);
            for (u, ((r, faces), edges)) in plane[y * size + 1..][..size - 2].iter_mut().zip(points) {
                let ([west, r, east], [left, faces, right]): (&[f64; 3], &[f64; 3]) = (r, faces);
                *u = *u + point * r + face * (west + east + faces) + edge * (edges + left + right);
            }
        }
    });
}

/// The residual on the next coarser grid: each point takes a weighted mean of 27 fine ones.
fn restrict(team: &Team, fine: &Grid, coarse: &mut Grid) {
    let (size, coarse_size) = (fine.size, coarse.size);
    coarse.set(team, |z, plane| {
        let (mut faces, mut edges) = (vec![0.0; size], vec![0.0; size]);
        for y in 1..coarse_size - 1 {
            fine.around(2 * z, 2 * y, &mut faces, &mut edges);
            let points = fine.row(2 * z, 2 * y).array_windows().zip(faces.array_windows());
            // Points 2, 4, … of the fine row are points 1, 2, … of the coarse one.
            let points = points.zip(edges.array_windows()).skip(1).step_by(2);
            let coarse = &mut plane[y * coarse_size + 1..][..coarse_size - 2];
            for (coarse, ((points, faces), edges)) in coarse.iter_mut().zip(points) {
                let ([west, point, east], [left, face, right]): (&[f64; 3], &[f64; 3]) = (points, faces);
                let [before, edge, after]: &[f64; 3] = edges;
                *coarse = 0.5 * point
                    + 0.25 * (west + east + face)
                    + 0.125 * (left + right + edge)
                    + 0.0625 * (before + after);
            }
        }
    });
}

/// Adds to the fine solution the coarse one, interpolated linearly along each axis.
fn interpolate(team: &Team, coarse: &Grid, fine: &mut Grid) {
    let (size, coarse_size) = (fine.size, coarse.size);
    // Fine planes 2z and 2z + 1 come from coarse planes z and z + 1; this sets the repeated layer, too.
    let unit = 2 * size * size;
    let parts = zip(team.split(&mut fine.points, unit), team.shares(size / 2));
    team.each(parts, |(planes, share)| {
        let mut sums = [vec![0.0; coarse_size], vec![0.0; coarse_size], vec![0.0; coarse_size]];
        for (planes, z) in planes.chunks_exact_mut(unit).zip(share) {
            let (lower, upper) = planes.split_at_mut(unit / 2);
            let rows = lower.chunks_exact_mut(2 * size).zip(upper.chunks_exact_mut(2 * size));
            for (y, (lower, upper)) in rows.enumerate() {
                let (here, beside) = (coarse.row(z, y), coarse.row(z, y + 1));
                let (above, across) = (coarse.row(z + 1, y), coarse.row(z + 1, y + 1));
                let [in_y, in_z, in_both] = &mut sums;
                for x in 0..coarse_size {
                    in_y[x] = beside[x] + here[x];
                    in_z[x] = above[x] + here[x];
                    in_both[x] = across[x] + above[x] + in_y[x];
                }
                spread(here, 1.0, &mut lower[..size]);
                spread(in_y, 0.5, &mut lower[size..]);
                spread(in_z, 0.5, &mut upper[..size]);
                spread(in_both, 0.25, &mut upper[size..]);
            }
        }
    });
}

/// Adds weighted coarse points, and the means of neighbours in between, to a fine row.
#[inline]
fn spread(coarse: &[f64], weight: f64, fine: &mut [f64]) {
    for (fine, [left, right]) in fine.chunks_exact_mut(2).zip(coarse.array_windows()) {
        fine[0] += weight * left;
        fine[1] += 0.5 * weight * (left + right);
    }
}

/// The right side: +1 where the ten largest of random numbers would stand, −1 where the ten smallest.
fn charges(team: &Team, level: usize, seed: u64) -> Grid {
    let mut grid = Grid::zero(level);
    let inner = grid.size - 2;
    let found = team.each(team.shares(inner), |share| {
        let (mut largest, mut smallest) = (Extremes::default(), Extremes::default());
        let first = share.start * inner * inner;
        let mut random = Random::at(seed, first as u64);
        for place in first..share.end * inner * inner {
            let number = random.next();
            largest.offer(number, place);
            smallest.offer(-number, place);
        }
        (largest, smallest)
    });
    let (mut largest, mut smallest) = (Extremes::default(), Extremes::default());
    for (of_member, other) in &found {
        of_member.0.iter().for_each(|&(number, place)| largest.offer(number, place));
        other.0.iter().for_each(|&(number, place)| smallest.offer(number, place));
    }
    let charge = |plane: &mut [f64], z: usize, extremes: &Extremes, charge: f64| {
        for &(_, place) in &extremes.0 {
            let (x, y) = (place % inner, place / inner % inner);
            if place / (inner * inner) + 1 == z {
                plane[(y + 1) * (inner + 2) + x + 1] = charge;
            }
        }
    };
    grid.set(team, |z, plane| {
        charge(plane, z, &largest, 1.0);
        charge(plane, z, &smallest, -1.0);
    });
    grid
}

/// The largest numbers of those offered, in falling order, and their places.
#[derive(Default)]
struct Extremes(Vec<(f64, usize)>);

impl Extremes {
    fn offer(&mut self, number: f64, place: usize) {
        if self.0.last().is_some_and(|&(least, _)| self.0.len() == CHARGES && number <= least) {
            return;
        }
        let position = self.0.partition_point(|&(other, _)| other > number);
        self.0.insert(position, (number, place));
        self.0.truncate(CHARGES);
    }
}
