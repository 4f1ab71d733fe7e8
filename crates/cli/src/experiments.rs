//! Loads experiments, and runs their simulations in parallel.

use crate::parallel::in_parallel;
use anyhow::{Context, Result, bail};
use corewise_render::terminal::progress::ProgressBar;
use corewise_sim::comparison::Run;
use corewise_sim::experiment::worlds::WorldsRequest;
use corewise_sim::experiment::worlds::outcome::Outcome;
use corewise_sim::experiment::worlds::standing::WorldsResult;
use corewise_sim::experiment::{Experiment, ExperimentResult, Job};
use corewise_sys::input;
use rayon::prelude::*;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The files of `experiments/` by their relative path; they are part of the command.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// Returns the names of the built-in experiments.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().filter_map(|(path, _)| path.strip_suffix("/experiment.toml")).collect()
}

/// Loads the experiment with this name or directory.
pub fn load(name: &str) -> Result<Experiment> {
    if names().contains(&name) {
        let read = |file: &str| {
            let found = BUILT_IN.iter().find(|(path, _)| *path == file);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "it is not built in".to_owned())
        };
        return Ok(Experiment::load(name, read)?);
    }
    let folder = Path::new(name);
    if !folder.join("experiment.toml").is_file() {
        bail!(
            "there is no experiment `{name}` and no {name}/experiment.toml; there are: {}",
            names().join(", ")
        );
    }
    let folder = folder.canonicalize().with_context(|| format!("cannot read {name}"))?;
    let own_name = folder.file_name().and_then(|name| name.to_str());
    let (Some(root), Some(own_name)) = (folder.parent(), own_name) else {
        bail!("{name} is not a valid name for an experiment");
    };
    let read = |file: &str| {
        input::read_text(&root.join(file), input::DOCUMENT_MAX).map_err(|error| error.to_string())
    };
    Ok(Experiment::load(own_name, read)?)
}

/// Runs everything that an experiment needs on `workers` threads. Their number does not change the result.
pub fn run(experiment: &Experiment, workers: NonZeroUsize) -> Result<ExperimentResult> {
    let jobs = experiment.jobs();
    let (bar, done) = (ProgressBar::start(), AtomicUsize::new(0));
    let one = |job: &Job| {
        let run = job.run();
        let done = 1 + done.fetch_add(1, Ordering::Relaxed);
        bar.advance(
            done as f64 / jobs.len() as f64,
            format!("{}: {done} of {} runs", experiment.name, jobs.len()),
        );
        run
    };
    let runs = in_parallel(workers, || jobs.par_iter().map(one).collect::<Result<Vec<Run>, _>>())?;
    bar.finish();
    let runs = runs.with_context(|| format!("cannot run experiment {}", experiment.name))?;
    Ok(experiment.result(&runs))
}

/// Runs an experiment in as many worlds as are asked for, on `workers` threads. Their number does not
/// change the result.
pub fn over_worlds(
    experiment: &Experiment,
    request: WorldsRequest,
    workers: NonZeroUsize,
) -> Result<WorldsResult> {
    if experiment.parameters.is_empty() {
        bail!("experiment {} states no [[world]]: nothing that its paper leaves open", experiment.name);
    }
    let worlds = experiment.worlds(request);
    let count = worlds.draws.len();
    let (bar, done) = (ProgressBar::start(), AtomicUsize::new(0));
    let one = |world: usize| {
        let outcome = experiment.in_world(&worlds, world);
        let done = 1 + done.fetch_add(1, Ordering::Relaxed);
        bar.advance(done as f64 / count as f64, format!("{}: {done} of {count} worlds", experiment.name));
        outcome
    };
    let outcomes = in_parallel(workers, || {
        // One world at a time for each thread: they take long.
        (0..count).into_par_iter().with_max_len(1).map(one).collect::<Result<Vec<Outcome>, _>>()
    })?;
    bar.finish();
    let outcomes = outcomes.with_context(|| format!("cannot run experiment {}", experiment.name))?;
    Ok(experiment.over_worlds(worlds, outcomes))
}
