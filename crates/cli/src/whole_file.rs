//! Files that are written as a whole or not at all, so that a full disk never destroys existing content.
//!
//! The target keeps its nature: a link stays a link, and a file keeps its owner and permissions; a new file
//! gets those that the user's umask leaves. A file that cannot be replaced without losing these (another
//! owner's, or one with several names) is overwritten after its space has been reserved. Waiting for a pipe
//! has a time limit. Limit: access control lists of a replaced file are lost.

use anyhow::{Context, Result, bail};
use corewise_render::terminal::Name;
use corewise_sys::proc;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, Metadata, Permissions};
use std::io::{Error, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name prefix of files that are not complete yet.
pub const BEGUN: &str = ".corewise-";
/// How long the reader of a pipe may be inactive, in ms.
const PATIENCE_MS: u16 = 10_000;

/// Fails before a possibly long run if the file could not be written at its end.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("{} is a directory: name a file in it", path.display());
    }
    match open(path) {
        // Keep a pipe open until the end: its reader would see the end of the file.
        Ok(stream) if stream.metadata()?.file_type().is_fifo() => std::mem::forget(stream),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = directory_of(path);
            let probe = tempfile::Builder::new().prefix(BEGUN).tempfile_in(&directory);
            probe.with_context(|| {
                let (path, directory) = (path.display(), directory.display());
                format!("cannot write {path}: check that {directory} exists and may be written")
            })?;
        }
        Err(error) => return Err(refused(path, error)),
    }
    Ok(())
}

/// Writes the file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = match open(path) {
        Ok(file) => match file.metadata() {
            Ok(old) if old.is_file() && !is_descriptor(path) => replace(&file, &old, bytes),
            _ => Stream(file).write_all(bytes),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => create(path, bytes),
        Err(error) => Err(error),
    };
    written.map_err(|error| refused(path, error))
}

/// Opens a file that is written as it grows; its previous content is lost.
pub fn start(path: &Path) -> std::io::Result<Stream> {
    let mut options = options();
    let file = options.create(true).append(is_descriptor(path)).open(path)?;
    if file.metadata()?.is_file() && !is_descriptor(path) {
        file.set_len(0)?;
    }
    Ok(Stream(file))
}

/// Returns whether it is a regular file or does not exist yet, so that it may grow and be replaced at the
/// end.
pub fn may_grow(path: &Path) -> bool {
    let is_file = path.metadata().map_or(true, |metadata| metadata.is_file());
    is_file && !is_descriptor(path)
}

/// Opens a file for appending.
pub fn append(path: &Path) -> std::io::Result<Stream> {
    options().append(true).open(path).map(Stream)
}

fn refused(path: &Path, error: Error) -> anyhow::Error {
    let remedy = match error.raw_os_error() {
        Some(nix::libc::ENXIO) => "nobody reads from it: start its reader first",
        _ => "check space and permission",
    };
    let path = path.display().to_string();
    anyhow::Error::from(error).context(format!("cannot write {}: {remedy}", Name(&path)))
}

fn options() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.write(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY);
    options
}

/// Opens an existing file and leaves it unchanged.
fn open(path: &Path) -> std::io::Result<File> {
    options().append(is_descriptor(path)).open(path)
}

/// Returns whether the path names one of our open descriptors (`/dev/stdout`), to which others may write,
/// too.
fn is_descriptor(path: &Path) -> bool {
    const LINKS_MAX: usize = 8;
    let Ok(ours) = Path::new(proc::DESCRIPTORS).canonicalize() else { return false };
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(directory) = directory_of(&path).canonicalize() else { return false };
        if directory == ours {
            return true;
        }
        let Ok(target) = path.read_link() else { return false };
        path = directory.join(target);
    }
    false
}

fn create(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if path.is_symlink() {
        return start(path)?.write_all(bytes);
    }
    // The user's umask restricts them.
    let permissions = Permissions::from_mode(0o666);
    let mut file = temporary().permissions(permissions).tempfile_in(directory_of(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Replaces an open file, wherever its name leads.
fn replace(file: &File, old: &Metadata, bytes: &[u8]) -> std::io::Result<()> {
    let path = std::fs::read_link(proc::descriptor(file))?;
    match replacement(&path, old, bytes) {
        Ok(new) if old.nlink() == 1 => new.persist(&path).map(drop).map_err(|error| error.error),
        // If the second file can be written, there is space; if it may not be created, reserve the space.
        Ok(_) => overwrite(file, bytes),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => overwrite(file, bytes),
        Err(error) => Err(error),
    }
}

/// Creates the new content next to the old, with its owner and permissions.
fn replacement(path: &Path, old: &Metadata, bytes: &[u8]) -> std::io::Result<tempfile::NamedTempFile> {
    let mut new = temporary().tempfile_in(directory_of(path))?;
    new.write_all(bytes)?;
    let made = new.as_file().metadata()?;
    if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(new.as_file(), Some(old.uid()), Some(old.gid()))?;
    }
    new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
    new.as_file().sync_all()?;
    Ok(new)
}

fn overwrite(mut file: &File, bytes: &[u8]) -> std::io::Result<()> {
    let length = bytes.len() as u64;
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, (length.max(1)) as i64) {
        // Not every file system can reserve space.
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => {}
        Err(errno) => return Err(errno.into()),
    }
    file.write_all(bytes)?;
    file.set_len(length)?;
    file.sync_all()
}

fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(BEGUN);
    builder
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A file, a device, or a pipe whose reader may be inactive.
pub struct Stream(File);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut fds, PollTimeout::from(PATIENCE_MS))? == 0 {
                    return Err(Error::new(ErrorKind::TimedOut, "its reader takes nothing"));
                }
                self.0.write(bytes)
            }
            result => result,
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
