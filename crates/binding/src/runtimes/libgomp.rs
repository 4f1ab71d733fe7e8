//! How long the idle threads of GNU's OpenMP runtime spin, read and set from outside while the program runs.
//!
//! Problem: libgomp reads `GOMP_SPINCOUNT` once, when it is loaded, and keeps it in a variable that it does
//! not export. Approach: the program is started with a value of its own there, about the default's size.
//! Whoever looks for that value in the writable segments of a library that exports `GOMP_parallel` finds the
//! variable; every wait reads it anew, so what is written there holds from the next wait on. That changes
//! when threads sleep, and no result.
//!
//! A library can be unloaded, and a process can become another program at any time. The memory is that of the
//! program in which the variable was found (the descriptor of `/proc/PID/mem` stays with it through an
//! `exec`), and before each write the mapping and the value must be what they were.
//!
//! Limits: the value must be found exactly once. A libgomp inside a stripped static program exports nothing,
//! so it is not found. Between the check and the write the library could be unloaded and something else be
//! mapped there; that would have to happen within microseconds.

use crate::guardian::Word;
use corewise_code::elf::ElfFile;
use corewise_code::mapped_file;
use corewise_code::space::{AddressSpace, Backing, FileKey, Mapping};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The variable that libgomp reads when it is loaded.
pub const VARIABLE: &str = "GOMP_SPINCOUNT";

/// What a library that holds such a variable exports. LLVM's runtime exports it, too, but holds no such
/// variable.
const EXPORTED: &str = "GOMP_parallel";

/// Bytes of a library's writable segments that are searched at most; libgomp has some 10 KiB.
const SEARCHED_MAX: u64 = 16 << 20;

/// Where one copy of libgomp keeps how long its idle threads spin.
#[derive(Debug)]
pub struct SpinCount {
    memory: Arc<File>,
    pid: u32,
    address: u64,
    library: Mapping,
    /// What stood there at first, and what stands there since we last wrote.
    own: u64,
    present: u64,
    /// What the guardian knows may stand there.
    entrusted: Option<u64>,
}

/// Why a library's variable cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The process has ended, or belongs to somebody else.
    #[error("cannot look into process {pid}: {source}")]
    Process {
        /// The process.
        pid: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// More than one word has the value.
    #[error("`{library}` of process {pid} has the value {count} times, not once")]
    Ambiguous {
        /// The process.
        pid: u32,
        /// The library's path.
        library: String,
        /// How often.
        count: usize,
    },
}

/// Why a value was not written.
#[derive(Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The program has ended, become another, or unloaded the library.
    Gone,
    /// Somebody else has written there.
    NotOurs,
    /// The system's answer.
    Refused(String),
}

/// The variables of every copy of libgomp in a process, found by the value `planted`.
pub fn find(pid: u32, planted: u64) -> Result<Vec<SpinCount>, FindError> {
    find_again(pid, planted, &mut HashSet::new())
}

/// Those of a process that was searched before: the files of `others` are known to be no libgomp, and those
/// that turn out to be none are added.
pub fn find_again(
    pid: u32,
    planted: u64,
    others: &mut HashSet<FileKey>,
) -> Result<Vec<SpinCount>, FindError> {
    let process = |source| FindError::Process { pid, source };
    let memory = Arc::new(memory_of(pid).map_err(process)?);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(process)?;
    let mut found = Vec::new();
    for library in AddressSpace::from_maps(&maps).mappings() {
        let Backing::File(file, path) = &library.backing else { continue };
        if others.contains(file) {
            continue;
        }
        let Some(segments) = writable_segments(pid, library, path) else {
            others.insert(*file);
            continue;
        };
        let addresses: Vec<u64> =
            segments.into_iter().flat_map(|segment| occurrences(&memory, segment, planted)).collect();
        match addresses[..] {
            [] => {}
            [address] => found.push(SpinCount {
                memory: memory.clone(),
                pid,
                address,
                library: library.clone(),
                own: planted,
                present: planted,
                entrusted: None,
            }),
            _ => {
                let (library, count) = (path.to_string(), addresses.len());
                return Err(FindError::Ambiguous { pid, library, count });
            }
        }
    }
    Ok(found)
}

