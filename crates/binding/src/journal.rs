//! The file of the journal of changes, which outlives the process that writes it.
//!
//! Problem: what corewise has changed must be restored even if corewise and its guardian are both killed.
//! Approach: corewise writes each change, before it makes it, into two files. One has no name: nobody can
//! damage it, and the guardian reads it if corewise is killed. The other is in a directory that only its user
//! can enter and that does not survive a reboot: if the guardian is dead, too, the next corewise of the same
//! user reads it ([`crate::recovery`]). Its name identifies the run: boot, namespace of process IDs, process
//! and start. A journal that has grown is rewritten at its end, and the space before is released, so that its
//! size depends on what is changed, not on the duration of the run. If that is too much to be read again,
//! nothing more is changed. No change is made without space for what is to be written afterwards.
//!
//! A journal that somebody has emptied, cut or overwritten is known by its beginning and its lines
//! ([`Damage`]): what is left of it is restored, and a message says what may have stayed changed. Limits:
//! without such a directory (a user without `XDG_RUNTIME_DIR`) there is no second file. A journal that was
//! cut at the end of a line looks whole.

use super::ledger::{Entry, Ledger};
use super::runtime_directory::Directory;
use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::uio::pread;
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How far a journal may grow before it is rewritten.
const GROWTH: u64 = 1 << 16;

/// The maximum size of a journal; larger files are not journals.
const SIZE_MAX: u64 = 1 << 26;

/// The size above which corewise changes nothing more, so that the journal stays readable: until it is
/// rewritten it may double, and while it is rewritten both versions exist.
const FULL: u64 = SIZE_MAX / 8;

/// The space, in bytes, that stays free after each change for entries that change nothing: a page, some
/// hundred of them.
const SPARE: u64 = 4096;

/// The first line of a journal.
pub(crate) const HEAD: &str = "journal of changes";

/// A run's changes, and the files that they are written to.
#[derive(Debug)]
pub struct Journal {
    ledger: Ledger,
    /// For the guardian; without a name.
    memory: Lines,
    /// For the next corewise.
    named: Option<(Lines, PathBuf)>,
    /// The file size limit of this process; exceeding it raises a signal.
    pub(super) limit: u64,
}

/// A file with the lines of a journal.
#[derive(Debug)]
struct Lines {
    file: File,
    length: u64,
    /// Where its content begins: what was before is released.
    begin: u64,
    /// Whether it was full when it was last rewritten.
    is_full: bool,
    /// The length at which it is rewritten.
    length_max: u64,
}

impl Journal {
    /// Creates a journal in the runtime directory, or one without a name and the reason.
    pub fn create() -> io::Result<(Journal, Option<String>)> {
        let own = Task::own()?;
        let why_not = match Directory::to_write() {
            Ok(directory) => match Journal::in_directory(&directory, own) {
                Ok(journal) => return Ok((journal, None)),
                Err(error) => format!("cannot write to {}: {error}", directory.path().display()),
            },
            Err(why_not) => why_not,
        };
        Ok((Journal::without_name()?, Some(why_not)))
    }

    /// Creates a journal of the run of this process in a directory.
    pub(crate) fn in_directory(directory: &Directory, corewise: Task) -> io::Result<Journal> {
        let name = Name::own(corewise)?.to_string();
        let file = directory.open_file(&name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?;
        let path = directory.path().join(name);
        let journal = Journal::new(Some((file, path.clone())));
        let mut journal = journal.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        journal.write(&Entry::Member(corewise))?;
        Ok(journal)
    }

    pub(super) fn without_name() -> io::Result<Journal> {
        Journal::new(None)
    }

    /// Writes the first line into both files, to find out now if there is no space.
    fn new(named: Option<(File, PathBuf)>) -> io::Result<Journal> {
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        let begin = |file| {
            let mut lines = Lines { file, length: 0, begin: 0, is_full: false, length_max: GROWTH };
            lines.append(&format!("{HEAD}\n"), limit).map(|()| lines)
        };
        let memory = begin(memfd_create(c"corewise", MFdFlags::MFD_CLOEXEC)?.into())?;
        let named = named.map(|(file, path)| begin(file).map(|lines| (lines, path))).transpose()?;
        Ok(Journal { ledger: Ledger::default(), memory, named, limit })
    }

    /// Returns the path of the file with a name.
    pub fn path(&self) -> Option<&Path> {
        self.named.as_ref().map(|(_, path)| path.as_path())
    }

    /// Returns another descriptor of the file without a name.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.file.as_fd().try_clone_to_owned()
    }

    /// Returns what was written.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Writes an entry.
    pub fn write(&mut self, entry: &Entry) -> io::Result<()> {
        self.ledger.note(entry.clone());
        let line = entry.to_line();
        let Journal { ledger, memory, named, limit } = self;
        let mut all = std::iter::once(memory).chain(named.as_mut().map(|(lines, _)| lines));
        all.try_for_each(|lines| {
            if entry.is_change() {
                lines.keep_free(line.len() as u64 + SPARE, *limit)?;
            }
            lines.write(&line, ledger, *limit)
        })
    }

