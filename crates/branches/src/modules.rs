//! The ELF files that contain windows, and their addresses as linked.

use corewise_code::elf::{ElfFile, Segments};
use corewise_code::mapped_file;
use corewise_code::{AddressSpace, Backing, FileKey, Mapping};
use corewise_paths::window::{Location, Module, ModuleId};
use rustc_hash::FxHashMap;
use std::path::Path;

/// The files seen so far.
#[derive(Debug, Default)]
pub struct Modules {
    modules: Vec<Module>,
    /// The entry of each module.
    segments: Vec<Segments>,
    /// `None` if it cannot be read as ELF.
    by_key: FxHashMap<FileKey, Option<ModuleId>>,
}

impl Modules {
    /// Returns the location of an address of a process; `None` outside ELF files.
    pub fn locate(&mut self, pid: u32, space: &AddressSpace, address: u64) -> Option<Location> {
        let mapping = space.find(address)?;
        let Backing::File(key, path) = &mapping.backing else { return None };
        let module = match self.by_key.get(key) {
            Some(known) => (*known)?,
            None => {
                let module = self.open(pid, mapping, path);
                self.by_key.insert(*key, module);
                module?
            }
        };
        let offset = mapping.offset + (address - mapping.start);
        Some(Location { module, address: self.segments[module.0 as usize].address(offset)? })
    }

    /// Returns all of them, by their ids.
    pub fn into_modules(self) -> Vec<Module> {
        self.modules
    }

    fn open(&mut self, pid: u32, mapping: &Mapping, path: &str) -> Option<ModuleId> {
        let file = ElfFile::of(Path::new(path), mapped_file::open(pid, mapping)?).ok()?;
        let build_id = file.build_id().map(str::to_owned);
        self.modules.push(Module { path: path.to_owned(), build_id });
        self.segments.push(file.into_segments());
        Some(ModuleId(self.modules.len() as u32 - 1))
    }
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
        use object::{Object, ObjectSection, ObjectSymbol};
        let near = |address: u64| {
            file.sections().any(|s| s.address() <= address && address < s.address() + s.size())
        };
        assert!(near(location.address));
        let name = "this_function_lies_where_the_linker_put_it";
        let mut named = file.symbols().filter(|symbol| symbol.name().is_ok_and(|n| n.contains(name)));
        assert!(named.any(|symbol| symbol.address() == location.address));
    }
}
