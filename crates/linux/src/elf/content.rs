//! An ELF file's bytes, as far as they are needed, and not more than there is memory for.
//!
//! A file of a few bytes can name sections of any size and number, in a sparse file they even exist. What is
//! read is kept, so all that is read of one file counts towards one limit.

use object::read::{ReadCache, ReadRef};
use std::cell::Cell;
use std::fs::File;
use std::ops::Range;

/// Bytes that are read of one file. The symbols of the largest browsers and compilers take a fourth of it.
const BYTES_MAX: u64 = 1 << 30;

/// An open file, and what was read of it.
#[derive(Debug)]
pub(crate) struct Content {
    cache: ReadCache<File>,
    left: Cell<u64>,
}

impl Content {
    pub(crate) fn new(file: File) -> Content {
        Content { cache: ReadCache::new(file), left: Cell::new(BYTES_MAX) }
    }

    /// The file's headers.
    pub(crate) fn object(&self) -> object::Result<object::File<'_, Bytes<'_>>> {
        object::File::parse(Bytes(self))
    }
}

/// How the bytes are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a>(&'a Content);

impl Bytes<'_> {
    fn spend(self, bytes: u64) -> Result<(), ()> {
        self.0.left.set(self.0.left.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for Bytes<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.spend(size)?;
        self.0.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let text = self.0.cache.read_bytes_at_until(range, delimiter)?;
        self.spend(text.len() as u64)?;
        Ok(text)
    }
}