    /// Drops the words that no living process can have.
    pub fn drop_outlived_words(&mut self) -> io::Result<()> {
        self.ledger.drop_outlived_words();
        let Journal { ledger, memory, named, limit } = self;
        let mut all = std::iter::once(memory).chain(named.as_mut().map(|(lines, _)| lines));
        all.try_for_each(|lines| lines.rewrite(ledger, *limit))
    }

    /// Returns whether no further change may be written.
    pub fn is_full(&self) -> bool {
        self.memory.is_full || self.named.as_ref().is_some_and(|(lines, _)| lines.is_full)
    }

    /// Deletes the file with a name, after everything was restored.
    pub fn close(&mut self) {
        // If it stays, it says that nothing is left to do.
        let _ = self.named.take().map(|(_, path)| std::fs::remove_file(path));
    }
}

impl Lines {
    /// Writes the line of an entry that the ledger has already.
    fn write(&mut self, line: &str, ledger: &Ledger, limit: u64) -> io::Result<()> {
        self.append(line, limit)?;
        if self.length > self.length_max { self.rewrite(ledger, limit) } else { Ok(()) }
    }

    /// Makes sure that so many bytes can be appended, where the file system can do that.
    fn keep_free(&mut self, bytes: u64, limit: u64) -> io::Result<()> {
        let end = self.length + bytes;
        if end > limit {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, self.length as i64, bytes as i64) {
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn rewrite(&mut self, ledger: &Ledger, limit: u64) -> io::Result<()> {
        let outdated = self.length;
        self.append(&ledger.to_lines(), limit)?;
        // If the file system does not support this, the file grows.
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        if fallocate(&self.file, punch, 0, outdated as i64).is_ok() {
            self.begin = outdated;
        }
        let size = self.length - self.begin;
        self.is_full = size > FULL;
        // As long as it is full, it is looked soon whether it is not any more.
        self.length_max = self.length + if self.is_full { GROWTH } else { size.max(GROWTH) };
        Ok(())
    }

    fn append(&mut self, lines: &str, limit: u64) -> io::Result<()> {
        if self.length + lines.len() as u64 > limit {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let result = self.file.write_all_at(lines.as_bytes(), self.length);
        match result {
            Ok(()) => self.length += lines.len() as u64,
            // Half a line would corrupt the next one.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        result
    }
}

/// The content of a journal.
#[derive(Debug)]
pub struct Content {
    /// What its entries say.
    pub ledger: Ledger,
    /// Whether entries are missing.
    pub damage: Option<Damage>,
}

/// What shows that somebody else has changed a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It has no line.
    #[error("it is empty")]
    Empty,
    /// It begins with another line.
    #[error("its beginning is missing")]
    Beginning,
    /// A line is no entry.
    #[error("its line {0} is not an entry")]
    Line(usize),
}

/// Reads a journal.
pub fn read(file: BorrowedFd) -> io::Result<Content> {
    let size = lseek(file, 0, Whence::SeekEnd)? as u64;
    let start = match lseek(file, 0, Whence::SeekData) {
        Ok(start) => start as u64,
        // The file is empty.
        Err(Errno::ENXIO) => size,
        Err(errno) => return Err(errno.into()),
    };
    let length = size.saturating_sub(start);
    if length > SIZE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large for a journal of corewise's"));
    }
    let mut bytes = vec![0; length as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match pread(file, &mut bytes[filled..], start as i64 + filled as i64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(Content::parse(&String::from_utf8_lossy(&bytes)))
}

impl Content {
    fn parse(text: &str) -> Content {
        // Zeros remain of a page whose beginning was released. The last line may be incomplete: corewise was
        // killed while it wrote, and has not made that change.
        let text = text.trim_start_matches('\0');
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut damage = complete.is_empty().then_some(Damage::Empty);
        let entries = complete.lines().enumerate().filter_map(|(index, line)| {
            let entry = Entry::parse(line);
            let is_right = match index {
                0 => line == HEAD || entry == Some(Entry::Anew),
                _ => entry.is_some(),
            };
            if !is_right {
                damage.get_or_insert(if index == 0 { Damage::Beginning } else { Damage::Line(index + 1) });
            }
            entry
        });
        let ledger = Ledger::of(entries);
        Content { ledger, damage }
    }
}

/// The owner of a journal, as in its name.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    /// When the machine was started, as a number.
    pub boot: String,
    /// The inode of the namespace of the process IDs.
    pub namespace: u64,
    /// The process of the run.
    pub corewise: Task,
}

impl Name {
    /// Returns the name of the journal of a process of this machine.
    pub fn own(corewise: Task) -> io::Result<Name> {
        let proc = Proc::own();
        Ok(Name { boot: proc.boot_id()?, namespace: proc.pid_namespace()?, corewise })
    }

    /// Parses the name of a file; `None` if it is none of a journal.
    pub fn parse(text: &str) -> Option<Name> {
        let mut words = text.split('.');
        let (boot, namespace, corewise) = (words.next()?, words.next()?, words.next()?);
        let name = Name {
            boot: boot.to_owned(),
            namespace: namespace.parse().ok()?,
            corewise: corewise.parse().ok()?,
        };
        words.next().is_none().then_some(name)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.boot, self.namespace, self.corewise)
    }
}

#[cfg(test)]
mod tests;
