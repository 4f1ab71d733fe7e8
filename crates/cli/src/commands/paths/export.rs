//! `corewise paths export`: a recording as a profile for another tool.

use super::file;
use crate::{output, whole_file};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use corewise_linux::elf::ElfProgram;
use corewise_linux::lines::DebugLines;
use corewise_paths::export::counts::Counts;
use corewise_paths::export::{autofdo_text, bolt, firefox, folded, llvm_profgen, perf_script};
use corewise_paths::window::{ModuleId, Recording};
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
    #[arg(long, short)]
    format: Format,
    /// Where to write it; `-` for standard output
    #[arg(long, short, value_name = "OUT", default_value = "-")]
    output: PathBuf,
    /// The program or library that the profile is for: its path, or the end of it
    #[arg(long, value_name = "PATH")]
    module: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For `llvm-profgen --unsymbolized-profile`, which makes what `clang -fprofile-sample-use` reads
    LlvmProfgen,
    /// For `perf2bolt -pa`, which makes what `llvm-bolt -data` reads
    Bolt,
    /// What `clang -fprofile-sample-use` reads, made without LLVM's tools; needs debug information
    Autofdo,
    /// Branch stacks as `perf script` prints them, for `llvm-profgen --perfscript`
    PerfScript,
    /// Folded stacks, for flame graphs
    Folded,
    /// For <https://profiler.firefox.com>
    Firefox,
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
        match self.format {
            Format::Folded => folded::write(&recording, &program, &mut text)?,
            Format::Firefox => firefox::write(&recording, &program, &mut text)?,
            format => {
                let module = module_of(&recording, self.module.as_deref())?;
                write_profile(format, &recording, module, &program, &mut text)?;
            }
        }
        if to_stdout {
            Ok(output::print(&String::from_utf8(text)?).map(|()| 0)?)
        } else {
            whole_file::write(&self.output, &text).map(|()| 0)
        }
    }
}

/// A profile of one module.
fn write_profile(
    format: Format,
    recording: &Recording,
    module: ModuleId,
    program: &ElfProgram,
    text: &mut Vec<u8>,
) -> Result<()> {
    let counts = Counts::new(recording, module);
    let path = &recording.modules[module.0 as usize].path;
    if counts.runs.is_empty() {
        bail!("no window lies in {path}: there is nothing to export for it");
    }
    match format {
        Format::LlvmProfgen => llvm_profgen::write(&counts, text)?,
        Format::Bolt => bolt::write(&counts, module, program, text)?,
        Format::Autofdo => {
            let lines = DebugLines::open(Path::new(path))?;
            autofdo_text::write(&counts, module, program, &lines, text)?;
        }
        _ => perf_script::write(recording, module, segment_of(program, module, path)?, text)?,
    }
    Ok(())
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

/// The executable segment, as the kernel maps it.
fn segment_of(program: &ElfProgram, module: ModuleId, path: &str) -> Result<perf_script::Segment> {
    let elf = program.elf(module).ok_or_else(|| anyhow!("cannot read {path}: put the file back"))?;
    let (address, offset, size) = elf.code_mapping().ok_or_else(|| anyhow!("{path} has no code"))?;
    Ok(perf_script::Segment { address, size, offset })
}
