//! The file of finished worlds: a run goes on from what it holds, and adds to it.

use crate::whole_file::{self, Stream};
use anyhow::{Context, Result};
use corewise_render::terminal::Name;
use corewise_sim::experiment::worlds::finished::{Asked, Finished, FinishedWorld};
use corewise_sys::input;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file that grows by a line for each finished world.
pub struct WorldsFile {
    path: PathBuf,
    stream: Mutex<Stream>,
}

/// Returns what a file holds.
pub fn read(path: &Path) -> Result<Finished> {
    let text =
        input::read_text(path, input::DATA_MAX).with_context(|| format!("cannot read {}", named(path)))?;
    Ok(Finished::parse(&text).with_context(|| no_worlds(path))?.0)
}

fn named(path: &Path) -> String {
    Name(&path.display().to_string()).to_string()
}

fn no_worlds(path: &Path) -> String {
    format!("{} does not hold the worlds that are wanted: name another file", named(path))
}

impl WorldsFile {
    /// Opens a file for the worlds of what is asked for, and returns those that it holds. A line that is not
    /// whole was being written when a run was killed: it is dropped.
    pub fn open(path: &Path, asked: Asked) -> Result<(Self, Finished)> {
        let text = match input::read_text(path, input::DATA_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", named(path)))?,
        };
        if text.is_empty() {
            let stream = whole_file::start(path).with_context(|| cannot_write(path))?;
            let file = Self { path: path.to_owned(), stream: Mutex::new(stream) };
            file.write(&asked)?;
            return Ok((file, Finished::none(asked)));
        }
        let (finished, whole) = Finished::parse(&text).with_context(|| no_worlds(path))?;
        finished.check(&asked).with_context(|| no_worlds(path))?;
        if whole < text.len() {
            whole_file::write(path, &text.as_bytes()[..whole])?;
        }
        let stream = whole_file::append(path).with_context(|| cannot_write(path))?;
        Ok((Self { path: path.to_owned(), stream: Mutex::new(stream) }, finished))
    }

    /// Adds a world.
    pub fn add(&self, world: &FinishedWorld) -> Result<()> {
        self.write(world)
    }

    fn write(&self, line: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(line)? + "\n";
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(line.as_bytes()).with_context(|| cannot_write(&self.path))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}: check space and permission", named(path))
}
