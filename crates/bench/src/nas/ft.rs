//! FT, "Fourier transform": a diffusion equation on a periodic box, solved in the space of frequencies
//! (RNR-94-007, §2.2).
//!
//! Random initial values are transformed once; each round multiplies every frequency by its decay, transforms
//! back and adds up 1,024 of the values. A transform in three dimensions is one along each axis in turn.
//! Lines along y and z are far apart in memory, and what a member needs for one axis was written by all the
//! others for the axis before: the long-distance communication that NPB means.
//!
//! Values lie in planes of z, frequencies in planes of y: so each member owns whole planes in both, and the
//! exchange happens where one is made from the other. That takes one array more than NPB's own program, which
//! transforms in place.

use super::problem::Problem;
use super::random::Random;
use super::team::Team;
use corewise_core::calibrate::NasRun;
use corewise_core::kernels::ProblemClass;
use std::f64::consts::PI;
use std::iter::zip;
use std::time::Instant;

/// So many lines are transformed at once, so that inner loops run over neighbours in memory.
const LINES: usize = 16;

/// The diffusion's α.
const ALPHA: f64 = 1e-6;

/// NPB's tolerance for checksums.
const EPSILON: f64 = 1e-12;

/// A complex number: real and imaginary part.
type Complex = [f64; 2];

/// FT at one size.
pub struct Ft {
    /// Points along x, y and z.
    size: [usize; 3],
    /// The published checksums, one a round.
    checksums: &'static [Complex],
}

impl Ft {
    /// The problem of a class, if it is built in.
    pub fn of(class: ProblemClass) -> Option<Self> {
        let (size, checksums): (_, &[Complex]) = match class {
            ProblemClass::S => ([64, 64, 64], &CHECKSUMS_S),
            ProblemClass::W => ([128, 128, 32], &CHECKSUMS_W),
            ProblemClass::A => ([256, 256, 128], &CHECKSUMS_A),
            ProblemClass::B => ([512, 256, 256], &CHECKSUMS_B),
            ProblemClass::C => return None,
        };
        Some(Self { size, checksums })
    }

    fn points(&self) -> usize {
        self.size.iter().product()
    }

    /// Whether each checksum is the published one, by the distance in the complex plane.
    fn checks(&self, sums: &[Complex]) -> bool {
        let close = |(sum, published): (&Complex, &Complex)| {
            let distance = (sum[0] - published[0]).hypot(sum[1] - published[1]);
            distance <= EPSILON * published[0].hypot(published[1])
        };
        sums.iter().zip(self.checksums).all(close)
    }
}

impl Problem for Ft {
    fn seed(&self) -> u64 {
        314_159_265
    }

    fn bytes(&self, threads: u64) -> u64 {
        let longest = self.size.into_iter().max().unwrap_or(0) as u64;
        self.points() as u64 * (3 * 16 + 8) + threads * longest * LINES as u64 * 32
    }

    fn operations(&self) -> f64 {
        let (points, rounds) = (self.points() as f64, self.checksums.len() as f64);
        let log = points.ln();
        points * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * rounds)
    }

    fn run(&self, team: &Team, seed: u64) -> NasRun {
        let zeros = || vec![[0.0; 2]; self.points()];
        let mut solver = Solver {
            team,
            size: self.size,
            roots: Roots::new(1),
            decay: vec![0.0; self.points()],
            frequencies: zeros(),
            work: zeros(),
            values: zeros(),
        };
        // NPB runs the beginning once untimed, and then times everything.
        solver.begin(seed);
        let start = Instant::now();
        solver.begin(seed);
        let sums: Vec<Complex> = self.checksums.iter().map(|_| solver.round()).collect();
        let verified = self.checks(&sums);
        NasRun { elapsed: start.elapsed(), verified }
    }
}

