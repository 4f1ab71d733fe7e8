//! `corewise experiment`: simulates the experiments of the papers.

use crate::outputs::{JsonOutput, OutputFile};
use crate::worlds_file::{self, WorldsFile};
use crate::{experiments, values, whole_file};
use anyhow::{Context, Result, bail};
use corewise_core::policy::PolicySpec;
use corewise_render::experiment::{index, page, table, worlds};
use corewise_render::table::Table;
use corewise_render::terminal;
use corewise_sim::experiment::ExperimentResult;
use corewise_sim::experiment::worlds::WorldsRequest;
use corewise_sim::experiment::worlds::finished::{Asked, Finished, Shard};
use corewise_sim::experiment::worlds::standing::{LikeliestWorld, WorldsResult, likeliest};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

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
    /// Put the worlds of several files of `run --resume` together: the same result as of one run
    Merge(Merge),
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
    /// Write each world to this file as it is finished, and go on from those that it holds already
    #[arg(long, value_name = "FILE", requires = "worlds")]
    resume: Option<PathBuf>,
    /// Simulate only every N-th world, from the I-th on: for a batch system
    #[arg(long, value_name = "I/N", requires = "resume", conflicts_with = "json")]
    shard: Option<Shard>,
    /// How many threads simulate; as many as there are PEs if left out. The results are the same
    #[arg(long, value_name = "N", value_parser = values::whole(NonZeroUsize::MIN..=JOBS_MAX))]
    jobs: Option<NonZeroUsize>,
}

#[derive(Debug, clap::Args)]
struct Merge {
    /// Files of `corewise experiment run --resume`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    json: JsonOutput,
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
            Action::Merge(merge) => merge.execute()?,
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
        let asked = Asked::new(env!("CARGO_PKG_VERSION"), names, &request);
        let (file, mut finished) = match &self.resume {
            Some(path) => {
                let (file, finished) = WorldsFile::open(path, asked)?;
                (Some(file), finished)
            }
            None => (None, Finished::none(asked)),
        };
        let shard = self.shard.unwrap_or(Shard::ALL);
        let simulate = |number: usize, name: &str| {
            let experiment = experiments::load(name)?;
            experiments::in_worlds((number, &experiment), shard, &mut finished, file.as_ref(), workers)?;
            if self.shard.is_some() {
                return Ok(None);
            }
            experiments::over_worlds((number, &experiment), &finished).map(Some)
        };
        if !show(&self.json, names, simulate)?
            && let Some(file) = &self.resume
        {
            let command = format!("corewise experiment merge {}", file.display());
            terminal::print(&format!(
                "`{command}`, with the files of all other shards, shows the result.\n"
            ))?;
        }
        Ok(())
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

impl Merge {
    fn execute(self) -> Result<()> {
        self.json.check()?;
        let mut all: Option<Finished> = None;
        for file in &self.files {
            let read = worlds_file::read(file)?;
            match &mut all {
                Some(all) => all.add(read).with_context(|| format!("cannot add {}", file.display()))?,
                None => all = Some(read),
            }
        }
        let Some(all) = all else { bail!("name files of `corewise experiment run --resume`") };
        let names: Vec<&str> = all.asked.experiments.iter().map(String::as_str).collect();
        show(&self.json, &names, |number, name| {
            experiments::over_worlds((number, &experiments::load(name)?), &all).map(Some)
        })?;
        Ok(())
    }
}

/// Shows the results of experiments in all worlds, each as it is there. Returns whether there are any.
fn show(
    json: &JsonOutput,
    names: &[&str],
    mut result: impl FnMut(usize, &str) -> Result<Option<WorldsResult>>,
) -> Result<bool> {
    let mut results = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let Some(result) = result(number, name)? else { continue };
        if !json.is_printed() {
            terminal::print(&worlds::render(&result))?;
        }
        results.push(result);
    }
    if results.is_empty() {
        return Ok(false);
    }
    let likeliest = likeliest(&results);
    if !json.is_printed() {
        let all = results.len() > 1;
        terminal::print(&if all {
            worlds::render_all(&results, &likeliest)
        } else {
            worlds::best(&likeliest)
        })?;
    }
    let results = OverWorlds { evidence: "simulated", experiments: &results, likeliest: &likeliest };
    json.show(&results, String::new)?;
    Ok(true)
}

fn write(path: &Path, text: &str) -> Result<()> {
    whole_file::write(path, text.as_bytes())
}
