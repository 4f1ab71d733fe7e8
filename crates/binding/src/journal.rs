//! The file of the journal of changes, which outlives the process that writes it.
//!
//! Problem: what corewise has bound must be restored even if corewise and its guardian are both killed.
//! Approach: corewise writes each change, before it makes it, to a file in a directory that only its user can
//! enter and that does not survive a reboot. If corewise is killed, its guardian reads the file; if the
//! guardian is dead, too, the next corewise of the same user does ([`recover`]). The file name identifies the
//! run: boot, namespace of process IDs, process and start. A journal that has grown is rewritten at its end,
//! and the space before is released, so that its size depends on what is bound, not on the duration of the
//! run. Limits: without such a directory (a user without `XDG_RUNTIME_DIR`) the file has no name: it serves
//! the guardian, and ends with it.

use super::ledger::{Entry, Ledger};
use super::mask::ActToken;
use super::members::ByParentage;
use super::restore::{Remains, restore};
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

/// The file with a run's changes.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: Option<PathBuf>,
    length: u64,
    /// The length at which it is rewritten.
    length_max: u64,
    /// The file size limit of this process; exceeding it raises a signal.
    pub(super) limit: u64,
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
        Journal::new(memfd_create(c"corewise", MFdFlags::MFD_CLOEXEC)?, None)
    }

    fn new(file: OwnedFd, path: Option<PathBuf>) -> io::Result<Journal> {
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        Ok(Journal { file: file.into(), path, length: 0, length_max: GROWTH, limit })
    }

    /// Returns its path, if it has a name.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns another descriptor of the same file.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Writes an entry; the ledger has it already.
    pub fn write(&mut self, entry: &Entry, ledger: &Ledger) -> io::Result<()> {
        self.append(&entry.to_line())?;
        if self.length > self.length_max {
            let outdated = self.length;
            self.append(&ledger.to_lines())?;
            self.length_max = self.length + (self.length - outdated).max(GROWTH);
            // If the file system does not support this, the file grows.
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            let _ = fallocate(&self.file, punch, 0, outdated as i64);
        }
        Ok(())
    }

    fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.length + lines.len() as u64 > self.limit {
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

    /// Deletes the file, after everything was restored.
    pub fn close(self) {
        // If it stays, it says that nothing is left to do.
        let _ = self.path.map(std::fs::remove_file);
    }
}

/// Reads a journal.
pub fn read(file: BorrowedFd) -> io::Result<Ledger> {
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
    let text = String::from_utf8_lossy(&bytes);
    // Zeros remain of a page whose beginning was released.
    Ok(Ledger::parse(text.lines().map(|line| line.trim_start_matches('\0'))))
}

