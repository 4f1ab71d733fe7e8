//! The code of a recording's modules.

use super::{ElfError, ElfFile};
use crate::{FileText, Instruction};
use corewise_paths::program::{Function, Program};
use corewise_paths::window::{Location, Module, ModuleId};
use corewise_sys::input;
use std::cell::{OnceCell, RefCell};
use std::path::Path;

/// The code of a recording's modules, read from their files. Instructions are decoded once and kept.
pub struct ElfProgram {
    /// In the order of the recording; `None` if the file cannot be read.
    modules: Vec<Option<ModuleCode>>,
    unreadable: Vec<ElfError>,
}

struct ModuleCode {
    elf: ElfFile,
    text: RefCell<FileText>,
    functions: OnceCell<Vec<Function>>,
}

impl ElfProgram {
    /// Opens the files of a recording's modules. A file that is another one by now is an error; one that
    /// cannot be read has no code ([`ElfProgram::unreadable`]).
    pub fn open(modules: &[Module]) -> Result<ElfProgram, ElfError> {
        let mut program = ElfProgram::open_unchanged(modules);
        let is_changed = |error: &ElfError| matches!(error, ElfError::Changed { .. });
        match program.unreadable.iter().position(is_changed) {
            Some(index) => Err(program.unreadable.swap_remove(index)),
            None => Ok(program),
        }
    }

    /// Opens the files of a recording's modules. One that is another file by now has no code, either.
    pub fn open_unchanged(modules: &[Module]) -> ElfProgram {
        let mut program = ElfProgram { modules: Vec::new(), unreadable: Vec::new() };
        for module in modules {
            let code = ModuleCode::open(module);
            program.modules.push(code.map_err(|error| program.unreadable.push(error)).ok());
        }
        program
    }

    /// The files that could not be read, each with the reason.
    pub fn unreadable(&self) -> &[ElfError] {
        &self.unreadable
    }

    /// The file of a module, if it could be read.
    pub fn elf(&self, module: ModuleId) -> Option<&ElfFile> {
        Some(&self.module(module)?.elf)
    }

    /// An instruction in the words of an assembler, with absolute addresses.
    pub fn assembly(&self, at: Location) -> Option<String> {
        let module = self.module(at.module)?;
        let text = module.text.borrow();
        text.assembly(module.elf.segments.offset(at.address)?, at.address)
    }

    fn module(&self, module: ModuleId) -> Option<&ModuleCode> {
        self.modules.get(module.0 as usize)?.as_ref()
    }
}

impl ModuleCode {
    fn open(module: &Module) -> Result<ModuleCode, ElfError> {
        let path = Path::new(&module.path);
        let elf = ElfFile::open(path)?;
        if elf.build_id() != module.build_id.as_deref() {
            return Err(ElfError::Changed {
                path: path.to_owned(),
                recorded: module.build_id.clone(),
                now: elf.build_id,
            });
        }
        let file = input::open_regular(path);
        let file = file.map_err(|source| ElfError::Read { path: path.to_owned(), source })?;
        let text = RefCell::new(FileText::new(file, elf.isa));
        Ok(ModuleCode { elf, text, functions: OnceCell::new() })
    }

    /// A damaged symbol table gives no functions: its code can still be followed.
    fn functions(&self) -> &[Function] {
        self.functions.get_or_init(|| self.elf.functions().unwrap_or_default())
    }
}

impl Program for ElfProgram {
    fn instruction(&self, at: Location) -> Option<Instruction> {
        let module = self.module(at.module)?;
        module.text.borrow_mut().instruction(module.elf.segments.offset(at.address)?)
    }

    fn function(&self, at: Location) -> Option<&Function> {
        let functions = self.module(at.module)?.functions();
        let behind = functions.partition_point(|function| function.start <= at.address);
        functions[..behind].last().filter(|function| at.address < function.end)
    }
}
