//! Reads files that a user or another file names, without blocking forever and without exhausting memory.
//!
//! Problem: opening a FIFO blocks, opening a device can have effects, and a small packed file can unpack to
//! more than there is memory. Approach: a path is first opened with `O_PATH`, which has no effect; then the
//! inspected object itself is opened, even if the path changes in between. Only regular files and, where a
//! user may pipe something in, pipes are opened. Reading and unpacking end at a limit, and a pipe that stays
//! silent is given up. Limit: a file system that does not answer (NFS, FUSE) blocks the reader.

use crate::proc;
use flate2::read::MultiGzDecoder;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

/// The limit for a machine, a scenario or a list, in bytes: files that people write and read.
pub const DOCUMENT_MAX: u64 = 64 << 20;
/// The limit for an unpacked recording or profile, in bytes.
pub const DATA_MAX: u64 = 1 << 30;
/// The variable that replaces both limits, in MiB.
pub const MAX_VARIABLE: &str = "COREWISE_INPUT_MAX_MIB";

/// How long a pipe may stay silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a regular file. Anything else is an error, without blocking.
pub fn open_regular(path: &Path) -> Result<File> {
    open_with(path, OFlag::empty(), false)
}

/// Inspects the path, then opens it. `follow` may be `O_NOFOLLOW`.
pub fn open_with(path: &Path, follow: OFlag, also_pipes: bool) -> Result<File> {
    open_inspected(path, follow, also_pipes).map_err(helped)
}

/// Adds to what the kernel says what helps.
pub fn helped(error: Error) -> Error {
    if error.raw_os_error().is_none() {
        return error;
    }
    let words = error.to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    let remedy = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "check its path",
        ErrorKind::PermissionDenied => "check its permissions, or be root",
        _ => return error,
    };
    Error::new(error.kind(), format!("{words}: {remedy}"))
}

fn open_inspected(path: &Path, follow: OFlag, also_pipes: bool) -> Result<File> {
    let seen = File::from(open(path, OFlag::O_PATH | OFlag::O_CLOEXEC | follow, Mode::empty())?);
    let kind = seen.metadata()?.file_type();
    let is_wanted = kind.is_file() || (also_pipes && kind.is_fifo());
    if !is_wanted {
        let kinds = if also_pipes { "neither a file nor a pipe" } else { "not a regular file" };
        return Err(Error::new(ErrorKind::InvalidInput, format!("it is {kinds}: name another one")));
    }
    // Do not wait for a writer, nor for a lease on the file.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    Ok(File::from(open(&proc::descriptor(&seen), flags, Mode::empty())?))
}

/// Reads a file, or a pipe to its end, with a limit in bytes.
pub fn read(path: &Path, max: u64) -> Result<Vec<u8>> {
    let file = open_with(path, OFlag::empty(), true)?;
    if file.metadata()?.is_file() {
        return read_at_most(file, max);
    }
    read_at_most(Patient(file), max)
}

/// Reads a regular file with a limit in bytes. Anything else is an error at once.
pub fn read_regular(path: &Path, max: u64) -> Result<Vec<u8>> {
    read_at_most(open_regular(path)?, max)
}

/// Reads a text with a limit in bytes.
pub fn read_text(path: &Path, max: u64) -> Result<String> {
    String::from_utf8(read(path, max)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

/// Returns whether the bytes are packed by gzip.
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// Unpacks gzip data; returns the bytes, at most `max`, and whether their end is missing.
pub fn unpack(packed: &[u8], max: u64) -> Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    match read_into(MultiGzDecoder::new(packed), max, &mut bytes) {
        Ok(()) => Ok((bytes, false)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok((bytes, true)),
        Err(error) => Err(error),
    }
}

/// Reads to the end, at most so many bytes.
pub fn read_at_most(from: impl Read, max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(from, max, &mut bytes)?;
    Ok(bytes)
}

fn read_into(from: impl Read, max: u64, bytes: &mut Vec<u8>) -> Result<()> {
    let max = limit(max);
    from.take(max.saturating_add(1)).read_to_end(bytes)?;
    if bytes.len() as u64 > max { Err(too_large(max)) } else { Ok(()) }
}

/// The limit that holds in place of this one.
pub fn limit(max: u64) -> u64 {
    let wished = std::env::var(MAX_VARIABLE).ok().and_then(|text| text.trim().parse::<u64>().ok());
    wished.map_or(max, |mib| mib.saturating_mul(1 << 20))
}

/// Returns the error for an input beyond its limit.
pub fn too_large(max: u64) -> Error {
    let text = format!("it holds more than {} MiB; if it should, set {MAX_VARIABLE} to more", max >> 20);
    Error::new(ErrorKind::FileTooLarge, text)
}

/// The reading end of a pipe that may never be written to.
struct Patient(File);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout)? {
            0 => {
                let text = format!("nothing came through the pipe for {} s", PATIENCE.as_secs());
                Err(Error::new(ErrorKind::TimedOut, text))
            }
            _ => self.0.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;
    use std::path::PathBuf;

    fn fifo(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join("fifo");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        path
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_is_no_regular_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = fifo(&directory);
        assert!(open_regular(&path).unwrap_err().to_string().contains("not a regular file"));
        let writer = std::thread::spawn({
            let path = path.clone();
            move || std::fs::write(path, vec![7; 200_000]).unwrap()
        });
        assert_eq!(read(&path, DOCUMENT_MAX).unwrap(), vec![7; 200_000]);
        writer.join().unwrap();
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(&fifo(&directory), DOCUMENT_MAX).unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn devices_are_not_opened() {
        let error = read(Path::new("/dev/zero"), DOCUMENT_MAX).unwrap_err().to_string();
        assert!(error.contains("neither a file nor a pipe"), "{error}");
    }

    #[test]
    fn reading_and_unpacking_end_at_the_limit() {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&vec![0; 3 << 20]).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(unpack(&packed, 3 << 20).unwrap().0.len(), 3 << 20);
        let error = unpack(&packed, 2 << 20).unwrap_err().to_string();
        assert!(error.contains("more than 2 MiB") && error.contains(MAX_VARIABLE), "{error}");
        assert!(unpack(&packed[..packed.len() / 2], 3 << 20).unwrap().1, "cut off");
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 << 40).unwrap();
        assert_eq!(read(file.path(), 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