struct Solver<'a> {
    team: &'a Team<'a>,
    size: [usize; 3],
    roots: Roots,
    /// By how much a frequency decays in a round; in planes of y, as frequencies.
    decay: Vec<f64>,
    frequencies: Vec<Complex>,
    /// Frequencies that are being transformed back.
    work: Vec<Complex>,
    /// Values, in planes of z.
    values: Vec<Complex>,
}

impl Solver<'_> {
    /// Makes the decay, the initial values and their frequencies.
    fn begin(&mut self, seed: u64) {
        let (team, [nx, ny, nz]) = (self.team, self.size);
        self.roots = Roots::new(nx.max(ny).max(nz));
        // Frequencies count 0, 1, … up to the half and then from minus the half up to −1.
        let square = |index: usize, count: usize| {
            let frequency = ((index + count / 2) % count) as f64 - (count / 2) as f64;
            frequency * frequency
        };
        let parts = zip(team.split(&mut self.decay, nx * nz), team.shares(ny));
        team.each(parts, |(decay, share)| {
            let places = share.flat_map(|y| (0..nz).map(move |z| square(y, ny) + square(z, nz)));
            for (row, distance) in decay.chunks_exact_mut(nx).zip(places) {
                for (x, decay) in row.iter_mut().enumerate() {
                    *decay = (-4.0 * ALPHA * PI * PI * (square(x, nx) + distance)).exp();
                }
            }
        });
        let roots = &self.roots;
        let parts = zip(team.split(&mut self.values, nx * ny), team.shares(nz));
        team.each(parts, |(values, share)| {
            let mut random = Random::at(seed, (2 * share.start * nx * ny) as u64);
            values.iter_mut().for_each(|value| *value = [random.next(), random.next()]);
            let mut lines = Lines::new(roots, 1.0);
            for plane in values.chunks_exact_mut(nx * ny) {
                lines.transform_rows(plane, nx);
                lines.transform_columns(plane, nx);
            }
        });
        let values = &self.values;
        let parts = zip(team.split(&mut self.frequencies, nx * nz), team.shares(ny));
        team.each(parts, |(frequencies, share)| {
            let mut lines = Lines::new(roots, 1.0);
            for (plane, y) in frequencies.chunks_exact_mut(nx * nz).zip(share) {
                gather(plane, nx, |z| &values[(z * ny + y) * nx..][..nx]);
                lines.transform_columns(plane, nx);
            }
        });
    }

    /// One round; returns the checksum.
    fn round(&mut self) -> Complex {
        let (team, roots, [nx, ny, nz]) = (self.team, &self.roots, self.size);
        let decay = &self.decay;
        let arrays = zip(team.split(&mut self.frequencies, nx * nz), team.split(&mut self.work, nx * nz));
        team.each(zip(arrays, team.shares(ny)), |((frequencies, work), share)| {
            let mut lines = Lines::new(roots, -1.0);
            let decay = decay[share.start * nx * nz..].chunks_exact(nx * nz);
            let planes = frequencies.chunks_exact_mut(nx * nz).zip(work.chunks_exact_mut(nx * nz));
            for ((frequencies, work), decay) in planes.zip(decay) {
                for ((frequency, work), decay) in frequencies.iter_mut().zip(&mut *work).zip(decay) {
                    *frequency = frequency.map(|part| part * decay);
                    *work = *frequency;
                }
                lines.transform_columns(work, nx);
            }
        });
        let work = &self.work;
        let parts = zip(team.split(&mut self.values, nx * ny), team.shares(nz));
        team.each(parts, |(values, share)| {
            let mut lines = Lines::new(roots, -1.0);
            for (plane, z) in values.chunks_exact_mut(nx * ny).zip(share) {
                gather(plane, nx, |y| &work[(y * nz + z) * nx..][..nx]);
                lines.transform_columns(plane, nx);
                lines.transform_rows(plane, nx);
            }
        });
        self.checksum()
    }

    /// The mean that NPB defines: a sum of 1,024 values, divided by the number of all.
    fn checksum(&self) -> Complex {
        let [nx, ny, nz] = self.size;
        let mut sum = [0.0; 2];
        for index in 1..=1024 {
            let (x, y, z) = (index % nx, 3 * index % ny, 5 * index % nz);
            let value = self.values[(z * ny + y) * nx + x];
            sum = [sum[0] + value[0], sum[1] + value[1]];
        }
        sum.map(|part| part / self.values.len() as f64)
    }
}

