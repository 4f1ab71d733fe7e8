//! `corewise paths merge`: makes one recording of several.

use super::file;
use crate::outputs::OutputFile;
use crate::whole_file;
use anyhow::{Result, anyhow};
use corewise_paths::modules::merged;
use corewise_render::terminal;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Merge recordings of several runs, threads, machines and builds
///
/// Files with the same build id are the same, wherever they are; the path is then that of the first
/// recording. Windows of all builds are kept: `export` uses those of the build that it finds, and reports
/// what it leaves out.
#[derive(Debug, clap::Args)]
pub struct Merge {
    /// The recordings
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Where to write the merged recording
    #[arg(long, short, value_name = "OUT")]
    output: OutputFile,
}

impl Merge {
    /// Writes the recording; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        whole_file::check_writable(&self.output)?;
        let merged = merged(self.files.iter().map(|file| file::read_recording(file)))?;
        let recording = merged.ok_or_else(|| anyhow!("there is no recording"))?;
        file::write(&self.output, &recording)?;
        let (windows, files) = (recording.windows.len(), self.files.len());
        terminal::message(format_args!("{windows} windows of {files} recordings"));
        let mut builds: BTreeMap<&str, u32> = BTreeMap::new();
        recording.modules.iter().for_each(|module| *builds.entry(&module.path).or_default() += 1);
        for (path, count) in builds.into_iter().filter(|(_, count)| *count > 1) {
            terminal::message(format_args!("{path} was recorded in {count} builds"));
        }
        Ok(0)
    }
}
