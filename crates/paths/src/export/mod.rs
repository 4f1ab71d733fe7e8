//! Recordings in the formats of other tools.
//!
//! There are two kinds of readers. Compilers and link-time optimisers need to know how often each branch goes
//! where: [`counts`] makes these figures from windows; [`llvm_profgen`], [`bolt`] and [`perf_script`] write
//! them, and by source line ([`source`]) also [`autofdo_text`], [`gcov`] and [`pprof`]. People want to see
//! where time goes: [`stacks`] finds the calls that windows show, and [`folded`] and [`firefox`] write them.
//!
//! A profile for an optimiser is of one module, and its addresses are as linked, so it does not matter where
//! a process had loaded it. Code made at run time has no address as linked and is in no profile.

pub mod autofdo_text;
pub mod bolt;
pub mod counts;
pub mod firefox;
pub mod folded;
pub mod gcov;
pub mod llvm_profgen;
pub mod perf_script;
pub mod pprof;
pub mod source;
pub mod stacks;

#[cfg(test)]
pub(crate) mod fixture;

use crate::program::Program;
use crate::window::{BranchRecording, ModuleId};
use counts::Counts;
use perf_script::Segment;
use source::{Lines, SourceCounts};
use std::io::{Result, Write};

/// All formats, in the order of the help.
pub const FORMATS: [Format; 8] = [
    llvm_profgen::FORMAT,
    bolt::FORMAT,
    autofdo_text::FORMAT,
    gcov::FORMAT,
    pprof::FORMAT,
    perf_script::FORMAT,
    folded::FORMAT,
    firefox::FORMAT,
];

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
