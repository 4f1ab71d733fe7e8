//! Output formats of a machine profile, as options that several commands share.

use crate::outputs::{JsonOutput, OutputFile};
use crate::whole_file;
use anyhow::{Context, Result};
use corewise_core::profile::{MachineProfile, to_json};
use corewise_render::profile::{csv, page, table};

/// The forms in which a profile is shown.
#[derive(Debug, clap::Args)]
pub struct Views {
    /// Write a page with the figures
    #[arg(long, value_name = "FILE")]
    html: Option<OutputFile>,
    /// Write each figure into a file of its own in DIR, which is made if need be
    #[arg(long, value_name = "DIR")]
    svg: Option<OutputFile>,
    /// Write every number into one table
    #[arg(long, value_name = "FILE")]
    csv: Option<OutputFile>,
    #[command(flatten)]
    json: JsonOutput,
}

impl Views {
    /// Fails early if an output could not be written at the end.
    pub fn check(&self) -> Result<()> {
        self.json.check()?;
        self.html.iter().chain(&self.csv).try_for_each(|path| whole_file::check_writable(path))?;
        match &self.svg {
            Some(directory) => {
                std::fs::create_dir_all(directory)
                    .with_context(|| format!("cannot make the directory {}", directory.display()))?;
                whole_file::check_writable(&directory.join("figure.svg"))
            }
            None => Ok(()),
        }
    }

    /// Writes the files.
    pub fn write(&self, profile: &MachineProfile) -> Result<()> {
        if let Some(path) = &self.html {
            whole_file::write(path, page::render(profile).as_bytes())?;
        }
        if let Some(path) = &self.csv {
            whole_file::write(path, csv::render(profile).as_bytes())?;
        }
        let Some(directory) = &self.svg else { return Ok(()) };
        let drawings = page::drawings(profile);
        drawings.iter().try_for_each(|(name, svg)| whole_file::write(&directory.join(name), svg.as_bytes()))
    }

    /// Prints to standard output.
    pub fn print(&self, profile: &MachineProfile) -> Result<()> {
        self.json.show_written(|| to_json(profile), || table::render(profile))
    }
}
