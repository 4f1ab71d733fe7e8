//! Benchmarks of the NAS Parallel Benchmarks: realistic mixtures of what the kernels stress one by one
//! (interdependencies, §3.4).
//!
//! They are written from the specification (Bailey et al., *The NAS Parallel Benchmarks*, RNR-94-007) and
//! verified, at NPB's own tolerances, against the values that NPB 3.x publishes. One thread runs on each PE.
//! The timed part is that of NPB: without the creation of the problem, and after one untimed round where NPB
//! has one. These are no NPB results in the sense of its rules; they compare placements on one machine.

mod cg;
mod ep;
mod error;
mod ft;
mod is;
mod mg;
pub mod npb;
mod problem;
mod random;
mod team;

pub use error::NasError;

use super::memory;
use corewise_core::calibrate::NasRun;
use corewise_core::ids::PeId;
use corewise_core::kernels::{Nas, ProblemClass};
use problem::Problem;
use std::path::Path;

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
