//! Private copies of the pages that an emulated thread touches, for the length of one window.

use super::guest::{Guest, PAGE, Page};
use rustc_hash::{FxHashMap, FxHashSet};

/// The maximum number of pages of one window.
const PAGES_MAX: usize = 256;
/// The number of pages that are read at once at the start of a window.
pub const AHEAD_MAX: usize = 8;

/// The copies.
#[derive(Debug)]
pub struct Memory {
    pages: Box<[Page]>,
    used: usize,
    by_address: FxHashMap<u64, usize>,
    /// The latest pages, because most accesses are near earlier ones: page address and index.
    recent: [(u64, usize); 4],
    /// Pages that earlier windows used, and that are worth reading ahead.
    familiar: FxHashSet<u64>,
}

const NOWHERE: u64 = u64::MAX;

impl Memory {
    /// Makes an empty memory.
    #[expect(clippy::new_without_default, reason = "a megabyte is nothing to make by the way")]
    pub fn new() -> Memory {
        Memory {
            pages: vec![Page([0; PAGE]); PAGES_MAX].into_boxed_slice(),
            used: 0,
            by_address: FxHashMap::default(),
            recent: [(NOWHERE, 0); 4],
            familiar: FxHashSet::default(),
        }
    }

    /// Drops all copies, and reads some pages that will be needed: `sure`, and those of `likely` that earlier
    /// windows have used.
    pub fn begin(&mut self, guest: &mut dyn Guest, sure: u64, likely: &[u64]) {
        if self.familiar.len() > 1 << 14 {
            self.familiar.clear();
        }
        self.by_address.clear();
        self.recent = [(NOWHERE, 0); 4];
        let mut wanted = [sure & !(PAGE as u64 - 1); AHEAD_MAX];
        let mut count = 1;
        for &address in likely {
            let page = address & !(PAGE as u64 - 1);
            let is_new = !wanted[..count].contains(&page) && self.familiar.contains(&page);
            if is_new && count < AHEAD_MAX {
                wanted[count] = page;
                count += 1;
            }
        }
        self.used = guest.read_pages(&wanted[..count], &mut self.pages[..count]);
        for (index, page) in wanted[..self.used].iter().enumerate() {
            self.by_address.insert(*page, index);
        }
    }

    /// Returns the copy of the page at this page address.
    fn page(&mut self, guest: &mut dyn Guest, page: u64) -> Option<&mut [u8; PAGE]> {
        let slot = (page as usize / PAGE) % self.recent.len();
        let (recent, index) = self.recent[slot];
        if recent == page {
            return Some(&mut self.pages[index].0);
        }
        let index = match self.by_address.get(&page) {
            Some(&index) => index,
            None => {
                let index = self.used;
                let room = self.pages.get_mut(index..=index)?;
                if guest.read_pages(&[page], room) != 1 {
                    return None;
                }
                self.used += 1;
                self.by_address.insert(page, index);
                self.familiar.insert(page);
                index
            }
        };
        self.recent[slot] = (page, index);
        Some(&mut self.pages[index].0)
    }

    /// Returns the number of bytes from an address to the end of its page.
    pub fn rest_of_page(&mut self, guest: &mut dyn Guest, address: u64) -> Option<&mut [u8]> {
        let offset = address as usize % PAGE;
        Some(&mut self.page(guest, address - offset as u64)?[offset..])
    }

    /// Reads bytes. On false some may have been read.
    pub fn read(&mut self, guest: &mut dyn Guest, mut address: u64, mut bytes: &mut [u8]) -> bool {
        while !bytes.is_empty() {
            let Some(here) = self.rest_of_page(guest, address) else { return false };
            let length = here.len().min(bytes.len());
            bytes[..length].copy_from_slice(&here[..length]);
            bytes = &mut bytes[length..];
            address = address.wrapping_add(length as u64);
        }
        true
    }

    /// Writes bytes. On false some may have been written.
    pub fn write(&mut self, guest: &mut dyn Guest, mut address: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let Some(here) = self.rest_of_page(guest, address) else { return false };
            let length = here.len().min(bytes.len());
            here[..length].copy_from_slice(&bytes[..length]);
            bytes = &bytes[length..];
            address = address.wrapping_add(length as u64);
        }
        true
    }

    /// Reads a number of `size` bytes.
    pub fn read_number(&mut self, guest: &mut dyn Guest, address: u64, size: u8) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(guest, address, &mut bytes[..usize::from(size)]).then(|| u64::from_le_bytes(bytes))
    }

    /// Writes the low `size` bytes of a number.
    pub fn write_number(&mut self, guest: &mut dyn Guest, address: u64, size: u8, number: u64) -> Option<()> {
        self.write(guest, address, &number.to_le_bytes()[..usize::from(size)]).then_some(())
    }
}
