//! What a benchmark is.

use super::team::Team;
use corewise_core::calibrate::NasRun;

/// A benchmark at one size.
pub trait Problem: Sync {
    /// Returns NPB's seed. With any other seed the result must not verify.
    fn seed(&self) -> u64;

    /// Returns the required memory, in bytes.
    fn bytes(&self, threads: u64) -> u64;

    /// Returns the number of operations as NPB counts them for its Mop/s.
    fn operations(&self) -> f64;

    /// Runs it.
    fn run(&self, team: &Team, seed: u64) -> NasRun;
}

/// Returns whether a result is the published one within a relative error.
pub fn close_to(result: f64, published: f64, epsilon: f64) -> bool {
    ((result - published) / published).abs() <= epsilon
}
