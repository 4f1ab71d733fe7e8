//! Recordings in the formats of other tools.
//!
//! Two kinds of readers want two kinds of figures. Compilers and link-time optimisers want to know how often
//! each branch goes where: [`counts`] makes these of windows, and [`llvm_profgen`], [`bolt`] and
//! [`perf_script`] write them, by source line ([`source`]) [`autofdo_text`], [`gcov`] and [`pprof`]. People
//! want to see where time goes: [`stacks`] finds the calls that windows show, and [`folded`] and [`firefox`]
//! write them.
//!
//! A profile for an optimiser is of one module, and its addresses are as linked, so it does not matter where
//! any process had loaded it. Code made at run time has no address as linked and is in no profile.

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

/// Every format, in the order of the help.
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

/// A format that recordings can be written in.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// What users give to `--format`.
    pub name: &'static str,
    /// A line of the help.
    pub about: &'static str,
    /// How it is written.
    pub writer: Writer,
    /// What its reader needs of the module's file.
    pub needs: Needs,
}

/// What the tool that reads a profile needs of the file that the profile is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Debug information with line tables, or pseudo-probes.
    Lines,
    /// The relocations that the linker else drops.
    Relocations,
}

/// How a format is written.
#[derive(Debug, Clone, Copy)]
pub enum Writer {
    /// The whole recording: for people.
    BranchRecording(fn(&BranchRecording, &dyn Program, &mut dyn Write) -> Result<()>),
    /// The profile of one module: for optimisers.
    Module(fn(&OfModule<'_>, &mut dyn Write) -> Result<()>),
}

/// What the profile of one module is made of.
pub struct OfModule<'a> {
    /// The whole recording.
    pub recording: &'a BranchRecording,
    /// The module.
    pub module: ModuleId,
    /// What the recording counts in it.
    pub counts: &'a Counts,
    /// The code of all modules.
    pub program: &'a dyn Program,
    /// The module's file.
    pub file: &'a dyn ModuleFile,
}

impl OfModule<'_> {
    /// The counts by source line; an error without debug information.
    pub fn source(&self) -> Result<SourceCounts> {
        Ok(SourceCounts::new(self.counts, self.module, self.program, &*self.file.lines()?))
    }
}

/// What some formats want to know of a module's file, read when they ask.
pub trait ModuleFile {
    /// Its debug information.
    fn lines(&self) -> Result<Box<dyn Lines>>;

    /// Its executable segment, as the kernel maps it.
    fn segment(&self) -> Result<Segment>;
}
