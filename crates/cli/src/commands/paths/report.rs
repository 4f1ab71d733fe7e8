//! `corewise paths report`: the hot functions and paths of a recording.

use super::file;
use crate::outputs::{JsonOutput, OutputFile};
use crate::whole_file;
use anyhow::Result;
use corewise_code::elf::ElfProgram;
use corewise_code::lines::DebugLines;
use corewise_paths::export::source::{Lines, Place};
use corewise_paths::export::stacks;
use corewise_paths::listing::{Listings, Source};
use corewise_paths::summary::Summary;
use corewise_paths::window::{BranchRecording, Location, Module, ModuleId};
use corewise_render::paths::page::{self, Flame};
use corewise_render::paths::table;
use corewise_sys::input;
use nix::unistd::Uid;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Show the hot functions and paths of a recording
///
/// A function's share is that of the samples, and so of the time; a path's share is that of all executions of
/// paths, estimated from the windows (docs/paths.md).
#[derive(Debug, clap::Args)]
pub struct Report {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How many functions and paths to show
    #[arg(long, value_name = "N", default_value = "20", value_parser = crate::values::whole(1..=usize::MAX))]
    top: usize,
    #[command(flatten)]
    json: JsonOutput,
    /// Write a page: the time by caller, and the hot functions as source and machine code, with the ways of
    /// each branch
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<OutputFile>,
}

impl Report {
    /// Prints or writes the report; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        self.html.as_deref().map(whole_file::check_writable).transpose()?;
        let recording = file::read_recording(&self.file)?;
        let program = ElfProgram::open(&recording.modules)?;
        let summary = summary(&recording, &program, self.top);
        if let Some(page) = self.html {
            let text = page_of(&recording, &program, &summary);
            return whole_file::write(&page, text.as_bytes()).map(|()| 0);
        }
        self.json.show(&summary, || table::render(&summary))?;
        Ok(0)
    }
}

/// Returns the report as text, with the ten hottest of everything.
#[cfg(test)]
pub fn of(recording: &BranchRecording) -> Result<String> {
    let program = ElfProgram::open(&recording.modules)?;
    let summary = summary(recording, &program, 10);
    Ok(table::render(&summary) + &page_of(recording, &program, &summary))
}

fn summary(recording: &BranchRecording, program: &ElfProgram, top: usize) -> Summary {
    let mut summary = Summary::new(recording, program, top);
    let notes = program.unreadable().iter().map(|error| format!("{error}: its code is not in any path"));
    summary.notes.extend(notes);
    summary
}

fn page_of(recording: &BranchRecording, program: &ElfProgram, summary: &Summary) -> String {
    let source =
        Files { program, modules: &recording.modules, lines: RefCell::default(), texts: RefCell::default() };
    let mut listings = Listings::new(recording, program, &source);
    let listings: Vec<_> = summary.functions.iter().map(|function| listings.of(function.callee)).collect();
    let mut flame = Flame::default();
    for (stack, share) in stacks::shares(recording, program) {
        flame.add(stack.iter().map(|callee| callee.name(recording, program)), share);
    }
    page::render(summary, &listings, &flame)
}

/// Names and sources from the files of a recording.
struct Files<'a> {
    program: &'a ElfProgram,
    modules: &'a [Module],
    /// The lines of each requested module; `None` without debug information.
    lines: RefCell<BTreeMap<ModuleId, Option<DebugLines>>>,
    /// The requested sources, by line.
    texts: RefCell<BTreeMap<String, Vec<String>>>,
}

/// A larger source was not written by people.
const SOURCE_BYTES_MAX: u64 = 16 << 20;

impl Source for Files<'_> {
    fn assembly(&self, at: Location) -> Option<String> {
        self.program.assembly(at)
    }

    fn places(&self, at: Location) -> Vec<Place> {
        let mut lines = self.lines.borrow_mut();
        let path = || Path::new(&self.modules[at.module.0 as usize].path);
        let lines = lines.entry(at.module).or_insert_with(|| DebugLines::open(path()).ok());
        lines.as_ref().map(|lines| lines.places(at)).unwrap_or_default()
    }

    fn line(&self, place: &Place) -> Option<String> {
        let mut texts = self.texts.borrow_mut();
        let read = || {
            let text = public_text(Path::new(&place.file)).unwrap_or_default();
            String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
        };
        let lines = texts.entry(place.file.clone()).or_insert_with(read);
        lines.get(usize::try_from(place.line).ok()?.checked_sub(1)?).cloned()
    }
}

/// Reads a file that everybody may read, or that the user owns. A program's debug information can name any
/// path, and pages that root writes must not reveal other users' files.
fn public_text(path: &Path) -> io::Result<Vec<u8>> {
    let file = input::open_regular(path)?;
    let about = file.metadata()?;
    let is_own = about.uid() == Uid::current().as_raw() && !Uid::current().is_root();
    if about.mode() & 0o004 == 0 && !is_own {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    input::read_at_most(file, SOURCE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn root_shows_nobodys_private_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("source.c");
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(public_text(&file).unwrap(), b"text");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(public_text(&file).is_ok(), !Uid::current().is_root());
    }
}
