//! EP, "embarrassingly parallel": pairs of normally distributed random numbers (RNR-94-007, §2.2).
//!
//! 2^m pairs of uniform numbers within −1 to 1 are made; those within the unit circle become pairs of
//! Gaussian numbers by the polar method. Their sums, and how many pairs fall into each square ring around the
//! origin, are the result. Nothing but the sums is shared, and nothing but a block of random numbers is in
//! memory.

use super::problem::{Problem, close_to};
use super::random::Random;
use super::team::Team;
use corewise_core::calibrate::NasRun;
use corewise_core::kernels::ProblemClass;
use std::time::Instant;

/// Pairs are made in blocks of this many, so that the generator's chain of multiplications does not delay
/// the rest.
const BLOCK: u64 = 1 << 16;

/// NPB's tolerance for the sums.
const EPSILON: f64 = 1e-8;

/// EP at one size.
pub struct Ep {
    /// The number of pairs is 2 to the power of this.
    log_pairs: u32,
    /// The published sums.
    sums: [f64; 2],
    /// The published counts of pairs per ring; those further out are empty.
    rings: [u64; 7],
}

#[derive(Default)]
struct Tally {
    sums: [f64; 2],
    rings: [u64; 10],
}

impl Ep {
    /// The problem of a class, if it is built in.
    pub fn of(class: ProblemClass) -> Option<Self> {
        let (log_pairs, sums, rings) = match class {
            ProblemClass::S => (
                24,
                [-3.24783465203474e3, -6.958407078382297e3],
                [6_140_517, 5_865_300, 1_100_361, 68_546, 1_648, 17, 0],
            ),
            ProblemClass::W => (
                25,
                [-2.863319731645753e3, -6.320053679109499e3],
                [12_281_576, 11_729_692, 2_202_726, 137_368, 3_371, 36, 0],
            ),
            ProblemClass::A => (
                28,
                [-4.295875165629892e3, -1.580732573678431e4],
                [98_257_395, 93_827_014, 17_611_549, 1_110_028, 26_536, 245, 0],
            ),
            ProblemClass::B => (
                30,
                [4.033815542441498e4, -2.660669192809235e4],
                [393_058_470, 375_280_898, 70_460_742, 4_438_852, 105_691, 948, 5],
            ),
            ProblemClass::C => return None,
        };
        Some(Self { log_pairs, sums, rings })
    }
}

impl Problem for Ep {
    fn seed(&self) -> u64 {
        271_828_183
    }

    fn bytes(&self, threads: u64) -> u64 {
        threads * BLOCK * 16
    }

    fn operations(&self) -> f64 {
        (1u64 << (self.log_pairs + 1)) as f64
    }

    fn run(&self, team: &Team, seed: u64) -> NasRun {
        let blocks = (1u64 << self.log_pairs) / BLOCK;
        let start = Instant::now();
        let tallies = team.each(team.shares(blocks as usize), |blocks| {
            let mut numbers = vec![0.0; 2 * BLOCK as usize];
            let mut tally = Tally::default();
            for block in blocks {
                let mut random = Random::at(seed, block as u64 * 2 * BLOCK);
                numbers.iter_mut().for_each(|number| *number = random.next());
                tally.add(&numbers);
            }
            tally
        });
        let total = tallies.into_iter().fold(Tally::default(), Tally::plus);
        let elapsed = start.elapsed();
        let sums_match = total.sums.iter().zip(self.sums).all(|(&sum, is)| close_to(sum, is, EPSILON));
        let (rings, beyond) = total.rings.split_at(self.rings.len());
        let rings_match = rings == self.rings && beyond.iter().all(|&count| count == 0);
        NasRun { elapsed, verified: sums_match && rings_match }
    }
}

impl Tally {
    /// Turns pairs of uniform numbers into Gaussian ones and counts them.
    fn add(&mut self, numbers: &[f64]) {
        for pair in numbers.chunks_exact(2) {
            let (x, y) = (2.0 * pair[0] - 1.0, 2.0 * pair[1] - 1.0);
            let square = x * x + y * y;
            if square <= 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                let (x, y) = (x * factor, y * factor);
                self.rings[x.abs().max(y.abs()) as usize] += 1;
                self.sums[0] += x;
                self.sums[1] += y;
            }
        }
    }

    fn plus(mut self, other: Self) -> Self {
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, other)| *sum += other);
        self.rings.iter_mut().zip(other.rings).for_each(|(ring, other)| *ring += other);
        self
    }
}
