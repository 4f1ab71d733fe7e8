//! The loop that makes the runs.

use super::design::{Next, next};
use super::plan::{Plan, Record, Subject};
use crate::comparison::{Executor, Made};

/// What happens while pairs are measured.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run begins.
    Run {
        /// What runs.
        subject: Subject,
        /// The number of pairs that are measured.
        measured: usize,
        /// How exactly unseen pairs are predicted, and how exactly they are measured, once that is known.
        errors: Option<(f64, f64)>,
    },
    /// A run has been made.
    Ran(&'a Record),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The next pair would teach nothing, or all are measured.
    Complete,
    /// The user, or the caller, interrupted.
    Interrupted,
}

/// Makes the missing runs. `report` returns whether to go on.
pub fn conduct<E: Executor>(
    executor: &mut E,
    plan: &Plan,
    records: &mut Vec<Record>,
    report: &mut dyn FnMut(&Progress<'_>) -> bool,
) -> Result<Ending, E::Error> {
    let subjects = plan.subjects();
    while let Some(Next { subject, measured, errors }) = next(plan, records) {
        if !report(&Progress::Run { subject, measured, errors }) {
            return Ok(Ending::Interrupted);
        }
        let index = subjects.iter().position(|other| *other == subject).unwrap_or_default();
        match executor.run(index)? {
            Made::Run(run) => {
                let seconds = run.completions.iter().map(|one| one.seconds).collect();
                let record = Record { subject, seconds };
                let goes_on = report(&Progress::Ran(&record));
                records.push(record);
                if !goes_on {
                    return Ok(Ending::Interrupted);
                }
            }
            Made::StoodStill(_) => {}
            Made::Interrupted => return Ok(Ending::Interrupted),
        }
    }
    Ok(Ending::Complete)
}
