//! `corewise experiment`: simulates the experiments of the papers.

use crate::outputs::{JsonOutput, OutputFile};
use crate::{experiments, values, whole_file};
use anyhow::{Context, Result, bail};
use corewise_core::policy::PolicySpec;
use corewise_render::experiment::{index, page, table, worlds};
use corewise_render::table::Table;
use corewise_render::terminal;
use corewise_sim::experiment::ExperimentResult;
use corewise_sim::experiment::worlds::WorldsRequest;
use corewise_sim::experiment::worlds::standing::{LikeliestWorld, WorldsResult, likeliest};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::Path;

/// Run published experiments on simulated machines, and compare the results.
///
/// An experiment is a folder with an experiment.toml (docs/experiments.md). Those of the corewise repository
/// are part of this command. All figures are simulated.
#[derive(Debug, clap::Args)]
pub struct Experiment {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the experiments that are built in
    List,
    /// Run one experiment, or all
    Run(Run),
}

/// Threads beyond that help nobody.
const JOBS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

#[derive(Debug, clap::Args)]
struct Run {
    /// Its name, the path of a folder with an experiment.toml, or `all`
    #[arg(value_name = "NAME|all")]
    name: String,
    /// Write a page; with `all` the directory for one page each and an index.html with all claims
    #[arg(long, value_name = "FILE|DIR")]
    html: Option<OutputFile>,
    #[command(flatten)]
    json: JsonOutput,
    /// How many seeds, instead of the experiment's own numbers; with --worlds in each world [default: 4]
    #[arg(long, value_name = "N", value_parser = values::whole(1..=u32::MAX))]
    runs: Option<u32>,
    /// Judge the claims in this many plausible worlds: values of all that the paper leaves open
    #[arg(long, value_name = "N", value_parser = values::whole(1..=WORLDS_MAX), conflicts_with = "html")]
    worlds: Option<u32>,
    /// The seed of the worlds [default: 1]
    #[arg(long, value_name = "N", value_parser = values::whole(0..=u64::MAX), requires = "worlds")]
    seed: Option<u64>,
    /// Judge this policy in the same worlds; may be given several times
    #[arg(long, value_name = "POLICY", requires = "worlds")]
    policy: Vec<PolicySpec>,
    /// How many threads simulate; as many as there are PEs if left out. The results are the same
    #[arg(long, value_name = "N", value_parser = values::whole(NonZeroUsize::MIN..=JOBS_MAX))]
    jobs: Option<NonZeroUsize>,
}

/// More worlds tell nothing more.
const WORLDS_MAX: u32 = 1_000_000;

/// Seeds in each world: the worlds, too, are drawn by chance, and many of them say more than many seeds.
const RUNS_IN_A_WORLD: u32 = 4;

/// What `--json` writes of worlds.
#[derive(Serialize)]
struct OverWorlds<'a> {
    evidence: &'static str,
    experiments: &'a [WorldsResult],
    likeliest: &'a [LikeliestWorld],
}

/// What `--json` writes.
#[derive(Serialize)]
struct Results<'a> {
    evidence: &'static str,
    experiments: &'a [ExperimentResult],
}

impl Experiment {
    /// Lists or runs experiments; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        match self.action {
            Action::List => {
                let mut table = Table::new("<<");
                for name in experiments::names() {
                    let spec = experiments::load(name)?.spec;
                    table.row([name, &format!("{}, {}: {}", spec.source, spec.figure, spec.title)]);
                }
                terminal::print(&format!(
                    "These are built in; `corewise experiment run NAME` simulates one.\n\n{table}"
                ))?;
            }
            Action::Run(run) => run.execute()?,
        }
        Ok(0)
    }
}

impl Run {
    fn execute(self) -> Result<()> {
        let all = self.name == "all";
        let names = if all { experiments::names() } else { vec![self.name.as_str()] };
        self.check_outputs(all)?;
        let to_stdout = self.json.is_printed();
        let available = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let workers = self.jobs.unwrap_or_else(available);
        if let Some(count) = self.worlds {
            return self.over_worlds(&names, count, workers);
        }
        let mut results = Vec::new();
        for name in names {
            let mut experiment = experiments::load(name)?;
            if let Some(runs) = self.runs {
                experiment = experiment.with_runs(runs);
            }
            let result = experiments::run(&experiment, workers)?;
            if !to_stdout && !all {
                terminal::print(&table::render(&result))?;
            }
            if let Some(html) = &self.html {
                let path = if all { html.join(format!("{name}.html")) } else { html.to_path_buf() };
                write(&path, &page::render(&result))?;
            }
            results.push(result);
            // After each, as all take long.
            if let Some(directory) = self.html.as_ref().filter(|_| all) {
                write(&directory.join("index.html"), &index::render(&results))?;
            }
        }
        if all && !to_stdout {
            terminal::print(&table::render_claims(&results))?;
        }
        let results = Results { evidence: "simulated", experiments: &results };
        self.json.show(&results, String::new)
    }

    fn over_worlds(&self, names: &[&str], count: u32, workers: NonZeroUsize) -> Result<()> {
        let request = WorldsRequest {
            count,
            seed: self.seed.unwrap_or(1),
            runs: self.runs.unwrap_or(RUNS_IN_A_WORLD),
            policies: self.policy.clone(),
        };
        let mut results = Vec::new();
        for name in names {
            let result = experiments::over_worlds(&experiments::load(name)?, request.clone(), workers)?;
            if !self.json.is_printed() {
                terminal::print(&worlds::render(&result))?;
            }
            results.push(result);
        }
        let likeliest = likeliest(&results);
        if !self.json.is_printed() {
            let all = results.len() > 1;
            terminal::print(&if all {
                worlds::render_all(&results, &likeliest)
            } else {
                worlds::best(&likeliest)
            })?;
        }
        let results = OverWorlds { evidence: "simulated", experiments: &results, likeliest: &likeliest };
        self.json.show(&results, String::new)
    }

    /// Fails before the simulations if the output cannot be written.
    fn check_outputs(&self, all: bool) -> Result<()> {
        match &self.html {
            Some(directory) if all => {
                std::fs::create_dir_all(directory)
                    .with_context(|| format!("cannot make {}", directory.display()))?;
            }
            Some(file) if file.is_dir() => bail!("{} is a directory: name a file in it", file.display()),
            Some(file) => whole_file::check_writable(file)?,
            None => {}
        }
        self.json.check()
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    whole_file::write(path, text.as_bytes())
}
