//! A variable of a library in a running program: read, written and restored from outside. Every write is that
//! of a [`Word`], which checks that the variable is still there.

use crate::changes::Changes;
use crate::word::{Word, WriteError};
use corewise_code::library::Library;
use corewise_code::space::Backing;
use corewise_sys::proc::Memory;
use std::sync::Arc;

/// A variable of one copy of a library.
#[derive(Debug)]
pub struct Variable {
    memory: Arc<Memory>,
    word: Word,
    library: Backing,
    /// What stands there since we last wrote.
    present: u64,
}

impl Variable {
    /// The one at an address of the process's memory, with what stands there now; `None` if that cannot be
    /// read, or is in no writable segment of the library.
    pub fn at(
        memory: &Arc<Memory>,
        pid: u32,
        address: u64,
        width: usize,
        library: &Library,
    ) -> Option<Variable> {
        let size = width as u64;
        let mut segments = library.elf.writable_segments();
        let holds = |(start, length): (u64, u64)| {
            let distance = address.checked_sub(library.loaded(start));
            distance.is_some_and(|distance| distance.saturating_add(size) <= length)
        };
        if !segments.any(holds) || !address.is_multiple_of(size) {
            return None;
        }
        let word = Word::found(pid, memory, address, width, library.mapping.start)?;
        let (memory, library, present) = (memory.clone(), library.mapping.backing.clone(), word.own);
        Some(Variable { memory, word, library, present })
    }

    /// The library's path.
    pub fn library(&self) -> &str {
        match &self.library {
            Backing::File(_, path) => path,
            Backing::Memory => "memory",
        }
    }

    /// Whether it is the same variable of the same program.
    pub fn is_same(&self, other: &Variable) -> bool {
        self.word.is_same(&other.word)
    }

    /// Its address in the program's memory.
    pub fn address(&self) -> u64 {
        self.word.address
    }

    /// What stood there at first.
    pub fn own(&self) -> u64 {
        self.word.own
    }

    /// Whether something else than at first stands there.
    pub fn is_changed(&self) -> bool {
        self.present != self.word.own
    }

    /// Writes a value, which is recorded before; if that fails, nothing is written.
    pub fn write_recorded(&mut self, value: u64, changes: &Changes) -> Result<(), WriteError> {
        if self.word.ours.insert(value) {
            changes.record_word(&self.word, &self.memory).map_err(|why| {
                self.word.ours.remove(&value);
                WriteError::Refused(why)
            })?;
        }
        self.write(value)
    }

    /// Writes a value, also if the library has set its own value again as it began: that is nobody's
    /// decision.
    pub fn write(&mut self, value: u64) -> Result<(), WriteError> {
        if value != self.word.own {
            self.word.ours.insert(value);
        }
        self.word.write(&self.memory, value)?;
        self.present = value;
        Ok(())
    }

    /// Writes what stood there at first.
    pub fn give_back(&mut self) -> Result<(), WriteError> {
        self.write(self.word.own)
    }

    /// Writes the present value again, if something has restored the own one meanwhile.
    pub fn renew(&mut self) {
        if self.is_changed() {
            // A process that has ended, or set another value since, needs nothing.
            let _ = self.write(self.present);
        }
    }

    /// What stands there; `None` if the program's memory is no more.
    pub fn word(&self) -> Option<u64> {
        self.word.read(&self.memory)
    }
}
