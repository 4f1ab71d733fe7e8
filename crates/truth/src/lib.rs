//! Exact truth: every executed block of a program, by QEMU.
//!
//! Problem. Whether sampled path profiles are right is only shown by exact ones of the same binary, and
//! instrumenting a binary changes it.
//!
//! Approach. QEMU's user mode executes the unchanged binary by translating it block by block; a plugin
//! (`plugin.c`) reports which translation blocks each thread executes. A block is a straight run of
//! instructions whose last one transfers control, or after which QEMU ended the block for its own reasons
//! (the end of a page, its size): then the next block begins after it. Blocks come through a socket in
//! messages of thousands; each was described before, by the offsets in its file of its first and last
//! instruction, so that it does not matter where the process has mapped the file.
//!
//! Source. QEMU, "TCG Plugins", API version 1 (QEMU 4.2 to 8.2). The repetitions of a string instruction,
//! which QEMU executes as one block each, are reported once.
//!
//! Limits. Only the given modules are traced, by default the program itself: QEMU emulates a processor
//! without AVX-512, so the C library chooses other string functions than on the real one, and its paths would
//! not be those that a sampler has seen. A block that faults half-way is reported as if it were executed
//! whole. Forked processes are traced; a program that one of them executes runs by itself, untraced. The last
//! blocks of a thread are lost if its process is killed. Time does not pass as on the real machine: programs
//! that depend on it take other paths.

mod count;
mod qemu;
mod stream;

pub use count::{Counted, count_paths};
pub use qemu::{Settings, run};
pub use stream::{Block, Executed};

use corewise_code::elf::{ElfError, ElfFile};
use corewise_paths::window::Module;
use corewise_sys::launch::LaunchError;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Why there is no exact trace.
#[derive(Debug, thiserror::Error)]
pub enum TruthError {
    /// The command's program was not found.
    #[error("no program {program} to trace")]
    NoProgram {
        /// The program as given.
        program: String,
    },
    /// A module cannot be used.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The program is a script or for a processor that is not supported.
    #[error("{path} cannot be traced ({problem}); name the program that a script executes")]
    NoElf {
        /// The program.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// QEMU is missing.
    #[error("{0}; install QEMU's user mode (Debian: apt-get install qemu-user)")]
    NoQemu(LaunchError),
    /// QEMU did not load the plugin.
    #[error(
        "{qemu} ({status}) does not take the plugin, see its message above: it must support plugins of API \
         version 1, as QEMU 4.2 to 8.2 do (Debian 12 has 7.2)"
    )]
    PluginRefused {
        /// The QEMU.
        qemu: PathBuf,
        /// Its exit status.
        status: ExitStatus,
    },
    /// QEMU did not start the program, or executed nothing of the modules.
    #[error(
        "{qemu} ({status}) executed nothing of what is to be traced; if it gave a message, it stands above \
         (the CPU model was {cpu}; {qemu} -cpu help lists all)"
    )]
    NotStarted {
        /// The QEMU.
        qemu: PathBuf,
        /// Its exit status.
        status: ExitStatus,
        /// The requested CPU model.
        cpu: String,
    },
    /// The program was killed: its last blocks are missing.
    #[error("{program} was killed by {signal} under QEMU, its trace is not whole{}", hint(.signal))]
    Killed {
        /// The program.
        program: PathBuf,
        /// The signal's name.
        signal: String,
    },
    /// The trace cannot be received.
    #[error("{what}: {source}")]
    Channel {
        /// The failed operation.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A message is not one of the plugin.
    #[error("the trace is damaged: {problem}")]
    Damaged {
        /// The error in it.
        problem: String,
    },
}

fn hint(signal: &str) -> &'static str {
    match signal {
        "SIGILL" => "; QEMU does not support AVX-512: does the program need it?",
        _ => "; does it run without QEMU?",
    }
}

/// A finished traced run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// How the program ended.
    pub status: ExitStatus,
    /// The number of executed blocks of the traced modules.
    pub blocks: u64,
    /// The number of threads that executed any of them.
    pub threads: usize,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Returns the modules to trace for a command: its program, then the named libraries.
pub fn modules(command: &[String], libraries: &[PathBuf]) -> Result<Vec<Module>, TruthError> {
    let program = program_path(command.first().map_or("", String::as_str))?;
    let is_elf = |error: ElfError| match error {
        ElfError::Malformed { path, problem } => TruthError::NoElf { path, problem },
        other => other.into(),
    };
    let mut modules = vec![module(&program).map_err(is_elf)?];
    for library in libraries {
        modules.push(module(library)?);
    }
    Ok(modules)
}

/// Returns the file as the kernel lists it when it is mapped.
fn module(path: &Path) -> Result<Module, ElfError> {
    let path = path.canonicalize().map_err(|source| ElfError::Read { path: path.to_owned(), source })?;
    let elf = ElfFile::open(&path)?;
    Ok(Module { path: path.to_string_lossy().into_owned(), build_id: elf.build_id().map(str::to_owned) })
}

/// Finds a program as a shell does.
fn program_path(program: &str) -> Result<PathBuf, TruthError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![PathBuf::from(program)],
        false => std::env::split_paths(&path).map(|directory| directory.join(program)).collect(),
    };
    let found =
        candidates.into_iter().find_map(|path| path.canonicalize().ok().filter(|path| path.is_file()));
    found.ok_or_else(|| TruthError::NoProgram { program: program.to_owned() })
}
