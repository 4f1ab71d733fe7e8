//! The ELF files that windows lie in: which they are, and their addresses as linked.

use crate::code::{AddressSpace, Backing, FileKey};
use corewise_paths::window::{Location, Module, ModuleId};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, elf};
use rustc_hash::FxHashMap;

/// A part of a file that is loaded as code.
#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// The files seen so far.
#[derive(Debug, Default)]
pub struct Modules {
    modules: Vec<Module>,
    segments: Vec<Vec<Segment>>,
    /// `None`: it cannot be read as ELF.
    by_key: FxHashMap<FileKey, Option<ModuleId>>,
}

impl Modules {
    /// Where an address of a process lies; `None` if in no ELF file.
    pub fn locate(&mut self, pid: u32, space: &AddressSpace, address: u64) -> Option<Location> {
        let mapping = space.find(address)?;
        let Backing::File(key, path) = &mapping.backing else { return None };
        let module = match self.by_key.get(key) {
            Some(known) => (*known)?,
            None => self.open(pid, *key, path)?,
        };
        let offset = mapping.offset + (address - mapping.start);
        let segment = self.segments[module.0 as usize]
            .iter()
            .find(|segment| (segment.offset..segment.offset + segment.size).contains(&offset))?;
        Some(Location { module, address: segment.address + (offset - segment.offset) })
    }

    /// All of them, by their ids.
    pub fn into_modules(self) -> Vec<Module> {
        self.modules
    }

    fn open(&mut self, pid: u32, key: FileKey, path: &str) -> Option<ModuleId> {
        // Through the process's own root, else (it may have ended) through ours.
        let candidates = [format!("/proc/{pid}/root{path}"), path.to_owned()];
        let bytes = candidates.iter().find_map(|candidate| std::fs::read(candidate).ok());
        let id = bytes.as_deref().and_then(read).map(|(build_id, segments)| {
            self.modules.push(Module { path: path.to_owned(), build_id });
            self.segments.push(segments);
            ModuleId(self.modules.len() as u32 - 1)
        });
        self.by_key.insert(key, id);
        id
    }
}

/// Build id and executable segments.
fn read(bytes: &[u8]) -> Option<(Option<String>, Vec<Segment>)> {
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(bytes).ok()?;
    let build_id = file.build_id().ok().flatten();
    let hexadecimal = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
    let header = file.elf_header();
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?.iter();
    let is_code = |segment: &&elf::ProgramHeader64<_>| {
        segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian).contains(elf::PF_X)
    };
    let segments = segments.filter(is_code).map(|segment| Segment {
        offset: segment.p_offset(endian),
        size: segment.p_filesz(endian),
        address: segment.p_vaddr(endian),
    });
    Some((build_id.map(hexadecimal), segments.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_function_lies_where_the_linker_put_it() {
        let pid = std::process::id();
        let space = AddressSpace::from_maps(&std::fs::read_to_string("/proc/self/maps").unwrap());
        let mut modules = Modules::default();
        let function = this_function_lies_where_the_linker_put_it as fn() as usize as u64;
        let location = modules.locate(pid, &space, function).unwrap();
        assert_eq!(modules.locate(pid, &space, function + 1).unwrap().address, location.address + 1);
        assert_eq!(modules.locate(pid, &space, 0x10), None);
        let modules = modules.into_modules();
        assert_eq!(modules.len(), 1);
        assert_eq!(modules[0].path, std::env::current_exe().unwrap().to_str().unwrap());
        let bytes = std::fs::read(&modules[0].path).unwrap();
        let file = object::File::parse(bytes.as_slice()).unwrap();
        use object::{ObjectSection, ObjectSymbol};
        let near = |address: u64| {
            file.sections().any(|s| s.address() <= address && address < s.address() + s.size())
        };
        assert!(near(location.address));
        let name = "this_function_lies_where_the_linker_put_it";
        let mut named = file.symbols().filter(|symbol| symbol.name().is_ok_and(|n| n.contains(name)));
        assert!(named.any(|symbol| symbol.address() == location.address));
    }
}