/// Fills a plane from rows that lie apart.
fn gather<'a>(plane: &mut [Complex], width: usize, row: impl Fn(usize) -> &'a [Complex]) {
    plane.chunks_exact_mut(width).enumerate().for_each(|(index, into)| into.copy_from_slice(row(index)));
}

/// Roots of unity for lines of every length up to the longest: those of step l begin at l.
struct Roots(Vec<Complex>);

impl Roots {
    fn new(longest: usize) -> Self {
        let mut roots = vec![[1.0, 0.0]];
        let mut count = 1;
        while count < longest {
            let angle = |index: usize| PI * index as f64 / count as f64;
            roots.extend((0..count).map(angle).map(|angle| [angle.cos(), angle.sin()]));
            count *= 2;
        }
        Self(roots)
    }
}

/// Lines that are being transformed together, real and imaginary parts apart: the parts of all lines at one
/// place stand next to each other.
#[derive(Clone, Default)]
struct Block {
    real: Vec<f64>,
    imaginary: Vec<f64>,
}

/// What transforms lines: 1 forth, −1 back, without the division by the length, as NPB does.
struct Lines<'a> {
    roots: &'a Roots,
    sign: f64,
    block: Block,
    other: Block,
}

impl<'a> Lines<'a> {
    fn new(roots: &'a Roots, sign: f64) -> Self {
        Self { roots, sign, block: Block::default(), other: Block::default() }
    }

    fn resize(&mut self, length: usize) {
        for block in [&mut self.block, &mut self.other] {
            block.real.resize(length * LINES, 0.0);
            block.imaginary.resize(length * LINES, 0.0);
        }
    }

    /// Transforms the rows of a plane.
    fn transform_rows(&mut self, plane: &mut [Complex], width: usize) {
        self.resize(width);
        for rows in plane.chunks_exact_mut(LINES * width) {
            for (line, row) in rows.chunks_exact(width).enumerate() {
                for (place, value) in row.iter().enumerate() {
                    self.block.real[place * LINES + line] = value[0];
                    self.block.imaginary[place * LINES + line] = value[1];
                }
            }
            self.transform(width);
            for (line, row) in rows.chunks_exact_mut(width).enumerate() {
                for (place, value) in row.iter_mut().enumerate() {
                    let at = place * LINES + line;
                    *value = [self.block.real[at], self.block.imaginary[at]];
                }
            }
        }
    }

    /// Transforms the columns of a plane.
    fn transform_columns(&mut self, plane: &mut [Complex], width: usize) {
        let length = plane.len() / width;
        self.resize(length);
        for first in (0..width).step_by(LINES) {
            let Block { real, imaginary } = &mut self.block;
            let parts = real.chunks_exact_mut(LINES).zip(imaginary.chunks_exact_mut(LINES));
            for (row, (real, imaginary)) in plane.chunks_exact(width).zip(parts) {
                for ((value, real), imaginary) in row[first..].iter().zip(real).zip(imaginary) {
                    [*real, *imaginary] = *value;
                }
            }
            self.transform(length);
            let parts = self.block.real.chunks_exact(LINES).zip(self.block.imaginary.chunks_exact(LINES));
            for (row, (real, imaginary)) in plane.chunks_exact_mut(width).zip(parts) {
                for ((value, real), imaginary) in row[first..].iter_mut().zip(real).zip(imaginary) {
                    *value = [*real, *imaginary];
                }
            }
        }
    }

