//! `corewise demo`: shows on this machine what corewise gains for programs that wait for each other.

use super::compare::{COPIES_MAX, Compare, INTERRUPTED};
use crate::values;
use anyhow::{Context, Result};
use clap::Parser;
use corewise_bench::openmp;
use corewise_core::comparison::Ending;
use corewise_daemon::client;
use corewise_render::comparison::demonstration::{Circumstances, next_step, verdict};
use corewise_render::terminal;

/// The subcommand that is the program itself.
pub const PROGRAM: &str = "demo-program";

/// Show within a minute what corewise gains here, for four programs at once.
///
/// Four OpenMP programs run with corewise and without it. The last lines say in a sentence what that gained,
/// or why nothing can be said, and what to do next. Runs `corewise compare`, whose command line it prints,
/// with a small OpenMP program that is built in (it needs libgomp1). Nothing else is changed, and nothing
/// stays.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// How many programs at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = values::whole(1..=COPIES_MAX))]
    copies: u32,
    /// How many parallel regions each executes
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = values::whole(1..=u64::MAX))]
    regions: u64,
    /// How long at the longest, roughly
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = values::time_text)]
    budget: String,
}

/// The command line of the comparison.
#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    compare: Compare,
}

impl Demo {
    /// Compares, and says in a sentence what that has shown; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        // A missing library is named once, and not as the failure of four programs.
        openmp::regions(0)?;
        let words = self.comparison()?;
        terminal::message(format_args!(
            "runs {} OpenMP programs at once, with and without corewise in random order, for some {}:\n\
             corewise {}",
            self.copies,
            self.budget,
            shlex::try_join(words.iter().map(String::as_str))?
        ));
        let (comparison, ending) = Line::try_parse_from(words)?.compare.compare()?;
        let is_interrupted = ending == Ending::Interrupted;
        let circumstances = Circumstances { has_daemon: client::running().is_some(), is_interrupted };
        let verdict = verdict(&comparison, &comparison.findings(), circumstances);
        terminal::print(&format!("\nverdict: {verdict}\n\n{}\n", next_step()))?;
        Ok(if is_interrupted { INTERRUPTED } else { 0 })
    }

    /// Returns the words of the `corewise compare` that shows it.
    fn comparison(&self) -> Result<Vec<String>> {
        let own = std::env::current_exe().context("cannot find corewise's own file")?;
        let own = own.to_str().with_context(|| format!("{} is not UTF-8: rename it", own.display()))?;
        let (copies, regions) = (self.copies.to_string(), self.regions.to_string());
        let under_corewise = format!("corewise={} run --quiet --", shlex::try_quote(own)?);
        let options = ["compare", "--copies", &copies, "--budget", &self.budget, "--warmup", "0"];
        let variant = ["--same-output", "--variant", &under_corewise, "--", own, PROGRAM, &regions];
        Ok(options.into_iter().chain(variant).map(str::to_owned).collect())
    }
}

/// The program: executes so many parallel regions, and prints the sum of their results.
pub fn program(regions: u64) -> Result<u8> {
    terminal::print(&format!("{:.12e}\n", openmp::regions(regions)?))?;
    Ok(0)
}
