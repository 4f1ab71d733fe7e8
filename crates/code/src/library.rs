//! The ELF files that a process has mapped as code, and where in its memory their parts lie.

use crate::elf::ElfFile;
use crate::mapped_file;
use crate::space::{AddressSpace, Backing, FileKey, Mapping};
use corewise_sys::proc::{Memory, Proc};
use std::collections::HashSet;
use std::io;
use std::path::Path;

/// Files that turned out not to be wanted and are remembered; beyond, all are forgotten: builds make ever new
/// files.
const OTHERS_MAX: usize = 1 << 12;

/// A program or library in the memory of a process.
#[derive(Debug)]
pub struct Library {
    /// The file.
    pub elf: ElfFile,
    /// Where its code is mapped.
    pub mapping: Mapping,
    moved_by: u64,
}

impl Library {
    /// The address in the process's memory of an address as linked.
    pub fn loaded(&self, linked: u64) -> u64 {
        linked.wrapping_add(self.moved_by)
    }

    /// Of the first executable mapping of a file; `None` if it is another one.
    fn of(elf: ElfFile, mapping: &Mapping) -> Option<Library> {
        let (address, offset, _) = elf.code_mapping()?;
        let moved_by = mapping.start.wrapping_sub(address);
        (mapping.offset == offset).then(|| Library { elf, mapping: mapping.clone(), moved_by })
    }
}

/// The libraries of a process that are `wanted`, at most `most`: each is an open file. Files that turn out
/// not to be are added to `others`, and not looked at again while those are remembered.
pub fn libraries(
    pid: u32,
    others: &mut HashSet<FileKey>,
    most: usize,
    wanted: impl Fn(&ElfFile) -> bool,
) -> io::Result<Vec<Library>> {
    let mut found = Vec::new();
    if others.len() > OTHERS_MAX {
        others.clear();
    }
    for mapping in AddressSpace::of_process(pid)?.mappings() {
        if found.len() == most {
            break;
        }
        let Backing::File(file, path) = &mapping.backing else { continue };
        if others.contains(file) {
            continue;
        }
        // The process may just have ended; others may have the same file.
        let Some(opened) = mapped_file::open(pid, mapping) else { continue };
        match ElfFile::of(Path::new(path.as_ref()), opened).ok().filter(&wanted) {
            Some(elf) => found.extend(Library::of(elf, mapping)),
            None => drop(others.insert(*file)),
        }
    }
    Ok(found)
}

/// Whether the process has this mapping now.
pub fn is_mapped(pid: u32, mapping: &Mapping) -> bool {
    let listed = Proc::own().mapping_at(pid, mapping.start).ok().flatten();
    listed.is_some_and(|listed| listed.executable && Mapping::of(&listed) == *mapping)
}

/// The memory of a process, to read and to write.
pub fn memory(pid: u32) -> io::Result<Memory> {
    Proc::own().memory(pid, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ever_new_files_are_not_remembered_for_ever() {
        let key = |inode| FileKey { device: (0, 0), inode, generation: 0 };
        let mut others: HashSet<FileKey> = (0..=OTHERS_MAX as u64).map(key).collect();
        assert!(libraries(std::process::id(), &mut others, 1, |_| false).unwrap().is_empty());
        assert!((1..OTHERS_MAX).contains(&others.len()), "{}", others.len());
    }

    #[test]
    fn no_more_libraries_are_opened_than_wanted() {
        let found = |most| libraries(std::process::id(), &mut HashSet::new(), most, |_| true).unwrap().len();
        // This program, and the C library.
        assert_eq!([0, 1, 2].map(found), [0, 1, 2]);
    }
}
