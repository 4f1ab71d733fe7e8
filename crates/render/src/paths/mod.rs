//! Path profiles.

pub mod accuracy;
mod flame;
pub mod page;
pub mod table;

use corewise_paths::study::Row;
use serde::Serialize;

/// The results of a study of accuracy.
#[derive(Debug, Serialize)]
pub struct Study {
    /// The evidence of the figures.
    pub evidence: &'static str,
    /// The command.
    pub command: Vec<String>,
    /// The sampler.
    pub backend: String,
    /// All runs, by period and branches: the paper's Figure 3.
    pub by_period: Vec<Row>,
    /// The shortest period, by runs and branches: the paper's Figures 4 and 5.
    pub by_runs: Vec<Row>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Study {
    /// Returns the rows of all runs with the shortest period.
    pub fn whole(&self) -> impl Iterator<Item = &Row> {
        let runs = self.by_runs.iter().map(|row| row.runs).max();
        self.by_runs.iter().filter(move |row| Some(row.runs) == runs)
    }
}

/// Returns the last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
