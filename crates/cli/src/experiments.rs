//! Loads experiments, and runs their simulations in parallel.

use crate::parallel::in_parallel;
use crate::worlds_file::WorldsFile;
use anyhow::{Context, Result, bail};
use corewise_render::terminal::progress::ProgressBar;
use corewise_sim::comparison::Run;
use corewise_sim::experiment::worlds::finished::{Finished, FinishedWorld, Shard};
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

/// Runs an experiment, one of those that were asked for by its number, in the worlds of a shard that are not
/// finished yet, on `workers` threads. Their number does not change what comes of a world.
pub fn in_worlds(
    (number, experiment): (usize, &Experiment),
    shard: Shard,
    finished: &mut Finished,
    file: Option<&WorldsFile>,
    workers: NonZeroUsize,
) -> Result<()> {
    let request = finished.asked.request()?;
    if experiment.parameters.is_empty() {
        bail!("experiment {} states no [[world]]: nothing that its paper leaves open", experiment.name);
    }
    let worlds = experiment.worlds(request);
    let all = (0..worlds.draws.len()).filter(|&world| shard.has(world));
    let count = all.clone().count();
    let left: Vec<usize> = all.filter(|&world| !finished.outcomes.contains_key(&(number, world))).collect();
    let (bar, done) = (ProgressBar::start(), AtomicUsize::new(count - left.len()));
    let one = |&world: &usize| {
        let outcome = experiment.in_world(&worlds, world);
        let outcome = outcome.with_context(|| format!("cannot run experiment {}", experiment.name))?;
        let of_world = FinishedWorld { experiment: number, world, outcome };
        file.map_or(Ok(()), |file| file.add(&of_world))?;
        let done = 1 + done.fetch_add(1, Ordering::Relaxed);
        bar.advance(done as f64 / count as f64, format!("{}: {done} of {count} worlds", experiment.name));
        Ok(of_world)
    };
    let outcomes = in_parallel(workers, || {
        // One world at a time for each thread: they take long.
        left.par_iter().with_max_len(1).map(one).collect::<Result<Vec<FinishedWorld>>>()
    })?;
    bar.finish();
    let outcomes = outcomes?.into_iter().map(|of_world| ((number, of_world.world), of_world.outcome));
    finished.outcomes.extend(outcomes);
    Ok(())
}

/// Returns the result of an experiment in all worlds, which must be finished.
pub fn over_worlds((number, experiment): (usize, &Experiment), finished: &Finished) -> Result<WorldsResult> {
    // A file may ask for any number of worlds: first see that they are there.
    let outcomes = finished.of_experiment(number, experiment.spec.findings.len())?;
    Ok(experiment.over_worlds(experiment.worlds(finished.asked.request()?), outcomes))
}
