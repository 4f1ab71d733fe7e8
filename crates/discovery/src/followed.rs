//! The kernel's list of the threads that the BPF programs follow, for finding inherited masks.
//!
//! The list and the programs belong to descriptors. When these are handed to another process (the guardian),
//! they outlive the process that opened them, and every fork is still followed.

use super::heirs::Heirs;
use super::known::{ENDED, RawThread};
use libbpf_rs::{Link, libbpf_sys};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The kernel's list; see the module documentation.
#[derive(Debug)]
pub struct Followed {
    list: OwnedFd,
    programs: Vec<OwnedFd>,
    heirs: Option<Heirs>,
}

impl Followed {
    /// Creates it from the links of the program that lists the threads and of those that follow them.
    pub(super) fn new(list: &Link, programs: &[Link], heirs: &Heirs) -> io::Result<Followed> {
        let programs = programs.iter().map(|link| link.as_fd().try_clone_to_owned());
        Ok(Followed {
            list: list.as_fd().try_clone_to_owned()?,
            programs: programs.collect::<io::Result<_>>()?,
            heirs: Some(heirs.try_clone()?),
        })
    }

    /// Creates it from the result of [`Followed::descriptors`].
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Followed> {
        let mut descriptors = descriptors.into_iter();
        Some(Followed { list: descriptors.next()?, programs: descriptors.collect(), heirs: None })
    }

    /// Takes the list of bound threads, for the one who binds them.
    pub fn take_heirs(&mut self) -> Option<Heirs> {
        self.heirs.take()
    }

    /// Returns the descriptors that another process needs to continue.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.list).chain(&self.programs).map(AsFd::as_fd)
    }

    /// Returns the threads that live now, the highest ID first.
    pub fn living(&self) -> io::Result<Vec<u32>> {
        // SAFETY: the call takes no pointer; it returns a new descriptor or an error.
        let reading = unsafe { libbpf_sys::bpf_iter_create(self.list.as_raw_fd()) };
        if reading < 0 {
            return Err(io::Error::from_raw_os_error(-reading));
        }
        // SAFETY: the descriptor is new and not used elsewhere.
        let mut reading = unsafe { File::from_raw_fd(reading) };
        let mut bytes = Vec::new();
        reading.read_to_end(&mut bytes)?;
        let threads = bytes.chunks_exact(size_of::<RawThread>()).map(|chunk| {
            // SAFETY: RawThread is plain data and each chunk has its size; the kernel writes whole ones.
            unsafe { chunk.as_ptr().cast::<RawThread>().read_unaligned() }
        });
        let living = threads.filter(|thread| thread.stage != ENDED).map(|thread| thread.tid);
        let mut living: Vec<u32> = living.collect();
        living.sort_unstable_by(|a, b| b.cmp(a));
        Ok(living)
    }
}
