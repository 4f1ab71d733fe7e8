//! The only way to a file that a watched program has mapped.
//!
//! Problem: a mapping names its file by the path that the program mapped it by. By now a FIFO, a device or a
//! symbolic link may stand there, in a mount namespace of the program's own making. Opening a FIFO waits for
//! ever, opening a device can do something, and a link leads to files that the program may not read.
//!
//! Approach: a file is first only looked at, which opens nothing (`O_PATH`), by the kernel's own link to the
//! mapped file (`map_files`, for the privileged), else by the path, in the program's root, else (it may have
//! ended) in ours. Only a regular file is opened, without waiting, by the descriptor that was looked at. It
//! is handed out if it is the mapped one. On most file systems `stat` gives the device and inode of the
//! mapping. Where it does not, as on overlayfs and btrfs, corewise maps a page of the file for itself, and
//! the kernel must list both mappings alike, which takes ten times as long. The file system may also know a
//! generation, which tells a file from an earlier one with its inode number.
//!
//! So nothing is read but what the program itself has mapped, and what it maps it may read. Limits: the
//! kernel also maps programs for users who may execute but not read them; a file system that a process serves
//! (FUSE) answers when that process wants.

use crate::space::{Backing, FileKey, Mapping};
use corewise_sys::input;
use corewise_sys::proc::Proc;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Opens the file of a mapping; `None` if there is none, it may not be read, or it is not there any more.
pub fn open(pid: u32, mapping: &Mapping) -> Option<File> {
    let Backing::File(key, path) = &mapping.backing else { return None };
    let proc = Proc::own();
    let found = [
        // The link itself is magic, so it may be followed: it leads to the file whatever stands at its path.
        (proc.map_file(pid, mapping.start, mapping.end), OFlag::empty()),
        (proc.path_in_root(pid, path), OFlag::O_NOFOLLOW),
        (PathBuf::from(path.as_ref()), OFlag::O_NOFOLLOW),
    ];
    found.iter().find_map(|(path, follow)| {
        let file = input::open_with(path, *follow, false).ok()?;
        is_mapped_as(&file, *key).then_some(file)
    })
}

/// Whether the kernel lists a mapping of this file under that key.
fn is_mapped_as(file: &File, key: FileKey) -> bool {
    let is_it = |device, inode| (device, inode) == (key.device, key.inode);
    let plainly = file.metadata().is_ok_and(|seen| {
        let device = seen.dev();
        is_it((libc::major(device), libc::minor(device)), seen.ino())
    });
    let listed = plainly || listed_as(file).is_some_and(|own| is_it(own.device, own.inode));
    // Lists of mappings have no generations, events do.
    let is_earlier = |now| key.generation != 0 && now != key.generation as u32;
    listed && !generation(file).is_some_and(is_earlier)
}

/// How the kernel lists a mapping of this file.
pub fn listed_as(file: &File) -> Option<FileKey> {
    let length = NonZeroUsize::MIN;
    // SAFETY: a fresh private mapping that nobody reads; the kernel chooses where it lies.
    let mapped = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, file, 0) }.ok()?;
    let listed = Proc::own().own_mapping_at(mapped.as_ptr() as u64);
    // SAFETY: the mapping was made above, and nothing refers to it.
    unsafe { munmap(mapped, length.get()) }.ok()?;
    Some(FileKey::of(&listed.ok()??))
}

/// The generation of the file's inode, if the file system has one.
fn generation(file: &File) -> Option<u32> {
    let mut generation: libc::c_long = 0;
    // SAFETY: the request writes at most a `long` to the address that it is given.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, &raw mut generation) };
    (answer == 0).then_some(generation as u32)
}

#[cfg(test)]
mod tests;
