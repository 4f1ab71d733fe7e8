//! The libraries in a process's memory that may hold a variable of a runtime. A program of Python's maps a
//! hundred files: they are looked through once, for all runtimes together.

use super::exported;
use super::variable::Variable;
use corewise_code::library::{self, Library};
use corewise_code::names;
use corewise_code::space::FileKey;
use corewise_sys::proc::Memory;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// What such libraries export, one of these at least.
const EXPORTED: [&str; 4] = [names::YIELDS, exported::LIBGOMP, exported::OPEN_MPI, exported::OPENBLAS];

/// Files whose spin count is remembered; beyond, all are forgotten. A machine has a few copies of libgomp.
const SPIN_COUNTS_MAX: usize = 1 << 12;

/// Such libraries of a process that are looked at: a program of Python's has some, each package its own.
pub const COPIES_MAX: usize = 16;

/// What is known of mapped files, whichever process has them, so that each is looked through once.
#[derive(Debug, Default)]
pub struct Files {
    /// Those that hold no runtime library.
    others: HashSet<FileKey>,
    /// Where libraries keep the spin count, as linked, if their code shows it.
    pub(super) spin_counts: HashMap<FileKey, Option<u64>>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Loaded {
    pub(super) pid: u32,
    pub(super) memory: Arc<Memory>,
    copies: Vec<Library>,
}

impl Loaded {
    /// Those of a process.
    pub fn in_process(pid: u32, files: &mut Files) -> io::Result<Loaded> {
        let memory = Arc::new(library::memory(pid)?);
        if files.spin_counts.len() > SPIN_COUNTS_MAX {
            files.spin_counts.clear();
        }
        let copies = library::libraries(pid, &mut files.others, COPIES_MAX, |elf| {
            elf.symbols(EXPORTED).iter().any(Option::is_some)
        })?;
        Ok(Loaded { pid, memory, copies })
    }

    /// Those that define a symbol, each with its address in memory.
    pub(super) fn defining(&self, symbol: &str) -> impl Iterator<Item = (&Library, u64)> {
        self.copies.iter().filter_map(move |copy| Some((copy, copy.loaded(copy.elf.symbol(symbol)?))))
    }

    /// The variable of a library at an address, with so many bytes.
    pub(super) fn variable(&self, copy: &Library, address: u64, width: usize) -> Option<Variable> {
        Variable::at(&self.memory, self.pid, address, width, copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spin_counts_of_ever_new_files_are_not_remembered_for_ever() {
        let key = |inode| FileKey { device: (0, 0), inode, generation: 0 };
        let mut files = Files::default();
        files.spin_counts.extend((0..=SPIN_COUNTS_MAX as u64).map(|inode| (key(inode), None)));
        Loaded::in_process(std::process::id(), &mut files).unwrap();
        assert!(files.spin_counts.is_empty());
    }
}
