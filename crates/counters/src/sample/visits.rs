//! Where samples have landed so far: which side of a branch is the way that programs really go.

use corewise_code::{CodeView, Place};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Code is distinguished by blocks of so many bytes.
const BLOCK_BYTES: u64 = 16;

/// Blocks that are kept; beyond, all are forgotten.
const BLOCKS_MAX: usize = 1 << 16;

/// Samples by block of code.
#[derive(Default)]
pub struct Visits {
    by_block: FxHashMap<Place, u32>,
}

impl Visits {
    /// Takes in a sample.
    pub fn add(&mut self, place: Place) {
        if self.by_block.len() >= BLOCKS_MAX {
            self.by_block.clear();
        }
        *self.by_block.entry(block(place)).or_default() += 1;
    }

    /// The samples in the block of a place.
    pub fn at(&self, place: Place) -> u32 {
        self.by_block.get(&block(place)).copied().unwrap_or(0)
    }

    /// The samples in the blocks that a range of addresses begins in or holds.
    pub fn within(&self, code: &mut CodeView<'_>, range: Range<u64>) -> u32 {
        let count = |address| code.place(address).and_then(|place| self.by_block.get(&block(place)));
        range.step_by(BLOCK_BYTES as usize).filter_map(count).sum()
    }
}

fn block(place: Place) -> Place {
    let start = |address: u64| address & !(BLOCK_BYTES - 1);
    match place {
        Place::File(key, offset) => Place::File(key, start(offset)),
        Place::Memory { pid, version, address } => Place::Memory { pid, version, address: start(address) },
    }
}
