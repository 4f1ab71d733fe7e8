//! `corewise paths export`: a recording as a profile for another tool.

use super::file;
use crate::{output, whole_file};
use anyhow::{Result, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use corewise_linux::elf::ElfProgram;
use corewise_linux::lines::DebugLines;
use corewise_paths::export::autofdo_text::Lines;
use corewise_paths::export::counts::Counts;
use corewise_paths::export::perf_script::Segment;
use corewise_paths::export::{FORMATS, Format, ModuleFile, OfModule, Writer};
use corewise_paths::window::{ModuleId, Recording};
use std::io;
use std::path::{Path, PathBuf};

/// Write a recording as a profile for a compiler, a link-time optimiser or a viewer
///
/// Profiles for optimisers are of one module: the one with the most recorded branches, or the one that
/// `--module` names. What to do with them: docs/paths.md.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format
    #[arg(long, short, value_parser = formats())]
    format: Format,
    /// Where to write it; `-` for standard output
    #[arg(long, short, value_name = "OUT", default_value = "-")]
    output: PathBuf,
    /// The program or library that the profile is for: its path, or the end of it
    #[arg(long, value_name = "PATH")]
    module: Option<String>,
}

/// The names of the formats, each with its line in the help.
fn formats() -> impl TypedValueParser<Value = Format> {
    let values = FORMATS.map(|format| PossibleValue::new(format.name).help(format.about));
    let by_name = |name: String| FORMATS.into_iter().find(|format| format.name == name);
    PossibleValuesParser::new(values).try_map(move |name| by_name(name).ok_or("there is no such format"))
}

impl Export {
    /// Writes the profile; the exit status.
    pub fn execute(self) -> Result<u8> {
        let to_stdout = self.output == Path::new("-");
        if !to_stdout {
            whole_file::check_writable(&self.output)?;
        }
        let recording = file::read_recording(&self.file)?;
        if recording.windows.is_empty() {
            bail!("{} has no windows: there is nothing to export", self.file.display());
        }
        let program = ElfProgram::open(&recording.modules)?;
        let mut text = Vec::new();
        match self.format.writer {
            Writer::Recording(write) => write(&recording, &program, &mut text)?,
            Writer::Module(write) => {
                let module = module_of(&recording, self.module.as_deref())?;
                let path = &recording.modules[module.0 as usize].path;
                let counts = Counts::new(&recording, module);
                if counts.runs.is_empty() {
                    bail!("no window lies in {path}: there is nothing to export for it");
                }
                let file = File { program: &program, module, path };
                let (recording, counts) = (&recording, &counts);
                write(&OfModule { recording, module, counts, program: &program, file: &file }, &mut text)?;
            }
        }
        if to_stdout {
            Ok(output::print(&String::from_utf8(text)?).map(|()| 0)?)
        } else {
            whole_file::write(&self.output, &text).map(|()| 0)
        }
    }
}

/// A module's file.
struct File<'a> {
    program: &'a ElfProgram,
    module: ModuleId,
    path: &'a str,
}

impl ModuleFile for File<'_> {
    fn lines(&self) -> io::Result<Box<dyn Lines>> {
        Ok(Box::new(DebugLines::open(Path::new(self.path)).map_err(io::Error::other)?))
    }

    fn segment(&self) -> io::Result<Segment> {
        let path = self.path;
        let elf = self.program.elf(self.module);
        let elf = elf.ok_or_else(|| io::Error::other(format!("cannot read {path}: put the file back")))?;
        let mapping = elf.code_mapping().ok_or_else(|| io::Error::other(format!("{path} has no code")))?;
        let (address, offset, size) = mapping;
        Ok(Segment { address, size, offset })
    }
}

/// The module of that name, else the one with the most transfers.
fn module_of(recording: &Recording, name: Option<&str>) -> Result<ModuleId> {
    let ids = (0..recording.modules.len() as u32).map(ModuleId);
    let Some(name) = name else {
        let transfers = recording.windows.iter().flat_map(|window| &window.transfers);
        let mut counts = vec![0u64; recording.modules.len()];
        transfers.for_each(|transfer| counts[transfer.from.module.0 as usize] += 1);
        return ids
            .max_by_key(|id| counts[id.0 as usize])
            .ok_or_else(|| anyhow!("the recording names no module: record it again"));
    };
    let path = |id: &ModuleId| recording.modules[id.0 as usize].path.as_str();
    let same = |id: &ModuleId| Path::new(path(id)).ends_with(name.trim_start_matches("./"));
    let found: Vec<ModuleId> = ids.filter(same).collect();
    match found[..] {
        [module] => Ok(module),
        [] => {
            let known: Vec<&str> = recording.modules.iter().map(|module| module.path.as_str()).collect();
            bail!("the recording has no module {name}; it has: {}", known.join(", "))
        }
        _ => {
            let matching: Vec<&str> = found.iter().map(path).collect();
            bail!("{name} may be each of {}: give a longer end of the path", matching.join(", "))
        }
    }
}
