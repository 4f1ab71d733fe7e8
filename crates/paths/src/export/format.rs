//! What a format for recordings is, and what its writer gets.

use super::counts::Counts;
use super::source::{Lines, SourceCounts};
use crate::program::Program;
use crate::window::{BranchRecording, ModuleId};
use std::io::{Result, Write};

/// A format for recordings.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The value of `--format`.
    pub name: &'static str,
    /// A line of the help.
    pub about: &'static str,
    /// The function that writes it.
    pub writer: Writer,
    /// What its reader needs from the module's file.
    pub needs: Needs,
}

/// What the reader of a profile needs from the module's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Debug information with line tables, or pseudo-probes.
    Lines,
    /// Relocations, which the linker otherwise drops.
    Relocations,
}

/// The function that writes a format.
#[derive(Debug, Clone, Copy)]
pub enum Writer {
    /// The whole recording: for people.
    BranchRecording(fn(&BranchRecording, &dyn Program, &mut dyn Write) -> Result<()>),
    /// The profile of one module: for optimisers.
    Module(fn(&OfModule<'_>, &mut dyn Write) -> Result<()>),
}

/// The input for the profile of one module.
pub struct OfModule<'a> {
    /// The whole recording.
    pub recording: &'a BranchRecording,
    /// The module.
    pub module: ModuleId,
    /// The counts of the recording in it.
    pub counts: &'a Counts,
    /// The code of all modules.
    pub program: &'a dyn Program,
    /// The module's file.
    pub file: &'a dyn ModuleFile,
}

impl OfModule<'_> {
    /// Returns the counts by source line; an error without debug information.
    pub fn source(&self) -> Result<SourceCounts> {
        Ok(SourceCounts::new(self.counts, self.module, self.program, &*self.file.lines()?))
    }
}

/// Parts of a module's file that some formats need, read on request.
pub trait ModuleFile {
    /// Returns its debug information.
    fn lines(&self) -> Result<Box<dyn Lines>>;

    /// Returns its executable segment, as the kernel maps it.
    fn segment(&self) -> Result<Segment>;
}

/// The executable segment of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Address as linked.
    pub address: u64,
    /// Bytes in memory.
    pub size: u64,
    /// Offset in the file.
    pub offset: u64,
}
