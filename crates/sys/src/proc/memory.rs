//! The memory of other processes: how to read and to write it.
//!
//! Problem: the kernel fetches a page that is not in memory from where the process has mapped it, and who
//! touches the page waits for it, also another process that reads `/proc/PID/mem`. A process can serve the
//! mapped file system itself (FUSE): then it decides how long that takes, and who waits cannot be killed.
//! Approach: pages in memory or in swap wait for nobody. The kernel shows which ones are
//! (`/proc/PID/pagemap`), so it is asked first, and others are not touched. Nothing is missed by that: memory
//! that a program has used since it was mapped is in one or the other. Only private memory is written to, as
//! a file system may hear of a write to a shared page.
//!
//! Limits: a process can map another page between the look and the reading, some microseconds; one that tries
//! again and again will succeed. The kernel has no call that reads only what is there. (The faults that a
//! process handles by userfaultfd(2) do not matter: `/proc/PID/mem` does not wait for them, unlike
//! `process_vm_readv`.) The emulation in `branches` still reads by that, of programs that a user records.

use super::Proc;
use nix::sys::resource::{Resource, getrlimit};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

// Bits of an entry of the page map (Documentation/admin-guide/mm/pagemap.rst).
const IN_MEMORY: u64 = 1 << 63;
const IN_SWAP: u64 = 1 << 62;
const OF_FILE_OR_SHARED: u64 = 1 << 61;
/// Another process handles writes to the page (userfaultfd).
const WATCHED: u64 = 1 << 57;

/// Bytes of an entry.
const ENTRY: usize = size_of::<u64>();

/// The memory of one program. It stays that of this program when the process executes another one: then
/// nothing more can be read.
#[derive(Debug)]
pub struct Memory {
    memory: File,
    page_map: File,
}

impl Proc {
    /// Opens the memory of a process for reading and, if `write`, for writing.
    pub fn memory(&self, pid: u32, write: bool) -> io::Result<Memory> {
        let folder = self.folder(pid);
        let open = |name, write| OpenOptions::new().read(true).write(write).open(folder.join(name));
        Ok(Memory { memory: open("mem", write)?, page_map: open("pagemap", false)? })
    }
}

impl Proc {
    /// The bytes that are read of what a process was started with: as many as Linux permits by default, so
    /// that nothing of an honest program is cut. The kernel lets any process say that its variables fill its
    /// whole memory (`PR_SET_MM_MAP`), and copies as much as a reader takes.
    pub(super) const STRINGS_MAX: u64 = 2 << 20;

    /// Reads the arguments (`cmdline`) or variables (`environ`) of a process, at most so many bytes: they are
    /// in its memory, where it can map something else.
    pub(super) fn strings(&self, pid: u32, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.of_process(pid, Vec::is_empty, |id| self.strings_of(id, name, most))
    }

    fn strings_of(&self, pid: u32, name: &str, most: u64) -> io::Result<Vec<u8>> {
        // Without the right to, corewise hinders nobody but its own user.
        if let Ok(page_map) = File::open(self.root.join(format!("{pid}/pagemap"))) {
            let stat = std::fs::read(self.root.join(format!("{pid}/task/{pid}/stat")))?;
            let (start, end) = place_of_strings(&stat, name).ok_or(io::ErrorKind::InvalidData)?;
            check(&page_map, start, end.saturating_sub(start).min(most) as usize, may_be_read)?;
        }
        let mut bytes = Vec::new();
        File::open(self.root.join(format!("{pid}/{name}")))?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Memory {
    /// The number of descriptors that each takes.
    pub const DESCRIPTORS: usize = 2;

    /// Returns how many one part of corewise may keep open: they take an eighth of the descriptors, so that
    /// no number of processes leaves too few for everything else.
    pub fn kept_max() -> usize {
        let (descriptors, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
        descriptors as usize / (8 * Memory::DESCRIPTORS)
    }

    /// Returns the descriptors, to hand them to another process.
    pub fn descriptors(&self) -> [RawFd; Memory::DESCRIPTORS] {
        [self.memory.as_raw_fd(), self.page_map.as_raw_fd()]
    }

    /// Returns the memory whose descriptors these are; `None` if they are too few.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Memory> {
        let [memory, page_map] = <[OwnedFd; Memory::DESCRIPTORS]>::try_from(descriptors).ok()?;
        Some(Memory { memory: memory.into(), page_map: page_map.into() })
    }

    /// Fills `bytes` with what stands at an address. Fails with [`io::ErrorKind::WouldBlock`] if some of it
    /// is not in memory, and with [`io::ErrorKind::UnexpectedEof`] if the program has ended.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        check(&self.page_map, address, bytes.len(), may_be_read)?;
        self.memory.read_exact_at(bytes, address)
    }

    /// Fills those of the `bytes` that are in memory, and leaves the others as they are.
    pub fn read_what_is_there(&self, address: u64, bytes: &mut [u8]) {
        let (mut done, page) = (0, page_size());
        while done < bytes.len() {
            let at = address.saturating_add(done as u64);
            let end = bytes.len().min(done + (page - at % page) as usize);
            // Nor is there anything after the program's end.
            let _ = self.read(at, &mut bytes[done..end]);
            done = end;
        }
    }

    /// Writes `bytes` to an address, all of them on one page. Fails as [`Memory::read`] does, also where the
    /// memory is not private.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        check(&self.page_map, address, bytes.len(), may_be_written)?;
        match self.memory.write_at(bytes, address)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// By the entry of a page.
fn may_be_read(page: u64) -> bool {
    let own_in_swap = IN_SWAP == page & (IN_SWAP | OF_FILE_OR_SHARED | WATCHED);
    page & IN_MEMORY != 0 || own_in_swap
}

/// By the entry of a page.
fn may_be_written(page: u64) -> bool {
    may_be_read(page) && page & (OF_FILE_OR_SHARED | WATCHED) == 0
}

/// Checks the entries of all pages that hold these bytes.
fn check(page_map: &File, address: u64, length: usize, may_be_touched: fn(u64) -> bool) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let page = page_size();
    let (first, last) = (address / page, address.saturating_add(length as u64 - 1) / page);
    let mut entries = vec![0; (last - first + 1) as usize * ENTRY];
    page_map.read_exact_at(&mut entries, first * ENTRY as u64)?;
    let mut entries = entries.chunks_exact(ENTRY);
    let all = entries.all(|entry| may_be_touched(u64::from_ne_bytes(entry.try_into().expect("8 bytes"))));
    let refused = || io::Error::new(io::ErrorKind::WouldBlock, "the page is not the program's own memory");
    if all { Ok(()) } else { Err(refused()) }
}

/// Where `cmdline` or `environ` lie, by the process's `stat`.
fn place_of_strings(stat: &[u8], name: &str) -> Option<(u64, u64)> {
    let stat = String::from_utf8_lossy(stat);
    // Fields 48 to 51 of proc_pid_stat(5); what follows the name begins with the third.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(48 - 3);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (arguments, variables) = ((next()?, next()?), (next()?, next()?));
    Some(match name {
        "environ" => variables,
        // The kernel shows on what follows if a program has written over the arguments' end.
        _ if arguments.1 == variables.0 => (arguments.0, variables.1),
        _ => arguments,
    })
}

/// Returns the size of a page in bytes.
fn page_size() -> u64 {
    // SAFETY: the call only returns a number of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).expect("every Linux has pages")
}

#[cfg(test)]
mod tests;
