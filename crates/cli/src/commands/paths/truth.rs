//! `corewise paths truth`: exact path counts of a command.

use super::file;
use crate::outputs::OutputFile;
use crate::whole_file;
use anyhow::{Result, anyhow};
use corewise_paths::profile::PathProfile;
use corewise_paths::window::Module;
use corewise_render::terminal;
use corewise_truth as truth;
use corewise_truth::Settings;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

/// The maximum number of places of paths that are stored while counting: about 1 GiB.
const PLACES_MAX: usize = 1 << 24;

/// Count the paths of a command exactly, by running it under QEMU
///
/// The command must be an ELF program, and runs some ten times slower. Its exit status is corewise's.
#[derive(Debug, clap::Args)]
pub struct Truth {
    /// Libraries to trace too; by default only the program itself is
    #[arg(long, value_name = "PATH")]
    modules: Vec<PathBuf>,
    /// The processor to emulate, as QEMU names it
    #[arg(long, value_name = "NAME", default_value = "max")]
    cpu: String,
    /// Where to write the counts
    #[arg(long, short, value_name = "FILE")]
    output: OutputFile,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExactCounts {
    /// [`ExactCounts::VERSION`].
    pub version: u32,
    /// The evidence of the figures.
    pub evidence: String,
    /// The command.
    pub command: Vec<String>,
    /// The traced modules.
    pub modules: Vec<Module>,
    /// How often each path and edge was executed.
    pub profile: PathProfile,
    /// The number of executions of paths that were too many to be distinguished; they are only in the
    /// profile's total.
    pub without_identity: u64,
    /// How often execution did not continue as the code says, mostly because of a signal.
    pub breaks: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl ExactCounts {
    /// The format that this code writes and reads.
    pub const VERSION: u32 = 1;
}

impl Truth {
    /// Runs the command; returns its exit status.
    pub fn execute(self) -> Result<u8> {
        whole_file::check_writable(&self.output)?;
        let words = self.command.into_iter().map(|word| {
            word.into_string().map_err(|word| anyhow!("`{}` is not UTF-8", word.to_string_lossy()))
        });
        let command = words.collect::<Result<Vec<String>>>()?;
        let modules = truth::modules(&command, &self.modules)?;
        let settings = Settings { cpu: self.cpu, ..Settings::default() };
        let counted = truth::count_paths(&command, &modules, &settings, PLACES_MAX)?;
        let status = counted.trace.status;
        terminal::message(format_args!(
            "{} executions of {} different paths, emulated",
            counted.profile.total,
            counted.profile.paths.len()
        ));
        let counts = ExactCounts {
            version: ExactCounts::VERSION,
            evidence: "emulated".to_owned(),
            command,
            modules,
            profile: counted.profile,
            without_identity: counted.without_identity,
            breaks: counted.breaks,
            notes: counted.trace.notes,
        };
        file::write(&self.output, &counts)?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(code as u8)
    }
}
