//! `corewise paths`: path profiles, and profiles for optimisers, from branches recorded in software.

use crate::session::exited;
use anyhow::Result;
use std::process::ExitStatus;

mod accuracy;
mod build_id;
mod export;
mod file;
mod merge;
mod record;
mod report;
mod store;
mod truth;

pub use build_id::how_to_get_build_id;
pub use export::{ModuleCounts, without_other_builds};
pub use file::read_recording;
pub use store::{Limits, Store, read_all};

/// Record which way branches go, and make profiles for people and compilers.
#[derive(Debug, clap::Args)]
pub struct Paths {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Record(record::Record),
    Report(report::Report),
    Export(export::Export),
    Merge(merge::Merge),
    Truth(truth::Truth),
    Accuracy(accuracy::Accuracy),
}

/// Returns the report of a recording in memory.
#[cfg(test)]
pub fn report_of(recording: Vec<u8>) -> Result<String> {
    report::of(&file::parse_recording(recording)?)
}

impl Paths {
    /// Executes the command; returns how to end.
    pub fn execute(self) -> Result<ExitStatus> {
        match self.action {
            Action::Record(record) => record.execute(),
            Action::Report(report) => report.execute().map(exited),
            Action::Export(export) => export.execute().map(exited),
            Action::Merge(merge) => merge.execute().map(exited),
            Action::Truth(truth) => truth.execute().map(exited),
            Action::Accuracy(accuracy) => accuracy.execute().map(exited),
        }
    }

    /// Returns the exit status for an error: that of a run if a command was to be run, else 1.
    pub fn exit_status_of(&self) -> fn(&anyhow::Error) -> u8 {
        match &self.action {
            Action::Record(_) | Action::Truth(_) => crate::session::exit_status_of,
            Action::Report(_) | Action::Export(_) | Action::Merge(_) | Action::Accuracy(_) => |_| 1,
        }
    }
}
