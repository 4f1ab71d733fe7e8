//! Where experiments come from, and running their many simulations on several threads.

use anyhow::{Context, Result, anyhow, bail};
use corewise_sim::comparison::Run;
use corewise_sim::experiment::{Experiment, ExperimentResult};
use corewise_sys::input;
use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The files of `experiments/` by their path in it: they are part of the command.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// The names of the experiments that are built in.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().filter_map(|(path, _)| path.strip_suffix("/experiment.toml")).collect()
}

/// The experiment of a name, or of a folder.
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
        bail!("{name} is no name for an experiment");
    };
    let read = |file: &str| {
        input::read_text(&root.join(file), input::DOCUMENT_MAX).map_err(|error| error.to_string())
    };
    Ok(Experiment::load(own_name, read)?)
}

/// Runs everything that an experiment needs on so many threads. Their number changes nothing in the result.
pub fn run(experiment: &Experiment, workers: NonZeroUsize) -> Result<ExperimentResult> {
    let jobs = experiment.jobs();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let runs: Mutex<Vec<Option<Run>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let failure = Mutex::new(None);
    let work = || {
        while failed.load(Ordering::Relaxed) == 0 {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { break };
            progress(&experiment.name, index, jobs.len());
            match job.run() {
                Ok(run) => {
                    if let Ok(mut runs) = runs.lock() {
                        runs[index] = Some(run);
                    }
                }
                Err(error) => {
                    failed.store(1, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        *failure = Some(error);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.get().min(jobs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    progress(&experiment.name, jobs.len(), jobs.len());
    if let Some(error) = failure.into_inner().ok().flatten() {
        return Err(error).with_context(|| format!("cannot run experiment {}", experiment.name));
    }
    let runs: Option<Vec<Run>> = runs.into_inner().ok().and_then(|runs| runs.into_iter().collect());
    let runs = runs.ok_or_else(|| anyhow!("a simulation of experiment {} broke off", experiment.name))?;
    Ok(experiment.result(&runs))
}

/// Says on a terminal how far it is; the line goes when all is done.
fn progress(name: &str, done: usize, all: usize) {
    let mut stderr = std::io::stderr();
    if !stderr.is_terminal() {
        return;
    }
    // A terminal that takes no text is no reason to stop.
    let _ = if done < all {
        write!(stderr, "\r\x1b[K{name}: run {} of {all}", done + 1)
    } else {
        write!(stderr, "\r\x1b[K")
    };
}
