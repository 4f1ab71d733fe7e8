//! `corewise paths export`: a recording as a profile for another tool.

use super::build_id::how_to_get_build_id;
use super::store;
use crate::outputs::OutputFile;
use crate::whole_file;
use anyhow::{Context, Result, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use corewise_code::elf::{ElfError, ElfProgram};
use corewise_code::lines::DebugLines;
use corewise_paths::export::counts::Counts;
use corewise_paths::export::source::Lines;
use corewise_paths::export::{FORMATS, Format, ModuleFile, Needs, OfModule, Segment, Writer};
use corewise_paths::modules::leave_out;
use corewise_paths::window::{BranchRecording, Module, ModuleId, Window};
use corewise_render::terminal;
use std::io;
use std::path::{Path, PathBuf};

/// Write a recording as a profile for a compiler, a link-time optimiser or a viewer
///
/// Profiles for optimisers are of one module: the one with the most recorded branches, or the one that
/// `--module` names. What to do with them: docs/paths.md.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The recordings; several are merged, also those of different commands. Of a profile store (a folder),
    /// those of --module are taken
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The format
    #[arg(long, short, value_parser = formats())]
    format: Format,
    /// Where to write it; `-` for standard output
    #[arg(long, short, value_name = "OUT", default_value = "-")]
    output: OutputFile,
    /// The program or library that the profile is for: its path, or the end of it
    #[arg(long, value_name = "PATH")]
    module: Option<String>,
}

/// The names of the formats, each with its line of help.
fn formats() -> impl TypedValueParser<Value = Format> {
    let values = FORMATS.map(|format| PossibleValue::new(format.name).help(format.about));
    let by_name = |name: String| FORMATS.into_iter().find(|format| format.name == name);
    PossibleValuesParser::new(values).try_map(move |name| by_name(name).ok_or("there is no such format"))
}

impl Export {
    /// Writes the profile; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        let to_stdout = self.output.is_stdout();
        if !to_stdout {
            whole_file::check_writable(&self.output)?;
        }
        let names = self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        let binary = self.module.as_deref().map(Path::new);
        let merged = store::read_all(&self.files, binary, &mut |note| terminal::message(note))?;
        let mut recording = merged.ok_or_else(|| anyhow!("there is no recording"))?;
        let context = || format!("cannot export {names}");
        let program = without_other_builds(&mut recording).with_context(context)?;
        let text = match self.format.writer {
            Writer::BranchRecording(_) if recording.windows.is_empty() => {
                bail!("{names} has no windows: {RECORD_LONGER}")
            }
            Writer::BranchRecording(write) => {
                let mut text = Vec::new();
                write(&recording, &program, &mut text)?;
                text
            }
            Writer::Module(_) => {
                let of =
                    ModuleCounts::of(&recording, self.module.as_deref(), &program).with_context(context)?;
                of.warnings(self.format).iter().for_each(terminal::message);
                of.written(self.format)?
            }
        };
        if to_stdout {
            Ok(terminal::print(&String::from_utf8(text)?).map(|()| 0)?)
        } else {
            whole_file::write(&self.output, &text).map(|()| 0)
        }
    }
}

/// Leaves out the windows in files that are another build by now, and reports them. An error if none is left.
pub fn without_other_builds(recording: &mut BranchRecording) -> Result<ElfProgram> {
    let program = ElfProgram::open_unchanged(&recording.modules);
    for error in program.unreadable() {
        let ElfError::Changed { path, recorded, .. } = error else { continue };
        let is_it = |module: &Module| module.build_id == *recorded && Path::new(&module.path) == path;
        let Some(index) = recording.modules.iter().position(is_it) else { continue };
        let left_out = leave_out(recording, &[ModuleId(index as u32)]);
        if recording.windows.is_empty() {
            bail!("{error}");
        }
        if left_out > 0 {
            terminal::message(format_args!("{left_out} windows of another build are left out: {error}"));
        }
    }
    Ok(program)
}

/// The remedy for a profile of too few windows.
const RECORD_LONGER: &str = "record a longer run, several of them, or with a higher --rate";

/// With fewer windows of a module the profile depends on chance: in independent trials 500 of them gained as
/// much as thousands.
const WINDOWS_FEW: usize = 500;

/// The counts of the module that a profile is for.
pub struct ModuleCounts<'a> {
    recording: &'a BranchRecording,
    program: &'a ElfProgram,
    /// The module.
    pub module: ModuleId,
    /// How often each part of it was executed.
    pub counts: Counts,
    /// The number of windows that touch it.
    pub windows: usize,
}

