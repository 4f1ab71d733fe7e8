//! Benchmarks of the NAS Parallel Benchmarks: realistic mixtures of what the kernels stress one by one
//! (interdependencies, §3.4).
//!
//! They are written from the specification (Bailey et al., *The NAS Parallel Benchmarks*, RNR-94-007) and
//! verified, at NPB's own tolerances, against the values that NPB 3.x publishes. One thread runs on each PE.
//! The timed part is that of NPB: without the creation of the problem, and after one untimed round where NPB
//! has one. These are no NPB results in the sense of its rules; they compare placements on one machine.

mod cg;
mod ep;
mod ft;
mod is;
mod mg;
pub mod npb;
mod random;
mod team;

use super::memory;
use corewise_core::calibrate::NasRun;
use corewise_core::ids::PeId;
use corewise_core::kernels::{Nas, ProblemClass};
use nix::errno::Errno;
use std::path::Path;
use team::Team;

/// Why a benchmark did not run.
#[derive(Debug, thiserror::Error)]
pub enum NasError {
    /// The benchmark, or this size of it, is not built in.
    #[error("{} {class:?} is not built in: give a directory with your own NPB binaries", nas.name())]
    NotBuiltIn {
        /// The benchmark.
        nas: Nas,
        /// Its size.
        class: ProblemClass,
    },
    /// There are no PEs to run on.
    #[error("a benchmark needs at least one PE")]
    NoPes,
    /// A thread could not be bound.
    #[error("cannot run on PE {pe}: {errno}: is it online, and within the cpuset of this process?")]
    Bind {
        /// The PE.
        pe: PeId,
        /// The system's error.
        errno: Errno,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}: raise the limit on processes (ulimit -u), or use fewer PEs")]
    Thread(std::io::Error),
    /// The problem does not fit.
    #[error(
        "{} {class:?} needs {} MiB of memory, and {} MiB may be taken: take a smaller class, or stop what \
         else runs", nas.name(), needed >> 20, available >> 20
    )]
    Memory {
        /// The benchmark.
        nas: Nas,
        /// Its size.
        class: ProblemClass,
        /// The required memory, in bytes.
        needed: u64,
        /// The available memory, in bytes.
        available: u64,
    },
}

/// A benchmark at one size.
trait Problem: Sync {
    /// Returns NPB's seed. With any other seed the result must not verify.
    fn seed(&self) -> u64;

    /// Returns the required memory, in bytes.
    fn bytes(&self, threads: u64) -> u64;

    /// Returns the number of operations as NPB counts them for its Mop/s.
    fn operations(&self) -> f64;

    /// Runs it.
    fn run(&self, team: &Team, seed: u64) -> NasRun;
}

fn problem(nas: Nas, class: ProblemClass) -> Result<Box<dyn Problem>, NasError> {
    let problem: Option<Box<dyn Problem>> = match nas {
        Nas::Cg => cg::Cg::of(class).map(|cg| Box::new(cg) as _),
        Nas::Ep => ep::Ep::of(class).map(|ep| Box::new(ep) as _),
        Nas::Ft => ft::Ft::of(class).map(|ft| Box::new(ft) as _),
        Nas::Is => is::Is::of(class).map(|is| Box::new(is) as _),
        Nas::Mg => mg::Mg::of(class).map(|mg| Box::new(mg) as _),
        Nas::Bt | Nas::Lu | Nas::Sp | Nas::Ua => None,
    };
    problem.ok_or(NasError::NotBuiltIn { nas, class })
}

/// Runs a benchmark with one thread on each of the PEs; a PE that is named twice gets two. Takes between
/// milliseconds (S) and minutes (B).
pub fn run(nas: Nas, class: ProblemClass, pes: &[PeId]) -> Result<NasRun, NasError> {
    let problem = problem(nas, class)?;
    fits(nas, class, problem.bytes(pes.len() as u64), memory::allowance(Path::new("/")))?;
    team::run(pes, |team| problem.run(team, problem.seed()))
}

fn fits(nas: Nas, class: ProblemClass, needed: u64, available: Option<u64>) -> Result<(), NasError> {
    match available {
        Some(available) if available < needed => Err(NasError::Memory { nas, class, needed, available }),
        _ => Ok(()),
    }
}

/// Returns the number of operations as NPB counts them: floating-point operations, for EP random numbers, for
/// IS keys ranked.
pub fn operations(nas: Nas, class: ProblemClass) -> Result<f64, NasError> {
    Ok(problem(nas, class)?.operations())
}

/// Returns whether a result is the published one within a relative error.
fn close_to(result: f64, published: f64, epsilon: f64) -> bool {
    ((result - published) / published).abs() <= epsilon
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_sys::affinity;

    fn pes(threads: usize) -> Vec<PeId> {
        let usable: Vec<_> = affinity::get(0).unwrap().iter().collect();
        usable.into_iter().cycle().take(threads).collect()
    }

    #[test]
    fn results_are_the_published_ones_with_any_number_of_threads() {
        for nas in Nas::OWN {
            for threads in 1..=3 {
                let run = run(nas, ProblemClass::S, &pes(threads)).unwrap();
                assert!(run.verified, "{nas:?} with {threads} threads");
                assert!(!run.elapsed.is_zero());
            }
        }
    }

    #[test]
    fn with_another_seed_the_result_is_another() {
        for nas in Nas::OWN {
            let problem = problem(nas, ProblemClass::S).unwrap();
            let run = team::run(&pes(2), |team| problem.run(team, problem.seed() + 2)).unwrap();
            assert!(!run.verified, "{nas:?}");
        }
    }

    #[test]
    fn a_problem_that_does_not_fit_is_refused() {
        let (nas, class) = (Nas::Ft, ProblemClass::B);
        let needed = problem(nas, class).unwrap().bytes(2);
        assert!(fits(nas, class, needed, Some(needed)).is_ok());
        assert!(fits(nas, class, needed, None).is_ok(), "where the kernel does not say, it is tried");
        let error = fits(nas, class, needed, Some(1 << 30)).unwrap_err().to_string();
        assert!(error.starts_with("FT B needs 1792 MiB of memory, and 1024 MiB may be taken: "), "{error}");
    }

    #[test]
    fn what_is_not_built_in_is_refused() {
        for (nas, class) in [(Nas::Bt, ProblemClass::S), (Nas::Cg, ProblemClass::C)] {
            let error = run(nas, class, &pes(1)).unwrap_err().to_string();
            assert!(error.contains("is not built in"), "{error}");
        }
    }
}
