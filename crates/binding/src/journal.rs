//! The file of the journal of changes, which outlives the process that writes it.
//!
//! Problem: what corewise has changed must be restored even if corewise and its guardian are both killed.
//! Approach: corewise writes each change, before it makes it, into two files. One has no name: nobody can
//! damage it, and the guardian reads it if corewise is killed. The other is in a directory that only its user
//! can enter and that does not survive a reboot: if the guardian is dead, too, the next corewise of the same
//! user reads it ([`recover`]). Its name identifies the run: boot, namespace of process IDs, process and
//! start. A journal that has grown is rewritten at its end, and the space before is released, so that its
//! size depends on what is changed, not on the duration of the run.
//!
//! A journal that somebody has emptied, cut or overwritten is known by its beginning and its lines
//! ([`Damage`]): what is left of it is restored, and a message says what may have stayed changed. Limits:
//! without such a directory (a user without `XDG_RUNTIME_DIR`) there is no second file. A journal that was
//! cut at the end of a line looks whole.

use super::ledger::{Entry, Ledger};
use super::mask::ActToken;
use super::members::{self, ByParentage};
use super::restore::{Remains, restore};
use super::word::Memories;
use corewise_sys::proc::Proc;
use corewise_sys::task::Task;
use nix::fcntl::{FallocateFlags, OFlag, fallocate, open, openat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, geteuid, lseek};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How far a journal may grow before it is rewritten.
const GROWTH: u64 = 1 << 16;

/// The maximum size of a journal; larger files are not journals.
const SIZE_MAX: u64 = 1 << 26;

/// How long the next corewise tries to restore what an earlier one has left: as long as a guardian, as no
/// other attempt follows.
const RECOVER_WITHIN: Duration = Duration::from_secs(10);

/// The first line of a journal.
const HEAD: &str = "journal of changes";

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
    /// The length at which it is rewritten.
    length_max: u64,
}

impl Journal {
    /// Creates a journal in the runtime directory, or one without a name and the reason.
    pub fn create() -> io::Result<(Journal, Option<String>)> {
        let own = Task::own()?;
        let why_not = match Directory::to_write() {
            Ok(directory) => match directory.create(own) {
                Ok(journal) => return Ok((journal, None)),
                Err(error) => format!("cannot write to {}: {error}", directory.path.display()),
            },
            Err(why_not) => why_not,
        };
        Ok((Journal::without_name()?, Some(why_not)))
    }

    pub(super) fn without_name() -> io::Result<Journal> {
        Journal::new(None)
    }

    /// Writes the first line into both files, to find out now if there is no space.
    fn new(named: Option<(File, PathBuf)>) -> io::Result<Journal> {
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        let begin = |file| {
            let mut lines = Lines { file, length: 0, length_max: GROWTH };
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
        let named = self.named.as_mut().map(|(lines, _)| lines);
        [&mut self.memory]
            .into_iter()
            .chain(named)
            .try_for_each(|lines| lines.write(&line, &self.ledger, self.limit))
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
        if self.length > self.length_max {
            let outdated = self.length;
            self.append(&ledger.to_lines(), limit)?;
            self.length_max = self.length + (self.length - outdated).max(GROWTH);
            // If the file system does not support this, the file grows.
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            let _ = fallocate(&self.file, punch, 0, outdated as i64);
        }
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
        Err(nix::errno::Errno::ENXIO) => size,
        Err(errno) => return Err(errno.into()),
    };
    let length = size.saturating_sub(start);
    if length > SIZE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large for a journal of corewise's"));
    }
    let mut bytes = vec![0; length as usize];
    File::from(file.try_clone_to_owned()?).read_exact_at(&mut bytes, start)?;
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

/// Restores what earlier runs of this user have left changed because corewise and guardian were both killed
/// (or the guardian was stopped). Returns messages about what was done and what remains.
pub fn recover() -> Vec<String> {
    Directory::candidates().iter().flat_map(|parent| recover_in(parent)).collect()
}

fn recover_in(parent: &Path) -> Vec<String> {
    let path = parent.join("corewise");
    match Directory::open(path.clone()) {
        Ok(directory) => directory.recover(),
        // It is there, and it is this user's matter.
        Err(error) if path.symlink_metadata().is_ok() && owned_by_user(parent).is_ok() => {
            vec![format!(
                "what earlier runs have left changed is not restored: cannot use {}: {error}",
                path.display()
            )]
        }
        Err(_) => Vec::new(),
    }
}

/// Opens a file that all runs of this user share; without a runtime directory, a private one.
pub(super) fn shared(name: &str) -> io::Result<File> {
    match Directory::to_write() {
        Ok(_) => common(name),
        Err(_) => Ok(memfd_create(c"corewise", MFdFlags::MFD_CLOEXEC)?.into()),
    }
}

/// Opens a file that all runs of this user share; fails without a runtime directory.
pub(super) fn common(name: &str) -> io::Result<File> {
    let directory = Directory::to_write().map_err(io::Error::other)?;
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(&directory.descriptor, name, flags, Mode::from_bits_truncate(0o600))?.into())
}

/// A directory with journals.
struct Directory {
    path: PathBuf,
    descriptor: OwnedFd,
}

/// The owner of a journal, as in its name.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    boot: String,
    /// The inode of the namespace of the process IDs.
    namespace: u64,
    corewise: Task,
}

impl Name {
    fn own(corewise: Task) -> io::Result<Name> {
        let proc = Proc::own();
        Ok(Name { boot: proc.boot_id()?, namespace: proc.pid_namespace()?, corewise })
    }