/// Restores what earlier runs of this user have left bound because corewise and guardian were both killed (or
/// the guardian was stopped). Returns messages about what was done and what remains.
pub fn recover() -> Vec<String> {
    Directory::all().iter().flat_map(Directory::recover).collect()
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

    fn all() -> Vec<Directory> {
        let open = |parent: PathBuf| Directory::open(parent.join("corewise")).ok();
        Directory::candidates().into_iter().filter_map(open).collect()
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
        let mut journal = Journal::new(file, Some(self.path.join(name)))?;
        // Find out now if there is no space.
        let first = journal.append(&Entry::Member(corewise).to_line());
        first.inspect_err(|_| journal.path.iter().for_each(|path| drop(std::fs::remove_file(path))))?;
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
        let ledger = self.read(name)?;
        ledger.guardian().map_or(Ok(()), wait_while_dying)?;
        // A stopped guardian would do it too late; doing it twice is harmless.
        let state = ledger.guardian().map_or(Ok(None), Task::state)?;
        if state.is_some_and(|state| !matches!(state, 'T' | 't')) {
            return Ok(None);
        }
        if ledger.is_settled() {
            return remove().map(|()| None);
        }
        let remains =
            restore(&ledger, &ActToken::mint(), &mut ByParentage::new(ledger.members()), RECOVER_WITHIN)?;
        let what = format!("the run of process {} was killed along with its guardian", name.corewise.id);
        if remains != Remains::default() {
            return Ok(Some(format!("{what}: {remains}")));
        }
        remove()?;
        Ok(Some(format!("{what}: its changes have been restored now")))
    }

    fn read(&self, name: &Name) -> io::Result<Ledger> {
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
mod tests {
    use super::*;
    use crate::mask;
    use corewise_core::cpuset::CpuSet;
    use corewise_sys::affinity;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn directory() -> (tempfile::TempDir, Directory) {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("corewise");
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        let directory = Directory::open(path).unwrap();
        (parent, directory)
    }

    fn bind(id: u32) -> Entry {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        Entry::Bind { thread: Task { id, start: 7 }, original: set("0-1"), ours: set("1") }
    }

    #[test]
    fn a_journal_stays_small_and_holds_what_is_bound_however_long_the_run_lasts() {
        let (_parent, directory) = directory();
        for named in [true, false] {
            let own = Task::own().unwrap();
            let mut journal =
                if named { directory.create(own).unwrap() } else { Journal::without_name().unwrap() };
            let mut ledger = Ledger::default();
            for id in 1..20_000 {
                for entry in [bind(id), Entry::Forget(id - 1)] {
                    ledger.note(entry.clone());
                    journal.write(&entry, &ledger).unwrap();
                }
            }
            assert_eq!(read(journal.file.as_fd()).unwrap().to_lines(), ledger.to_lines());
            let used = journal.file.metadata().unwrap().blocks() * 512;
            assert!(journal.length > 8 * GROWTH && used < 4 * GROWTH, "{used} of {} bytes", journal.length);
            journal.close();
        }
    }

    #[test]
    fn a_change_that_cannot_be_written_leaves_the_earlier_ones_readable() {
        let mut journal = Journal::without_name().unwrap();
        let mut ledger = Ledger::default();
        ledger.note(bind(8));
        journal.write(&bind(8), &ledger).unwrap();
        journal.limit = journal.length + 5;
        assert_eq!(journal.write(&bind(9), &ledger).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        journal.limit = u64::MAX;
        journal.write(&Entry::Pinned(Task { id: 10, start: 7 }), &ledger).unwrap();
        let read = read(journal.file.as_fd()).unwrap();
        assert!(read.bound_as(8).is_some() && read.bound_as(9).is_none() && read.is_pinned(10));
    }

    /// Writes the journal of a run that is over, with the given processes.
    fn left_behind(directory: &Directory, name: &Name, entries: &[Entry]) -> PathBuf {
        let path = directory.path.join(name.to_string());
        let lines: String = entries.iter().map(Entry::to_line).collect();
        std::fs::write(&path, lines).unwrap();
        path
    }

    fn gone() -> Name {
        Name::own(Task { id: u32::MAX / 2, start: 7 }).unwrap()
    }

    #[test]
    fn only_journals_that_nobody_looks_after_are_recovered() {
        let (_parent, directory) = directory();
        let own = Task::own().unwrap();
        let guarded = left_behind(&directory, &gone(), &[Entry::Guardian(own), bind(8)]);
        let in_use = left_behind(&directory, &Name::own(own).unwrap(), &[bind(8)]);
        let elsewhere = left_behind(&directory, &Name { namespace: 1, ..gone() }, &[bind(8)]);
        let foreign = directory.path.join("notes.txt");
        std::fs::write(&foreign, "mine").unwrap();
        let outdated = left_behind(&directory, &Name { boot: "earlier".to_owned(), ..gone() }, &[bind(8)]);
        assert_eq!(directory.recover(), Vec::<String>::new());
        assert!(guarded.exists() && in_use.exists() && elsewhere.exists() && foreign.exists());
        assert!(!outdated.exists());
        std::fs::remove_file(guarded).unwrap();
        let orphaned =
            left_behind(&directory, &gone(), &[Entry::Guardian(gone().corewise), bind(u32::MAX / 2)]);
        let said = directory.recover();
        assert!(
            said.len() == 1 && said[0].contains("have been restored now") && !orphaned.exists(),
            "{said:?}"
        );
    }

    #[test]
    fn who_was_killed_a_moment_ago_is_waited_for() {
        let (_parent, directory) = directory();
        // On the same PE, the killed processes only end when we wait.
        let pe = affinity::get(0).unwrap().iter().next().unwrap();
        mask::set(&ActToken::mint(), 0, &CpuSet::from_iter([pe])).unwrap();
        for _ in 0..20 {
            let mut children = [0; 2].map(|_| Command::new("sleep").arg("60").spawn().unwrap());
            let [corewise, guardian] =
                [0, 1].map(|index: usize| Task::of(children[index].id()).unwrap().unwrap());
            let name = Name::own(corewise).unwrap();
            let path = left_behind(&directory, &name, &[Entry::Guardian(guardian), bind(u32::MAX / 2)]);
            children.iter_mut().for_each(|child| child.kill().unwrap());
            let said = directory.recover();
            assert!(
                said.len() == 1 && said[0].contains("have been restored now") && !path.exists(),
                "{said:?}"
            );
            children.iter_mut().for_each(|child| _ = child.wait().unwrap());
        }
    }

    #[test]
    fn what_others_may_have_put_there_is_neither_followed_nor_waited_for() {
        let (parent, directory) = directory();
        let path = directory.path.join(gone().to_string());
        let secret = parent.path().join("secret");
        std::fs::write(&secret, bind(8).to_line()).unwrap();
        symlink(&secret, &path).unwrap();
        assert!(directory.recover()[0].contains("cannot be restored"));
        assert!(secret.exists());
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        assert!(directory.recover()[0].contains("not a file of this user's"));
        std::fs::remove_file(&path).unwrap();
        // Nonsense of any size does nothing.
        std::fs::write(&path, "bind 1@ 0-99999999999 \0\u{1b}[2J\nanew\nbind 1@1 0-1\n".repeat(1000))
            .unwrap();
        assert_eq!(directory.recover(), Vec::<String>::new());
        assert!(!path.exists());
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(directory.recover(), Vec::<String>::new());
        assert!(!path.exists());
    }

    #[test]
    fn what_another_run_has_restored_meanwhile_is_not_complained_about() {
        let (_parent, directory) = directory();
        assert!(directory.recover_one(&gone()).is_err(), "there is no such file");
        assert_eq!(directory.recovered(&gone()), None);
    }

    #[test]
    fn a_directory_that_others_can_enter_is_not_used() {
        let (parent, directory) = directory();
        let path = directory.path.clone();
        for mode in [0o755, 0o770, 0o701] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(Directory::open(path.clone()).is_err(), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = parent.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Directory::open(link).is_err());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(Directory::open(path).is_err());
        }
    }
}
