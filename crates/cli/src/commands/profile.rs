//! `corewise profile`: shows machine profiles, and the differences between two.

use crate::outputs::JsonOutput;
use crate::profile_file;
use crate::profile_views::Views;
use anyhow::Result;
use corewise_core::profile::{ProfileDiff, diff};
use corewise_render::profile::words;
use std::fmt::Write;
use std::path::PathBuf;

/// The share of unchanged figures whose intervals do not overlap by chance: see `profile::diff`.
const BY_CHANCE: f64 = 0.006;

/// Show a machine profile, or what changed between two.
#[derive(Debug, clap::Args)]
pub struct Profile {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Show(Show),
    Diff(Diff),
}

/// Show a profile: as text, page, drawings, CSV or JSON
#[derive(Debug, clap::Args)]
struct Show {
    /// The profile
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    views: Views,
}

/// Show what changed from profile A to profile B
///
/// A figure has changed if its two 95 % intervals do not overlap. The exit status is as that of diff(1): 0 if
/// nothing changed, 1 if something did, 2 if a profile cannot be read.
#[derive(Debug, clap::Args)]
struct Diff {
    /// The profile before
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The profile after
    #[arg(value_name = "B")]
    after: PathBuf,
    #[command(flatten)]
    json: JsonOutput,
}

impl Profile {
    /// Shows or compares; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        match self.action {
            Action::Show(show) => show.execute(),
            Action::Diff(diff) => diff.execute(),
        }
    }
}

impl Show {
    fn execute(self) -> Result<u8> {
        let profile = profile_file::read(&self.file)?;
        self.views.check()?;
        self.views.write(&profile)?;
        self.views.print(&profile)?;
        Ok(0)
    }
}

impl Diff {
    fn execute(self) -> Result<u8> {
        let (before, after) = (profile_file::read(&self.before)?, profile_file::read(&self.after)?);
        let diff = diff(&before, &after);
        self.json.show(&diff, || describe(&diff))?;
        Ok(u8::from(!diff.changed.is_empty() || !diff.topology.is_empty()))
    }
}

fn describe(diff: &ProfileDiff) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_description(&mut text, diff);
    text
}

fn write_description(out: &mut String, diff: &ProfileDiff) -> std::fmt::Result {
    writeln!(
        out,
        "{} of {} figures changed (by chance alone: about {:.0}), {} are too imprecise to show a change of a \
         tenth.",
        diff.changed.len(),
        diff.compared,
        diff.compared as f64 * BY_CHANCE,
        diff.unclear
    )?;
    diff.topology.iter().try_for_each(|words| writeln!(out, "topology: {words}"))?;
    for change in &diff.changed {
        let (before, after) = (words::interval(change.before), words::interval(change.after));
        let size = change.size.map_or("from nothing".to_owned(), |size| format!("{size:+.2}"));
        writeln!(out, "{}: {before} -> {after} ({size})", change.what)?;
    }
    for (which, only) in [("the first", &diff.only_first), ("the second", &diff.only_second)] {
        if !only.is_empty() {
            writeln!(out, "only in {which}: {} of the figures, such as {}", only.len(), only[0])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_render::profile::fixture;

    #[test]
    fn a_change_is_printed_with_both_intervals() {
        let before = fixture::smt();
        let mut after = before.clone();
        after.speeds[3].relative = fixture::about(0.5);
        after.nas.pop();
        insta::assert_snapshot!(describe(&diff(&before, &after)));
        assert!(describe(&diff(&before, &before)).starts_with("0 of "));
    }
}