    fn parse(text: &str) -> Option<Name> {
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

impl Directory {
    /// Returns the directories that may contain journals: the user's runtime directory, and root's if it had
    /// none.
    fn candidates() -> Vec<PathBuf> {
        let of_user =
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let of_root = geteuid().is_root().then(|| PathBuf::from("/run"));
        of_user.into_iter().chain(of_root).collect()
    }

    /// Returns the first usable directory, or why there is none.
    fn to_write() -> Result<Directory, String> {
        let mut why_not = "XDG_RUNTIME_DIR is not set".to_owned();
        for parent in Directory::candidates() {
            let path = parent.join("corewise");
            let made = owned_by_user(&parent).and_then(|()| {
                match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => Directory::open(path.clone()),
                }
            });
            match made {
                Ok(directory) => return Ok(directory),
                Err(error) => why_not = format!("cannot use {}: {error}", path.display()),
            }
        }
        Err(why_not)
    }

    /// Opens the directory if nobody else can enter it.
    fn open(path: PathBuf) -> io::Result<Directory> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let descriptor = open(&path, flags, Mode::empty())?;
        let metadata = File::from(descriptor.try_clone()?).metadata()?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other("it is not this user's alone (chmod 700)"));
        }
        Ok(Directory { path, descriptor })
    }

    fn create(&self, corewise: Task) -> io::Result<Journal> {
        let name = Name::own(corewise)?.to_string();
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.descriptor, name.as_str(), flags, Mode::from_bits_truncate(0o600))?;
        let path = self.path.join(name);
        let journal = Journal::new(Some((file.into(), path.clone())));
        let mut journal = journal.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        journal.write(&Entry::Member(corewise))?;
        Ok(journal)
    }

    fn recover(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| Name::parse(entry.file_name().to_str()?));
        names.filter_map(|name| self.recovered(&name)).collect()
    }

    /// Returns what to tell the user about one run.
    fn recovered(&self, name: &Name) -> Option<String> {
        let path = self.path.join(name.to_string());
        match self.recover_one(name) {
            Ok(note) => note,
            // Another corewise that started at the same time has restored it.
            Err(_) if !path.is_symlink() && !path.exists() => None,
            Err(error) => Some(format!(
                "the run of process {} was killed along with its guardian, and its changes cannot be \
                 restored: {}: {error}",
                name.corewise.id,
                path.display()
            )),
        }
    }

    /// Returns `None` if nothing was to be done.
    fn recover_one(&self, name: &Name) -> io::Result<Option<String>> {
        let present = Name::own(name.corewise)?;
        if (&name.boot, name.namespace) == (&present.boot, present.namespace) {
            wait_while_dying(name.corewise)?;
        }
        if name.boot == present.boot && (name.namespace != present.namespace || name.corewise.lives()?) {
            return Ok(None);
        }
        let remove = || std::fs::remove_file(self.path.join(name.to_string()));
        if name.boot != present.boot {
            // No mask of that boot is left.
            return remove().map(|()| None);
        }
        let Content { mut ledger, damage } = self.read(name)?;
        ledger.guardian().map_or(Ok(()), wait_while_dying)?;
        // A stopped guardian would do it too late; doing it twice is harmless.
        let state = ledger.guardian().map_or(Ok(None), Task::state)?;
        if state.is_some_and(|state| !matches!(state, 'T' | 't')) {
            return Ok(None);
        }
        if damage.is_none() && ledger.is_settled() {
            return remove().map(|()| None);
        }
        // What it has started has its number, whatever the journal has lost.
        ledger.note(Entry::Member(name.corewise));
        let token = ActToken::mint();
        let remains = restore(
            &ledger,
            &token,
            &mut ByParentage::new(ledger.members()),
            &Memories::default(),
            RECOVER_WITHIN,
        )?;
        let what = format!("the run of process {} was killed along with its guardian", name.corewise.id);
        let remains = (remains != Remains::default()).then(|| remains.to_string());
        let lost = damage.map(|damage| self.loss(name, damage, &members::living(ledger.members())));
        let mut open = remains.into_iter().chain(lost.as_ref().map(|(text, _)| text.clone())).peekable();
        if open.peek().is_none() || lost.is_some_and(|(_, may_be_changed)| !may_be_changed) {
            remove()?;
        }
        let open: Vec<String> = open.collect();
        Ok(Some(match open.is_empty() {
            true => format!("{what}: its changes have been restored now"),
            false => format!("{what}: {}", open.join("; ")),
        }))
    }

    /// Returns what to tell the user about a damaged journal, and whether some of these processes of its run
    /// may still be changed.
    fn loss(&self, name: &Name, damage: Damage, living: &[u32]) -> (String, bool) {
        let path = self.path.join(name.to_string());
        let left = match living {
            [] => "no process of that run is known to live".to_owned(),
            living => {
                let living: Vec<String> = living.iter().map(u32::to_string).collect();
                format!("its processes {}, and what they start, may have stayed changed", living.join(", "))
            }
        };
        let text = format!(
            "its journal {} is damaged ({damage}), and only what is left of it could be restored: {left} \
             (`taskset -p` shows and sets affinity masks, `chrt -p` scheduling policies)",
            path.display()
        );
        (text, !living.is_empty())
    }

    fn read(&self, name: &Name) -> io::Result<Content> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.descriptor, name.to_string().as_str(), flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.uid() != geteuid().as_raw() {
            return Err(io::Error::other("it is not a file of this user's"));
        }
        read(file.as_fd())
    }
}

/// Waits for the end of a process: a process that was just killed does nothing any more, but still exists for
/// a while.
fn wait_while_dying(task: Task) -> io::Result<()> {
    let started = Instant::now();
    while task.is_dying()? && started.elapsed() < RECOVER_WITHIN {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Checks that a directory belongs to this user, and that nobody else can write to it.
fn owned_by_user(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} is not this user's", path.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
