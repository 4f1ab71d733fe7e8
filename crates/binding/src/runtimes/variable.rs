//! A variable of a library in a running program: read, written and given back from outside.
//!
//! A library can be unloaded, and a process can become another program at any time. The memory is that of the
//! program in which the variable was found (the descriptor of `/proc/PID/mem` stays with it through an
//! `exec`), and before each write the mapping and the value must be what they were. Limit: between the check
//! and the write the library could be unloaded and something else be mapped there; that would have to happen
//! within microseconds.

use crate::guardian::Word;
use corewise_code::library::{self, Library};
use corewise_code::space::{Backing, Mapping};
use corewise_core::plan::OutcomeKind;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A variable of one copy of a library.
#[derive(Debug)]
pub struct Variable {
    memory: Arc<File>,
    pid: u32,
    address: u64,
    /// Bytes that it has: 1, 4 or 8.
    width: usize,
    library: Mapping,
    /// What stood there at first, and what stands there since we last wrote.
    own: u64,
    present: u64,
    /// What we have ever written: a process that was forked meanwhile may have any of it.
    written: BTreeSet<u64>,
    /// What the guardian knows may stand there.
    entrusted: Option<u64>,
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

/// What that is to the engine.
impl From<WriteError> for OutcomeKind {
    fn from(error: WriteError) -> OutcomeKind {
        match error {
            WriteError::Gone => OutcomeKind::Gone,
            WriteError::NotOurs => OutcomeKind::NotOurs,
            WriteError::Refused(why) => OutcomeKind::Refused(why),
        }
    }
}

impl Variable {
    /// The one at an address of the process's memory, with what stands there now; `None` if that cannot be
    /// read, or is in no writable segment of the library.
    pub fn at(
        memory: &Arc<File>,
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
        let own = Word { address, own: 0, ours: 0, width }.read(memory)?;
        let (memory, library) = (memory.clone(), library.mapping.clone());
        Some(Variable {
            memory,
            pid,
            address,
            width,
            library,
            own,
            present: own,
            written: BTreeSet::new(),
            entrusted: None,
        })
    }

    /// The library's path.
    pub fn library(&self) -> &str {
        match &self.library.backing {
            Backing::File(_, path) => path,
            Backing::Memory => "memory",
        }
    }

    /// Whether it is the same variable of the same process.
    pub fn is_same(&self, other: &Variable) -> bool {
        (self.pid, self.address) == (other.pid, other.address)
    }

    /// What stood there at first.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// Whether something else than at first stands there.
    pub fn is_changed(&self) -> bool {
        self.present != self.own
    }

    /// Whether something else has ever stood there.
    pub fn was_changed(&self) -> bool {
        !self.written.is_empty()
    }

    /// The same variable in a process that was forked from this one while its value was changed, whatever
    /// stands here by now.
    pub fn in_child(&self, pid: u32) -> Option<Variable> {
        let memory = Arc::new(library::memory(pid).ok()?);
        let (library, written) = (self.library.clone(), self.written.clone());
        let mut child = Variable { memory, pid, library, written, entrusted: None, ..*self };
        child.present = child.word()?;
        (child.written.contains(&child.present) && child.is_still_there()).then_some(child)
    }

    /// Writes a value. What is about to be written is told before, once; if that fails, nothing is written.
    pub fn write_after(
        &mut self,
        value: u64,
        tell: impl FnOnce(BorrowedFd<'_>, Word) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        if self.entrusted != Some(value) {
            let word = Word { address: self.address, own: self.own, ours: value, width: self.width };
            tell(self.memory.as_fd(), word).map_err(|error| WriteError::Refused(error.to_string()))?;
            self.entrusted = Some(value);
        }
        self.write(value)
    }

    /// Writes a value. What stands as at first again was set by the library as it began, not by somebody who
    /// has decided otherwise.
    pub fn write(&mut self, value: u64) -> Result<(), WriteError> {
        if self.word() == Some(self.own) {
            self.present = self.own;
        }
        if value == self.present {
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
        match self.memory.write_at(&value.to_le_bytes()[..self.width], self.address) {
            Ok(written) if written == self.width => self.present = value,
            Ok(_) => return Err(WriteError::Gone),
            Err(error) => return Err(WriteError::Refused(error.to_string())),
        }
        if value != self.own {
            self.written.insert(value);
        }
        Ok(())
    }

    /// Writes what stood there at first.
    pub fn give_back(&mut self) -> Result<(), WriteError> {
        self.write(self.own)
    }

    /// What stands there; `None` if the program's memory is no more.
    pub fn word(&self) -> Option<u64> {
        let Variable { address, own, present: ours, width, .. } = *self;
        Word { address, own, ours, width }.read(&self.memory)
    }

    fn is_still_there(&self) -> bool {
        library::is_mapped(self.pid, &self.library)
    }
}