    /// Stockham's algorithm: each step halves the number of transforms and doubles their length, and leaves
    /// its output in order, so no reversal of bits is needed.
    fn transform(&mut self, length: usize) {
        let half = length / 2 * LINES;
        let mut groups = length / 2;
        while groups >= 1 {
            // In this step, `run` numbers in a row share a root.
            let run = half / groups;
            let Lines { block, other, .. } = self;
            for (group, root) in self.roots.0[groups..2 * groups].iter().enumerate() {
                let (near, far) =
                    (group * run..(group + 1) * run, half + group * run..half + (group + 1) * run);
                let to = 2 * group * run..2 * (group + 1) * run;
                butterfly(
                    [&block.real[near.clone()], &block.imaginary[near]],
                    [&block.real[far.clone()], &block.imaginary[far]],
                    [&mut other.real[to.clone()], &mut other.imaginary[to]],
                    [root[0], self.sign * root[1]],
                );
            }
            std::mem::swap(&mut self.block, &mut self.other);
            groups /= 2;
        }
    }
}

/// Sums, and differences times a root, of two runs of numbers.
#[inline]
fn butterfly(near: [&[f64]; 2], far: [&[f64]; 2], output: [&mut [f64]; 2], root: Complex) {
    let run = near[0].len();
    let ([near_real, near_imaginary], [far_real, far_imaginary]) = (near, far);
    let [(sum_real, difference_real), (sum_imaginary, difference_imaginary)] =
        output.map(|part| part.split_at_mut(run));
    // Slices of one length, so that the compiler needs no checks in the loop.
    let (near_imaginary, far_real, far_imaginary) =
        (&near_imaginary[..run], &far_real[..run], &far_imaginary[..run]);
    let (difference_real, difference_imaginary) =
        (&mut difference_real[..run], &mut difference_imaginary[..run]);
    for i in 0..run {
        sum_real[i] = near_real[i] + far_real[i];
        sum_imaginary[i] = near_imaginary[i] + far_imaginary[i];
        let (real, imaginary) = (near_real[i] - far_real[i], near_imaginary[i] - far_imaginary[i]);
        difference_real[i] = root[0] * real - root[1] * imaginary;
        difference_imaginary[i] = root[0] * imaginary + root[1] * real;
    }
}

const CHECKSUMS_S: [Complex; 6] = [
    [554.6087004964, 484.5363331978],
    [554.6385409189, 486.5304269511],
    [554.6148406171, 488.3910722336],
    [554.5423607415, 490.1273169046],
    [554.4255039624, 491.7475857993],
    [554.2683411902, 493.2597244941],
];

const CHECKSUMS_W: [Complex; 6] = [
    [567.3612178944, 529.3246849175],
    [563.1436885271, 528.2149986629],
    [559.4024089970, 527.0996558037],
    [556.0698047020, 526.0027904925],
    [553.0898991250, 524.9400845633],
    [550.4159734538, 523.9212247086],
];

const CHECKSUMS_A: [Complex; 6] = [
    [504.6735008193, 511.4047905510],
    [505.9412319734, 509.8809666433],
    [506.9376896287, 509.8144042213],
    [507.7892868474, 510.1336130759],
    [508.5233095391, 510.4914655194],
    [509.1487099959, 510.7917842803],
];

const CHECKSUMS_B: [Complex; 20] = [
    [517.7643571579, 507.7803458597],
    [515.4521291263, 508.8249431599],
    [514.6409228649, 509.6208912659],
    [514.2378756213, 510.1023387619],
    [513.9626667737, 510.3976610617],
    [513.7423460082, 510.5948019802],
    [513.5547056878, 510.7404165783],
    [513.3910925466, 510.8576573661],
    [513.2470705390, 510.9577278523],
    [513.1197729984, 511.0460304483],
    [513.0070319283, 511.1252433800],
    [512.9070537032, 511.1968077718],
    [512.8182883502, 511.2616233064],
    [512.7393733383, 511.3203605551],
    [512.6691062020, 511.3735928093],
    [512.6064276004, 511.4218460548],
    [512.5504076570, 511.4656139760],
    [512.5002331720, 511.5053595966],
    [512.4551951846, 511.5415130407],
    [512.4146770029, 511.5744692211],
];
