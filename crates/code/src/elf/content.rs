//! An ELF file's bytes, as far as they are needed, and not more than there is time and memory for.
//!
//! A file of a few bytes can name sections of any size and number; in a sparse file they even exist. So all
//! that is read of a file for one question counts towards a limit. It is kept until the question is answered,
//! and not longer: a process can have thousands of files.

use object::read::{ReadCache, ReadRef};
use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// The limit for a file's headers, those of its sections with their names among them. What a linker writes
/// has some ten of each.
pub(super) const HEADERS_MAX: u64 = 1 << 20;

/// The limit for a file that a watched program has mapped. Programs and libraries as they are distributed
/// have no more than some MiB of symbols; in the largest that are not stripped, only what they export is
/// found.
pub(crate) const OF_PROGRAM_MAX: u64 = 64 << 20;

/// The limit for a file that the user names. The symbols of the largest browsers and compilers take a fourth
/// of it.
pub(crate) const OF_USER_MAX: u64 = 1 << 30;

/// Bytes that are read at once where texts lie: tables of symbols have thousands of short ones.
const BLOCK: u64 = 1 << 16;

/// An open file, and what was read of it.
#[derive(Debug)]
pub(crate) struct Content {
    cache: ReadCache<Arc<File>>,
    left: Cell<u64>,
    /// Where blocks of texts begin that were read.
    blocks: RefCell<FxHashSet<u64>>,
}

impl Content {
    pub(crate) fn new(file: impl Into<Arc<File>>, bytes_max: u64) -> Content {
        let cache = ReadCache::new(file.into());
        Content { cache, left: Cell::new(bytes_max), blocks: RefCell::default() }
    }

    /// Its bytes, to read parts of them.
    pub(crate) fn bytes(&self) -> Bytes<'_> {
        Bytes(self)
    }

    /// The file's headers and symbols.
    pub(crate) fn object(&self) -> object::Result<object::File<'_, Bytes<'_>>> {
        object::File::parse(Bytes(self))
    }
}

/// How the bytes are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a>(&'a Content);

impl<'a> Bytes<'a> {
    fn spend(self, bytes: u64) -> Result<(), ()> {
        self.0.left.set(self.0.left.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }

    /// What begins in a block, if it ends there, too.
    fn text_in_block(self, range: &Range<u64>, delimiter: u8) -> Result<Option<&'a [u8]>, ()> {
        let block = range.start / BLOCK * BLOCK;
        let size = BLOCK.min(self.0.cache.len()?.checked_sub(block).ok_or(())?);
        if self.0.blocks.borrow_mut().insert(block) {
            self.spend(size)?;
        }
        let bytes = self.0.cache.read_bytes_at(block, size)?;
        let end = range.end.min(block + size).checked_sub(block).ok_or(())?;
        let text = bytes.get((range.start - block) as usize..end as usize).ok_or(())?;
        Ok(text.iter().position(|&byte| byte == delimiter).map(|length| &text[..length]))
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
        let text = match self.text_in_block(&range, delimiter)? {
            Some(text) => text,
            None => self.0.cache.read_bytes_at_until(range, delimiter)?,
        };
        // Also of a block that was read: a million symbols may share one long name, which costs us each time.
        self.spend(text.len() as u64)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn texts_are_the_same_wherever_blocks_begin() {
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = vec![b'a'; BLOCK as usize - 3];
        bytes.extend(b"\0over the end\0last\0open");
        file.write_all(&bytes).unwrap();
        let content = Content::new(file, OF_PROGRAM_MAX);
        let length = bytes.len() as u64;
        let text = |from: u64, to: u64| Bytes(&content).read_bytes_at_until(from..to, 0);
        assert_eq!(text(BLOCK - 10, length), Ok(&b"aaaaaaa"[..]));
        assert_eq!(text(BLOCK - 2, length), Ok(&b"over the end"[..]));
        assert_eq!(text(BLOCK + 11, length), Ok(&b"last"[..]));
        assert_eq!(text(BLOCK + 11, BLOCK + 13), Err(()), "the table ends before the text");
        assert_eq!(text(length - 4, length), Err(()));
        assert_eq!(text(length + 4, length + 9), Err(()));
    }

    #[test]
    fn what_is_read_is_bounded() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        let content = Content::new(file, BLOCK);
        let text = |from: u64| Bytes(&content).read_bytes_at_until(from..1 << 30, 0);
        assert_eq!(text(BLOCK), Ok(&b""[..]));
        assert_eq!(text(BLOCK + 7), Ok(&b""[..]), "of a block that was read");
        assert_eq!(text(0), Err(()));
    }

    #[test]
    fn a_long_text_counts_as_often_as_it_is_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'a'; 1000]).unwrap();
        file.set_len(BLOCK).unwrap();
        let content = Content::new(file, BLOCK + 2500);
        let text = || Bytes(&content).read_bytes_at_until(0..BLOCK, 0).map(<[u8]>::len);
        assert_eq!([text(), text(), text()], [Ok(1000), Ok(1000), Err(())]);
    }
}