impl<'a> ModuleCounts<'a> {
    /// Counts the windows of the module of that name, or of the one with the most transfers.
    pub fn of(recording: &'a BranchRecording, name: Option<&str>, program: &'a ElfProgram) -> Result<Self> {
        if recording.windows.is_empty() {
            bail!("there are no windows: {RECORD_LONGER}");
        }
        let module = module_of(recording, name, program)?;
        let counts = Counts::new(recording, module, program);
        let path = &recording.modules[module.0 as usize].path;
        if counts.runs.is_empty() {
            match program.unreadable().iter().map(ToString::to_string).find(|error| error.contains(path)) {
                Some(error) => bail!("{error}: put the recorded file back"),
                None => bail!("no window lies in {path}: there is nothing to export for it"),
            }
        }
        let touches = |window: &&Window| {
            let ends = window.transfers.iter().flat_map(|transfer| [transfer.from, transfer.to]);
            ends.chain([window.start]).any(|location| location.module == module)
        };
        let windows = recording.windows.iter().filter(touches).count();
        Ok(ModuleCounts { recording, program, module, counts, windows })
    }

    /// Returns the profile in a format.
    pub fn written(&self, format: Format) -> Result<Vec<u8>> {
        let Writer::Module(write) = format.writer else { bail!("{} is not of a single module", format.name) };
        let (module, program, counts) = (self.module, self.program, &self.counts);
        let file = File { program, module, path: self.path() };
        let mut text = Vec::new();
        write(&OfModule { recording: self.recording, module, counts, program, file: &file }, &mut text)?;
        Ok(text)
    }

    fn path(&self) -> &str {
        &self.recording.modules[self.module.0 as usize].path
    }

    /// Returns why the profile may be worth less than it looks, each with the remedy.
    pub fn warnings(&self, format: Format) -> Vec<String> {
        let (path, all) = (self.path(), self.recording.windows.len());
        let mut warnings = Vec::new();
        if self.windows < WINDOWS_FEW {
            let windows = self.windows;
            warnings.push(format!("{windows} windows of {path} are few for a profile: {RECORD_LONGER}"));
        }
        if self.counts.contradicting > 0 {
            let contradicting = self.counts.contradicting;
            warnings.push(format!(
                "{contradicting} of {all} windows are left out, as they contradict the code of their files: \
                 if these are many, see `corewise paths report` and record again"
            ));
        }
        // Windows of other builds have been left out and reported before.
        let is_read = |error: &&ElfError| !matches!(error, ElfError::Changed { .. });
        let unreadable = self.program.unreadable().iter().filter(is_read);
        warnings.extend(unreadable.map(|error| format!("{error}: windows with its code are left out")));
        let Some(elf) = self.program.elf(self.module) else { return warnings };
        if elf.build_id().is_none() {
            warnings.push(format!(
                "{path} has no build id, which would show whether it is still the recorded file: {}",
                how_to_get_build_id(elf)
            ));
        }
        let has_lines = elf.has_section(".debug_line") || elf.has_section(".pseudo_probe");
        match format.needs {
            Needs::Lines if !has_lines => warnings.push(format!(
                "{path} has no debug information, so llvm-profgen will find no function in it: compile it \
                 with -gline-tables-only -fdebug-info-for-profiling and record again, or give llvm-profgen \
                 the file that has it by --debug-binary"
            )),
            Needs::Relocations if !elf.has_section(".rela.text") => warnings.push(format!(
                "{path} has no relocations, so BOLT cannot move its functions: link it with \
                 -Wl,--emit-relocs, do not strip it, and record again"
            )),
            Needs::Nothing | Needs::Lines | Needs::Relocations => {}
        }
        warnings
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

/// Returns the module of that name, or the one with the most transfers.
fn module_of(recording: &BranchRecording, name: Option<&str>, program: &ElfProgram) -> Result<ModuleId> {
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
    let mut found: Vec<ModuleId> = ids.filter(same).collect();
    if found.len() > 1 {
        // Of several builds of a file, choose the present one.
        found.retain(|id| program.elf(*id).is_some());
    }
    match found[..] {
        [module] => Ok(module),
        [] => {
            let known: Vec<&str> = recording.modules.iter().map(|module| module.path.as_str()).collect();
            bail!("the recording has no module {name}; it has: {}", known.join(", "))
        }
        _ => {
            let matching: Vec<&str> = found.iter().map(path).collect();
            bail!("{name} matches each of {}: give a longer end of the path", matching.join(", "))
        }
    }
}