fn memory_of(pid: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// Where the writable segments of a mapped library lie; `None` if it is not one that we look for.
fn writable_segments(pid: u32, library: &Mapping, path: &str) -> Option<Vec<Range<u64>>> {
    let elf = ElfFile::of(Path::new(path), mapped_file::open(pid, library)?).ok()?;
    let (address, offset, _) = elf.code_mapping()?;
    if library.offset != offset || !elf.defines(EXPORTED) {
        return None;
    }
    let moved_by = library.start.wrapping_sub(address);
    let moved = elf.writable_segments().map(|(start, size)| {
        let start = start.wrapping_add(moved_by).next_multiple_of(8);
        start..start.saturating_add(size.min(SEARCHED_MAX))
    });
    Some(moved.collect())
}

/// The addresses of the words that have a value.
fn occurrences(memory: &File, segment: Range<u64>, value: u64) -> Vec<u64> {
    let mut bytes = vec![0; (segment.end - segment.start) as usize];
    let mut filled = 0;
    // What is not mapped ends the segment.
    while let Ok(read @ 1..) = memory.read_at(&mut bytes[filled..], segment.start + filled as u64) {
        filled += read;
    }
    let words = bytes[..filled].chunks_exact(8).zip((segment.start..).step_by(8));
    let is_value = |word: &[u8]| word == value.to_ne_bytes();
    words.filter(|(word, _)| is_value(word)).map(|(_, address)| address).collect()
}

impl SpinCount {
    /// The library's path.
    pub fn library(&self) -> &str {
        match &self.library.backing {
            Backing::File(_, path) => path,
            Backing::Memory => "memory",
        }
    }

    /// Whether it is the same variable of the same process.
    pub fn is_same(&self, other: &SpinCount) -> bool {
        (self.pid, self.address) == (other.pid, other.address)
    }

    /// What the program was started with.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// Whether something else than at first stands there.
    pub fn is_changed(&self) -> bool {
        self.present != self.own
    }

    /// The same variable in a process that was forked from this one while its value was changed.
    pub fn in_child(&self, pid: u32) -> Option<SpinCount> {
        let memory = Arc::new(memory_of(pid).ok()?);
        let library = self.library.clone();
        let child = SpinCount { memory, pid, library, entrusted: None, ..*self };
        (self.is_changed() && child.is_still_there() && child.word()? == child.present).then_some(child)
    }

    /// Writes how often an idle thread looks from its next wait on, before it sleeps. What is about to be
    /// written is told before, once; if that fails, nothing is written.
    pub fn write_after(
        &mut self,
        count: u64,
        tell: impl FnOnce(BorrowedFd<'_>, Word) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        if self.entrusted != Some(count) {
            let word = Word { address: self.address, own: self.own, ours: count };
            tell(self.memory.as_fd(), word).map_err(|error| WriteError::Refused(error.to_string()))?;
            self.entrusted = Some(count);
        }
        self.write(count)
    }

    /// Writes how often an idle thread looks from its next wait on, before it sleeps.
    pub fn write(&mut self, count: u64) -> Result<(), WriteError> {
        if count == self.present {
            return Ok(());
        }
        if !self.is_still_there() {
            return Err(WriteError::Gone);
        }
        match self.word() {
            Some(word) if word == self.present => {}
            Some(_) => return Err(WriteError::NotOurs),
            None => return Err(WriteError::Gone),
        }
        match self.memory.write_at(&count.to_ne_bytes(), self.address) {
            Ok(8) => self.present = count,
            Ok(_) => return Err(WriteError::Gone),
            Err(error) => return Err(WriteError::Refused(error.to_string())),
        }
        Ok(())
    }

    /// Writes what stood there at first.
    pub fn give_back(&mut self) -> Result<(), WriteError> {
        self.write(self.own)
    }

    /// What stands there; `None` if the program's memory is no more.
    fn word(&self) -> Option<u64> {
        let mut word = [0; 8];
        let is_read = self.memory.read_at(&mut word, self.address).is_ok_and(|count| count == word.len());
        is_read.then_some(u64::from_ne_bytes(word))
    }

    fn is_still_there(&self) -> bool {
        let Ok(maps) = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)) else { return false };
        AddressSpace::from_maps(&maps).find(self.library.start) == Some(&self.library)
    }
}
