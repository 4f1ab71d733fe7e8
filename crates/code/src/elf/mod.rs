//! ELF files: build id, addresses as linked, functions, and the instruction at an address.
//!
//! Addresses are as linked, what `nm` and `objdump` print, so that they mean the same in every process and in
//! every run. [`ElfProgram`] is the code of a recording's modules, for stitching.

mod content;
pub(crate) mod functions;
mod headers;
mod program;
mod segments;

pub(crate) use content::{Content, OF_PROGRAM_MAX, OF_USER_MAX};
pub(crate) use headers::Exported;
pub use program::ElfProgram;
pub use segments::Segments;

use crate::Isa;
use content::HEADERS_MAX;
use corewise_sys::input;
use headers::Headers;
use object::elf::{EM_386, EM_AARCH64, EM_X86_64};
use object::{Object, ObjectSymbol, Symbol};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why an ELF file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Its content is not what an ELF file should be.
    #[error("{path} is no ELF file that can be used: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It is another file than the one that was recorded.
    #[error(
        "{path} has changed since the recording: its build id is {}, the recorded one {}; put the recorded \
         file back or record again",
        .now.as_deref().unwrap_or("missing"),
        .recorded.as_deref().unwrap_or("missing")
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its build id when it was recorded.
        recorded: Option<String>,
        /// Its build id now.
        now: Option<String>,
    },
}

/// An executable or shared library.
#[derive(Debug)]
pub struct ElfFile {
    path: PathBuf,
    file: Arc<File>,
    /// How much of the file is read for a question.
    bytes_max: u64,
    isa: Isa,
    build_id: Option<String>,
    segments: Segments,
    is_program: bool,
}

impl ElfFile {
    /// Reads the headers of a file that the user names.
    pub fn open(path: &Path) -> Result<ElfFile, ElfError> {
        let file = input::open_regular(path);
        let file = file.map_err(|source| ElfError::Read { path: path.to_owned(), source })?;
        Ok(ElfFile { bytes_max: OF_USER_MAX, ..ElfFile::of(path, file)? })
    }

    /// Reads the headers of a file that a watched program has, and may have made. The path is what it is
    /// called.
    pub fn of(path: &Path, file: File) -> Result<ElfFile, ElfError> {
        let malformed = |problem: String| ElfError::Malformed { path: path.to_owned(), problem };
        let file = Arc::new(file);
        let content = Content::new(file.clone(), HEADERS_MAX);
        let headers = Headers::of(content.bytes()).map_err(|error| malformed(error.to_string()))?;
        let isa = match headers.machine {
            EM_X86_64 => Isa::X86_64,
            EM_386 => Isa::X86,
            EM_AARCH64 => Isa::Aarch64,
            other => return Err(malformed(format!("its machine code is {other:?}, which is not decoded"))),
        };
        let build_id = headers.build_id.as_deref().map(hexadecimal);
        let (segments, is_program) = (Segments(headers.segments), headers.is_program);
        let (path, bytes_max) = (path.to_owned(), OF_PROGRAM_MAX);
        Ok(ElfFile { path, file, bytes_max, isa, build_id, segments, is_program })
    }

    /// The file's content, for one question.
    fn content(&self) -> Content {
        Content::new(self.file.clone(), self.bytes_max)
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Its build id in lower-case hexadecimal, if it has one.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// Which byte is loaded where.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Closes the file.
    pub fn into_segments(self) -> Segments {
        self.segments
    }

    /// The first executable segment as the kernel maps it, in whole pages of 4 KiB: address as linked, offset
    /// in the file, size in bytes.
    pub fn code_mapping(&self) -> Option<(u64, u64, u64)> {
        let segment = self.segments.0.iter().find(|segment| segment.is_code)?;
        let within_page = segment.address % 4096;
        let size = segment.size.checked_add(within_page)?.checked_next_multiple_of(4096)?;
        Some((segment.address - within_page, segment.offset.checked_sub(within_page)?, size))
    }

    /// The address as linked of a symbol that it defines, as [`symbols`](Self::symbols) finds it.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        let [address] = self.symbols([name]);
        address
    }

    /// Returns the linked address of each of these symbols, if the file exports it; a program that keeps all
    /// its symbols is searched for any of them.
    pub fn symbols<const N: usize>(&self, names: [&str; N]) -> [Option<u64>; N] {
        let content = self.content();
        let exported = Exported::of(content.bytes());
        let mut found = names.map(|name| exported.as_ref().and_then(|exported| exported.address(name)));
        if found.contains(&None)
            && (exported.is_none() || self.is_program)
            && let Ok(object) = content.object()
        {
            for symbol in object.dynamic_symbols().chain(object.symbols()).filter(Symbol::is_definition) {
                let named = symbol.name().ok().and_then(|name| names.iter().position(|&n| n == name));
                if let Some(index) = named {
                    found[index].get_or_insert(symbol.address());
                }
            }
        }
        found
    }

    /// The names of the functions and variables that it takes from libraries.
    pub fn imports(&self) -> Vec<String> {
        let content = self.content();
        let Ok(object) = content.object() else { return Vec::new() };
        let imported = object.dynamic_symbols().filter(Symbol::is_undefined);
        imported.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).collect()
    }

    /// Whether it has a section of this name.
    pub fn has_section(&self, name: &str) -> bool {
        self.section(name, 0).is_some()
    }

    /// The address as linked and the first bytes, at most so many, of a section.
    pub fn section(&self, name: &str, bytes_max: u64) -> Option<(u64, Vec<u8>)> {
        let content = Content::new(self.file.clone(), HEADERS_MAX + bytes_max);
        headers::section(content.bytes(), name, bytes_max)
    }

    /// Its writable segments in memory: address as linked, size in bytes.
    pub fn writable_segments(&self) -> impl Iterator<Item = (u64, u64)> {
        let writable = self.segments.0.iter().filter(|segment| segment.is_writable);
        writable.map(|segment| (segment.address, segment.size))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
